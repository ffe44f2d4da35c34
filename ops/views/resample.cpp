#include "ops/views/resample.h"

#include <algorithm>
#include <cmath>

#include "framework/base/fnv.h"
#include "ops/kernel/plan_cache.h"
#include "ops/views/to_device.h"

namespace mpigrad {
namespace ops {
namespace {

struct Entry {
  std::int64_t row, column;
  double weight;
};

// Builds the rows from entries with ascending rows.
SparseRows rows_of(std::int64_t rows, const std::vector<Entry>& entries, DeviceKind device) {
  std::vector<double> first(static_cast<std::size_t>(rows) + 1), index, weight;
  for (const auto& e : entries) {
    first[static_cast<std::size_t>(e.row) + 1] += 1;
    index.push_back(static_cast<double>(e.column)), weight.push_back(e.weight);
  }
  for (std::size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
  UseDevice host(DeviceKind::cpu);
  const auto made = [&](const std::vector<double>& values, DType dtype) {
    return constant(to(from_vector({static_cast<std::int64_t>(values.size())}, values, dtype), device));
  };
  return {rows, made(first, DType::int64), made(index, DType::int64), made(weight, DType::float64)};
}

LineMap make_map(const LinePart& part, DeviceKind device) {
  std::vector<Entry> entries;
  for (auto o = part.out_begin; o < part.out_end; ++o) {
    const auto [low, high] = inputs_of(part.mode, part.n, part.m, o);
    require(low >= part.in_begin && high < part.in_end,
            "[resample] output {} reads the inputs {} to {}, but this part has {} to {}", o, low, high, part.in_begin,
            part.in_end);
    if (part.mode == Interpolation::area) {
      const double weight = 1 / static_cast<double>(high - low + 1);
      for (auto i = low; i <= high; ++i) entries.push_back({o - part.out_begin, i - part.in_begin, weight});
      continue;
    }
    const auto at = (static_cast<double>(o) + 0.5) * static_cast<double>(part.n) / static_cast<double>(part.m) - 0.5;
    const double share = low == high ? 0 : at - static_cast<double>(low);
    entries.push_back({o - part.out_begin, low - part.in_begin, 1 - share});
    if (share != 0) entries.push_back({o - part.out_begin, high - part.in_begin, share});
  }
  LineMap map{.forward = rows_of(part.out_end - part.out_begin, entries, device), .adjoint = {}};
  for (auto& e : entries) std::swap(e.row, e.column);
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.row < b.row; });
  map.adjoint = rows_of(part.in_end - part.in_begin, entries, device);
  return map;
}

struct Key {
  LinePart part;
  DeviceKind device;
  bool operator==(const Key&) const = default;
};
struct KeyHash {
  std::size_t operator()(const Key& key) const {
    auto h = fnv1a(fnv_start, static_cast<std::uint64_t>(key.part.mode) * 4 + static_cast<std::uint64_t>(key.device));
    for (const auto k : {key.part.n, key.part.m, key.part.in_begin, key.part.in_end, key.part.out_begin, key.part.out_end})
      h = fnv1a(h, static_cast<std::uint64_t>(k));
    return static_cast<std::size_t>(h);
  }
};

// The maps are kept, so that nothing is copied to a GPU twice and a captured step finds them there.
std::shared_ptr<const LineMap> map_of(const LinePart& part, DeviceKind device) {
  thread_local PlanCache<Key, LineMap, KeyHash> maps(256);
  return maps.find({part, device}, [&] { return make_map(part, device == DeviceKind::dry ? DeviceKind::cpu : device); });
}

}  // namespace

Types MapLines::infer(Inputs in) const {
  auto type = in[0].type();
  const auto& other = adjoint ? map->forward : map->adjoint;
  require(is_floating(type.dtype) && axis >= 0 && axis < type.shape.rank() && type.shape[axis] == other.rows,
          "[map_lines] needs {} floating-point places along dimension {}: {}", other.rows, axis, in[0]);
  type.shape[axis] = matrix().rows;
  return {type};
}
Cost MapLines::cost(Inputs in, Outputs out) const {
  const auto lines = static_cast<double>(in[0].elements()) / static_cast<double>(std::max<std::int64_t>(1, in[0].dim(axis)));
  return {.flops = 2 * lines * static_cast<double>(matrix().weight.elements()),
          .bytes = static_cast<double>((in[0].elements() + out[0].elements()) * size_of(in[0].dtype()))};
}
Tensors MapLines::vjp(const Replay&, Inputs g) const { return {mpigrad::apply(MapLines{map, axis, !adjoint}, {g[0]})}; }

}  // namespace ops

// floor((o + 1/2) n / m - 1/2) = floor(((2 o + 1) n - m) / (2 m))
std::pair<std::int64_t, std::int64_t> inputs_of(Interpolation mode, std::int64_t n, std::int64_t m, std::int64_t output) {
  if (mode == Interpolation::nearest) {
    const auto i = std::min(n - 1, output * n / m);
    return {i, i};
  }
  if (mode == Interpolation::area) return {output * n / m, ((output + 1) * n + m - 1) / m - 1};
  const auto twice = (2 * output + 1) * n - m;
  const auto low = twice < 0 ? 0 : std::min(n - 1, twice / (2 * m));
  const bool exact = twice < 0 || twice % (2 * m) == 0;
  return {low, exact ? low : std::min(n - 1, low + 1)};
}

Tensor interpolate_along(const Tensor& x, int axis, const LinePart& part) {
  require(!x.layout(), "[resample] works on local tensors: {}", x);
  if (part.n == part.m && part.in_begin == part.out_begin && part.in_end == part.out_end) return x;
  return mpigrad::apply(ops::MapLines{ops::map_of(part, x.device()), axis}, {x});
}

}  // namespace mpigrad
