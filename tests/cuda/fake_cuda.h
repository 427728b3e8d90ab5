/* A driver library that computes nothing: it records every call, can be made to fail
 * any of them, and keeps the books (contexts, modules, capture modes) that a real one
 * would.  Opened by path, as options.cuda_library; the test opens it too and finds
 * the state by fake_cuda_state(). */
#ifndef TGLU_TEST_FAKE_CUDA_H
#define TGLU_TEST_FAKE_CUDA_H

#include <pthread.h>

#include "../kernels/sm90/down_diag_launch.h"
#include "../kernels/sm90/down_launch.h"
#include "../kernels/sm90/stream_mlp_launch.h"
#include "../kernels/sm90/tail_launch.h"
#include "cuda/cuda_abi.h"

enum {
  FAKE_CALLS = 8192,
  FAKE_LAUNCHES = 256,
  FAKE_ENCODES = 1024,
  FAKE_MODULES = 4096,
  FAKE_DEVICES = 2,
  FAKE_STREAM_CAPTURE_UNSUPPORTED = 900
};

typedef struct fake_encode {
  int32_t type;
  uint32_t rank;
  uint64_t address, dims[3], stride, outer_stride;
  uint32_t box[3], element_strides[2];
  int32_t interleave, swizzle, l2_promotion, oob_fill;
} fake_encode;

/* A kernel's parameter: of a GLU's rows with tiles, general.base (= tail.base), all of tail for
 * tiles with a tail, and all of general for the general loader. */
typedef union fake_record {
  tglu_glu_general_launch general;
  tglu_glu_tail_launch tail;
  tglu_stream_launch stream;
  tglu_stream_mlp_launch mlp;
  tglu_down_launch down;
  tglu_down_diag_launch diag;
} fake_record;

typedef struct fake_launch {
  tglu__CUlaunchConfig config;
  tglu__CUlaunchAttribute attributes[4];
  fake_record record;
  char kernel[96];
  int32_t device;      /* of the context current at the call  */
  int32_t smem_limit;  /* set on the function before it       */
} fake_launch;

typedef struct fake_module {
  int live, loaded, smem_limit, device;
  char kernel[96];
} fake_module;

typedef struct fake_cuda {
  pthread_mutex_t lock;
  /* ---- what the machine is ---- */
  int32_t version, devices;
  int32_t init_result;
  int32_t major, minor, sm_count, smem_bytes, cooperative;
  int32_t blocks_an_sm;         /* answer to how many of any kernel fit an SM       */
  int32_t clusters_of_4;        /* answer for clusters of 4; others sm_count / size */
  uint64_t host_pointer;        /* this address is host memory                      */
  uint64_t other_pointer;       /* this one lies on the other device                */
  int32_t capturing;            /* 1: unsafe calls need a relaxed capture mode      */
  const char *fail_call;        /* this call fails ...                              */
  int32_t fail_after;           /* ... after so many that did not                   */
  int32_t fail_code;
  /* ---- what was done ---- */
  int32_t call_total, launch_total, encode_total, module_total;
  const char *calls[FAKE_CALLS];
  fake_launch launches[FAKE_LAUNCHES];
  fake_encode encodes[FAKE_ENCODES];
  fake_module modules[FAKE_MODULES];
  int32_t retained[FAKE_DEVICES];
  int32_t balance_errors;       /* pops of nothing, unloads of what is not live, ... */
} fake_cuda;

/* In a map encoded by the fake, opaque[0] is this plus the index in encodes. */
#define FAKE_MAP_MAGIC UINT64_C(0xfa4ed00d00000000)

typedef fake_cuda *(*fake_cuda_state_fn)(void);
typedef void (*fake_cuda_reset_fn)(void);
/* Depth of the calling thread's context stack, and its capture mode. */
typedef int32_t (*fake_cuda_depth_fn)(void);

#endif /* TGLU_TEST_FAKE_CUDA_H */
