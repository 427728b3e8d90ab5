/* Every PTX instruction of the sm_90a kernels except wgmma (wgmma.cuh), one plain
 * device function each.  Section names are those of the PTX ISA manual, 8.x.
 * Every wait, arrive and fence has a "memory" clobber, so that the compiler moves
 * no load or store across it.  Shared-memory addresses are 32-bit, from
 * smem_address(). */
#ifndef TGLU_SM90_PTX_CUH
#define TGLU_SM90_PTX_CUH

#include <stdint.h>

#define TGLU_DEVICE static __device__ __forceinline__

/* ---- addresses ---- */
TGLU_DEVICE uint32_t smem_address(const void *pointer) {
  return (uint32_t)__cvta_generic_to_shared(pointer);
}

/* mapa: the address of the same variable in CTA `rank` of this cluster. */
TGLU_DEVICE uint32_t cluster_address(uint32_t address, uint32_t rank) {
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
}

TGLU_DEVICE uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

TGLU_DEVICE uint32_t cluster_id() {
  uint32_t id;
  asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(id));
  return id;
}

TGLU_DEVICE uint32_t cluster_count() {
  uint32_t count;
  asm volatile("mov.u32 %0, %%nclusterid.x;" : "=r"(count));
  return count;
}

/* ---- barriers among threads ---- */
/* bar.sync: `threads` threads meet at named barrier `id` (1..15). */
TGLU_DEVICE void named_barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
/* bar.arrive: counts this warp in without waiting. */
TGLU_DEVICE void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
/* barrier.cluster: all threads of all CTAs of the cluster; release / acquire. */
TGLU_DEVICE void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n"
               "barrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}

/* The two halves of cluster_sync, apart; arrive without a fence, for who has published its
 * mbarriers with fence_mbarrier_init and has nothing else to show. */
TGLU_DEVICE void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
TGLU_DEVICE void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* ---- mbarrier ---- */
TGLU_DEVICE void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
/* fence.mbarrier_init: makes the inits visible to the cluster and to the copy engine. */
TGLU_DEVICE void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
/* mbarrier.arrive.expect_tx: one arrival, and `bytes` more to come by TMA. */
TGLU_DEVICE void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
TGLU_DEVICE void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/* Arrival at a barrier of any CTA of the cluster; address from cluster_address().
 * NOTE: spelling .release.cluster out emits a MEMBAR.ALL.GPU at every k-block and
 * cost a factor of 1.3 on an H200; the consumers only read the stage, through
 * wgmma, whose completion wait_group has established. */
TGLU_DEVICE void mbarrier_arrive_cluster(uint32_t remote_barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(remote_barrier) : "memory");
}
/* mbarrier.try_wait in a loop: returns once the phase of this parity is complete. */
TGLU_DEVICE void mbarrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile("{\n"
               ".reg .pred done;\n"
               "WAIT:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@done bra DONE;\n"
               "bra WAIT;\n"
               "DONE:\n"
               "}" ::"r"(barrier), "r"(parity)
               : "memory");
}

/* ---- TMA: cp.async.bulk.tensor ---- */
TGLU_DEVICE void prefetch_tensor_map(const void *map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
/* Box at (c0, c1) of a 2-D map -> this CTA's shared memory; completes `barrier`. */
TGLU_DEVICE void tma_load_2d(uint32_t destination, const void *map, uint32_t barrier, int32_t c0,
                             int32_t c1) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
               " [%0], [%1, {%3, %4}], [%2];" ::"r"(destination),
               "l"(map), "r"(barrier), "r"(c0), "r"(c1)
               : "memory");
}
/* The same box to the same offset in every CTA of `mask`, completing the barrier at
 * the same offset in each. */
TGLU_DEVICE void tma_load_2d_multicast(uint32_t destination, const void *map, uint32_t barrier,
                                       int32_t c0, int32_t c1, uint16_t mask) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
               ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(destination),
               "l"(map), "r"(barrier), "r"(c0), "r"(c1), "h"(mask)
               : "memory");
}
/* Shared memory -> box at (c0, c1), clipped at the map's dims. */
TGLU_DEVICE void tma_store_2d(const void *map, uint32_t source, int32_t c0, int32_t c1) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(
                   map),
               "r"(source), "r"(c0), "r"(c1)
               : "memory");
}
TGLU_DEVICE void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/* Waits until this thread's stores have read their shared memory: it may be written again,
 * or the CTA may exit. */
TGLU_DEVICE void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
/* fence.proxy.async: this thread's ordinary shared-memory accesses come before later
 * ones by TMA and wgmma.  Each writing thread needs it, before the barrier. */
