/* Model files written by the tests themselves, in a temporary folder. */
#ifndef TGLU_TEST_MODEL_FILES_H
#define TGLU_TEST_MODEL_FILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <tileglu/model.h>

/* cmocka group fixtures: *state is the folder's path. */
int folder_setup(void **state);
int folder_teardown(void **state);
/* Folder + "/" + name, in one of 8 rotating static buffers. */
const char *in_folder(void **state, const char *name);
/* Removes every file of the folder: each test begins with it empty. */
int folder_clean(void **state);

void write_bytes(const char *path, const void *bytes, size_t length);
void write_text(const char *path, const char *text);

/* One safetensors file in the making; everything is owned by it. */
typedef struct st_file {
  char *header;
  size_t header_length;
  uint8_t *data;
  size_t data_length;
  char *file;          /* whole file, once built */
  size_t file_length;
} st_file;

void st_begin(st_file *s);
/* count values of the type BF16, F16, F32, or as bytes for any other type, in which
 * case each value is one byte.  shape as JSON: "[2,3]". */
void st_add(st_file *s, const char *name, const char *dtype, const char *shape,
            const double *values, size_t count);
/* Raw members of the header: "\"__metadata__\":{...}". */
void st_raw(st_file *s, const char *members);
void st_build(st_file *s);
void st_write(st_file *s, const char *path); /* builds, writes and frees */
void st_free(st_file *s);

/* file = 8-byte length + header + data, header padded by `spaces`. */
void write_st(const char *path, const char *header, int spaces, const void *data,
              size_t length);

/* Opens and must fail with that status; the message must have every text (last NULL).
 * Then a good file must open: a failure leaves nothing behind. */
void expect_open_fails(const char *path, const tglu_model_options *options,
                       tglu_status status, ...);
tglu_model *open_ok(const char *path, const tglu_model_options *options);
/* The last message must have every text (last NULL). */
void expect_message(const char *first, ...);
void expect_layer_fails(const tglu_model *model, int32_t layer, tglu_status status, ...);
tglu_model_mlp layer_ok(const tglu_model *model, int32_t layer);

double value_at(tglu_dtype dtype, const void *data, size_t index);

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

#endif /* TGLU_TEST_MODEL_FILES_H */
