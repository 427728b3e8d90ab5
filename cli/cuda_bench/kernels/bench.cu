/* The bench's own kernels: inputs, the small kernel that writes X before a call, a good
 * activation kernel for the unfused way, one that only reads, an independent reference, and
 * checks.  Every one is launched with BENCH_THREADS threads.  Plain CUDA C. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "bench_kernels.h"
#include "sm90/launch.h"

static_assert(BENCH_EMPTY_BYTES == sizeof(tglu_glu_launch), "as many bytes as a launch");

enum { BF16 = 1 };

__device__ static float value_of(int dtype, uint16_t bits) {
  if (dtype == BF16) return __uint_as_float((uint32_t)bits << 16);
  return __half2float(__ushort_as_half(bits));
}

__device__ static uint16_t bits_of(int dtype, float value) {
  if (dtype == BF16) return __bfloat16_as_ushort(__float2bfloat16_rn(value));
  return __half_as_ushort(__float2half_rn(value));
}

__device__ static uint64_t mix(uint64_t z) {
  z += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

__device__ static int64_t thread_index() {
  return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ static int64_t thread_count() { return (int64_t)gridDim.x * blockDim.x; }

/* count normal numbers of deviation scale. */
extern "C" __global__ void bench_fill(uint16_t *out, int64_t count, uint64_t seed, float scale,
                                      int32_t dtype) {
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    uint64_t bits = mix(seed ^ mix((uint64_t)i));
    float u = ((uint32_t)bits + 0.5f) * 2.3283064e-10f;
    float v = (uint32_t)(bits >> 32) * 2.3283064e-10f;
    u = u < 1e-7f ? 1e-7f : u;
    out[i] = bits_of(dtype, scale * sqrtf(-2.0f * logf(u)) * cosf(6.2831853f * v));
  }
}

/* Writes count elements of X from source: the ordinary kernel before a call. */
extern "C" __global__ void bench_write_x(uint16_t *x, const uint16_t *source, int64_t count) {
  int64_t vectors = count / 8;
  for (int64_t i = thread_index(); i < vectors; i += thread_count())
    ((uint4 *)x)[i] = ((const uint4 *)source)[i];
  for (int64_t i = vectors * 8 + thread_index(); i < count; i += thread_count())
    x[i] = source[i];
}

/* Takes as many bytes as a kernel row does, and does nothing. */
extern "C" __global__ void bench_empty(const __grid_constant__ tglu_glu_launch unused) {}

/* ---- the unfused way's activation ---- */

__device__ static float sigma(float z) { return __fdividef(1.0f, 1.0f + __expf(-z)); }

__device__ static float act(const bench_problem &p, float g) {
  switch (p.activation) {
    case 1: return g * sigma(g);
    case 2: return g * sigma(1.5957691216f * (g + 0.044715f * g * g * g));
    case 3: return 0.5f * g * erfcf(-g * 0.7071067812f);
    case 4: return g > 0 ? g : 0.0f;
    case 5: return sigma(g);
    default: return g * sigma(p.alpha * g);
  }
}

/* As an ordinary stack has it: act(gate) rounded to the type, times up, rounded. */
__device__ static uint16_t activated(const bench_problem &p, uint16_t gate, uint16_t up) {
  float g = value_of(p.dtype, gate), u = value_of(p.dtype, up);
  if (p.activation == 6) {
    g = fminf(g, p.limit);
    u = fminf(fmaxf(u, -p.limit), p.limit) + p.offset;
  }
  float a = value_of(p.dtype, bits_of(p.dtype, act(p, g)));
  return bits_of(p.dtype, a * u);
}

typedef union eight {
  uint4 vector;
  uint16_t at[8];
} eight;

