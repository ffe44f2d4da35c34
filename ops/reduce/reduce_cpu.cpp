#include "ops/reduce/reduce.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "framework/base/target_clones.h"
#include "framework/tensor/visit_width.h"
#include "ops/elementwise/broadcast.h"
#include "ops/kernel/parts.h"

namespace mpigrad::ops {
namespace {

constexpr std::int64_t parallel_sums_from = 1 << 15;

// Dimensions of x merged into alternating runs of kept and reduced ones, so that the loops below see few long dimensions.
struct Plan {
  std::vector<std::int64_t> kept_extents, kept_strides, reduced_extents, reduced_strides;
};

Plan plan(const Shape& shape, const std::vector<int>& axes) {
  Plan result;
  const auto strides = shape.strides();
  int last = -1;  // 0 kept, 1 reduced
  for (int d = 0; d < shape.rank(); ++d) {
    if (shape[d] == 1) continue;
    const int kind = std::find(axes.begin(), axes.end(), d) != axes.end() ? 1 : 0;
    auto& extents = kind ? result.reduced_extents : result.kept_extents;
    auto& steps = kind ? result.reduced_strides : result.kept_strides;
    if (kind == last) {
      extents.back() *= shape[d];
      steps.back() = strides[static_cast<std::size_t>(d)];
    } else {
      extents.push_back(shape[d]);
      steps.push_back(strides[static_cast<std::size_t>(d)]);
    }
    last = kind;
  }
  return result;
}

std::int64_t product(const std::vector<std::int64_t>& values) {
  std::int64_t result = 1;
  for (const auto value : values) result *= value;
  return result;
}

std::int64_t offset(std::int64_t index, const std::vector<std::int64_t>& extents, const std::vector<std::int64_t>& strides) {
  std::int64_t result = 0;
  for (std::size_t d = extents.size(); d-- > 0;) {
    result += index % extents[d] * strides[d];
    index /= extents[d];
  }
  return result;
}

struct Plus {
  double operator()(double total, double x) const { return total + x; }
};

// totals[i] = fold of element i of `rows` rows that are `step` apart.
template <class T, class Accumulator, class Fold>
MPIGRAD_BODY void fold_rows_body(std::int64_t rows, std::int64_t width, std::int64_t step, const T* __restrict x,
                                 Accumulator* totals, const Fold& fold) {
  for (std::int64_t r = 0; r < rows; ++r, x += step)
    for (std::int64_t i = 0; i < width; ++i) totals[i] = fold(totals[i], x[i]);
}
template <class T, class Accumulator, class Fold>
void fold_rows(std::int64_t rows, std::int64_t width, std::int64_t step, const T* x, Accumulator* totals, const Fold& fold) {
  fold_rows_body(rows, width, step, x, totals, fold);
}
MPIGRAD_CLONES void fold_rows(std::int64_t rows, std::int64_t width, std::int64_t step, const float* x, double* totals,
                              const Plus& fold) {
  fold_rows_body(rows, width, step, x, totals, fold);
}
MPIGRAD_CLONES void fold_rows(std::int64_t rows, std::int64_t width, std::int64_t step, const double* x, double* totals,
                              const Plus& fold) {
  fold_rows_body(rows, width, step, x, totals, fold);
}

// y[kept] = fold over the reduced elements; one pass that reads rows of the last merged dimension contiguously.
template <class T, class Accumulator, class Fold>
void reduce(const T* x, T* y, const Plan& plan, Accumulator start, const Fold& fold) {
  const std::int64_t outputs = product(plan.kept_extents), count = product(plan.reduced_extents);
  const bool rows_kept = !plan.kept_strides.empty() && plan.kept_strides.back() == 1;
  if (!rows_kept) {  // the reduced dimension is contiguous: chunks of it in parallel when there are few outputs
    const std::int64_t length = plan.reduced_extents.empty() ? 1 : plan.reduced_extents.back();
    const std::int64_t rows = length ? count / length : 0;
    const auto row_sum = [&](const T* from, std::int64_t n) {
      Accumulator total = start;
      for (std::int64_t i = 0; i < n; ++i) total = fold(total, from[i]);
      return total;
    };
    if (outputs == 1 && rows == 1 && length >= parallel_sums_from) {
      constexpr std::int64_t chunk = 1 << 13;  // fixed, so that the result does not depend on the number of threads
      const std::int64_t chunks = (length + chunk - 1) / chunk;
      std::vector<Accumulator> partial(static_cast<std::size_t>(chunks));
#pragma omp parallel for schedule(static)
      for (std::int64_t c = 0; c < chunks; ++c)
        partial[static_cast<std::size_t>(c)] = row_sum(x + c * chunk, std::min(chunk, length - c * chunk));
      Accumulator total = start;
      for (const auto& value : partial) total = fold(total, value);
      y[0] = static_cast<T>(total);
      return;
    }
    cpu::for_parts(outputs, outputs * count >= parallel_sums_from, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t o = begin; o < end; ++o) {
        const T* base = x + offset(o, plan.kept_extents, plan.kept_strides);
        Accumulator total = start;
        for (std::int64_t r = 0; r < rows; ++r)
          total = fold(total, row_sum(base + offset(r * length, plan.reduced_extents, plan.reduced_strides), length));
        y[o] = static_cast<T>(total);
      }
    });
    return;
  }
  // The kept dimension is contiguous (sums over all but the channels): whole rows are folded into a row of accumulators.
  const std::int64_t width = plan.kept_extents.back(), blocks = width ? outputs / width : 0;
  const std::int64_t run = plan.reduced_extents.empty() ? 1 : plan.reduced_extents.back();  // equally spaced rows
  const std::int64_t step = plan.reduced_strides.empty() ? 0 : plan.reduced_strides.back();
  constexpr std::int64_t chunk = 2048;
  const std::int64_t chunks = std::max<std::int64_t>(1, (count + chunk - 1) / chunk);
  std::vector<Accumulator> partial(static_cast<std::size_t>(chunks * width));
  for (std::int64_t b = 0; b < blocks; ++b) {
    const T* base = x + offset(b * width, plan.kept_extents, plan.kept_strides);
    std::fill(partial.begin(), partial.end(), start);
    cpu::for_parts(chunks, count * width >= parallel_sums_from, [&](std::int64_t low, std::int64_t high) {
      for (std::int64_t c = low; c < high; ++c) {
        Accumulator* totals = partial.data() + c * width;
        const std::int64_t end = std::min(count, (c + 1) * chunk);
        for (std::int64_t r = c * chunk; r < end;) {
          const std::int64_t rows = std::min(end - r, run - r % run);
          fold_rows(rows, width, step, base + offset(r, plan.reduced_extents, plan.reduced_strides), totals, fold);
          r += rows;
        }
      }
    });
    for (std::int64_t i = 0; i < width; ++i) {
      Accumulator total = start;
      for (std::int64_t c = 0; c < chunks; ++c) total = fold(total, partial[static_cast<std::size_t>(c * width + i)]);
      y[b * width + i] = static_cast<T>(total);
    }
  }
}

}  // namespace

