/* tileglu/model.h: model files, read where they lie.  Optional second header.
 *
 * Opens a safetensors file, or a folder with model.safetensors or
 * model.safetensors.index.json + shards, and config.json beside them; finds the
 * gated MLP of each layer by exact tensor names; gives zero-copy views (mmap,
 * read-only).  Nothing here needs a GPU.  Conventions are tileglu.h's.
 *
 * Format: https://github.com/huggingface/safetensors (header of at most
 * TGLU_SAFETENSORS_MAX_HEADER bytes, checked before any allocation).
 */
#ifndef TILEGLU_MODEL_H
#define TILEGLU_MODEL_H

#include <tileglu/tileglu.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TGLU_SAFETENSORS_MAX_HEADER 100000000 /* bytes */
#define TGLU_MODEL_MAX_RANK 8

typedef struct tglu_model tglu_model;

typedef struct tglu_model_options {
  size_t size;
  const char *config;     /* path of config.json; NULL: the one beside the file,
                             if there is one                                     */
  const char *activation; /* a config.json activation name that overrides the
                             config's, or names it where no config exists; NULL  */
} tglu_model_options;

TGLU_API void tglu_model_options_init(tglu_model_options *options);

/* path: a .safetensors file, an index .json, or a folder.  options may be NULL.
 * Every header is validated whole: names unique, offsets inside the file, without
 * holes or overlaps, sizes equal to shape x type, every tensor of the index in
 * the shard that it names.  A file must not shrink while the model is open; its
 * size is checked again when a view is taken. */
TGLU_API tglu_status tglu_model_open(const char *path, const tglu_model_options *options,
                                     tglu_model **out);
TGLU_API void tglu_model_close(tglu_model *model); /* accepts NULL; views end here */

typedef struct tglu_tensor {
  size_t size;
  const char *name;
  const char *dtype_name;    /* as in the file: "BF16", "F32", "U8", ...          */
  tglu_dtype dtype;          /* 0 where tileglu has no such type                  */
  int32_t rank;
  int64_t shape[TGLU_MODEL_MAX_RANK];
  const void *data;          /* inside the mapping; any alignment                 */
  size_t bytes;
  const char *file;          /* path of the file that holds it                    */
} tglu_tensor;

/* Tensors come sorted by name.  find also follows a tied tensor's alias in the file's
 * __metadata__; `name` is then that of the tensor found.  Strings and data live as long
 * as the model. */
TGLU_API void tglu_tensor_init(tglu_tensor *tensor);
TGLU_API int64_t tglu_model_tensor_count(const tglu_model *model);
TGLU_API tglu_status tglu_model_tensor_at(const tglu_model *model, int64_t index,
                                          tglu_tensor *tensor);
TGLU_API tglu_status tglu_model_find_tensor(const tglu_model *model, const char *name,
                                            tglu_tensor *tensor);

/* One layer's MLP: a ready descriptor whose pointers are views into the mapping. */
typedef struct tglu_model_mlp {
  size_t size;
  int32_t layer;             /* the number in the tensor's name                   */
  const char *family;        /* "gate_proj/up_proj/down_proj", "gate_up_proj", ... */
  const char *prefix;        /* "model.layers.3.mlp."                             */
  const char *activation_source; /* "hidden_act in config.json", "option", ...    */
  tglu_mlp_desc desc;
} tglu_model_mlp;

TGLU_API void tglu_model_mlp_init(tglu_model_mlp *mlp);
/* Number of layers with an MLP, also of those that layer_mlp refuses, and their
 * numbers in ascending order. */
TGLU_API int32_t tglu_model_layer_count(const tglu_model *model);
TGLU_API tglu_status tglu_model_layer_at(const tglu_model *model, int32_t index,
                                         int32_t *layer);
/* Fails with TGLU_ERR_NOT_FOUND (listing near names), TGLU_ERR_UNSUPPORTED (with
 * the reason: experts, quantised, transposed) or TGLU_ERR_FORMAT. */
TGLU_API tglu_status tglu_model_layer_mlp(const tglu_model *model, int32_t layer,
                                          tglu_model_mlp *mlp);

/* Activation by its name in a config.json, case-sensitive: silu, swish -> silu;
 * gelu -> gelu_erf; gelu_new, gelu_fast, gelu_pytorch_tanh -> gelu_tanh;
 * quick_gelu -> swigluoai(1.702, no limit, offset 0); relu, sigmoid.  Sets
 * activation, alpha, limit and offset of desc. */
TGLU_API tglu_status tglu_model_activation(const char *config_name, tglu_glu_desc *desc);

/* Values of config.json in text_config, else at the top level: fails with
 * TGLU_ERR_NOT_FOUND where absent or null.  Strings live as long as the model. */
TGLU_API tglu_status tglu_model_config_int(const tglu_model *model, const char *key,
                                           int64_t *value);
TGLU_API tglu_status tglu_model_config_string(const tglu_model *model, const char *key,
                                              const char **value);

#ifdef __cplusplus
}
#endif
#endif /* TILEGLU_MODEL_H */
