#include "files.h"

#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the folder ---- */
int folder_setup(void **state)
{
  const char *base = getenv("TMPDIR");
  char *path = malloc(4096);
  if (!path) return -1;
  snprintf(path, 4096, "%s/tileglu-model-XXXXXX", base && *base ? base : "/tmp");
  if (!mkdtemp(path)) return -1;
  *state = path;
  return 0;
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *at)
{
  (void)info;
  (void)type;
  return at->level == 0 ? 0 : remove(path);
}

int folder_clean(void **state)
{
  return nftw(*state, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int folder_teardown(void **state)
{
  int failed = folder_clean(state) | rmdir(*state);
  free(*state);
  return failed;
}

const char *in_folder(void **state, const char *name)
{
  static char paths[8][4400];
  static int next;
  char *path = paths[next++ % 8];
  snprintf(path, sizeof paths[0], "%s/%s", (const char *)*state, name);
  return path;
}

void write_bytes(const char *path, const void *bytes, size_t length)
{
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  if (length) assert_int_equal(fwrite(bytes, 1, length, file), length);
  assert_int_equal(fclose(file), 0);
}

void write_text(const char *path, const char *text) { write_bytes(path, text, strlen(text)); }

/* ---- values ---- */
static uint16_t to_bf16(float value)
{
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Normal halves, zero and subnormals by scaling; the tests use nothing beyond. */
static uint16_t to_f16(double value)
{
  uint16_t sign = signbit(value) ? 0x8000 : 0;
  double size = fabs(value);
  if (size == 0) return sign;
  int exponent;
  frexp(size, &exponent);
  if (exponent < -13) return (uint16_t)(sign | (uint16_t)nearbyint(ldexp(size, 24)));
  double mantissa = nearbyint(ldexp(size, 11 - exponent));
  return (uint16_t)(sign + (((exponent + 14) << 10) + (int)mantissa - 1024));
}

double value_at(tglu_dtype dtype, const void *data, size_t index)
{
  const uint8_t *at = data;
  uint32_t bits = 0;
  uint16_t half = 0;
  float value = 0;
  if (dtype == TGLU_DTYPE_F32) {
    memcpy(&value, at + 4 * index, 4);
    return value;
  }
  memcpy(&half, at + 2 * index, 2);
  if (dtype == TGLU_DTYPE_BF16) {
    bits = (uint32_t)half << 16;
    memcpy(&value, &bits, 4);
    return value;
  }
  int exponent = half >> 10 & 31, mantissa = half & 1023;
  double size = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
  return half & 0x8000 ? -size : size;
}

/* ---- files ---- */
static void put(char **to, size_t *length, const char *text)
{
  size_t more = strlen(text);
  *to = realloc(*to, *length + more + 1);
  assert_non_null(*to);
  memcpy(*to + *length, text, more + 1);
  *length += more;
}

void st_begin(st_file *s)
{
  *s = (st_file){0};
  put(&s->header, &s->header_length, "{");
}

static void put_value(st_file *s, const char *dtype, double value)
{
  uint8_t bytes[4] = {0};
  size_t size = 1;
  if (strcmp(dtype, "F32") == 0) {
    float single = (float)value;
    memcpy(bytes, &single, size = 4);
  } else if (strcmp(dtype, "BF16") == 0 || strcmp(dtype, "F16") == 0) {
    uint16_t half = dtype[0] == 'B' ? to_bf16((float)value) : to_f16(value);
    memcpy(bytes, &half, size = 2);
  } else {
    bytes[0] = (uint8_t)(int)value;
  }
  s->data = realloc(s->data, s->data_length + size);
  assert_non_null(s->data);
  memcpy(s->data + s->data_length, bytes, size);
  s->data_length += size;
}

void st_raw(st_file *s, const char *members)
{
  if (s->header_length > 1) put(&s->header, &s->header_length, ",");
  put(&s->header, &s->header_length, members);
}

void st_add(st_file *s, const char *name, const char *dtype, const char *shape,
            const double *values, size_t count)
{
  char entry[1024];
  size_t begin = s->data_length;
  for (size_t i = 0; i < count; i++) put_value(s, dtype, values[i]);
  snprintf(entry, sizeof entry, "\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":"
           "[%zu,%zu]}", name, dtype, shape, begin, s->data_length);
  st_raw(s, entry);
}

static char *join_file(const char *header, size_t length, const void *data, size_t bytes)
{
  char *file = malloc(8 + length + bytes + 1);
  assert_non_null(file);
  for (int i = 0; i < 8; i++) file[i] = (char)((uint64_t)length >> 8 * i);
  memcpy(file + 8, header, length);
  if (bytes) memcpy(file + 8 + length, data, bytes);
  return file;
}

void st_build(st_file *s)
{
  put(&s->header, &s->header_length, "}");
  s->file = join_file(s->header, s->header_length, s->data, s->data_length);
  s->file_length = 8 + s->header_length + s->data_length;
}

void st_free(st_file *s)
{
  free(s->header);
  free(s->data);
  free(s->file);
}

void st_write(st_file *s, const char *path)
{
  st_build(s);
  write_bytes(path, s->file, s->file_length);
  st_free(s);
}

void write_st(const char *path, const char *header, int spaces, const void *data,
              size_t length)
{
  size_t header_length = strlen(header) + (size_t)spaces;
  char *padded = malloc(header_length + 1);
  assert_non_null(padded);
  snprintf(padded, header_length + 1, "%s%*s", header, spaces, "");
  char *file = join_file(padded, header_length, data, length);
  write_bytes(path, file, 8 + header_length + length);
  free(padded);
  free(file);
}

/* ---- expectations ---- */
static void check_texts(const char *first, va_list more)
{
  const char *message = tglu_last_error();
  for (const char *text = first; text; text = va_arg(more, const char *)) {
    if (!strstr(message, text)) fail_msg("'%s' is not in the message: %s", text, message);
  }
  for (const char *c = message; *c; c++) assert_true((unsigned char)*c >= 0x20);
}

void expect_message(const char *first, ...)
{
  va_list more;
  va_start(more, first);
  check_texts(first, more);
  va_end(more);
}

void expect_open_fails(const char *path, const tglu_model_options *options,
                       tglu_status status, ...)
{
  tglu_model *model = (tglu_model *)(uintptr_t)1;
  tglu_status got = tglu_model_open(path, options, &model);
  if (got != status) {
    fail_msg("%s: status %s, expected %s: %s", path, tglu_status_name(got),
             tglu_status_name(status), tglu_last_error());
  }
  assert_null(model);
  va_list texts;
  va_start(texts, status);
  const char *first = va_arg(texts, const char *);
  check_texts(first, texts);
  va_end(texts);

  char good[4500];
  snprintf(good, sizeof good, "%s.good", path);
  static const uint8_t data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  write_st(good, "{\"w\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[0,8]}}", 0,
           data, 8);
  tglu_model_options none;
  tglu_model_options_init(&none);
  model = open_ok(good, NULL);
  assert_int_equal(tglu_model_tensor_count(model), 1);
  tglu_model_close(model);
  assert_int_equal(unlink(good), 0);
}

tglu_model *open_ok(const char *path, const tglu_model_options *options)
{
  tglu_model *model = NULL;
  tglu_status status = tglu_model_open(path, options, &model);
  if (status != TGLU_OK) {
    fail_msg("%s: %s: %s", path, tglu_status_name(status), tglu_last_error());
  }
  assert_non_null(model);
  return model;
}

void expect_layer_fails(const tglu_model *model, int32_t layer, tglu_status status, ...)
{
  tglu_model_mlp mlp;
  tglu_model_mlp_init(&mlp);
  tglu_model_mlp before = mlp;
  tglu_status got = tglu_model_layer_mlp(model, layer, &mlp);
  if (got != status) {
    fail_msg("layer %d: status %s, expected %s: %s", (int)layer, tglu_status_name(got),
             tglu_status_name(status), tglu_last_error());
  }
  assert_memory_equal(&before, &mlp, sizeof mlp);
  va_list texts;
  va_start(texts, status);
  const char *first = va_arg(texts, const char *);
  check_texts(first, texts);
  va_end(texts);
}

tglu_model_mlp layer_ok(const tglu_model *model, int32_t layer)
{
  tglu_model_mlp mlp;
  tglu_model_mlp_init(&mlp);
  tglu_status status = tglu_model_layer_mlp(model, layer, &mlp);
  if (status != TGLU_OK) fail_msg("layer %d: %s", (int)layer, tglu_last_error());
  assert_int_equal(mlp.layer, layer);
  return mlp;
}
