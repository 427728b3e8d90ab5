#include "cpu/cpuid.h"

#include <string.h>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#define TGLU__HAVE_CPUID 1
#else
#define TGLU__HAVE_CPUID 0
#endif

static const char *const isa_names[TGLU__ISA_COUNT] = {"portable", "avx2", "avx512", "amx"};

const char *tglu__isa_name(tglu__isa isa) {
  return isa >= 0 && isa < TGLU__ISA_COUNT ? isa_names[isa] : NULL;
}

tglu__isa tglu__isa_from_name(const char *name) {
  int i = 0;
  while (i < TGLU__ISA_COUNT && strcmp(name, isa_names[i]) != 0) i++;
  return (tglu__isa)i;
}

static bool has(uint64_t word, uint64_t mask) { return (word & mask) == mask; }

static uint32_t bit(int index) { return (uint32_t)1 << index; }

tglu__isa tglu__cpuid_level(const tglu__cpuid_facts *f) {
  /* Leaf 1 ECX: FMA 12, OSXSAVE 27, AVX 28, F16C 29; leaf 7 EBX: AVX2 5.  XCR0 bits
   * 1 and 2: the OS saves xmm and ymm. */
  if (!has(f->leaf1_ecx, bit(12) | bit(27) | bit(28) | bit(29)) ||
      !has(f->leaf7_ebx, bit(5)) || !has(f->xcr0, 0x6))
    return TGLU__ISA_PORTABLE;
  /* Leaf 7 EBX: AVX512F 16, DQ 17, BW 30, VL 31.  XCR0 bits 5 to 7: mask registers,
   * upper halves, zmm16 to zmm31. */
  if (!has(f->leaf7_ebx, bit(16) | bit(17) | bit(30) | bit(31)) || !has(f->xcr0, 0xe6))
    return TGLU__ISA_AVX2;
  /* Leaf 7.1 EAX: AVX512_BF16 5; leaf 7 EDX: AMX-BF16 22, AMX-TILE 24.  XCR0 bits 17
   * and 18: tile configuration and data. */
  if (!has(f->leaf7_1_eax, bit(5)) || !has(f->leaf7_edx, bit(22) | bit(24)) ||
      !has(f->xcr0, 0x600e6))
    return TGLU__ISA_AVX512;
  return TGLU__ISA_AMX;
}

#if TGLU__HAVE_CPUID

static uint64_t read_xcr0(void) {
  uint32_t low, high;
  /* xgetbv, spelled in bytes: this file is compiled for the baseline ISA. */
  __asm__ volatile(".byte 0x0f, 0x01, 0xd0" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

void tglu__cpuid_read(tglu__cpuid_facts *facts) {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  memset(facts, 0, sizeof *facts);
  if (!__get_cpuid(1, &a, &b, &c, &d)) return;
  facts->leaf1_ecx = c;
  if (has(c, bit(27))) facts->xcr0 = read_xcr0();
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
  uint32_t last_subleaf = a;
  facts->leaf7_ebx = b;
  facts->leaf7_ecx = c;
  facts->leaf7_edx = d;
  if (last_subleaf >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) facts->leaf7_1_eax = a;
}

void tglu__cpuid_name(char name[TGLU__CPU_NAME_BYTES]) {
  uint32_t words[12] = {0};
  char text[sizeof words + 1] = {0};
  bool known = true;
  for (uint32_t i = 0; i < 3 && known; i++)
    known = __get_cpuid(0x80000002u + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2],
                        &words[4 * i + 3]);
  if (known) memcpy(text, words, sizeof words);
  size_t begin = strspn(text, " "), length = strlen(text + begin);
  while (length > 0 && text[begin + length - 1] == ' ') length--;
  if (length == 0) {
    memcpy(name, "unknown CPU", sizeof "unknown CPU");
    return;
  }
  memcpy(name, text + begin, length);
  name[length] = '\0';
}

#else

void tglu__cpuid_read(tglu__cpuid_facts *facts) { memset(facts, 0, sizeof *facts); }

void tglu__cpuid_name(char name[TGLU__CPU_NAME_BYTES]) {
  memcpy(name, "unknown CPU", sizeof "unknown CPU");
}

#endif