TGLU_DEVICE void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- cp.async: 16 bytes of memory -> shared memory, by each thread for itself; both addresses
 * on 16 bytes; not kept in L1 ---- */
TGLU_DEVICE void async_copy(uint32_t destination, const void *source) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(destination), "l"(source)
               : "memory");
}
/* Copies the first `bytes` (0..16) and fills up with zeros; with 0 nothing is read. */
TGLU_DEVICE void async_copy_part(uint32_t destination, const void *source, uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(destination),
               "l"(source), "r"(bytes)
               : "memory");
}
TGLU_DEVICE void async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/* Waits until at most `Pending` of this thread's groups are unfinished; what the others
 * brought is then visible to this thread. */
template <int Pending> TGLU_DEVICE void async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

/* ---- registers, dependent launch ---- */
/* setmaxnreg: takes effect only in a kernel with a register cap at entry. */
template <int Registers> TGLU_DEVICE void registers_increase() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers> TGLU_DEVICE void registers_decrease() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}
/* griddepcontrol: wait for the results of the kernel before (no-op without
 * programmatic dependent launch); let the kernel behind start its prologue. */
TGLU_DEVICE void dependency_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
TGLU_DEVICE void dependents_launch() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/* ---- stmatrix: four 8 x 8 matrices of 16-bit elements; lane l gives the address of
 * row l % 8 of matrix l / 8, and holds elements 2(l % 4), +1 of row l / 4 of each. */
TGLU_DEVICE void stmatrix_x4(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(r0), "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}
TGLU_DEVICE void stmatrix_x2(uint32_t address, uint32_t r0, uint32_t r1) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(r0),
               "r"(r1)
               : "memory");
}

/* ldmatrix: the reverse of stmatrix, same addresses, same fragments. */
TGLU_DEVICE void ldmatrix_x4(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
TGLU_DEVICE void ldmatrix_x2(uint32_t (&r)[2], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(address)
               : "memory");
}

/* ---- st.async: two floats into the shared memory of any CTA of the cluster; completes 8
 * bytes of the mbarrier there.  Both addresses from cluster_address(), of the same CTA. */
TGLU_DEVICE void store_async(uint32_t remote, float a, float b, uint32_t remote_barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32"
               " [%0], {%1, %2}, [%3];" ::"r"(remote),
               "f"(a), "f"(b), "r"(remote_barrier)
               : "memory");
}

/* ---- ordinary shared-memory words by 32-bit address ---- */
TGLU_DEVICE uint32_t load_shared(uint32_t address) {
  uint32_t word;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
  return word;
}
TGLU_DEVICE void store_shared(uint32_t address, uint32_t word) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
}

TGLU_DEVICE uint4 load_shared_16(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
TGLU_DEVICE void store_shared_16(uint32_t address, uint4 v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x), "r"(v.y),
               "r"(v.z), "r"(v.w)
               : "memory");
}

/* ---- mma.sync m16n8k16: a warp's D[16, 8] += A[16, 16] B[8, 16]^T, fp32 accumulators.  With
 * g = lane / 4 and q = lane % 4: a0, a2 hold row g, a1, a3 row g + 8, b0, b1 column g, each at
 * k = 2q, 2q + 1 (a0, a1, b0) and 8 further (a2, a3, b1); d0, d1 are row g, columns 2q, 2q + 1,
 * d2, d3 row g + 8. */
#if ROW_DTYPE_BF16
#define MMA_TYPES "f32.bf16.bf16.f32"
#else
#define MMA_TYPES "f32.f16.f16.f32"
#endif
TGLU_DEVICE void mma_m16n8k16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                              uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col." MMA_TYPES
      " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* ---- arithmetic ---- */
/* ex2.approx.ftz.f32: 2^x, at most 2 ulp; 2^-inf = +0, 2^inf = inf; a subnormal x counts as
 * 0 and a subnormal result becomes 0.  Without .ftz each takes five instructions more. */
TGLU_DEVICE float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/* rcp.approx.ftz.f32: 1/x, at most 1 ulp; 1/inf = 0, and 0 where 1/x is subnormal. */
TGLU_DEVICE float rcp_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/* max.NaN / min.NaN: NaN if either is NaN (fmaxf and fminf drop a NaN). */
TGLU_DEVICE float max_nan(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
TGLU_DEVICE float min_nan(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
/* cvt.rn.{bf16x2,f16x2}: two values, rounded to nearest even, `low` in the low half. */
TGLU_DEVICE uint32_t pack_bf16(float low, float high) {
  uint32_t y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}
TGLU_DEVICE uint32_t pack_f16(float low, float high) {
  uint32_t y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}

#endif /* TGLU_SM90_PTX_CUH */
