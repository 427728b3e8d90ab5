/* The kernel of a TMA row with a producer and two consumer warpgroups, included last by its
 * schedule file, which defines B_ROWS (rows of weights in a stage), ENTRY_READERS (consumer
 * warpgroups that read one stage), produce() and consume(); ENTRY_LAUNCH and
 * ENTRY_PREFETCH(p) where the parameter is not a tglu_glu_launch. */

#ifndef ENTRY_LAUNCH
#define ENTRY_LAUNCH tglu_glu_launch
#define ENTRY_PREFETCH(p)        \
  prefetch_tensor_map(&(p).x);   \
  prefetch_tensor_map(&(p).gate); \
  prefetch_tensor_map(&(p).up);  \
  prefetch_tensor_map(&(p).out)
#endif

extern "C" __global__ void __launch_bounds__(384, 1)
    ROW_NAME(const __grid_constant__ ENTRY_LAUNCH p) {
  extern __shared__ uint8_t dynamic[];
  const smem_map smem = smem_map_of<ROW_TILE_M, ROW_TILE_N, B_ROWS, ROW_STAGES>(dynamic);
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
  const uint32_t rank = ROW_CLUSTER_M == 1 ? 0 : cluster_rank();
  const int32_t first = ROW_CLUSTER_M == 1 ? blockIdx.x : cluster_id();
  const int32_t step = ROW_CLUSTER_M == 1 ? gridDim.x : cluster_count();

  if (threadIdx.x == 32) {
    ENTRY_PREFETCH(p);
  }
  if (threadIdx.x == 0) ring_init<ROW_STAGES, ROW_CLUSTER_M>(smem, ENTRY_READERS * ROW_CLUSTER_M);
  if (ROW_CLUSTER_M == 1) {
    __syncthreads();
  } else {
    cluster_sync();
  }

  if (warpgroup == 0) {
    registers_decrease<40>();
    if (threadIdx.x == 0) produce(p, smem, rank, first, step);
  } else {
    registers_increase<232>();
    consume(p, smem, rank, first, step, warpgroup - 1, threadIdx.x % 128);
  }
  /* A CTA may not leave while another still arrives at its barriers. */
  if (ROW_CLUSTER_M > 1) cluster_sync();
}
