/* safetensors files: good ones give exact values at every alignment, bad ones a clear
 * error (hard cases H34, H36, H38, H59 and their kinds). */
#include "files.h"

/* A sanitizer's own memory would count as the reader's. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SHADOW_MEMORY
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_SHADOW_MEMORY
#endif
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define H0 "{\"w\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[0,8]}}"
static const uint8_t D0[16] = {0x80, 0x3f, 0x00, 0x40, 0x40, 0x40, 0x80, 0x40,
                               1, 2, 3, 4, 5, 6, 7, 8};

/* ---- good files ---- */
static void base_file(void **state)
{
  const char *path = in_folder(state, "a.safetensors");
  write_st(path, H0, 0, D0, 8);
  FILE *file = fopen(path, "rb");
  assert_int_equal(fgetc(file), 0x39);
  fclose(file);
  tglu_model *model = open_ok(path, NULL);
  assert_int_equal(tglu_model_tensor_count(model), 1);
  tglu_tensor t;
  tglu_tensor_init(&t);
  assert_int_equal(tglu_model_tensor_at(model, 0, &t), TGLU_OK);
  assert_string_equal(t.name, "w");
  assert_string_equal(t.dtype_name, "BF16");
  assert_int_equal(t.dtype, TGLU_DTYPE_BF16);
  assert_int_equal(t.rank, 2);
  assert_int_equal(t.shape[0], 2);
  assert_int_equal(t.shape[1], 2);
  assert_int_equal(t.bytes, 8);
  assert_string_equal(t.file, path);
  assert_memory_equal(t.data, D0, 8);
  assert_int_equal(t.size, sizeof t);
  tglu_model_close(model);
  tglu_model_close(NULL);
}

/* H59: data at every residue of 8, values exact. */
static void every_alignment(void **state)
{
  const char *path = in_folder(state, "a.safetensors");
  const char *header = "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
  assert_int_equal(strlen(header), 54);
  unsigned seen = 0;
  for (int spaces = 0; spaces < 8; spaces++) {
    float value = 1.5f + (float)spaces, got = 0;
    write_st(path, header, spaces, &value, 4);
    tglu_model *model = open_ok(path, NULL);
    tglu_tensor t;
    tglu_tensor_init(&t);
    assert_int_equal(tglu_model_find_tensor(model, "w", &t), TGLU_OK);
    memcpy(&got, t.data, 4);
    assert_true(got == value);
    seen |= 1u << ((uintptr_t)t.data % 8);
    tglu_model_close(model);
  }
  assert_int_equal(seen, 0xff);
}

/* H59: a U8 tensor of odd size before a BF16 weight. */
static void odd_bytes_before(void **state)
{
  const char *path = in_folder(state, "a.safetensors");
  const double bytes[] = {7, 8, 9}, values[] = {1, -2.5, 0.4375, 3};
  st_file s;
  st_begin(&s);
  st_add(&s, "a", "U8", "[3]", bytes, 3);
  st_add(&s, "b", "BF16", "[2,2]", values, 4);
  st_add(&s, "c", "F16", "[2,2]", values, 4);
  st_write(&s, path);
  tglu_model *model = open_ok(path, NULL);
  tglu_tensor first, t;
  tglu_tensor_init(&first);
  assert_int_equal(tglu_model_tensor_at(model, 0, &first), TGLU_OK);
  for (int i = 1; i < 3; i++) {
    tglu_tensor_init(&t);
    assert_int_equal(tglu_model_tensor_at(model, i, &t), TGLU_OK);
    assert_int_equal((uintptr_t)t.data - (uintptr_t)first.data, i == 1 ? 3 : 11);
    for (size_t j = 0; j < 4; j++) assert_true(value_at(t.dtype, t.data, j) == values[j]);
  }
  assert_int_equal(first.dtype, 0);
  assert_string_equal(first.dtype_name, "U8");
  tglu_model_close(model);
}