/* h [M, N] from y [M, 2N], 16 bytes at a time where N is a multiple of 8. */
extern "C" __global__ void bench_activate(bench_problem p, const uint16_t *y, uint16_t *h) {
  if (p.n % 8 != 0) {
    for (int64_t i = thread_index(); i < p.m * p.n; i += thread_count()) {
      const uint16_t *row = y + i / p.n * 2 * p.n;
      int64_t j = i % p.n;
      h[i] = p.interleaved ? activated(p, row[2 * j], row[2 * j + 1])
                           : activated(p, row[p.gate_column + j], row[p.up_column + j]);
    }
    return;
  }
  int64_t per_row = p.n / 8; /* no division in the loop: it would cost as much as the rest */
  int64_t row_step = thread_count() / per_row, vector_step = thread_count() % per_row;
  int64_t at_row = thread_index() / per_row, at_vector = thread_index() % per_row;
  while (at_row < p.m) {
    const uint16_t *row = y + at_row * 2 * p.n;
    int64_t j = at_vector * 8;
    eight a, b, out;
    a.vector = __ldcs((const uint4 *)(row + (p.interleaved ? 2 * j : p.gate_column + j)));
    b.vector = __ldcs((const uint4 *)(row + (p.interleaved ? 2 * j + 8 : p.up_column + j)));
    for (int e = 0; e < 8; e++) {
      uint16_t gate = a.at[e], up = b.at[e];
      if (p.interleaved) {
        gate = e < 4 ? a.at[2 * e & 7] : b.at[2 * e & 7];
        up = e < 4 ? a.at[(2 * e & 7) + 1] : b.at[(2 * e & 7) + 1];
      }
      out.at[e] = activated(p, gate, up);
    }
    *(uint4 *)(h + at_row * p.n + j) = out.vector;
    at_row += row_step;
    at_vector += vector_step;
    if (at_vector >= per_row) {
      at_vector -= per_row;
      at_row++;
    }
  }
}

/* ---- the reference ---- */

__device__ static double exact_act(const bench_problem &p, double g) {
  switch (p.activation) {
    case 1: return g / (1.0 + exp(-g));
    case 2: return g / (1.0 + exp(-1.5957691216057308 * (g + 0.044715 * g * g * g)));
    case 3: return 0.5 * g * erfc(-g * 0.70710678118654752440);
    case 4: return g > 0 ? g : 0.0;
    case 5: return 1.0 / (1.0 + exp(-g));
    default: return g / (1.0 + exp(-(double)p.alpha * g));
  }
}

__device__ static double warp_sum(double v) {
  for (int by = 16; by > 0; by /= 2) v += __shfl_xor_sync(0xffffffffu, v, by);
  return v;
}

enum { AT_ONCE = 8 }; /* token rows */

/* reference[i * N + column] of token row rows[i], in float64 throughout: a warp a
 * column, lanes along K. */
extern "C" __global__ void bench_reference(bench_problem p, const uint16_t *x,
                                           const int64_t *rows, int32_t row_count,
                                           double *reference) {
  int lane = threadIdx.x % 32;
  int64_t warps = thread_count() / 32;
  for (int64_t column = thread_index() / 32; column < p.n; column += warps) {
    const uint16_t *gate = (const uint16_t *)p.gate + column * p.ldw;
    const uint16_t *up = (const uint16_t *)p.up + column * p.ldw;
    for (int first = 0; first < row_count; first += AT_ONCE) {
      double gs[AT_ONCE] = {}, us[AT_ONCE] = {};
      for (int64_t k = lane; k < p.k; k += 32) {
        double g = value_of(p.dtype, gate[k]), u = value_of(p.dtype, up[k]);
#pragma unroll
        for (int r = 0; r < AT_ONCE; r++) {
          int row = first + r < row_count ? first + r : row_count - 1;
          double v = value_of(p.dtype, x[rows[row] * p.k + k]);
          gs[r] = fma(v, g, gs[r]);
          us[r] = fma(v, u, us[r]);
        }
      }
#pragma unroll
      for (int r = 0; r < AT_ONCE; r++) {
        double g = warp_sum(gs[r]), u = warp_sum(us[r]);
        if (lane != 0 || first + r >= row_count) continue;
        if (p.activation == 6) {
          g = fmin(g, (double)p.limit);
          u = fmin(fmax(u, -(double)p.limit), (double)p.limit) + p.offset;
        }
        reference[(first + r) * p.n + column] = exact_act(p, g) * u;
      }
    }
  }
}

