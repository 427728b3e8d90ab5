/* cmocka.h with the headers that it wants before it. */
#ifndef TGLU_TEST_CMOCKA_ALL_H
#define TGLU_TEST_CMOCKA_ALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

#include <cmocka.h>

#endif /* TGLU_TEST_CMOCKA_ALL_H */
