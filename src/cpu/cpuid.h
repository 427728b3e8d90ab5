/* What this CPU is, as far as the choice of kernels goes.  Private. */
#ifndef TGLU_CPU_CPUID_H
#define TGLU_CPU_CPUID_H

#include <stdbool.h>
#include <stdint.h>

/* Instruction-set levels, each containing the one before.  A level counts only if
 * both the CPU has it and the OS saves its registers (XGETBV). */
typedef enum tglu__isa {
  TGLU__ISA_PORTABLE = 0,
  TGLU__ISA_AVX2     = 1, /* AVX2 + FMA + F16C                                     */
  TGLU__ISA_AVX512   = 2, /* and AVX-512 F, BW, DQ, VL                             */
  TGLU__ISA_AMX      = 3, /* and AVX512-BF16, AMX-TILE, AMX-BF16                   */
  TGLU__ISA_COUNT    = 4
} tglu__isa;

/* The raw registers that decide.  Filled from the CPU by tglu__cpuid_read; tests
 * fill it by hand.  xcr0 is 0 where the OS has not enabled XSAVE. */
typedef struct tglu__cpuid_facts {
  uint32_t leaf1_ecx;
  uint32_t leaf7_ebx, leaf7_ecx, leaf7_edx;
  uint32_t leaf7_1_eax;
  uint64_t xcr0;
} tglu__cpuid_facts;

void tglu__cpuid_read(tglu__cpuid_facts *facts);

/* Highest level that these registers allow.  Pure. */
tglu__isa tglu__cpuid_level(const tglu__cpuid_facts *facts);

/* "portable" "avx2" "avx512" "amx"; TGLU__ISA_COUNT for a name that is none. */
const char *tglu__isa_name(tglu__isa isa);
tglu__isa tglu__isa_from_name(const char *name);

/* The CPU's marketing name, blanks trimmed; "unknown CPU" where it has none. */
#define TGLU__CPU_NAME_BYTES 64
void tglu__cpuid_name(char name[TGLU__CPU_NAME_BYTES]);

#endif /* TGLU_CPU_CPUID_H */
