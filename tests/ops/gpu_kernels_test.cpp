// Kernels on a GPU against the CPU at sizes that the table of ops does not have: several blocks, packs with a rest, unaligned
// addresses, reductions in chunks, all element types.

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <string_view>

#include "framework/base/joined.h"
#include "framework/engine/cost.h"
#include "models/nn/layers.h"
#include "ops/elementwise/elementwise.h"
#include "ops/norm/channel_norm.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/to_device.h"
#include "ops/views/views.h"
#include "tests/models/train/values.h"
#include "tests/ops/op_table.h"
#include "tests/support/gpu.h"
#include "tests/support/numbers.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

using Values = std::vector<double>;
using TensorFunction = std::function<Tensors(const Tensors&)>;

const std::vector<DType> floating{DType::float64, DType::float32, DType::bfloat16, DType::float16};
const std::vector<DType> integral{DType::int64, DType::int32, DType::int16, DType::uint8};
const std::vector<DType> every{DType::float64, DType::float32, DType::bfloat16, DType::float16, DType::int64,
                               DType::int32,   DType::int16,   DType::uint8,    DType::boolean};

double tolerance_of(DType type) {
  switch (type) {
    case DType::float64: return 1e-10;
    case DType::float32: return 1e-5;
    case DType::bfloat16: return 1e-2;
    case DType::float16: return 2e-3;
    default: return 0;
  }
}

// The same elements one element after an aligned address.
Tensor at_odd_address(const Tensor& x) {
  const auto item = size_of(x.dtype());
  const auto room = std::make_shared<Tensor>(TensorType{Shape{x.elements() + 1}, x.dtype()}, x.device());
  auto* data = room->raw() + item;
  cuda::copy_on_device(data, x.raw(), x.bytes());
  return Tensor::over(data, x.shape(), x.dtype(), x.device(), room);
}

// True if the bytes after the end of y in its block are unchanged: tests/emulated.sh fills them with a pattern.
bool untouched_behind(const Tensor& y) {
  const char* filled = std::getenv("MPIGRAD_GPU_POISON");
  if (!filled || std::string_view(filled) != "1") return true;
  const auto granule = cuda::CachingAllocator::granule, rest = (granule - y.bytes() % granule) % granule;
  std::vector<unsigned char> behind(static_cast<std::size_t>(rest), 0x7F);
  if (rest > 0) cuda::copy_to_host(behind.data(), y.raw() + y.bytes(), rest);
  return std::all_of(behind.begin(), behind.end(), [](unsigned char byte) { return byte == 0x7F; });
}

struct Case {
  std::string name;
  std::vector<Shape> operands;
  TensorFunction f;
};

// Compares f on the GPU, from aligned and from unaligned addresses, with f on the CPU (in float64 for floating-point types).
void check(const Case& c, const std::vector<DType>& types, double factor = 1) {
  for (const auto type : types) {
    INFO(c.name, ", ", std::string(name_of(type)));
    Tensors host, gpu, odd;
    for (std::size_t i = 0; i < c.operands.size(); ++i) {
      const auto values = numbers(c.operands[i], type, i + 1);
      host.push_back(from_vector(c.operands[i], values, is_floating(type) ? DType::float64 : type));
      gpu.push_back(to(from_vector(c.operands[i], values, type), DeviceKind::cuda));
      odd.push_back(at_odd_address(gpu.back()));
    }
    const auto wanted = c.f(host);
    const UseDevice device(DeviceKind::cuda);
    for (const auto& operands : {gpu, odd}) {
      const auto got = c.f(operands);
      REQUIRE(got.size() == wanted.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        CHECK(got[i].device() == DeviceKind::cuda);
        CHECK(got[i].shape() == wanted[i].shape());
        CHECK(untouched_behind(got[i]));
        CHECK(relative_error(got[i].to_vector(), wanted[i].to_vector()) <= factor * tolerance_of(type));
      }
    }
  }
}

#define F(...) [=](const Tensors& x) -> Tensors { return {__VA_ARGS__}; }

const std::vector<std::int64_t> lengths{0, 1, 3, 4, 7, 16, 255, 257, 5001};

}  // namespace

