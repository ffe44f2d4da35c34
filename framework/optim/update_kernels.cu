// The kernel of an optimizer's pass over all parameters: blocks of 4096 elements find their parameter in a table.

#include "framework/cuda/launch.cuh"
#include "framework/optim/rules/rules.h"
#include "framework/optim/update_kernels.h"

namespace mpigrad::cuda {
namespace {

// The entry of a block: the last one whose first block is not after it.
__device__ const UpdateEntry& entry_of(const UpdateEntry* entries, std::int64_t count, std::int64_t block) {
  std::int64_t low = 0, high = count;
  while (high - low > 1) {
    const std::int64_t middle = (low + high) / 2;
    if (entries[middle].first_block <= block) low = middle;
    else high = middle;
  }
  return entries[low];
}

template <class T>
struct Elements {
  T *value, *first, *second;
  const T* gradient;
  std::int64_t end;
  double rate, decay;
  bool ratio;
  std::int64_t number;
};
template <class T>
__device__ Elements<T> elements_of(const UpdateEntry& entry, std::int64_t block, const StepScalars* live = nullptr) {
  const auto& s = entry.segment;
  const std::int64_t at = (block - entry.first_block) * update_block, rest = s.count - at;
  const auto moved = [&](void* pointer) { return pointer ? static_cast<T*>(pointer) + at : nullptr; };
  return {moved(s.value),
          moved(s.state[0]),
          moved(s.state[1]),
          static_cast<const T*>(s.gradient) + at,
          rest < update_block ? rest : update_block,
          live ? live->learning_rate * s.rate : s.rate,
          s.decay,
          s.ratio,
          entry.number};
}

// A step's numbers for the elements.
template <class Rule, class T>
__device__ typename Rule::template Numbers<T> numbers_of(const RuleOfStep<Rule>& step, const Elements<T>& e) {
  double rate = e.rate;
  if constexpr (HasTrustRatio<Rule>)
    if (step.squares) {
      const double* squares = step.squares + 2 * e.number;
      rate *= trust_ratio(step.rule, e.ratio, squares[0], squares[1], e.decay);
    }
  return step.template numbers<T>(rate, e.decay);
}

// Reads numbers from GPU memory that are not in the kernel's arguments.
template <class Rule>
__device__ void take_numbers(RuleOfStep<Rule>& step, const StepScalars* live) {
  if (step.scale.on_gpu) step.scale.factor = *step.scale.on_gpu;
  if (live) step.correction1 = live->correction1, step.correction2 = live->correction2;
}

template <class T, class Rule>
__global__ void update_kernel(const UpdateEntry* entries, std::int64_t count, std::int64_t blocks, RuleOfStep<Rule> rule,
                              const StepScalars* live) {
  take_numbers(rule, live);
  for (std::int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const auto e = elements_of<T>(entry_of(entries, count, block), block, live);
    update_elements(e.value, e.gradient, e.first, e.second, threadIdx.x, e.end, blockDim.x, numbers_of(rule, e));
  }
}

// Sums over a block of 256 threads; thread 0 gets the sum.
__device__ double block_sum(double value) {
  __shared__ double shared[block_threads];
  shared[threadIdx.x] = value;
  __syncthreads();
  for (unsigned half = block_threads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  const double sum = shared[0];
  __syncthreads();
  return sum;
}

template <class T>
__global__ void squares_kernel(const UpdateEntry* entries, std::int64_t count, std::int64_t blocks, double* partial) {
  for (std::int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const auto e = elements_of<T>(entry_of(entries, count, block), block);
    double sum = 0;
    for (std::int64_t i = threadIdx.x; i < e.end; i += blockDim.x)
      sum += static_cast<double>(e.gradient[i]) * static_cast<double>(e.gradient[i]);
    sum = block_sum(sum);
    if (threadIdx.x == 0) partial[block] = sum;
  }
}

template <class T, class Rule>
__global__ void measure_kernel(const UpdateEntry* entries, std::int64_t count, std::int64_t blocks, RuleOfStep<Rule> rule,
                               const StepScalars* live, double* partial) {
  take_numbers(rule, live);
  for (std::int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const auto e = elements_of<T>(entry_of(entries, count, block), block, live);
    const auto a = numbers_of(rule, e);
    double weights = 0, steps = 0;
    for (std::int64_t i = threadIdx.x; i < e.end; i += blockDim.x) {
      if constexpr (requires(T & x) { a.prepare(x, x, x); }) a.prepare(e.gradient[i], e.first[i], e.second[i]);
      const double p = static_cast<double>(e.value[i]),
                   step = static_cast<double>(measured_step(e.value, e.gradient, e.first, e.second, i, a));
      weights += p * p;
      steps += step * step;
    }
    weights = block_sum(weights);
    steps = block_sum(steps);
    if (threadIdx.x == 0) partial[2 * block] = weights, partial[2 * block + 1] = steps;
  }
}

// One block for each entry, whose partial sums are contiguous.
__global__ void sum_measures_kernel(const UpdateEntry* entries, std::int64_t count, std::int64_t blocks, const double* partial,
                                    double* squares) {
  for (std::int64_t k = blockIdx.x; k < count; k += gridDim.x) {
    const std::int64_t begin = entries[k].first_block, end = k + 1 < count ? entries[k + 1].first_block : blocks;
    for (int of = 0; of < 2; ++of) {
      double sum = 0;
      for (std::int64_t i = begin + static_cast<std::int64_t>(threadIdx.x); i < end; i += blockDim.x) sum += partial[2 * i + of];
      sum = block_sum(sum);
      if (threadIdx.x == 0) squares[2 * entries[k].number + of] = sum;
    }
  }
}

__global__ void sum_kernel(const double* partial, std::int64_t count, double* total) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += partial[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *total = sum;
}

__global__ void clip_kernel(const double* squares, double scale, double max_norm, double* factor) {
  const double limit = max_norm / (fabs(scale) * sqrt(*squares) + 1e-6);
  *factor = limit > 1 ? scale : scale * limit;
}

unsigned at_most(std::int64_t blocks) { return static_cast<unsigned>(blocks < max_blocks ? blocks : max_blocks); }

}  // namespace

template <class T, class Rule>
void update_blocks(const UpdateEntry* entries, std::int64_t count, std::int64_t blocks, const RuleOfStep<Rule>& rule,
                   const StepScalars* live, Stream stream) {
  if (blocks == 0) return;
  launch("optimizer", update_kernel<T, Rule>, at_most(blocks), block_threads, stream, entries, count, blocks, rule, live);
}
template <class T, class Rule>
void measure_blocks(const UpdateEntry* entries, std::int64_t count, std::int64_t blocks, const RuleOfStep<Rule>& rule,
                    const StepScalars* live, double* partial, Stream stream) {
  if (blocks == 0) return;
  launch("optimizer", measure_kernel<T, Rule>, at_most(blocks), block_threads, stream, entries, count, blocks, rule, live,
         partial);
}
#define MPIGRAD_UPDATE_OF(T, Rule)                                                                                            \
  template void update_blocks<T>(const UpdateEntry*, std::int64_t, std::int64_t, const RuleOfStep<Rule>&, const StepScalars*, \
                                 Stream);
#define MPIGRAD_MEASURE_OF(T, Rule)                                                                                            \
  template void measure_blocks<T>(const UpdateEntry*, std::int64_t, std::int64_t, const RuleOfStep<Rule>&, const StepScalars*, \
                                  double*, Stream);
#define MPIGRAD_UPDATES(Rule) MPIGRAD_UPDATE_OF(float, Rule) MPIGRAD_UPDATE_OF(double, Rule)
#define MPIGRAD_MEASURES(Rule) MPIGRAD_MEASURE_OF(float, Rule) MPIGRAD_MEASURE_OF(double, Rule)
MPIGRAD_OPTIMIZER_RULES(MPIGRAD_UPDATES)
MPIGRAD_UPDATES(AverageRule)
MPIGRAD_TRUST_RATIO_RULES(MPIGRAD_MEASURES)

template <class T>
void squares_of_blocks(const UpdateEntry* entries, std::int64_t count, std::int64_t blocks, double* partial, Stream stream) {
  if (blocks == 0) return;
  launch("squared_norm", squares_kernel<T>, at_most(blocks), block_threads, stream, entries, count, blocks, partial);
}
template void squares_of_blocks<float>(const UpdateEntry*, std::int64_t, std::int64_t, double*, Stream);
template void squares_of_blocks<double>(const UpdateEntry*, std::int64_t, std::int64_t, double*, Stream);

void sum_measures(const UpdateEntry* entries, std::int64_t count, std::int64_t blocks, const double* partial, double* squares,
                  Stream stream) {
  if (count == 0) return;
  launch("optimizer", sum_measures_kernel, at_most(count), block_threads, stream, entries, count, blocks, partial, squares);
}

void sum_partial(const double* partial, std::int64_t count, double* total, Stream stream) {
  launch("squared_norm", sum_kernel, 1, block_threads, stream, partial, count, total);
}

void clip(const double* squares, double scale, double max_norm, double* factor, Stream stream) {
  launch("clip_norm", clip_kernel, 1, 1, stream, squares, scale, max_norm, factor);
}

}  // namespace mpigrad::cuda
