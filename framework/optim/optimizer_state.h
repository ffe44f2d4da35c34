#pragma once
// State of optimizers and averages of weights, and passes over it. Used inside framework only.

#include <omp.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "framework/engine/parameter.h"
#include "framework/optim/update.h"

namespace mpigrad::detail {

// Tensors grouped by the grid axes that split them into blocks, in the order of the list, which is the same on all ranks. The
// first group has the tensors that are not split.
struct BlockGroup {
  std::shared_ptr<const GridShape> grid{};  // none: not split
  std::vector<int> axes{};
  std::vector<std::size_t> places{};  // in the list
};
bool in_blocks(const Tensor& x);
std::vector<BlockGroup> block_groups(std::span<const Tensor> tensors);
// Sums numbers of blocks over ranks, so that they hold for the whole tensors; numbers.size() / tensors.size() numbers for each
// tensor. Collective among the ranks that hold blocks of a tensor.
void sum_blocks(std::span<const Tensor> tensors, std::span<double> numbers);

// Zeros with the types, devices and layouts of these tensors, in one arena per element type.
std::vector<Tensor> state_arena(std::span<const Tensor> values);
void require_packed(const char* what, const Parameters& parameters);
// Copies each tensor of `from` to the tensor of the same name in `to`. Errors: other names, types or devices; then nothing is
// copied.
void copy_named(const char* what, const std::vector<NamedTensor>& to, const std::vector<NamedTensor>& from);

template <class T>
T* as(std::byte* pointer) {
  return reinterpret_cast<T*>(pointer);
}
template <class T>
const T* as(const std::byte* pointer) {
  return reinterpret_cast<const T*>(pointer);
}

// Elements [begin, begin + count) of a segment.
UpdateSegment part_of(UpdateSegment segment, DType dtype, std::int64_t begin, std::int64_t count);

// Threads take equal shares of the elements of all arrays, whose first elements are at `first` in ascending order, and call
// f(array, begin, count) for their parts of arrays. Parts begin at multiples of a line: no two threads write to one cache line,
// and the remainder of the vector loop, which may round differently, is the same for any number of threads.
template <class First, class F>
void for_shares(std::size_t arrays, std::int64_t elements, const First& first, const F& f) {
  constexpr std::int64_t line = 16;  // elements
  const auto limit = std::max<std::int64_t>(1, elements / 16384);
  const int threads = static_cast<int>(std::min<std::int64_t>(omp_get_max_threads(), limit));
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
  for (int t = 0; t < threads; ++t)
    for (std::size_t s = 0; s < arrays; ++s) {
      const std::int64_t begin = first(s), count = (s + 1 < arrays ? first(s + 1) : elements) - begin;
      const auto cut = [&](int share) {
        const std::int64_t at = elements * share / threads - begin;
        return at <= 0 ? 0 : at >= count ? count : at / line * line;
      };
      if (cut(t) < cut(t + 1)) f(s, cut(t), cut(t + 1) - cut(t));
    }
}

}  // namespace mpigrad::detail