TEST_CASE("gpu: elementwise kernels of every length and type") {
  if (no_gpu("gpu: elementwise kernels of every length and type")) return;
  for (const auto n : lengths) {
    check({"exp", {{n}}, F(exp(x[0]))}, floating);
    check({"affine", {{n}}, F(affine(x[0], 2, 1))}, floating);
    check({"multiply", {{n}, {n}}, F(x[0] * x[1])}, every);
    check({"add", {{n}, {n}}, F(x[0] + x[1])}, every);
    check({"maximum", {{n}, {n}}, F(maximum(x[0], x[1]), minimum(x[0], x[1]))}, every);
    check({"where", {{n}, {n}}, F(where(less(x[0], x[1]), x[0], x[1]))}, every);
  }
  for (const auto& [a, b] : std::vector<std::pair<Shape, Shape>>{{{1}, {1000}},
                                                                 {{70, 1}, {1, 33}},
                                                                 {{5, 1, 7, 1}, {3, 1, 4}},
                                                                 {Shape{}, {3, 5}},
                                                                 {{2, 1, 2, 1, 2, 1}, {1, 3, 1, 3, 1, 3}}}) {
    check({"subtract, repeated", {a, b}, F(x[0] - x[1])}, {DType::float64, DType::float32, DType::bfloat16, DType::int32});
    check({"where, repeated", {a, b}, F(where(less_equal(x[0], x[1]), x[0], x[1]))}, every);
  }
}

TEST_CASE("gpu: more elements than threads of the largest grid") {
  if (no_gpu("gpu: more elements than threads of the largest grid")) return;
  const UseDevice device(DeviceKind::cuda);
  constexpr std::int64_t n = 16384 * 256 * 2 + 12345;
  const auto x = cast(full({n}, 3, DType::uint8), DType::float64);  // 16 bytes a thread
  CHECK(sum(x * x).to_vector()[0] == 9.0 * static_cast<double>(n));
  CHECK(slice(x + x, 0, n - 3, n).to_vector() == Values{6, 6, 6});
}

TEST_CASE("gpu: comparisons and conversions between all types, special values included") {
  if (no_gpu("gpu: comparisons and conversions between all types, special values included")) return;
  CostLog log;
  const Shape shape{301};
  for (const auto type : every) {
    const TensorFunction f = F(equal(x[0], x[1]), not_equal(x[0], x[1]), less(x[0], x[1]), less_equal(x[0], x[1]),
                               logical_and(equal(x[0], x[1]), less(x[0], x[1])), logical_or(equal(x[0], x[1]), less(x[0], x[1])));
    check({"comparisons", {shape, shape}, f}, {type});
    for (const auto other : every) {
      // Some integers have no negative counterpart.
      const Shape few{100};
      auto values = numbers(few, type, 3);
      if (!is_floating(other))
        for (auto& value : values) value = std::abs(value);
      const auto x = from_vector(few, values, type);
      INFO(std::string(name_of(type)), " to ", std::string(name_of(other)));
      CHECK(cast(to(x, DeviceKind::cuda), other).to_vector() == cast(x, other).to_vector());
    }
  }
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto type : floating) {
    INFO(std::string(name_of(type)));
    const Values special{0,     -0.0, 1,    -1,   infinity, -infinity, nan, 65504, 65520,
                         65536, 1e-8, 3e-5, 1e-3, 6e-8,     2.98e-8,   0.1, 1e38,  1e-40};
    const auto n = static_cast<std::int64_t>(special.size());
    const auto x = from_vector({n, 1}, special, type), y = from_vector({1, n}, special, type);
    const auto same = [&](const char* name, const std::function<Tensor(const Tensor&, const Tensor&)>& f) {
      INFO(name);
      const auto got = f(to(x, DeviceKind::cuda), to(y, DeviceKind::cuda)).to_vector(), wanted = f(x, y).to_vector();
      // NaN and rounding of 16-bit types are the same, too.
      CHECK(relative_error(got, wanted) <= (type == DType::float64 ? 1e-15 : 0x1p-22));
    };
    same("maximum", [](auto& a, auto& b) { return maximum(a, b); });
    same("minimum", [](auto& a, auto& b) { return minimum(a, b); });
    same("equal", [](auto& a, auto& b) { return cast(equal(a, b), DType::float32); });
    same("less", [](auto& a, auto& b) { return cast(less(a, b), DType::float32); });
    same("less_equal", [](auto& a, auto& b) { return cast(less_equal(a, b), DType::float32); });
    same("add", [](auto& a, auto& b) { return a + b; });
    same("relu", [](auto& a, auto&) { return relu(a); });
    same("clamp", [](auto& a, auto&) { return clamp(a, -2, 3); });
    same("sign", [](auto& a, auto&) { return sign(a); });
    for (const auto other : floating) same("cast", [=](auto& a, auto&) { return cast(a, other); });
  }
  for (const auto* name : {"equal", "not_equal", "less", "less_equal", "logical_and", "logical_or"}) {
    bool met = false;
    for (const auto& line : log.lines) met = met || line.op == name;
    CHECK(met);
  }
}

