/* Levels from raw registers: a level counts only with all of its bits, the CPU's and
 * the operating system's. */
#include "check.h"

static const tglu__cpuid_facts everything = {
  .leaf1_ecx = 1u << 12 | 1u << 27 | 1u << 28 | 1u << 29,
  .leaf7_ebx = 1u << 5 | 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31,
  .leaf7_edx = 1u << 22 | 1u << 24,
  .leaf7_1_eax = 1u << 5,
  .xcr0 = 0x600e6};

static void test_all(void **state) {
  (void)state;
  tglu__cpuid_facts none = {0};
  assert_int_equal(tglu__cpuid_level(&everything), TGLU__ISA_AMX);
  assert_int_equal(tglu__cpuid_level(&none), TGLU__ISA_PORTABLE);
}

/* Each bit that is taken away lowers the level to the one that does without it. */
static void test_each_bit(void **state) {
  (void)state;
  static const struct {
    size_t offset;
    int bit;
    tglu__isa left;
  } cases[] = {
#define AT(field) offsetof(tglu__cpuid_facts, field)
    {AT(leaf1_ecx), 12, TGLU__ISA_PORTABLE}, {AT(leaf1_ecx), 27, TGLU__ISA_PORTABLE},
    {AT(leaf1_ecx), 28, TGLU__ISA_PORTABLE}, {AT(leaf1_ecx), 29, TGLU__ISA_PORTABLE},
    {AT(leaf7_ebx), 5, TGLU__ISA_PORTABLE},  {AT(leaf7_ebx), 16, TGLU__ISA_AVX2},
    {AT(leaf7_ebx), 17, TGLU__ISA_AVX2},     {AT(leaf7_ebx), 30, TGLU__ISA_AVX2},
    {AT(leaf7_ebx), 31, TGLU__ISA_AVX2},     {AT(leaf7_edx), 22, TGLU__ISA_AVX512},
    {AT(leaf7_edx), 24, TGLU__ISA_AVX512},   {AT(leaf7_1_eax), 5, TGLU__ISA_AVX512},
    {AT(xcr0), 1, TGLU__ISA_PORTABLE},       {AT(xcr0), 2, TGLU__ISA_PORTABLE},
    {AT(xcr0), 5, TGLU__ISA_AVX2},           {AT(xcr0), 6, TGLU__ISA_AVX2},
    {AT(xcr0), 7, TGLU__ISA_AVX2},           {AT(xcr0), 17, TGLU__ISA_AVX512},
    {AT(xcr0), 18, TGLU__ISA_AVX512},
#undef AT
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    tglu__cpuid_facts facts = everything;
    uint32_t word;
    memcpy(&word, (char *)&facts + cases[i].offset, sizeof word);
    word &= ~((uint32_t)1 << cases[i].bit);
    memcpy((char *)&facts + cases[i].offset, &word, sizeof word);
    assert_int_equal(tglu__cpuid_level(&facts), cases[i].left);
  }
}

static void test_names(void **state) {
  (void)state;
  for (int isa = 0; isa < TGLU__ISA_COUNT; isa++)
    assert_int_equal(tglu__isa_from_name(tglu__isa_name((tglu__isa)isa)), isa);
  assert_int_equal(tglu__isa_from_name("AVX2"), TGLU__ISA_COUNT);
  assert_int_equal(tglu__isa_from_name(""), TGLU__ISA_COUNT);
  assert_null(tglu__isa_name(TGLU__ISA_COUNT));
}

static void test_this_machine(void **state) {
  (void)state;
  char name[TGLU__CPU_NAME_BYTES];
  memset(name, 'x', sizeof name);
  tglu__cpuid_name(name);
  assert_non_null(memchr(name, '\0', sizeof name));
  assert_true(name[0] != '\0' && name[0] != ' ');
  print_message("%s: %s\n", name, tglu__isa_name(machine_isa()));
#if defined(__x86_64__)
  bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  assert_int_equal(machine_isa() >= TGLU__ISA_AVX2, avx2);
#endif
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_all),
    cmocka_unit_test(test_each_bit),
    cmocka_unit_test(test_names),
    cmocka_unit_test(test_this_machine),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
