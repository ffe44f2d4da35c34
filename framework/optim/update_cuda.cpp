// The table of an optimizer's pass, which is built on the host and copied without waiting.

#include "framework/optim/update_cuda.h"
#include "framework/base/error.h"
#include "framework/cuda/cuda.h"
#include "framework/optim/rules/rules.h"

#ifdef MPIGRAD_HAS_KERNELS
#include <optional>
#include <vector>

#include "framework/cuda/graph.h"
#include "framework/optim/update_kernels.h"

namespace mpigrad::cuda {

namespace {

// GPU memory that may be released as soon as the kernels that use it are issued, because kernels of the next user run after them.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::int64_t bytes) : data_(allocate(bytes)) {}
  ~DeviceMemory() { release(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_;
};

struct Table {
  std::vector<UpdateEntry> entries;
  std::int64_t blocks = 0;
  explicit Table(std::span<const UpdateSegment> segments) {
    for (const auto& segment : segments) {
      if (segment.count == 0) continue;
      entries.push_back({segment, blocks, &segment - segments.data()});
      blocks += (segment.count + update_block - 1) / update_block;
    }
  }
  std::int64_t bytes() const { return static_cast<std::int64_t>(entries.size() * sizeof(UpdateEntry)); }
};

// The sum of the squares of gradients of both types, on the GPU.
class Squares {
 public:
  Squares(std::span<const UpdateSegment> singles, std::span<const UpdateSegment> doubles) {
    const Table single(singles), twice(doubles);
    const auto blocks = single.blocks + twice.blocks;
    if (blocks == 0) return;
    partial_.emplace((blocks + 1) * static_cast<std::int64_t>(sizeof(double)));
    auto* sums = partial_->as<double>();
    of_blocks<float>(single, sums);
    of_blocks<double>(twice, sums + single.blocks);
    total_ = sums + blocks;
    sum_partial(sums, blocks, total_, compute_stream());
  }
  // Null if there are no elements.
  const double* total() const { return total_; }

 private:
  template <class T>
  static void of_blocks(const Table& table, double* sums) {
    if (table.blocks == 0) return;
    const DeviceMemory entries(table.bytes());
    copy_to_device(entries.as<void>(), table.entries.data(), table.bytes());
    squares_of_blocks<T>(entries.as<UpdateEntry>(), static_cast<std::int64_t>(table.entries.size()), table.blocks, sums,
                         compute_stream());
  }
  std::optional<DeviceMemory> partial_;
  double* total_ = nullptr;
};

}  // namespace

template <class Rule>
void update(DType dtype, std::span<const UpdateSegment> segments, const RuleOfStep<Rule>& rule) {
  const Table table(segments);
  if (table.blocks == 0) return;
  const DeviceMemory entries(table.bytes());
  copy_to_device(entries.as<void>(), table.entries.data(), table.bytes());
  visit_floating(dtype, [&](auto zero_of_type) {
    using T = decltype(zero_of_type);
    update_blocks<T>(entries.as<UpdateEntry>(), static_cast<std::int64_t>(table.entries.size()), table.blocks, rule,
                     live_scalars(), compute_stream());
  });
}

template <class Rule>
void measure(DType dtype, std::span<const UpdateSegment> segments, const RuleOfStep<Rule>& rule, double* squares) {
  constexpr auto width = static_cast<std::int64_t>(2 * sizeof(double));
  zero(squares, static_cast<std::int64_t>(segments.size()) * width);  // for segments without elements
  const Table table(segments);
  if (table.blocks == 0) return;
  const DeviceMemory entries(table.bytes()), partial(table.blocks * width);
  copy_to_device(entries.as<void>(), table.entries.data(), table.bytes());
  const auto count = static_cast<std::int64_t>(table.entries.size());
  visit_floating(dtype, [&](auto zero_of_type) {
    using T = decltype(zero_of_type);
    measure_blocks<T>(entries.as<UpdateEntry>(), count, table.blocks, rule, live_scalars(), partial.as<double>(),
                      compute_stream());
  });
  sum_measures(entries.as<UpdateEntry>(), count, table.blocks, partial.as<double>(), squares, compute_stream());
}

double squared_norm(DType dtype, std::span<const UpdateSegment> segments) {
  const bool single = dtype == DType::float32;
  const Squares squares(single ? segments : std::span<const UpdateSegment>(),
                        single ? std::span<const UpdateSegment>() : segments);
  if (!squares.total()) return 0;
  double total = 0;
  copy_to_host(&total, squares.total(), sizeof(double));
  return total;
}

void clip_factor(std::span<const UpdateSegment> singles, std::span<const UpdateSegment> doubles, double scale, double max_norm,
                 double* factor) {
  const Squares squares(singles, doubles);
  if (squares.total()) clip(squares.total(), scale, max_norm, factor, compute_stream());
  else fill(factor, 1, sizeof(double), &scale);
}

}  // namespace mpigrad::cuda
#else
namespace mpigrad::cuda {

namespace {

[[noreturn]] void without_kernels() { fail("[cuda] there are no kernels: {}", unavailable()); }

}  // namespace

template <class Rule>
void update(DType, std::span<const UpdateSegment>, const RuleOfStep<Rule>&) {
  without_kernels();
}
template <class Rule>
void measure(DType, std::span<const UpdateSegment>, const RuleOfStep<Rule>&, double*) {
  without_kernels();
}
double squared_norm(DType, std::span<const UpdateSegment>) { without_kernels(); }
void clip_factor(std::span<const UpdateSegment>, std::span<const UpdateSegment>, double, double, double*) { without_kernels(); }

}  // namespace mpigrad::cuda
#endif

namespace mpigrad::cuda {

#define MPIGRAD_MAKE_UPDATE(Rule) template void update(DType, std::span<const UpdateSegment>, const RuleOfStep<Rule>&);
#define MPIGRAD_MAKE_MEASURE(Rule) template void measure(DType, std::span<const UpdateSegment>, const RuleOfStep<Rule>&, double*);
MPIGRAD_OPTIMIZER_RULES(MPIGRAD_MAKE_UPDATE)
MPIGRAD_MAKE_UPDATE(AverageRule)
MPIGRAD_TRUST_RATIO_RULES(MPIGRAD_MAKE_MEASURE)

}  // namespace mpigrad::cuda
