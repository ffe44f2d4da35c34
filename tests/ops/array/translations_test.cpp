// Every row of the page for users of PyTorch, JAX and NumPy (examples/first/from_numpy.md) compiles and runs.

#include <doctest/doctest.h>

#include <concepts>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "comm/comm.h"
#include "framework/framework.h"
#include "models/models.h"
#include "ops/ops.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// Computes and reads the result of a row.
template <class T>
void use(const T& value) {
  if constexpr (std::derived_from<T, Tensor>) require(!value.to_vector().empty(), "[test] no elements");
}
void use(const std::vector<Tensor>& values) {
  require(!values.empty(), "[test] no tensor");
  for (const auto& each : values) use(each);
}
void use(const std::pair<Tensor, Tensor>& values) { use(values.first), use(values.second); }

struct Row {
  std::string code;
  std::function<void()> run;
};

// The variables that the page uses.
struct Page {
  explicit Page(const Communicator& world) : comm(world) {
    net.add<nn::Conv3d>("first", {.out = 3, .kernel = 3, .padding = 1});
    net.add<nn::GlobalAvgPool>("mean");
    net.build(Shape{2, 4, 4, 4, 2}, {.dtype = DType::float64});
  }

  std::vector<Row> rows() {
    return {
#define TOPIC(...)
#define ROW(numpy, torch, jax, ...) {#__VA_ARGS__, [&] { use(__VA_ARGS__); }},
#include "tests/ops/array/translations.inc"
#undef ROW
#undef TOPIC
    };
  }

  static Tensor random(const Shape& shape, std::uint64_t key) {
    return random_uniform(shape, {.key = key}, 0.2, 0.9, DType::float64);
  }
  static Tensor integers(const Shape& shape, std::initializer_list<double> values) {
    return from_vector(shape, values, DType::int64);
  }

  Communicator comm;
  GridPtr grid = make_grid(comm, {.depth = comm.size()});
  std::vector<double> memory = std::vector<double>(6, 1.5);
  Tensor x = random({2, 3}, 1), y = random({2, 3}, 2), z = random({2, 3}, 3), a = random({2, 3}, 4), b = random({3, 4}, 5);
  Tensor v = random({3}, 6), u = random({1, 3}, 7), w = random({4, 3}, 8), bias = random({4}, 9);
  Tensor i = integers({2, 3}, {1, 2, 3, 4, 5, 6}), j = integers({2, 3}, {0, 1, 2, 0, 1, 2}), n = integers({2}, {1, 0});
  Tensor k = integers({2, 2}, {0, 2, 1, 1}), labels = integers({4}, {0, 2, 1, 0}), m = x < y;
  Tensor logits = random({4, 3}, 10), volumes = random({2, 4, 4, 4, 2}, 11), filters = random({2, 3, 3, 3, 2}, 12);
  Tensor pictures = random({2, 4, 4, 2}, 13), filters2 = random({3, 3, 3, 2}, 14), lines = random({2, 5, 2}, 15);
  Tensor filters1 = random({3, 3, 2}, 16), c = complex(x, y);
  FunctionOfTensor f = [](const Tensor&at) { return sum(pow(at, 3)); }, g = [](const Tensor&at) { return square(at); };
  nn::Sequential net;
};

}  // namespace

TEST_CASE("translations: every row of the page for those who come from PyTorch, JAX and NumPy runs") {
  check_on_ranks(1, "translations", [](const Communicator& world) {
    Page page(world);
    std::string failed;
    const auto rows = page.rows();
    for (const auto& row : rows) {
#ifdef MPIGRAD_WITHOUT_FFTW
      if (row.code.find("fft(") != std::string::npos) continue;
#endif
      try {
        row.run();
      } catch (const std::exception& error) {
        failed += fmt::format("\n{}: {}", row.code, error.what());
      }
    }
    require(rows.size() > 200 && failed.empty(), "[test] {} rows{}", rows.size(), failed);
  });
}

TEST_CASE("statistics: a list of one dimension is not taken for a correction or an order") {
  const Tensor x = from_vector({2, 2}, {1, 3, 5, 9}, DType::float64);
  CHECK(var(x, {1}).to_vector() == std::vector<double>{1, 4});
  CHECK(stddev(x, {1}).to_vector() == std::vector<double>{1, 2});
  CHECK(vector_norm(x, {1}).shape() == Shape{2});
  CHECK(var(x, 1).to_vector() == std::vector<double>{35.0 / 3});
  CHECK(vector_norm(x, 1).to_vector() == std::vector<double>{18});
}
