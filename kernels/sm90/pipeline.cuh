/* The ring of shared-memory stages between one producer thread a CTA and the consumer
 * warpgroups, and the producer's loads.  Position, not pointers: stage index and the
 * parity of its barriers' phase.
 *
 * full[s]   1 arrival (the CTA's producer) + the stage's bytes, which arrive from the
 *           producers of all CTAs of the cluster;
 * empty[s]  one arrival per consumer warpgroup that reads the stage, in every CTA of
 *           the cluster: a producer writes into all of them. */
#ifndef TGLU_SM90_PIPELINE_CUH
#define TGLU_SM90_PIPELINE_CUH

#include "launch.h"
#include "ptx.cuh"
#include "smem_layout.h"

typedef struct ring_position {
  int32_t stage;
  uint32_t parity;
} ring_position;

template <int Stages> TGLU_DEVICE void ring_advance(ring_position &at) {
  if (++at.stage == Stages) {
    at.stage = 0;
    at.parity ^= 1;
  }
}
/* Skips `count` stages that another warpgroup consumes. */
template <int Stages> TGLU_DEVICE void ring_skip(ring_position &at, int32_t count) {
  const int32_t stage = at.stage + count % Stages;
  at.parity ^= (count / Stages + (stage >= Stages)) & 1;
  at.stage = stage >= Stages ? stage - Stages : stage;
}

/* Shared addresses of a CTA's buffers (smem_layout.h). */
typedef struct smem_map {
  uint32_t ring, staging, full, empty;
} smem_map;

template <int TileM, int TileN, int BRows, int Stages>
TGLU_DEVICE smem_map smem_map_of(const void *dynamic) {
  smem_map at;
  at.ring = (smem_address(dynamic) + TGLU_SMEM_ALIGNMENT - 1) & ~(TGLU_SMEM_ALIGNMENT - 1);
  at.staging = at.ring + Stages * tglu_stage_bytes(TileM, BRows);
  at.full = at.staging + TGLU_CONSUMER_WARPGROUPS * tglu_staging_bytes(TileN);
  at.empty = at.full + Stages * 8;
  return at;
}

/* Called by one thread; the caller then syncs the cluster.  NOTE: the fence for a cluster is
 * a MEMBAR.ALL.GPU; a CTA by itself only has to tell the copy engine. */
template <int Stages, int Cluster> TGLU_DEVICE void ring_init(const smem_map &smem, int readers) {
  for (int s = 0; s < Stages; s++) {
    mbarrier_init(smem.full + 8 * s, 1);
    mbarrier_init(smem.empty + 8 * s, readers);
  }
  if (Cluster == 1) {
    fence_proxy_async();
  } else {
    fence_mbarrier_init();
  }
}

/* One thread of a consumer warpgroup gives a stage back to every producer that
 * writes into it. */
template <int Cluster>
TGLU_DEVICE void ring_release(const smem_map &smem, int32_t stage, int thread) {
  if (Cluster == 1) {
    if (thread == 0) mbarrier_arrive(smem.empty + 8 * stage);
  } else if (thread < Cluster) {
    mbarrier_arrive_cluster(cluster_address(smem.empty + 8 * stage, thread));
  }
}

/* Rows [row, row + Rows) x 64 k of a weight matrix into every CTA of the cluster:
 * each CTA fetches its share and multicasts it. */
template <int Rows, int ClusterM>
TGLU_DEVICE void load_weights(const void *map, uint32_t destination, uint32_t barrier, int32_t k,
                              int32_t row, uint32_t rank) {
  constexpr int share = Rows / ClusterM;
  static_assert(share % 8 == 0 && share * ClusterM == Rows, "a share is whole swizzle groups");
  if (ClusterM == 1) {
    tma_load_2d(destination, map, barrier, k, row);
  } else {
    tma_load_2d_multicast(destination + rank * share * TGLU_TILE_K * 2, map, barrier, k,
                          row + (int32_t)rank * share, (uint16_t)((1 << ClusterM) - 1));
  }
}

#endif /* TGLU_SM90_PIPELINE_CUH */