void Sum::run(Cpu, Inputs in, Outputs out) const {
  visit_sums(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* x = in[0].data<T>();
    T* y = out[0].mutable_data<T>();
    const auto p = plan(in[0].shape(), axes);
    if constexpr (is_floating(dtype_of<T>())) reduce(x, y, p, 0.0, Plus{});
    else  // modulo 2^64, as for integers
      reduce(x, y, p, std::uint64_t{0},
             [](std::uint64_t total, auto value) { return total + static_cast<std::uint64_t>(value); });
  });
}

void BroadcastTo::run(Cpu, Inputs in, Outputs out) const {
  visit_width(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    auto walk = walk_of(shape, broadcast_strides(in[0].shape(), shape)).collapsed();
    if (walk.rank == 0) walk.add(1, {1});
    const auto inner = static_cast<std::size_t>(walk.rank - 1);
    const auto& strides = walk.strides[0];
    const std::int64_t length = walk.extents[inner], elements = shape.elements();
    const std::int64_t run =
        inner > 0 && strides[inner - 1] == 0 ? walk.extents[inner - 1] : 1;  // equal rows, one after the other
    constexpr std::int64_t piece = 4096;                                     // elements that a thread takes at once
    const T* x = reinterpret_cast<const T*>(in[0].raw());
    T* y = reinterpret_cast<T*>(out[0].raw());
#pragma omp parallel for if (elements >= parallel_sums_from) schedule(static)
    for (std::int64_t first = 0; first < elements; first += piece)
      for (std::int64_t i = first, end = std::min(elements, first + piece); i < end;) {
        const std::int64_t row = i / length, column = i - row * length, n = std::min(length - column, end - i);
        std::int64_t at = column * strides[inner], rest = row;
        for (std::size_t d = inner; d-- > 0; rest /= walk.extents[d]) at += rest % walk.extents[d] * strides[d];
        if (strides[inner] == 0) std::fill_n(y + i, n, x[at]);
        else std::copy_n(x + at, n, y + i);
        const std::int64_t equal = n == length ? std::min((end - i) / length, run - row % run) : 1;
        for (std::int64_t done = 1; done < equal; done *= 2)
          std::copy_n(y + i, std::min(done, equal - done) * length, y + i + done * length);
        i += equal * n;
      }
  });
}

void Extremum::run(Cpu, Inputs in, Outputs out) const {
  visit_arithmetic(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    using Limits = std::numeric_limits<T>;
    const auto p = plan(in[0].shape(), axes);
    if constexpr (std::is_same_v<T, bool>) {
      fail("[max/min] of booleans; cast to uint8 first: {}", in[0]);
    } else {
      const T* x = in[0].data<T>();
      T* y = out[0].mutable_data<T>();
      const T lowest = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
      const T highest = Limits::has_infinity ? Limits::infinity() : Limits::max();
      if (largest) reduce(x, y, p, lowest, [](T a, T b) { return a < b || b != b ? b : a; });
      else reduce(x, y, p, highest, [](T a, T b) { return b < a || b != b ? b : a; });
    }
  });
}

void ArgMax::run(Cpu, Inputs in, Outputs out) const {
  visit_arithmetic(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto& shape = in[0].shape();
    const std::int64_t before = shape.elements(0, axis), n = shape[axis], behind = shape.elements(axis + 1, shape.rank());
    const T* x = in[0].data<T>();
    auto* y = out[0].mutable_data<std::int64_t>();
    for (std::int64_t i = 0; i < before; ++i)
      for (std::int64_t j = 0; j < behind; ++j) {
        const T* from = x + i * n * behind + j;
        std::int64_t best = 0;
        for (std::int64_t k = 1; k < n; ++k) {
          const T a = from[best * behind], b = from[k * behind];
          if (a == a && (a < b || b != b)) best = k;
        }
        y[i * behind + j] = best;
      }
  });
}

}  // namespace mpigrad::ops
