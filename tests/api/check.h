/* What the API tests share. */
#ifndef TGLU_TEST_CHECK_H
#define TGLU_TEST_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <tileglu/tileglu.h>

/* The call fails with this status, and its message begins with this argument's name
 * and a colon. */
#define assert_refused(call, expected, argument)                                    \
  check_refused((call), (expected), (argument), #call, __FILE__, __LINE__)
#define assert_ok(call) check_ok((call), #call, __FILE__, __LINE__)

static inline void check_ok(tglu_status status, const char *call, const char *file,
                            int line)
{
  if (status == TGLU_OK) return;
  print_error("%s: %s: %s\n", call, tglu_status_name(status), tglu_last_error());
  _fail(file, line);
}

static inline void check_refused(tglu_status status, tglu_status expected,
                                 const char *argument, const char *call,
                                 const char *file, int line)
{
  const char *message = status == TGLU_OK ? "" : tglu_last_error();
  const size_t length = strlen(argument);
  if (status == expected && strncmp(message, argument, length) == 0 &&
      message[length] == ':')
    return;
  print_error("%s: %s: \"%s\" instead of %s about \"%s\"\n", call,
              tglu_status_name(status), message, tglu_status_name(expected), argument);
  _fail(file, line);
}

/* Part of the last message. */
static inline void check_says(const char *part, const char *file, int line)
{
  if (strstr(tglu_last_error(), part)) return;
  print_error("\"%s\" does not say \"%s\"\n", tglu_last_error(), part);
  _fail(file, line);
}
#define assert_says(part) check_says((part), __FILE__, __LINE__)

/* A random generator of our own: operands are never zero. */
static inline uint32_t next_random(uint64_t *state)
{
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33);
}

#endif /* TGLU_TEST_CHECK_H */
