/* The part of the CUDA driver ABI that the library uses, declared by hand so that it
 * builds without the toolkit.  Names follow cuda.h with a tglu__ prefix; tests/cuda/
 * test_abi.c compares every constant, size and offset with cuda.h where that is
 * found.  (CUDA driver API 13.0; all of it is in 12.0.) */
#ifndef TGLU_CUDA_ABI_H
#define TGLU_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int32_t tglu__CUresult;
typedef int32_t tglu__CUdevice;
typedef uint64_t tglu__CUdeviceptr;
typedef struct tglu__CUctx_st *tglu__CUcontext;
typedef struct tglu__CUmod_st *tglu__CUmodule;
typedef struct tglu__CUfunc_st *tglu__CUfunction;
typedef struct tglu__CUstream_st *tglu__CUstream;

enum {
  TGLU__CUDA_SUCCESS = 0,
  TGLU__CUDA_ERROR_INVALID_VALUE = 1,
  TGLU__CUDA_ERROR_OUT_OF_MEMORY = 2,
  TGLU__CUDA_ERROR_NO_DEVICE = 100,
  TGLU__CUDA_ERROR_INVALID_CONTEXT = 201,
  TGLU__CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = 720
};

/* CUdevice_attribute */
enum {
  TGLU__CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  TGLU__CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  TGLU__CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  TGLU__CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH = 95,
  TGLU__CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97
};

/* CUfunction_attribute */
enum { TGLU__CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };

/* CUpointer_attribute and CUmemorytype */
enum {
  TGLU__CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
  TGLU__CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
  TGLU__CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9
};
enum { TGLU__CU_MEMORYTYPE_HOST = 1, TGLU__CU_MEMORYTYPE_DEVICE = 2 };

/* CUstreamCaptureMode */
enum { TGLU__CU_STREAM_CAPTURE_MODE_GLOBAL = 0, TGLU__CU_STREAM_CAPTURE_MODE_RELAXED = 2 };

/* CUtensorMap: 128 opaque bytes.  The calls and the hardware want them on 64, cuda.h
 * aligns its own type to more. */
typedef struct tglu__CUtensorMap {
  _Alignas(64) uint64_t opaque[16];
} tglu__CUtensorMap;

enum { /* CUtensorMapDataType */
  TGLU__CU_TENSOR_MAP_DATA_TYPE_FLOAT16 = 6,
  TGLU__CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9
};
enum { TGLU__CU_TENSOR_MAP_INTERLEAVE_NONE = 0 };
enum { /* CUtensorMapSwizzle */
  TGLU__CU_TENSOR_MAP_SWIZZLE_NONE = 0,
  TGLU__CU_TENSOR_MAP_SWIZZLE_32B = 1,
  TGLU__CU_TENSOR_MAP_SWIZZLE_64B = 2,
  TGLU__CU_TENSOR_MAP_SWIZZLE_128B = 3
};
enum { /* CUtensorMapL2promotion */
  TGLU__CU_TENSOR_MAP_L2_PROMOTION_NONE = 0,
  TGLU__CU_TENSOR_MAP_L2_PROMOTION_L2_128B = 2,
  TGLU__CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 3
};
enum { TGLU__CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0 };

/* CUlaunchAttribute: id, 4 bytes of padding, a union of 64 bytes. */
enum {
  TGLU__CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 2,
  TGLU__CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4,
  TGLU__CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6
};
typedef union tglu__CUlaunchAttributeValue {
  char pad[64];
  uint64_t alignment; /* other members are pointers */
  int32_t cooperative;
  struct {
    uint32_t x, y, z;
  } clusterDim;
  int32_t programmaticStreamSerializationAllowed;
} tglu__CUlaunchAttributeValue;
typedef struct tglu__CUlaunchAttribute {
  uint32_t id;
  char pad[4];
  tglu__CUlaunchAttributeValue value;
} tglu__CUlaunchAttribute;

typedef struct tglu__CUlaunchConfig {
  uint32_t gridDimX, gridDimY, gridDimZ;
  uint32_t blockDimX, blockDimY, blockDimZ;
  uint32_t sharedMemBytes;
  tglu__CUstream hStream;
  tglu__CUlaunchAttribute *attrs;
  uint32_t numAttrs;
} tglu__CUlaunchConfig;

#endif /* TGLU_CUDA_ABI_H */
