/* Kernels of the GPU test: fills, poison, and a GLU in float64, one thread an output,
 * that shares nothing with the kernels under test.  Plain CUDA C. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "reference.h"

__device__ static uint64_t mix(uint64_t z) {
  z += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

__device__ static float load(int dtype, const void *base, int64_t i) {
  if (dtype == DTYPE_BF16) return __bfloat162float(((const __nv_bfloat16 *)base)[i]);
  return __half2float(((const __half *)base)[i]);
}

__device__ static void store(int dtype, void *base, int64_t i, float v) {
  if (dtype == DTYPE_BF16) {
    ((__nv_bfloat16 *)base)[i] = __float2bfloat16_rn(v);
  } else {
    ((__half *)base)[i] = __float2half_rn(v);
  }
}

/* Every 16-bit element of the buffer := its pattern, a function of its index. */
extern "C" __global__ void ref_pattern(uint16_t *data, int64_t count) {
  int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
    data[i] = PATTERN(i);
}

/* Rows x columns normal numbers of standard deviation `scale`; what lies between and
 * around stays. */
extern "C" __global__ void ref_fill(void *data, int dtype, int64_t rows, int64_t columns,
                                    int64_t ld, uint64_t seed, float scale) {
  int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < rows * columns;
       i += step) {
    uint64_t bits = mix(seed ^ mix((uint64_t)i));
    float u = ((uint32_t)bits + 0.5f) * 2.3283064e-10f, v = (uint32_t)(bits >> 32) * 2.3283064e-10f;
    u = u < 1e-7f ? 1e-7f : u;
    float normal = sqrtf(-2.0f * logf(u)) * cosf(6.2831853f * v);
    store(dtype, data, i / columns * ld + i % columns, scale * normal);
  }
}

/* Counts elements outside the rows x columns region at `first` that lost their pattern. */
extern "C" __global__ void ref_sentinels(const uint16_t *data, int64_t count, int64_t first,
                                         int64_t rows, int64_t columns, int64_t ld,
                                         ref_result *result) {
  int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    int64_t at = i - first;
    if (at >= 0 && at / ld < rows && at % ld < columns) continue;
    if (data[i] == PATTERN(i)) continue;
    if (atomicAdd(&result->overwritten, 1ull) == 0) result->overwritten_at = at;
  }
}

extern "C" __global__ void ref_differences(const uint16_t *a, const uint16_t *b, int64_t count,
                                           ref_result *result) {
  int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
    if (a[i] != b[i]) atomicAdd(&result->different, 1ull);
}

/* Holds its SM for `cycles`. */
extern "C" __global__ void ref_spin(int64_t cycles) {
  int64_t start = clock64();
  while (clock64() - start < cycles) {
  }
}

/* Nothing, with as many bytes of parameters as a kernel row has. */
extern "C" __global__ void ref_empty(const __grid_constant__ ref_parameters p) {
  if (p.bytes[0] == 1 && gridDim.x == 12345) __trap();
}

__device__ static double sigma(double z) { return 1.0 / (1.0 + exp(-z)); }

__device__ static double act(const ref_problem &p, double g) {
  switch (p.activation) {
    case 1: return g * sigma(g);
    case 2: return g * sigma(2.0 * sqrt(2.0 / 3.14159265358979323846) *
                             (g + 0.044715 * g * g * g));
    case 3: return 0.5 * g * erfc(-g * 0.70710678118654752440);
    case 4: return g > 0 ? g : (g != g ? g : 0.0);
    case 5: return sigma(g);
    default: return g * sigma((double)p.alpha * g);
  }
}

typedef struct sums { double gate, up; float gate_squares, up_squares; } sums;

/* Both accumulators of an output.  A product of two 16-bit numbers is exact in fp32. */
__device__ static sums dot(const ref_problem &p, int64_t row, int64_t column) {
  sums s = {0, 0, 0, 0};
  for (int64_t k = 0; k < p.k; k++) {
    float x = load(p.dtype, p.x, row * p.ldx + k);
    float gate = x * load(p.dtype, p.gate, column * p.ldw + k);
    float up = x * load(p.dtype, p.up, column * p.ldw + k);
    s.gate += (double)gate;
    s.up += (double)up;
    s.gate_squares += gate * gate;
    s.up_squares += up * up;
  }
  if (p.gate_bias) s.gate += load(p.dtype, p.gate_bias, column * p.bias_stride);
  if (p.up_bias) s.up += load(p.dtype, p.up_bias, column * p.bias_stride);
  return s;
}

/* How far an accumulator of the tensor cores may be off.  They add blocks of 16
 * products at a time and truncate, so at most one unit of the running sum is lost each
 * time; the running sum of signed terms stays within a few times the root of the sum of
 * their squares (and of what it ends at). */
__device__ static double accumulator_error(int64_t k, double value, float squares) {
  double reach = 4.0 * sqrtf(squares) + fabs(value);
  return ((double)k / 8 + 16) * 1.1920929e-7 * reach + 1e-38;
}

__device__ static double half_ulp(int dtype, double v) {
  int e;
  frexp(v, &e);                       /* v in [2^(e-1), 2^e) */
  int lowest = dtype == DTYPE_BF16 ? -125 : -13, bits = dtype == DTYPE_BF16 ? 8 : 11;
  if (v == 0 || e < lowest) e = lowest;
  return ldexp(1.0, e - 1 - bits);
}

typedef struct verdict { double reference, out, error, allowed; } verdict;

