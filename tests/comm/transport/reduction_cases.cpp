// Reductions against sums and products computed locally by each rank, and against all orders of rounded steps.

#include <algorithm>
#include <limits>
#include <set>

#include "tests/comm/transport/transport_cases.h"

namespace mpigrad::transport_cases {
namespace {

// All possible results of combining the numbers in pairs, in any order, with rounding to T each time.
template <class T>
std::set<float> any_order(const std::vector<T>& x, CombineOp op) {
  std::vector<std::set<float>> of(std::size_t{1} << x.size());  // indexed by set of ranks
  for (std::size_t r = 0; r < x.size(); ++r) of[std::size_t{1} << r] = {x[r]};
  for (std::size_t ranks = 1; ranks < of.size(); ++ranks)
    for (std::size_t part = (ranks - 1) & ranks; part > 0; part = (part - 1) & ranks)
      for (const float a : of[part])
        for (const float b : of[ranks & ~part])
          of[ranks].insert(T(op == CombineOp::sum    ? a + b
                             : op == CombineOp::prod ? a * b
                             : op == CombineOp::max  ? std::max(a, b)
                                                     : std::min(a, b)));
  return of.back();
}

// Results with more digits than T has, rounded at each step. Every fifth element of max and min has a NaN, which wins.
template <class T>
void check_rounding(Transport& t, CombineOp op) {
  const std::int64_t count = 60;
  const auto number = [&](int rank, std::int64_t i) {
    const auto k = static_cast<float>((37 * (rank + 1) * (i + 3) + 11 * i * i) % 251);
    if ((op == CombineOp::max || op == CombineOp::min) && i % 5 == 0 && rank == i % t.size())
      return T(std::numeric_limits<float>::quiet_NaN());
    return T(op == CombineOp::prod ? 1 + k / 251 : (k - 100) * (i % 2 == 0 ? 1.0F : 0.013F));
  };
  std::vector<T> in, out(count), later(count);
  for (std::int64_t i = 0; i < count; ++i) in.push_back(number(t.rank(), i));
  t.allreduce(in.data(), out.data(), count, dtype_of<T>(), op);
  auto pending = t.start_allreduce(in.data(), later.data(), count, dtype_of<T>(), op);
  pending.wait();
  for (std::int64_t i = 0; i < count; ++i) {
    std::vector<T> all;
    bool number_wins = true;
    for (int r = 0; r < t.size(); ++r) {
      all.push_back(number(r, i));
      number_wins = number_wins && all.back() == all.back();
    }
    for (const float y : {float(out[static_cast<std::size_t>(i)]), float(later[static_cast<std::size_t>(i)])})
      require(number_wins ? any_order(all, op).contains(y) : y != y,
              "[transport_cases] {} of {} at {} on {} ranks: no order of rounded steps gives {}", name_of(op),
              name_of(dtype_of<T>()), i, t.size(), y);
  }
}

}  // namespace

void check_reductions(Transport& t, DType type, CombineOp op, std::int64_t count) {
  const int size = t.size(), rank = t.rank();
  const auto what = [&](const char* call) {
    return fmt::format("{} {} of {} on rank {} of {}", call, name_of(op), count, rank, size);
  };
  for (const bool in_place : {false, true}) {
    Buffer in = filled(rank, count, type), out(type, count);
    t.allreduce(in.data(), in_place ? in.data() : out.data(), count, type, op);
    for (std::int64_t i = 0; i < count; ++i) expect(in_place ? in : out, i, reduced(size, i, type, op), what("allreduce"));
  }
  for (const bool in_place : {false, true}) {
    Buffer in = filled(rank, count, type), out(type, count);
    auto pending = t.start_allreduce(in.data(), in_place ? in.data() : out.data(), count, type, op);
    pending.wait();
    pending.wait();
    for (std::int64_t i = 0; i < count; ++i) expect(in_place ? in : out, i, reduced(size, i, type, op), what("start_allreduce"));
  }
  const int root = size - 1;
  for (const bool in_place : {false, true}) {
    Buffer in = filled(rank, count, type), out(type, count);
    t.reduce(in.data(), rank != root ? nullptr : in_place ? in.data() : out.data(), count, type, op, root);
    for (std::int64_t i = 0; i < count; ++i)
      expect(rank == root && in_place ? in
             : rank == root           ? out
                                      : in,
             i, rank == root ? reduced(size, i, type, op) : value(rank, i, type), what("reduce"));
  }
  const auto counts = uneven(size);
  std::int64_t total = 0, first = 0;
  for (int r = 0; r < size; ++r) {
    if (r < rank) first += counts[static_cast<std::size_t>(r)];
    total += counts[static_cast<std::size_t>(r)];
  }
  Buffer in = filled(rank, total, type), out(type, counts[static_cast<std::size_t>(rank)]);
  t.reduce_scatter(in.data(), out.data(), counts, type, op);
  for (std::int64_t i = 0; i < out.count; ++i) expect(out, i, reduced(size, first + i, type, op), what("reduce_scatter"));
}

void check_half_rounding(Transport& t) {
  for (auto op : all_reductions)
    if (allowed(DType::bfloat16, op)) check_rounding<BFloat16>(t, op), check_rounding<Float16>(t, op);
}

void check_overlap(Transport& t) {
  const std::int64_t n = 3000;
  Buffer a = filled(t.rank(), n, DType::float32), b = filled(t.rank(), n, DType::float64), c(DType::int32, 4);
  auto first = t.start_allreduce(a.data(), a.data(), n, DType::float32, CombineOp::sum);
  auto second = t.start_allreduce(b.data(), b.data(), n, DType::float64, CombineOp::max);
  Buffer d = filled(t.rank(), 4, DType::int32);
  t.allreduce(d.data(), c.data(), 4, DType::int32, CombineOp::sum);
  second.wait();
  first = {};  // waits
  for (std::int64_t i = 0; i < n; ++i) {
    expect(a, i, reduced(t.size(), i, DType::float32, CombineOp::sum), "first of two reductions");
    expect(b, i, reduced(t.size(), i, DType::float64, CombineOp::max), "second of two reductions");
  }
}

}  // namespace mpigrad::transport_cases
