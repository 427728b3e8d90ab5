/* Every allocation in turn fails, in this library and in Jansson: an error comes back,
 * nothing leaks (the sanitizer build sees that), and the next call works.  The status is
 * TGLU_ERR_OUT_OF_MEMORY; Jansson alone may hide the reason and call the text invalid. */
#include "files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

static long countdown = -1, allocations;
static int failed_in_jansson;

static int fails_now(void)
{
  allocations++;
  return countdown >= 0 && countdown-- == 0;
}

/* The linker sends the library's calls here (-Wl,--wrap=...). */
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_reallocarray(void *old, size_t count, size_t bytes);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t length);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_reallocarray(void *old, size_t count, size_t bytes);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t length);

void *__wrap_malloc(size_t bytes) { return fails_now() ? NULL : __real_malloc(bytes); }

void *__wrap_calloc(size_t count, size_t bytes)
{
  return fails_now() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_reallocarray(void *old, size_t count, size_t bytes)
{
  return fails_now() ? NULL : __real_reallocarray(old, count, bytes);
}

char *__wrap_strdup(const char *text) { return fails_now() ? NULL : __real_strdup(text); }

char *__wrap_strndup(const char *text, size_t length)
{
  return fails_now() ? NULL : __real_strndup(text, length);
}

static void *jansson_malloc(size_t bytes)
{
  if (!fails_now()) return __real_malloc(bytes);
  failed_in_jansson = 1;
  return NULL;
}

#define P "model.layers.0.mlp."

static void write_model(void **state, int sharded)
{
  const double values[6] = {1, 2, 3, 4, 5, 6};
  st_file s;
  st_begin(&s);
  st_raw(&s, "\"__metadata__\":{\"format\":\"pt\",\"model.layers.1.mlp.up_proj.weight\":\""
             P "up_proj.weight\"}");
  st_add(&s, P "gate_proj.weight", "F32", "[3,2]", values, 6);
  st_add(&s, P "up_proj.weight", "F32", "[3,2]", values, 6);
  st_add(&s, P "down_proj.weight", "F32", "[2,3]", values, 6);
  st_write(&s, in_folder(state, sharded ? "a.safetensors" : "model.safetensors"));
  write_text(in_folder(state, "config.json"), "{\"hidden_act\":\"silu\",\"hidden_size\":2}");
  if (!sharded) return;
  write_text(in_folder(state, "model.safetensors.index.json"),
             "{\"metadata\":{\"total_size\":72},\"weight_map\":{"
             "\"" P "gate_proj.weight\":\"a.safetensors\","
             "\"" P "up_proj.weight\":\"a.safetensors\","
             "\"" P "down_proj.weight\":\"a.safetensors\"}}");
}

/* Whether the whole use of the model worked; a failure must be for want of memory. */
static int use_model(const char *path)
{
  failed_in_jansson = 0;
  tglu_model *model = NULL;
  tglu_status status = tglu_model_open(path, NULL, &model);
  if (status == TGLU_OK) {
    tglu_model_mlp mlp;
    tglu_model_mlp_init(&mlp);
    status = tglu_model_layer_mlp(model, 0, &mlp);
  } else {
    assert_null(model);
  }
  if (status != TGLU_OK && status != TGLU_ERR_OUT_OF_MEMORY
      && !(status == TGLU_ERR_FORMAT && failed_in_jansson)) {
    fail_msg("%s: %s", tglu_status_name(status), tglu_last_error());
  }
  tglu_model_close(model);
  return status == TGLU_OK;
}

static void each_fails(void **state)
{
  for (int sharded = 0; sharded < 2; sharded++) {
    assert_int_equal(folder_clean(state), 0);
    write_model(state, sharded);
    countdown = -1;
    allocations = 0;
    assert_true(use_model(*state));
    long needed = allocations, failed = 0;
    assert_true(needed > 20);
    for (long i = 0; i < needed; i++) {
      countdown = i;
      failed += !use_model(*state);
      countdown = -1;
      assert_true(use_model(*state));
    }
    assert_int_equal(failed, needed);
    print_message("%s: %ld allocations, each made to fail, %ld seen as such\n",
                  sharded ? "sharded" : "single", needed, failed);
  }
}

static int jansson_setup(void **state)
{
  json_set_alloc_funcs(jansson_malloc, free);
  return folder_clean(state);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup(each_fails, jansson_setup),
  };
  return cmocka_run_group_tests_name("memory", tests, folder_setup, folder_teardown);
}