TEST_CASE("gpu: reductions and softmax of every form") {
  if (no_gpu("gpu: reductions and softmax of every form")) return;
  struct Form {
    Shape shape;
    std::vector<int> axes;
  };
  const std::vector<Form> forms{{{1}, {0}},
                                {{5000}, {0}},
                                {{40000}, {0}},
                                {{3, 70, 5}, {1}},
                                {{3, 70, 5}, {0, 2}},
                                {{300, 257}, {1}},
                                {{257, 300}, {0}},
                                {{6, 9000}, {1}},
                                {{9000, 6}, {0}},
                                {{9000, 1}, {0}},
                                {{2, 5, 4, 6, 16}, {0, 1, 2, 3}},
                                {{40, 1, 33}, {0}},
                                {{4, 700, 3}, {1}},
                                {{3, 2, 300, 2}, {0, 2}},
                                {{0, 4}, {0}},
                                {{4, 0}, {0}},
                                {{7, 8}, {}}};
  for (const auto& [shape, axes] : forms) {
    const auto over = axes;
    const auto text = fmt::format("{} over {}", shape, joined(axes, ","));
    check({"sum of " + text, {shape}, F(sum(x[0] * x[0], over))}, floating, 2);
    if (shape[0] > 0)
      check({"extrema of " + text, {shape}, F(max(x[0], over), min(x[0], over))},
            {DType::float64, DType::float32, DType::bfloat16, DType::float16, DType::int64, DType::int32, DType::int16,
             DType::uint8});
  }
  for (const auto& [shape, axis] :
       std::vector<std::pair<Shape, int>>{{{1}, 0}, {{5000}, 0}, {{7, 33, 5}, 1}, {{3, 100}, 1}, {{100, 3}, 0}}) {
    const int along = axis;
    check({fmt::format("argmax of {}", shape), {shape}, F(argmax(x[0], along))}, integral);
    check({fmt::format("argmax of {}", shape), {shape}, F(argmax(x[0], along))},
          {DType::boolean, DType::float64, DType::float32, DType::bfloat16});
  }
  // NaN wins at every position.
  for (const auto type : floating)
    for (const std::int64_t place : {0, 1, 31, 32, 200, 4999}) {
      Values values(5000, 1);
      values[static_cast<std::size_t>(place)] = std::numeric_limits<double>::quiet_NaN();
      for (const auto& shape : {Shape{5000}, Shape{5000, 1}, Shape{1, 5000}, Shape{50, 100}}) {
        const auto x = to(from_vector(shape, values, type), DeviceKind::cuda);
        CHECK(std::isnan(max(x).to_vector()[0]));
        CHECK(std::isnan(min(x).to_vector()[0]));
        CHECK(std::isnan(sum(x).to_vector()[0]));
      }
      CHECK(argmax(to(from_vector({5000}, values, type), DeviceKind::cuda), 0).to_vector()[0] == static_cast<double>(place));
    }
  for (const std::int64_t n : {1, 5, 64, 65, 1000, 1025, 3000})
    check({fmt::format("softmax of {}", n), {{3, n}}, F(softmax(x[0] * 8), log_softmax(x[0] * 8))}, floating, 2);
  const double infinity = std::numeric_limits<double>::infinity();
  const auto x = from_vector({3, 4}, {1000, 1000, 999, -1000, -infinity, 0, -infinity, 1, 5, -infinity, -infinity, -infinity},
                             DType::float64);
  CHECK(relative_error(softmax(to(x, DeviceKind::cuda)).to_vector(), softmax(x).to_vector()) < 1e-14);
  CHECK(relative_error(log_softmax(to(x, DeviceKind::cuda)).to_vector(), log_softmax(x).to_vector()) < 1e-14);
}