/* reference[i * columns + c] = row i of h [row_count, n] times row c of w [columns, n], in
 * float64: the second half of an MLP. */
extern "C" __global__ void bench_reference_down(const double *h, const uint16_t *w, int64_t n,
                                                int64_t columns, int32_t row_count,
                                                int32_t dtype, double *reference) {
  int lane = threadIdx.x % 32;
  int64_t warps = thread_count() / 32;
  for (int64_t column = thread_index() / 32; column < columns; column += warps) {
    const uint16_t *weights = w + column * n;
    for (int first = 0; first < row_count; first += AT_ONCE) {
      double sums[AT_ONCE] = {};
      for (int64_t i = lane; i < n; i += 32) {
        double v = value_of(dtype, weights[i]);
#pragma unroll
        for (int r = 0; r < AT_ONCE; r++) {
          int row = first + r < row_count ? first + r : row_count - 1;
          sums[r] = fma(h[row * n + i], v, sums[r]);
        }
      }
#pragma unroll
      for (int r = 0; r < AT_ONCE; r++) {
        double sum = warp_sum(sums[r]);
        if (lane == 0 && first + r < row_count) reference[(first + r) * columns + column] = sum;
      }
    }
  }
}

/* ---- only reading ---- */

/* Reads `count` vectors of 16 bytes, `share` of them a block, AT_A_TIME of them in flight in
 * every thread.  Nothing is written but for one value of the XOR of all, which keeps the
 * loads alive. */
template <int AT_A_TIME>
__device__ static void read_all(const uint4 *data, int64_t count, int64_t share,
                                uint32_t *sink) {
  constexpr int STEP = AT_A_TIME * BENCH_THREADS;
  int64_t begin = blockIdx.x * share, left = count - begin < share ? count - begin : share;
  const uint4 *from = data + begin + threadIdx.x;
  uint32_t seen = 0;
  for (; left > 0; left -= STEP, from += STEP) {
    uint4 v[AT_A_TIME] = {};
    if (left >= STEP) {
#pragma unroll
      for (int i = 0; i < AT_A_TIME; i++) v[i] = __ldcs(from + i * BENCH_THREADS);
    } else {
#pragma unroll
      for (int i = 0; i < AT_A_TIME; i++)
        if ((int)threadIdx.x + i * BENCH_THREADS < left) v[i] = __ldcs(from + i * BENCH_THREADS);
    }
#pragma unroll
    for (int i = 0; i < AT_A_TIME; i++) seen ^= v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
  }
  if (seen == 0x9e3779b9u) *sink = seen;
}

extern "C" __global__ void __launch_bounds__(BENCH_THREADS, 4)
bench_read4(const uint4 *data, int64_t count, int64_t share, uint32_t *sink) {
  read_all<4>(data, count, share, sink);
}

extern "C" __global__ void __launch_bounds__(BENCH_THREADS, 4)
bench_read8(const uint4 *data, int64_t count, int64_t share, uint32_t *sink) {
  read_all<8>(data, count, share, sink);
}

extern "C" __global__ void __launch_bounds__(BENCH_THREADS, 2)
bench_read16(const uint4 *data, int64_t count, int64_t share, uint32_t *sink) {
  read_all<16>(data, count, share, sink);
}

/* ---- checks ---- */

/* *total += number of elements that are no finite numbers. */
extern "C" __global__ void bench_count_bad(const uint16_t *data, int64_t count, int32_t dtype,
                                           unsigned long long *total) {
  unsigned long long mine = 0;
  for (int64_t i = thread_index(); i < count; i += thread_count())
    mine += !isfinite(value_of(dtype, data[i]));
  if (mine > 0) atomicAdd(total, mine);
}