/* Output (row, column): the exact value and the distance that the contract allows. */
__device__ static verdict judge(const ref_problem &p, int64_t row, int64_t column) {
  sums s = dot(p, row, column);
  double g = s.gate, u = s.up;
  double ge = accumulator_error(p.k, g, s.gate_squares);
  double ue = accumulator_error(p.k, u, s.up_squares);
  if (p.activation == 6) {
    g = g > p.limit ? (double)p.limit : g;
    u = (u > p.limit ? (double)p.limit : u < -(double)p.limit ? -(double)p.limit : u) + p.offset;
    ue += 1e-7 * fabs(u);
  }
  double a = act(p, g), reference = a * u;
  double a_error = 1.2 * ge + fabs(a) * 1.6e-5 + (g < -20 ? 6e-8 : 0);
  double allowed = a_error * (fabs(u) + ue) + fabs(a) * ue + 2e-7 * fabs(reference);
  allowed += half_ulp(p.dtype, fabs(reference) + allowed);
  double out = load(p.dtype, p.out, row * p.ldo + column);
  double error = fabs(out - reference);
  if (p.dtype == DTYPE_F16 && fabs(reference) + allowed >= 65520.0 && isinf(out) &&
      (out > 0) == (reference > 0)) {
    error = 0;
  }
  verdict v = {reference, out, error, allowed};
  return v;
}

__device__ static double warp_sum(double v) {
  for (int lane = 16; lane > 0; lane /= 2) v += __shfl_xor_sync(0xffffffff, v, lane);
  return v;
}

/* Output (row, column) of a linear: every term is added in fp32, then rounded once. */
__device__ static verdict judge(const ref_linear &p, int64_t row, int64_t column) {
  double sum = 0;
  float squares = 0;
  for (int64_t k = 0; k < p.k; k++) {
    float product = load(p.dtype, p.x, row * p.ldx + k) * load(p.dtype, p.w, column * p.ldw + k);
    sum += (double)product;
    squares += product * product;
  }
  double bias = p.bias ? load(p.dtype, p.bias, column) : 0.0f;
  double residual = p.residual ? load(p.dtype, p.residual, row * p.ldr + column) : 0.0f;
  double reference = sum + bias + residual;
  double allowed = accumulator_error(p.k, sum, squares) +
                   3e-7 * (fabs(sum) + fabs(bias) + fabs(residual));
  allowed += half_ulp(p.dtype, fabs(reference) + allowed);
  double out = load(p.dtype, p.out, row * p.ldo + column);
  verdict v = {reference, out, fabs(out - reference), allowed};
  return v;
}

/* Judges rows first_row, first_row + row_step, ...; values: exact outputs, or NULL. */
template <typename problem>
__device__ static void judge_all(const problem &p, int64_t first_row, int64_t row_step,
                                 ref_result *result, double *values) {
  int64_t rows = (p.m - first_row + row_step - 1) / row_step;
  int64_t step = (int64_t)gridDim.x * blockDim.x;
  double compared = 0, off = 0, errors = 0, squares = 0;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < rows * p.n; i += step) {
    int64_t row = first_row + i / p.n * row_step, column = i % p.n;
    verdict v = judge(p, row, column);
    if (values) values[row * p.n + column] = v.reference;
    compared += 1;
    if (!(v.error <= v.allowed)) {
      if (atomicAdd(&result->wrong, 1ull) == 0) {
        result->wrong_row = row;
        result->wrong_column = column;
        result->wrong_value = v.out;
        result->wrong_reference = v.reference;
        result->wrong_allowed = v.allowed;
      }
      continue;
    }
    errors += v.error * v.error;
    squares += isinf(v.out) ? 0 : v.reference * v.reference;
    off += v.error > 0.01 * fabs(v.reference);
  }
  compared = warp_sum(compared);
  off = warp_sum(off);
  errors = warp_sum(errors);
  squares = warp_sum(squares);
  if (threadIdx.x % 32 == 0) {
    atomicAdd(&result->compared, (unsigned long long)compared);
    atomicAdd(&result->off_by_1pct, (unsigned long long)off);
    atomicAdd(&result->error_squares, errors);
    atomicAdd(&result->reference_squares, squares);
  }
}

extern "C" __global__ void ref_judge(ref_problem p, int64_t first_row, int64_t row_step,
                                     ref_result *result, double *values) {
  judge_all(p, first_row, row_step, result, values);
}

extern "C" __global__ void ref_judge_linear(ref_linear p, int64_t first_row, int64_t row_step,
                                            ref_result *result) {
  judge_all(p, first_row, row_step, result, (double *)0);
}

/* ---- planted bugs, one for each tool of compute-sanitizer (part `planted`) ---- */
/* memcheck: writes one element beyond `count`. */
extern "C" __global__ void planted_write(uint16_t *data, int64_t count) {
  if (threadIdx.x == 0) data[count] = 1;
}
/* initcheck: reads memory that nothing wrote. */
extern "C" __global__ void planted_read(uint16_t *data, int64_t count) {
  if (threadIdx.x == 0 && data[count - 1] == 0x1234) data[0] = 2;
}
/* racecheck: reads a neighbour's word of shared memory without a barrier between. */
extern "C" __global__ void planted_race(uint16_t *data, int64_t count) {
  __shared__ int words[256];
  words[threadIdx.x] = (int)threadIdx.x;
  const int other = words[255 - threadIdx.x];
  if (threadIdx.x < count) data[threadIdx.x] = (uint16_t)other;
}
/* synccheck: thread 0 of each warp syncs with a mask that leaves it out. */
extern "C" __global__ void planted_sync(uint16_t *data, int64_t count) {
  __syncwarp(0xfffffffeu);
  if (threadIdx.x < count) data[threadIdx.x] = 3;
}
