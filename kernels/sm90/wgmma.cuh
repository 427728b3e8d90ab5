/* wgmma: the warpgroup matrix multiply of sm_90a (PTX ISA, "Asynchronous Warpgroup
 * Level Matrix Instructions").  D[64, N] += A[64, 16] B[N, 16]^T with A and B in
 * shared memory, both K-major with the 128-byte swizzle, D in fp32 registers.
 *
 * Fragment: thread t of the warpgroup (warp w = t / 32, lane l = t % 32) holds in
 * d[4 j + 2 h + c] the element of row 16 w + l / 4 + 8 h, column 8 j + 2 (l % 4) + c.
 * So with B = [gate rows; up rows], d[i] and d[i + N/4] are the gate and the up of
 * the same output. */
#ifndef TGLU_SM90_WGMMA_CUH
#define TGLU_SM90_WGMMA_CUH

#include "ptx.cuh"

/* Shared-memory descriptor ("Matrix Descriptor Format"): start address / 16; stride
 * between groups of 8 rows 1024 bytes; 128-byte swizzle.  `address` on 1024 bytes;
 * moving 16 elements along K adds 32 bytes, i.e. 2 to the descriptor. */
TGLU_DEVICE uint64_t wgmma_descriptor(uint32_t address) {
  return (uint64_t)((address & 0x3FFFF) >> 4) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 |
         (uint64_t)1 << 62;
}

/* wgmma.fence: before the first wgmma, and after registers of D were touched. */
TGLU_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
TGLU_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* Waits until at most `Pending` committed groups are unfinished. */
template <int Pending> TGLU_DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
/* Pins an accumulator here: what the compiler does with it stays behind this point.
 * NOTE: without it the activation is hoisted above the release of the last stage. */
template <int Count> TGLU_DEVICE void wgmma_pin(float (&d)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; i++) asm volatile("" : "+f"(d[i])::"memory");
}

#if ROW_DTYPE_BF16
#define WGMMA_TYPES ".f32.bf16.bf16 "
#else
#define WGMMA_TYPES ".f32.f16.f16 "
#endif

/* Operand text and constraints of the first 8 n accumulator registers; nH: 4 more. */
#define WGMMA_T1 "%0,%1,%2,%3,%4,%5,%6,%7"
#define WGMMA_T2 WGMMA_T1 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define WGMMA_T3 WGMMA_T2 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define WGMMA_T4 WGMMA_T3 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define WGMMA_T5 WGMMA_T4 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define WGMMA_T6 WGMMA_T5 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define WGMMA_T7 WGMMA_T6 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define WGMMA_T8 WGMMA_T7 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define WGMMA_T9 WGMMA_T8 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define WGMMA_T10 WGMMA_T9 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define WGMMA_T11 WGMMA_T10 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define WGMMA_T12 WGMMA_T11 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define WGMMA_T13 WGMMA_T12 ",%96,%97,%98,%99,%100,%101,%102,%103"
#define WGMMA_T14 WGMMA_T13 ",%104,%105,%106,%107,%108,%109,%110,%111"
#define WGMMA_T15 WGMMA_T14 ",%112,%113,%114,%115,%116,%117,%118,%119"
#define WGMMA_T16 WGMMA_T15 ",%120,%121,%122,%123,%124,%125,%126,%127"
#define WGMMA_T1H WGMMA_T1 ",%8,%9,%10,%11"
#define WGMMA_T2H WGMMA_T2 ",%16,%17,%18,%19"
#define WGMMA_T3H WGMMA_T3 ",%24,%25,%26,%27"
#define WGMMA_T4H WGMMA_T4 ",%32,%33,%34,%35"
#define WGMMA_T5H WGMMA_T5 ",%40,%41,%42,%43"

#define WGMMA_O(i)                                                                            \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define WGMMA_O1 WGMMA_O(0)
#define WGMMA_O2 WGMMA_O1, WGMMA_O(8)
#define WGMMA_O3 WGMMA_O2, WGMMA_O(16)
#define WGMMA_O4 WGMMA_O3, WGMMA_O(24)
#define WGMMA_O5 WGMMA_O4, WGMMA_O(32)
#define WGMMA_O6 WGMMA_O5, WGMMA_O(40)
#define WGMMA_O7 WGMMA_O6, WGMMA_O(48)
#define WGMMA_O8 WGMMA_O7, WGMMA_O(56)
#define WGMMA_O9 WGMMA_O8, WGMMA_O(64)
#define WGMMA_O10 WGMMA_O9, WGMMA_O(72)
#define WGMMA_O11 WGMMA_O10, WGMMA_O(80)
#define WGMMA_O12 WGMMA_O11, WGMMA_O(88)
#define WGMMA_O13 WGMMA_O12, WGMMA_O(96)
#define WGMMA_O14 WGMMA_O13, WGMMA_O(104)
#define WGMMA_O15 WGMMA_O14, WGMMA_O(112)
#define WGMMA_O16 WGMMA_O15, WGMMA_O(120)
#define WGMMA_Q(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define WGMMA_O1H WGMMA_O1, WGMMA_Q(8)
#define WGMMA_O2H WGMMA_O2, WGMMA_Q(16)
#define WGMMA_O3H WGMMA_O3, WGMMA_Q(24)
#define WGMMA_O4H WGMMA_O4, WGMMA_Q(32)
#define WGMMA_O5H WGMMA_O5, WGMMA_Q(40)

/* D += A B^T for one k of 16; with accumulate == 0, D = A B^T: predicating scale-d
 * spares the zeroing and a peeled first k-block. */
#define WGMMA_DEFINE(n, groups, a, b, s)                                                       \
  TGLU_DEVICE void wgmma_m64k16(float (&d)[n / 2], uint64_t desc_a, uint64_t desc_b,           \
                                int accumulate) {                                              \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #s ", 0;\n"                              \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k16" WGMMA_TYPES                      \
                 "{" WGMMA_T##groups "}, %" #a ", %" #b ", p, 1, 1, 0, 0;\n}"                  \
                 : WGMMA_O##groups                                                             \
                 : "l"(desc_a), "l"(desc_b), "r"(accumulate));                                 \
  }

WGMMA_DEFINE(16, 1, 8, 9, 10)
WGMMA_DEFINE(24, 1H, 12, 13, 14)
WGMMA_DEFINE(32, 2, 16, 17, 18)
WGMMA_DEFINE(40, 2H, 20, 21, 22)
WGMMA_DEFINE(48, 3, 24, 25, 26)
WGMMA_DEFINE(56, 3H, 28, 29, 30)
WGMMA_DEFINE(64, 4, 32, 33, 34)
WGMMA_DEFINE(72, 4H, 36, 37, 38)
WGMMA_DEFINE(80, 5, 40, 41, 42)
WGMMA_DEFINE(88, 5H, 44, 45, 46)
WGMMA_DEFINE(96, 6, 48, 49, 50)
WGMMA_DEFINE(112, 7, 56, 57, 58)
WGMMA_DEFINE(128, 8, 64, 65, 66)
WGMMA_DEFINE(144, 9, 72, 73, 74)
WGMMA_DEFINE(160, 10, 80, 81, 82)
WGMMA_DEFINE(176, 11, 88, 89, 90)
WGMMA_DEFINE(192, 12, 96, 97, 98)
WGMMA_DEFINE(208, 13, 104, 105, 106)
WGMMA_DEFINE(224, 14, 112, 113, 114)
WGMMA_DEFINE(240, 15, 120, 121, 122)
WGMMA_DEFINE(256, 16, 128, 129, 130)

#endif /* TGLU_SM90_WGMMA_CUH */