static void every_type(void **state)
{
  static const struct { const char *name; int bits; } types[] = {
    {"BF16", 16}, {"F16", 16}, {"F32", 32}, {"F64", 64}, {"C64", 64}, {"BOOL", 8},
    {"U8", 8}, {"I8", 8}, {"U16", 16}, {"I16", 16}, {"U32", 32}, {"I32", 32}, {"U64", 64},
    {"I64", 64}, {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E5M2FNUZ", 8},
    {"F8_E4M3FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
  };
  const char *path = in_folder(state, "a.safetensors");
  for (size_t i = 0; i < COUNT(types); i++) {
    char header[200];
    uint8_t data[64] = {3};
    int bytes = types[i].bits * 8 / 8;
    snprintf(header, sizeof header, "{\"w\":{\"dtype\":\"%s\",\"shape\":[2,4],"
             "\"data_offsets\":[0,%d]}}", types[i].name, bytes);
    write_st(path, header, 0, data, (size_t)bytes);
    tglu_model *model = open_ok(path, NULL);
    tglu_tensor t;
    tglu_tensor_init(&t);
    assert_int_equal(tglu_model_tensor_at(model, 0, &t), TGLU_OK);
    assert_string_equal(t.dtype_name, types[i].name);
    assert_int_equal(t.bytes, bytes);
    assert_int_equal(t.dtype, i == 0 ? TGLU_DTYPE_BF16 : i == 1 ? TGLU_DTYPE_F16
                              : i == 2 ? TGLU_DTYPE_F32 : 0);
    tglu_model_close(model);
  }
}

/* Accepted by the format: no tensor, empty tensors between others, scalars, order of
 * entries other than that of the data, text metadata, spaces behind. */
static void odd_but_valid(void **state)
{
  static const struct { const char *header; size_t data, count; } good[] = {
    {"{}", 0, 0},
    {"{\"__metadata__\":{}}", 0, 0},
    {"{ \"__metadata__\" : { \"format\" : \"pt\" } , \"w\" : { \"shape\" : [ ] ,"
     " \"dtype\" : \"F32\" , \"data_offsets\" : [ 0 , 4 ] } }  ", 4, 1},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0,5],\"data_offsets\":[0,0]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"c\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[2,2]},"
     "\"d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]},"
     "\"e\":{\"dtype\":\"U8\",\"shape\":[3,0],\"data_offsets\":[3,3]}}", 3, 5},
    {"{\"z\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,5]},"
     "\"y\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}", 5, 2},
    {"{\"w\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,2],\"data_offsets\":[0,2]}}", 2, 1},
    {"{\"\\u00e9\\\"\\\\\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, 1},
    {"{\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, 1},
  };
  const char *path = in_folder(state, "a.safetensors");
  for (size_t i = 0; i < COUNT(good); i++) {
    write_st(path, good[i].header, 0, D0, good[i].data);
    tglu_model *model = open_ok(path, NULL);
    assert_int_equal(tglu_model_tensor_count(model), good[i].count);
    for (size_t j = 0; j < good[i].count; j++) {
      tglu_tensor t;
      tglu_tensor_init(&t);
      assert_int_equal(tglu_model_tensor_at(model, (int64_t)j, &t), TGLU_OK);
    }
    assert_int_equal(tglu_model_layer_count(model), 0);
    tglu_model_close(model);
  }
}

/* ---- H34: the first eight bytes ---- */
static void header_length(void **state)
{
  const char *path = in_folder(state, "a.safetensors");
  const char *header = H0;
  uint8_t file[73] = {0};
  memcpy(file + 8, header, 57);
  memcpy(file + 65, D0, 8);
  static const struct { uint8_t length[8]; const char *text; } heads[] = {
    {{255, 255, 255, 255, 255, 255, 255, 255}, "18446744073709551615 is beyond"},
    {{0xf8, 255, 255, 255, 255, 255, 255, 255}, "18446744073709551608 is beyond"},
    {{0, 0, 0, 0, 0, 0, 0, 0x20}, "2305843009213693952 is beyond"},
    {{58, 0, 0, 0, 0, 0, 0, 0}, "the header is not valid JSON"},
    {{73 - 7, 0, 0, 0, 0, 0, 0, 0}, "header length 66 is beyond the 65 bytes"},
    {{0, 0, 0, 0, 0, 0, 0, 0}, "header length 0"},
    {{1, 0, 0, 0, 0, 0, 0, 0}, "header length 1"},
    {{56, 0, 0, 0, 0, 0, 0, 0}, "the header is not valid JSON"},
    {{0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46}, "pickle"},
    {{0x80, 0x04, 0x95, 0x10, 0, 0, 0, 0}, "pickle"},
    {{'G', 'G', 'U', 'F', 3, 0, 0, 0}, "GGUF"},
    {{'P', 'K', 3, 4, 20, 0, 8, 8}, "zip"},
    {{'v', 'e', 'r', 's', 'i', 'o', 'n', ' '}, "Git LFS"},
    {{'<', '!', 'D', 'O', 'C', 'T', 'Y', 'P'}, "HTML"},
    {{'{', '"', 'a', '"', ':', '1', '}', 0}, "looks like JSON"},
  };
  for (size_t i = 0; i < COUNT(heads); i++) {
    memcpy(file, heads[i].length, 8);
    write_bytes(path, file, sizeof file);
    expect_open_fails(path, NULL, TGLU_ERR_FORMAT, path, heads[i].text, NULL);
  }
  memcpy(file, (uint8_t[8]){57}, 8);
  for (size_t length = 0; length <= 8; length++) {
    write_bytes(path, file, length);
    expect_open_fails(path, NULL, TGLU_ERR_FORMAT, path, "bytes", NULL);
  }
  file[8] = ' ';
  write_bytes(path, file, sizeof file);
  expect_open_fails(path, NULL, TGLU_ERR_FORMAT, "0x20", NULL);
}

/* Peak memory of a child that opens the file, in KiB over one that opens nothing. */
static long child_peak(const char *path)
{
  struct rusage usage;
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    tglu_model *model = NULL;
    tglu_status status = path ? tglu_model_open(path, NULL, &model) : TGLU_ERR_FORMAT;
    tglu_model_close(model);
    _exit(status == TGLU_ERR_FORMAT ? 0 : 1);
  }
  int status = 0;
  assert_int_equal(wait4(child, &status, 0, &usage), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return usage.ru_maxrss;
}

/* H34: a sparse file of a tebibyte whose header claims to be large is refused without
 * memory; a real header of many tiny values stays within a few times its own size. */
static void hostile_headers_stay_small(void **state)
{
  const char *path = in_folder(state, "a.safetensors");
  static const uint64_t lengths[] = {100000001, UINT64_C(1) << 39, UINT64_MAX - 7};
  long idle = child_peak(NULL);
  for (size_t i = 0; i < COUNT(lengths); i++) {
    write_bytes(path, &lengths[i], 8);
    assert_int_equal(truncate(path, (off_t)1 << 40), 0);
    expect_open_fails(path, NULL, TGLU_ERR_FORMAT, "header length", NULL);
    assert_true(child_peak(path) - idle < 4096);
  }
  size_t bytes = 4 << 20;
  static const char *const fills[] = {"[0,", "{\"a\":", "[[[[[[[[", "0,0,0,0,"};
  char *header = malloc(bytes + 1);
  assert_non_null(header);
  for (size_t i = 0; i < COUNT(fills); i++) {
    size_t length = strlen(fills[i]);
    int start = snprintf(header, bytes, "{\"w\":[0,");
    for (size_t at = (size_t)start; at < bytes; at++) {
      header[at] = fills[i][(at - (size_t)start) % length];
    }
    header[bytes] = '\0';
    write_st(path, header, 0, D0, 8);
    expect_open_fails(path, NULL, TGLU_ERR_FORMAT, path, NULL);
#if !defined(HAS_SHADOW_MEMORY)
    assert_true(child_peak(path) - idle < 4 * 4096);
#endif
  }
  free(header);
}

/* ---- H36: one name, one meaning ---- */
static void duplicate_keys(void **state)
{
#define W(key, from, to) "\"" key "\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[" \
                         #from "," #to "]}"
  static const struct { const char *header, *text; } bad[] = {
    {"{" W("w", 0, 8) "," W("w", 8, 16) "}", "duplicate key w in"},
    {"{" W("w", 0, 8) "," W("\\u0077", 8, 16) "}", "duplicate key w in"},
    {"{" W("w", 0, 8) "," W("w", 0, 8) "}", "duplicate key w in"},
    {"{" W("a\\\\", 0, 8) "," W("\\u0061\\u005c", 8, 16) "}", "duplicate key a\\ in"},
    {"{\"w\":{\"dtype\":\"BF16\",\"dtype\":\"BF16\",\"shape\":[2,4],\"data_offsets\":"
     "[0,16]}}", "duplicate key dtype"},
    {"{\"w\":{\"dtype\":\"BF16\",\"\\u0064type\":\"BF16\",\"shape\":[2,4],\"data_offsets\":"
     "[0,16]}}", "duplicate key dtype"},
    {"{\"w\":{\"dtype\":\"BF16\",\"shape\":[2,4],\"shape\":[2,4],\"data_offsets\":"
     "[0,16]}}", "duplicate key shape"},
    {"{\"__metadata__\":{\"a\":\"b\"}," W("w", 0, 8) ",\"__metadata__\":{}}",
     "duplicate key __metadata__"},
    {"{\"w\":{\"a\\\"b\":1,\"a\\\"b\":2}}", "duplicate key a\"b in"},
    {"{\"w\":{\"\\\\\":1,\"\\\\\":2}}", "duplicate key \\ in"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", "duplicate key __metadata__"},
    {"{\"__metadata__\":{\"k\":\"1\",\"\\u006b\":\"2\"}}", "duplicate key k in"},
  };
  const char *path = in_folder(state, "a.safetensors");
  for (size_t i = 0; i < COUNT(bad); i++) {
    write_st(path, bad[i].header, 0, D0, 16);
    expect_open_fails(path, NULL, TGLU_ERR_FORMAT, path, bad[i].text, NULL);
  }
#undef W
}

/* ---- H38: the file is shorter (or longer) than its header says ---- */
static void three_tensors(st_file *s)
{
  static double values[2048];
  for (size_t i = 0; i < COUNT(values); i++) values[i] = 1 + (double)(i % 7);
  st_begin(s);
  st_add(s, "a", "F32", "[32,64]", values, 2048);
  st_add(s, "b", "F32", "[32,64]", values, 2048);
  st_add(s, "c", "F32", "[64,32]", values, 2048);
  st_build(s);
}

static void cut_short(void **state)
{
  const char *path = in_folder(state, "a.safetensors");
  st_file s;
  three_tensors(&s);
  size_t data_at = s.file_length - s.data_length;
  const size_t sizes[] = {s.file_length - 1, s.file_length - 4096, data_at + 4 * 2048 * 2 + 99,
                          data_at, data_at + 1};
  char whole[32], real[32];
  snprintf(whole, sizeof whole, "%zu bytes", s.file_length);
  for (size_t i = 0; i < COUNT(sizes); i++) {
    write_bytes(path, s.file, sizes[i]);
    snprintf(real, sizeof real, "the file has %zu", sizes[i]);
    expect_open_fails(path, NULL, TGLU_ERR_FORMAT, path, whole, real, "'c'", NULL);
  }
  s.file = realloc(s.file, s.file_length + 1);
  s.file[s.file_length] = 0;
  write_bytes(path, s.file, s.file_length + 1);
  expect_open_fails(path, NULL, TGLU_ERR_FORMAT, path, "too long", whole, NULL);
  st_free(&s);
}

static void cut_after_open(void **state)
{
  const char *path = in_folder(state, "a.safetensors");
  st_file s;
  three_tensors(&s);
  size_t whole = s.file_length;
  write_bytes(path, s.file, s.file_length);
  st_free(&s);
  tglu_model *model = open_ok(path, NULL);
  tglu_tensor t;
  tglu_tensor_init(&t);
  assert_int_equal(tglu_model_find_tensor(model, "c", &t), TGLU_OK);
  pid_t child = fork();
  if (child == 0) _exit(truncate(path, (off_t)whole - 4096) != 0);
  int status = 1;
  waitpid(child, &status, 0);
  assert_int_equal(status, 0);
  tglu_tensor_init(&t);
  tglu_tensor before = t;
  assert_int_equal(tglu_model_find_tensor(model, "c", &t), TGLU_ERR_IO);
  expect_message(path, "expected", "has", NULL);
  assert_memory_equal(&t, &before, sizeof t);
  assert_int_equal(tglu_model_tensor_at(model, 0, &t), TGLU_ERR_IO);
  tglu_model_close(model);
}

/* ---- the rest of the rules ---- */
#define E(body) "{\"w\":{" body "}}"
static const struct { const char *header, *text; size_t data; } bad_headers[] = {
  {E("\"dtype\":\"F32\",\"shape\":[1000,1000],\"data_offsets\":[0,4]"), "4000000", 4},
  {E("\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[8,0]"), "end before", 8},
  {E("\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[0,9]"), "hold 9", 9},
  {E("\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[4,12]"), "no tensor", 12},
  {E("\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[0,8]") " x", "follows", 8},
  {E("\"dtype\":\"BF16\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]"),
   "too large", 0},
  {E("\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]"),
   "too large", 0},
  {E("\"dtype\":\"F32\",\"shape\":[9223372036854775807,2],\"data_offsets\":[0,0]"),
   "too large", 0},
  {E("\"dtype\":\"F32\",\"shape\":[9223372036854775808],\"data_offsets\":[0,0]"),
   "not valid JSON", 0},
  {E("\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]"), "whole number", 1},
  {E("\"dtype\":\"F6_E2M3\",\"shape\":[3],\"data_offsets\":[0,2]"), "whole number", 2},
  {E("\"dtype\":\"BF16\",\"shape\":[-1,-4],\"data_offsets\":[0,8]"), ">= 0", 8},
  {E("\"dtype\":\"BF16\",\"shape\":[4.0],\"data_offsets\":[0,8]"), "integers", 8},
  {E("\"dtype\":\"BF16\",\"shape\":[\"4\"],\"data_offsets\":[0,8]"), "integers", 8},
  {E("\"dtype\":\"BF16\",\"shape\":4,\"data_offsets\":[0,8]"), "array", 8},
  {E("\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[0,8,8]"), "3 numbers", 8},
  {E("\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[8]"), "two numbers", 8},
  {E("\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[true,8]"), "integers", 8},
  {E("\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[0,1e1]"), "integers", 8},
  {E("\"dtype\":\"BF16\",\"shape\":[4]"), "data_offsets is missing", 8},
  {E("\"shape\":[4],\"data_offsets\":[0,8]"), "dtype is missing", 8},
  {E("\"dtype\":\"BF16\",\"data_offsets\":[0,8]"), "shape is missing", 8},
  {E("\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[0,8],\"strides\":[1]"), "exactly", 8},
  {E("\"dtype\":\"bf16\",\"shape\":[4],\"data_offsets\":[0,8]"), "'bf16'", 8},
  {E("\"dtype\":\"F12\",\"shape\":[4],\"data_offsets\":[0,8]"), "'F12'", 8},
  {E("\"dtype\":7,\"shape\":[4],\"data_offsets\":[0,8]"), "a string", 8},
  {E("\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,8],\"data_offsets\":[0,8]"), "9 numbers", 8},
  {"{\"w\":[]}", "an object", 0},
  {"{\"w\":null}", "an object", 0},
  {"{\"w\":\"x\"}", "an object", 0},
  {"{\"w\":tru}", "not valid JSON", 0},
  {"{\"w\":{]}", "not valid JSON", 0},
  {"{\"w\":{\"a\":[{\"b\":[1]}]}}", "too deeply", 0},
  {"{w:1}", "a key in quotes", 0},
  {"{\"w\" 1}", "a colon", 0},
  {"{\"w\":}", "a value is missing", 0},
  {"{\"w\":", "a value is missing", 0},
  {"{\"w", "no end", 0},
  {"{\"w\\", "no end", 0},
  {"{\"w\":{", "no end", 0},
  {"{\"w\":{\"", "no end", 0},
  {"{,}", "a key in quotes", 0},
  {"{\"a\\u0000b\":{}}", "not valid JSON", 0},
  {"{\"a\\ud800\":{}}", "not valid JSON", 0},
  {"{\"\xff\":{}}", "not valid JSON", 0},
  {"{\"\xc0\x80\":{}}", "not valid JSON", 0},
  {"{\"\xed\xa0\x80\":{}}", "not valid JSON", 0},
  {"{\"a\tb\":{}}", "not valid JSON", 0},
  {"{\"__metadata__\":[]}", "__metadata__", 0},
  {"{\"__metadata__\":{\"a\":1}}", "the value of 'a' must be a string", 0},
  {"{\"__metadata__\":{\"a\":{}}}", "the value of 'a' must be a string", 0},
  {"{\"__metadata__\":{\"a\":null}}", "the value of 'a' must be a string", 0},
  {"{\"__metadata__\":{\"a\":\"\\u0000\"}}", "__metadata__ is not valid JSON", 0},
  {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
   "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[3,7]}}", "'b'", 7},
  {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
   "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", "overlap tensor 'a'", 4},
  {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
   "\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[2,2]}}", "overlap tensor 'a'", 4},
  {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
   "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[6,8]}}", "from 4 up to", 8},
};

static void broken_rules(void **state)
{
  const char *path = in_folder(state, "a.safetensors");
  size_t cases = 0;
  for (size_t i = 0; i < COUNT(bad_headers); i++, cases++) {
    write_st(path, bad_headers[i].header, 0, D0, bad_headers[i].data);
    expect_open_fails(path, NULL, TGLU_ERR_FORMAT, path, bad_headers[i].text, NULL);
  }
  assert_true(cases > 50);
  print_message("%zu broken headers refused\n", cases);
}

static void not_regular(void **state)
{
  const char *path = in_folder(state, "a.safetensors");
  expect_open_fails(path, NULL, TGLU_ERR_NOT_FOUND, path, NULL);
  assert_int_equal(mkfifo(path, 0600), 0);
  expect_open_fails(path, NULL, TGLU_ERR_IO, "regular", NULL);
  const char *folder = in_folder(state, "empty");
  assert_int_equal(mkdir(folder, 0700), 0);
  expect_open_fails(folder, NULL, TGLU_ERR_NOT_FOUND, "neither", NULL);
  tglu_model *model = NULL;
  assert_int_equal(tglu_model_open(in_folder(state, "a.safetensors/b"), NULL, &model),
                   TGLU_ERR_NOT_FOUND);
  assert_int_equal(tglu_model_open("", NULL, &model), TGLU_ERR_NOT_FOUND);
}

/* Long and hostile names make short and clean messages. */
static void hostile_names(void **state)
{
  const char *path = in_folder(state, "a.safetensors");
  char header[6000];
  int at = snprintf(header, sizeof header, "{\"\\u001b[31m\\n");
  for (int i = 0; i < 600; i++) {
    at += snprintf(header + at, sizeof header - (size_t)at, "\xc3\xa9");
  }
  snprintf(header + at, sizeof header - (size_t)at,
           "\":{\"dtype\":\"X\",\"shape\":[4],\"data_offsets\":[0,4]}}");
  write_st(path, header, 0, D0, 4);
  expect_open_fails(path, NULL, TGLU_ERR_FORMAT, "?[31m?", "\xc3\xa9...'", NULL);
}

static void arguments(void **state)
{
  const char *path = in_folder(state, "a.safetensors");
  write_st(path, H0, 0, D0, 8);
  tglu_model *model = NULL;
  assert_int_equal(tglu_model_open(path, NULL, NULL), TGLU_ERR_INVALID_ARGUMENT);
  assert_int_equal(tglu_model_open(NULL, NULL, &model), TGLU_ERR_INVALID_ARGUMENT);
  tglu_model_options options;
  tglu_model_options_init(&options);
  options.size = 3;
  expect_open_fails(path, &options, TGLU_ERR_INVALID_ARGUMENT, "options", NULL);
  model = open_ok(path, NULL);
  tglu_tensor t;
  tglu_tensor_init(&t);
  assert_int_equal(tglu_model_tensor_at(model, -1, &t), TGLU_ERR_INVALID_ARGUMENT);
  assert_int_equal(tglu_model_tensor_at(model, 1, &t), TGLU_ERR_INVALID_ARGUMENT);
  assert_int_equal(tglu_model_tensor_at(model, 0, NULL), TGLU_ERR_INVALID_ARGUMENT);
  assert_int_equal(tglu_model_tensor_at(NULL, 0, &t), TGLU_ERR_INVALID_ARGUMENT);
  assert_int_equal(tglu_model_find_tensor(model, NULL, &t), TGLU_ERR_INVALID_ARGUMENT);
  assert_int_equal(tglu_model_find_tensor(model, "v", &t), TGLU_ERR_NOT_FOUND);
  assert_int_equal(tglu_model_find_tensor(model, "ww", &t), TGLU_ERR_NOT_FOUND);
  expect_message("'ww'", "near names: 'w'", NULL);
  t.size = 1;
  assert_int_equal(tglu_model_find_tensor(model, "w", &t), TGLU_ERR_INVALID_ARGUMENT);
  int32_t layer = 0;
  assert_int_equal(tglu_model_layer_at(model, 0, &layer), TGLU_ERR_INVALID_ARGUMENT);
  assert_int_equal(tglu_model_tensor_count(NULL), 0);
  assert_int_equal(tglu_model_layer_count(NULL), 0);
  tglu_model_close(model);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup(f, folder_clean)
  const struct CMUnitTest tests[] = {
    TEST(base_file), TEST(every_alignment), TEST(odd_bytes_before), TEST(every_type),
    TEST(odd_but_valid), TEST(header_length), TEST(hostile_headers_stay_small),
    TEST(duplicate_keys), TEST(cut_short), TEST(cut_after_open), TEST(broken_rules),
    TEST(not_regular), TEST(hostile_names), TEST(arguments),
  };
  return cmocka_run_group_tests_name("safetensors", tests, folder_setup, folder_teardown);
}
