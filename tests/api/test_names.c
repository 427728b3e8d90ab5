/* Names, statuses, versions, and this thread's message. */
#include <pthread.h>
#include <stdio.h>

#include "check.h"

static void statuses_are_pinned(void **state)
{
  (void)state;
  static const struct {
    int value;
    const char *name;
  } pinned[] = {
    {0, "TGLU_OK"}, {1, "TGLU_ERR_INVALID_ARGUMENT"}, {2, "TGLU_ERR_UNSUPPORTED"},
    {3, "TGLU_ERR_OUT_OF_MEMORY"}, {4, "TGLU_ERR_OVERLAP"}, {5, "TGLU_ERR_WORKSPACE"},
    {6, "TGLU_ERR_NO_DRIVER"}, {7, "TGLU_ERR_NO_DEVICE"}, {8, "TGLU_ERR_DEVICE"},
    {9, "TGLU_ERR_NOT_FOUND"}, {10, "TGLU_ERR_IO"}, {11, "TGLU_ERR_FORMAT"},
    {12, "TGLU_ERR_BUFFER_TOO_SMALL"}, {13, "TGLU_ERR_FORKED"},
    {14, "TGLU_ERR_INTERNAL"}};
  const int count = sizeof pinned / sizeof pinned[0];
  for (int i = 0; i < count; i++) {
    assert_string_equal(tglu_status_name((tglu_status)pinned[i].value), pinned[i].name);
    assert_true(strlen(tglu_status_text((tglu_status)pinned[i].value)) > 5);
    assert_string_not_equal(tglu_status_text((tglu_status)pinned[i].value),
                            "unknown status");
  }
  for (int bad = -1; bad <= count; bad += count + 1) {
    assert_string_equal(tglu_status_name((tglu_status)bad), "TGLU_UNKNOWN");
    assert_string_equal(tglu_status_text((tglu_status)bad), "unknown status");
  }
}

static void versions_agree(void **state)
{
  (void)state;
  char text[32];
  snprintf(text, sizeof text, "%d.%d.%d", TGLU_VERSION_MAJOR, TGLU_VERSION_MINOR,
           TGLU_VERSION_PATCH);
  assert_string_equal(tglu_version_string(), text);
  assert_int_equal(tglu_version(), TGLU_VERSION_MAJOR * 10000 +
                                     TGLU_VERSION_MINOR * 100 + TGLU_VERSION_PATCH);
}

/* Every name leads to its value and back; near names and NULL do not. */
#define CHECK_NAMES(kind, last, list, first_name)                                        \
  do {                                                                                   \
    tglu_##kind value = (tglu_##kind)99;                                                 \
    for (int i = (list); i <= (last); i++) {                                             \
      const char *name = tglu_##kind##_name((tglu_##kind)i);                             \
      assert_non_null(name);                                                             \
      assert_ok(tglu_##kind##_from_name(name, &value));                                  \
      assert_int_equal(value, i);                                                        \
    }                                                                                    \
    assert_null(tglu_##kind##_name((tglu_##kind)((list)-1)));                            \
    assert_null(tglu_##kind##_name((tglu_##kind)((last) + 1)));                          \
    value = (tglu_##kind)99;                                                             \
    const char *bad[] = {"", "foo", first_name " ", "SILU", "Bf16", "Separate", "CPU"};  \
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {                            \
      assert_refused(tglu_##kind##_from_name(bad[i], &value), TGLU_ERR_INVALID_ARGUMENT, \
                     #kind);                                                             \
      assert_says(first_name);                                                           \
      assert_says(tglu_##kind##_name((tglu_##kind)(last)));                              \
    }                                                                                    \
    assert_refused(tglu_##kind##_from_name(NULL, &value), TGLU_ERR_INVALID_ARGUMENT,     \
                   "name");                                                              \
    assert_refused(tglu_##kind##_from_name(first_name, NULL), TGLU_ERR_INVALID_ARGUMENT, \
                   "out");                                                               \
    assert_int_equal(value, 99);                                                         \
  } while (0)

static void names_lead_there_and_back(void **state)
{
  (void)state;
  CHECK_NAMES(dtype, TGLU_DTYPE_F32, 1, "bf16");
  CHECK_NAMES(activation, TGLU_ACTIVATION_SWIGLUOAI, 1, "silu");
  CHECK_NAMES(layout, TGLU_LAYOUT_INTERLEAVED, 1, "separate");
  CHECK_NAMES(backend, TGLU_BACKEND_CUDA, 0, "auto");
  assert_int_equal(tglu_dtype_bytes(TGLU_DTYPE_BF16), 2);
  assert_int_equal(tglu_dtype_bytes(TGLU_DTYPE_F16), 2);
  assert_int_equal(tglu_dtype_bytes(TGLU_DTYPE_F32), 4);
  assert_int_equal(tglu_dtype_bytes((tglu_dtype)0), 0);
}

static void init_accepts_null(void **state)
{
  (void)state;
  tglu_context_options_init(NULL);
  tglu_context_info_init(NULL);
  tglu_row_info_init(NULL);
  tglu_glu_desc_init(NULL);
  tglu_mlp_desc_init(NULL);
  tglu_linear_desc_init(NULL);
  tglu_run_args_init(NULL);
  tglu_object_info_init(NULL);
  tglu_plan_info_init(NULL);
}

/* ---- messages are a thread's own ---- */

static void *fail_elsewhere(void *seen_first)
{
  *(int *)seen_first = tglu_last_error()[0] == '\0';
  tglu_layout layout;
  tglu_layout_from_name("elsewhere", &layout);
  return strstr(tglu_last_error(), "elsewhere") ? seen_first : NULL;
}

static void messages_are_a_threads_own(void **state)
{
  (void)state;
  tglu_dtype dtype;
  assert_int_equal(tglu_dtype_from_name("here", &dtype), TGLU_ERR_INVALID_ARGUMENT);
  int empty_at_first = 0;
  void *result = NULL;
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, &empty_at_first), 0);
  assert_int_equal(pthread_join(thread, &result), 0);
  assert_non_null(result);
  assert_true(empty_at_first);
  assert_says("here");
  /* A success leaves the message alone; a text longer than its room is cut. */
  assert_ok(tglu_dtype_from_name("f32", &dtype));
  assert_says("\"here\"");
  char longer[5000];
  memset(longer, 'y', sizeof longer - 1);
  longer[sizeof longer - 1] = '\0';
  assert_int_equal(tglu_dtype_from_name(longer, &dtype), TGLU_ERR_INVALID_ARGUMENT);
  assert_in_range(strlen(tglu_last_error()), 100, 4096);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(statuses_are_pinned),
    cmocka_unit_test(versions_agree),
    cmocka_unit_test(names_lead_there_and_back),
    cmocka_unit_test(init_accepts_null),
    cmocka_unit_test(messages_are_a_threads_own),
  };
  return cmocka_run_group_tests_name("names", tests, NULL, NULL);
}
