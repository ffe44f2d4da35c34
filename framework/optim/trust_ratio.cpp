// The norms of trust ratios (framework/optim/rules/lars.h): sums over all elements of each parameter.

#include <algorithm>

#include "framework/cuda/cuda.h"
#include "framework/optim/optimizer.h"
#include "framework/optim/optimizer_state.h"

namespace mpigrad {

// Sums blocks whose boundaries do not depend on the number of threads, so neither do the sums.
std::vector<double> Optimizer::sum_squares(std::span<const UpdateSegment> segments, const Measure& measure,
                                           const NormReduction& reduce) const {
  constexpr std::int64_t block = 8192;
  struct Part {
    std::size_t parameter;
    std::int64_t begin, count;
    SquaredNorms squares{};
  };
  std::vector<Part> parts;
  for (std::size_t s = 0; s < segments.size(); ++s)
    for (std::int64_t begin = 0; begin < segments[s].count; begin += block)
      parts.push_back({s, begin, std::min(block, segments[s].count - begin)});
  const auto count = static_cast<std::int64_t>(parts.size());
#pragma omp parallel for schedule(static) if (count > 4)
  for (std::int64_t k = 0; k < count; ++k) {
    auto& part = parts[static_cast<std::size_t>(k)];
    const auto dtype = parameters_[part.parameter].value.dtype();
    part.squares = measure(dtype, detail::part_of(segments[part.parameter], dtype, part.begin, part.count));
  }
  std::vector<double> squares(2 * segments.size(), 0.0);
  for (const auto& part : parts) {
    squares[2 * part.parameter] += part.squares.weights;
    squares[2 * part.parameter + 1] += part.squares.step;
  }
  detail::sum_blocks(own_values(), squares);
  if (reduce) reduce(parameters_, squares);
  return squares;
}

void Optimizer::reduce_squares(std::span<const GpuGroup> groups, std::span<const Tensor> squares,
                               const NormReduction& reduce) const {
  constexpr auto width = static_cast<std::int64_t>(sizeof(double));
  const auto values = parameters_.tensors();
  if (!reduce && std::none_of(values.begin(), values.end(), detail::in_blocks)) return;
  std::vector<double> all(2 * parameters_.size(), 0.0), part;
  const auto for_parts = [&](const auto& f) {
    for (std::size_t k = 0; k < groups.size(); ++k) {
      part.resize(2 * groups[k].places.size());
      f(groups[k].places, squares[k].raw());
    }
  };
  for_parts([&](const std::vector<std::size_t>& places, const std::byte* from) {
    cuda::copy_to_host(part.data(), from, static_cast<std::int64_t>(part.size()) * width);
    for (std::size_t i = 0; i < part.size(); ++i) all[2 * places[i / 2] + i % 2] = part[i];
  });
  detail::sum_blocks(values, all);
  if (reduce) reduce(parameters_, all);
  for_parts([&](const std::vector<std::size_t>& places, std::byte* to) {
    for (std::size_t i = 0; i < part.size(); ++i) part[i] = all[2 * places[i / 2] + i % 2];
    cuda::copy_to_device(to, part.data(), static_cast<std::int64_t>(part.size()) * width);
  });
}

}  // namespace mpigrad