TEST_CASE("gpu: channels of every number") {
  if (no_gpu("gpu: channels of every number")) return;
  for (const std::int64_t rows : {0, 1, 7, 64, 1000, 5000})
    for (const std::int64_t c : {1, 3, 4, 8, 16, 33, 100}) {
      if (rows * c > (emulated() ? 40000 : 100000)) continue;
      const auto text = fmt::format("{} x {}", rows, c);
      if (rows > 0)
        check({"moments of " + text,
               {{rows, c}},
               [](const Tensors& x) -> Tensors {
                 const auto m = channel_moments(x[0]);
                 return {m.mean, m.m2};
               }},
              floating, 2);
      check({"affine of " + text, {{rows, c}, {c}, {c}, {c}}, F(channel_affine(x[0], wide(x[1]), wide(x[2]), wide(x[3])))},
            floating);
      check({"dots of " + text,
             {{rows, c}, {rows, c}, {c}},
             [](const Tensors& x) {
               return apply_all(ops::ChannelDots{}, {x[0], x[1], wide(x[2])});
             }},
            floating, 2);
    }
  // A large mean does not cost digits.
  Values values(4000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1e6 + static_cast<double>(i % 2);
  const auto m = channel_moments(to(from_vector({2000, 2}, values), DeviceKind::cuda));
  CHECK(m.mean.to_vector() == Values{1e6, 1e6 + 1});
  CHECK(m.m2.to_vector() == Values{0, 0});
  // A variance that overflows float32 becomes NaN, so that the normalised values are not 0.
  const auto x = to(random_normal({4, 3, 3, 3, 5}, {.key = 5}, 0, 1e30, DType::float32), DeviceKind::cuda);
  UseDevice device(DeviceKind::cuda);
  const auto moments = channel_moments(x);
  for (const double value : moments.m2.to_vector()) CHECK(std::isnan(value));
  for (const double value : moments.mean.to_vector()) CHECK(std::isfinite(value));
  const auto [y, statistics] = local::norm(x, ones({5}, DType::float32), zeros({5}, DType::float32), 1e-5);
  CHECK(std::isnan(y.to_vector()[0]));
}

TEST_CASE("gpu: rows by index, and views, of every type") {
  if (no_gpu("gpu: rows by index, and views, of every type")) return;
  for (const std::int64_t count : {0, 1, 5, 1024, 1025, 3000})
    for (const std::int64_t rows : {1, 7, 1500}) {
      Values places(static_cast<std::size_t>(count));
      const Philox random{.key = 5};
      for (std::size_t i = 0; i < places.size(); ++i)
        places[i] = static_cast<double>(random.below(i, static_cast<std::uint64_t>(rows)));
      const auto index = from_vector({count}, places, DType::int64);
      const auto f = [=](const Tensors& x) -> Tensors {
        const auto at = to(index, x[0].device());
        return {take(x[0], at), scatter_add(x[1], at, rows)};
      };
      for (const std::int64_t length : {1, 3})
        check({fmt::format("{} of {} rows of {}", count, rows, length), {{rows, length}, {count, length}}, f}, every, 4);
    }
  for (const auto type : every) {
    const auto index = from_vector({2, 3}, {0, 3, 1, 2, 2, 0}, DType::int64);
    CHECK(one_hot(to(index, DeviceKind::cuda), 4, type).to_vector() == one_hot(index, 4, type).to_vector());
  }
  for (const Shape& s : {Shape{3, 4, 5, 16}, Shape{2, 3, 7, 5}, Shape{4, 1, 6, 8}, Shape{2, 0, 3, 4}}) {
    const auto end = [&](int d) { return s[d]; };
    check({"views",
           {s},
           F(permute(x[0], {2, 0, 3, 1}), permute(x[0], {0, 2, 1, 3}), flip(x[0], {0, 3}), flip(x[0], {1}),
             slice(x[0], Shape{1, 0, 1, 0}, Shape{end(0), end(1), end(2), end(3)}),
             slice(x[0], Shape{0, 0, 0, 1}, Shape{end(0), end(1), end(2), end(3)}, {2, 1, 2, 3}),
             pad(x[0], Shape{1, 0, 2, 0}, Shape{0, 1, 1, 3}, 1), concatenate({x[0], x[0], x[0]}, 2), concatenate({x[0], x[0]}, 3),
             broadcast_to(x[0], Shape{2, s[0], s[1], s[2], s[3]}))},
          every);
  }
}

TEST_CASE("gpu: random numbers and initial values are the CPU's") {
  if (no_gpu("gpu: random numbers and initial values are the CPU's")) return;
  const Philox random{.key = 12, .stream = 3};
  for (const auto type : floating)
    for (const auto& shape : {Shape{1}, Shape{1001}, Shape{7, 5, 9}}) {
      const auto uniform = random_uniform(shape, random, -1, 3, type), normal = random_normal(shape, random, 0.5, 2, type);
      const auto x = from_vector(shape, numbers(shape, type, 1), type), dropped = dropout(x, 0.7, random);
      const UseDevice device(DeviceKind::cuda);
      CHECK(random_uniform(shape, random, -1, 3, type).to_vector() == uniform.to_vector());
      CHECK(relative_error(random_normal(shape, random, 0.5, 2, type).to_vector(), normal.to_vector()) <=
            tolerance_of(type) / 10);
      CHECK(dropout(to(x, DeviceKind::cuda), 0.7, random).to_vector() == dropped.to_vector());
    }
  const auto initial = [](DeviceKind on, DType dtype) {
    const UseDevice device(on);
    const Philox random{7, 9};
    Values values;
    append(values, nn::glorot_uniform(30, 50)({7, 33}, dtype, random));
    append(values, nn::constant_value(0.3)({5}, dtype, random));
    append(values, dropout(ones({1000}, dtype), 0.7, random));
    return values;
  };
  for (const auto dtype : {DType::float32, DType::float64})
    CHECK(initial(DeviceKind::cuda, dtype) == initial(DeviceKind::cpu, dtype));
  const auto normal = [](DeviceKind on) {
    const UseDevice device(on);
    return nn::he_normal(20)({1000}, DType::float64, Philox{7, 9}).to_vector();
  };
  CHECK(difference(normal(DeviceKind::cuda), normal(DeviceKind::cpu)) < 1e-14);
}
