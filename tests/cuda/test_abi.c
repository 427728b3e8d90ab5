/* Compares src/cuda/cuda_abi.h and launch.h with the toolkit's cuda.h, at compile
 * time.  A cuda.h older than a constant would not compile: all are in 12.0. */
#include <stdio.h>

#include <cuda.h>

#include "../kernels/sm90/launch.h"
#include "cuda/driver.h"

#define SAME(name) _Static_assert((long long)TGLU__##name == (long long)name, #name)
#define SIZE(type) \
  _Static_assert(sizeof(tglu__##type) == sizeof(type) && \
                 _Alignof(tglu__##type) == _Alignof(type), #type)
#define OFFSET(type, field) \
  _Static_assert(offsetof(tglu__##type, field) == offsetof(type, field), #type "." #field)

SAME(CUDA_SUCCESS);
SAME(CUDA_ERROR_INVALID_VALUE);
SAME(CUDA_ERROR_OUT_OF_MEMORY);
SAME(CUDA_ERROR_NO_DEVICE);
SAME(CUDA_ERROR_INVALID_CONTEXT);
SAME(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH);
SAME(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(CU_POINTER_ATTRIBUTE_IS_MANAGED);
SAME(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(CU_MEMORYTYPE_HOST);
SAME(CU_MEMORYTYPE_DEVICE);
SAME(CU_STREAM_CAPTURE_MODE_GLOBAL);
SAME(CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
SAME(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
SAME(CU_TENSOR_MAP_INTERLEAVE_NONE);
SAME(CU_TENSOR_MAP_SWIZZLE_NONE);
SAME(CU_TENSOR_MAP_SWIZZLE_32B);
SAME(CU_TENSOR_MAP_SWIZZLE_64B);
SAME(CU_TENSOR_MAP_SWIZZLE_128B);
SAME(CU_TENSOR_MAP_L2_PROMOTION_NONE);
SAME(CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
SAME(CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
SAME(CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
SAME(CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
SAME(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
SAME(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);

SIZE(CUresult);
SIZE(CUdevice);
SIZE(CUdeviceptr);
SIZE(CUcontext);
SIZE(CUmodule);
SIZE(CUfunction);
SIZE(CUstream);
SIZE(CUlaunchAttributeValue);
SIZE(CUlaunchAttribute);
SIZE(CUlaunchConfig);
OFFSET(CUlaunchAttribute, id);
OFFSET(CUlaunchAttribute, value);
OFFSET(CUlaunchAttributeValue, cooperative);
OFFSET(CUlaunchAttributeValue, clusterDim.x);
OFFSET(CUlaunchAttributeValue, clusterDim.y);
OFFSET(CUlaunchAttributeValue, clusterDim.z);
OFFSET(CUlaunchAttributeValue, programmaticStreamSerializationAllowed);
OFFSET(CUlaunchConfig, gridDimX);
OFFSET(CUlaunchConfig, gridDimY);
OFFSET(CUlaunchConfig, gridDimZ);
OFFSET(CUlaunchConfig, blockDimX);
OFFSET(CUlaunchConfig, blockDimY);
OFFSET(CUlaunchConfig, blockDimZ);
OFFSET(CUlaunchConfig, sharedMemBytes);
OFFSET(CUlaunchConfig, hStream);
OFFSET(CUlaunchConfig, attrs);
OFFSET(CUlaunchConfig, numAttrs);
/* "tensorMap address must be aligned to 64 bytes", says the call. */
_Static_assert(sizeof(tglu__CUtensorMap) == sizeof(CUtensorMap), "map");
_Static_assert(_Alignof(tglu__CUtensorMap) == 64, "map");
_Static_assert(sizeof(tglu_tensor_map) == sizeof(CUtensorMap), "launch.h's map");
_Static_assert(_Alignof(tglu_tensor_map) == 64, "launch.h's map");

/* The toolkit's macros show which exported name a call has today.  (The per-thread
 * stream variants are not defined here.) */
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
static const struct {
  const char *plain, *current;
} names[] = {
#define NAME(x) {#x, TEXT(x)}
  NAME(cuInit), NAME(cuDriverGetVersion), NAME(cuDeviceGetCount), NAME(cuDeviceGet),
  NAME(cuDeviceGetName), NAME(cuDeviceGetAttribute), NAME(cuDevicePrimaryCtxRetain),
  NAME(cuDevicePrimaryCtxRelease), NAME(cuCtxGetCurrent), NAME(cuCtxPushCurrent),
  NAME(cuCtxPopCurrent), NAME(cuModuleLoadData), NAME(cuModuleUnload),
  NAME(cuModuleGetFunction), NAME(cuFuncSetAttribute), NAME(cuFuncLoad),
  NAME(cuOccupancyMaxActiveClusters), NAME(cuOccupancyMaxActiveBlocksPerMultiprocessor),
  NAME(cuThreadExchangeStreamCaptureMode),
  NAME(cuPointerGetAttribute), NAME(cuTensorMapEncodeTiled), NAME(cuLaunchKernelEx),
  NAME(cuGetErrorName), NAME(cuGetErrorString),
};

int main(void) {
  static const char *const ours[] = {
#define OURS(field, name, required, arguments) name,
    TGLU__DRIVER_MAP(OURS)
  };
  int failed = 0;
  for (size_t i = 0; i < sizeof ours / sizeof ours[0]; ++i) {
    int found = 0;
    for (size_t j = 0; j < sizeof names / sizeof names[0]; ++j)
      found |= __builtin_strcmp(ours[i], names[j].current) == 0;
    if (!found) printf("%s is not the name in cuda.h\n", ours[i]);
    failed += !found;
  }
  printf("%zu names compared, %d wrong\n", sizeof ours / sizeof ours[0], failed);
  return failed != 0;
}
