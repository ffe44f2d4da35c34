// Tensors over memory of the program: lifetimes, reading and writing, what is refused. kept_memory_test.cpp tests changes of such
// memory under a tape.

#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <optional>

#include "framework/engine/parameter.h"
#include "framework/engine/tape.h"
#include "framework/optim/optimizer.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/to_device.h"
#include "ops/views/views.h"
#include "tests/support/errors.h"
#include "tests/support/gpu.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

constexpr auto f64 = DType::float64;
using Values = std::vector<double>;

// Memory of a program, and whether it is still held.
struct Lent {
  std::shared_ptr<Values> memory = std::make_shared<Values>(Values{1, 2, 3});
  std::weak_ptr<Values> watch = memory;
  Tensor tensor() {
    auto* data = memory->data();
    return Tensor::over(data, {3}, f64, DeviceKind::cpu, std::exchange(memory, nullptr));
  }
  bool held() const { return !watch.expired(); }
};

}  // namespace

TEST_CASE("over: the tensor is the memory, and to_vector() and data() read it") {
  Values memory{1, 2, 3, 4, 5, 6};
  Tensor x = Tensor::over(memory.data(), {2, 3}, f64);
  CHECK(x.data<double>() == memory.data());
  CHECK(reshape(x, {3, 2}).data<double>() == memory.data());
  memory[4] = 50;
  CHECK(x.to_vector() == Values{1, 2, 3, 4, 50, 6});
  x.mutable_data<double>()[0] = 10;
  CHECK(memory[0] == 10);
  CHECK_FALSE(x.is_constant());
  Tape tape;
  const auto y = sum(x * x);
  CHECK(tape.gradient(y, {x})[0].to_vector() == Values{20, 4, 6, 8, 100, 12});
  CHECK(memory == Values{10, 2, 3, 4, 50, 6});
}

TEST_CASE("over: the memory is released with the last tensor that uses it") {
  Lent lent;
  Tensor x = lent.tensor(), part = reshape(x, {3, 1});
  x = {};
  CHECK(lent.held());
  const auto copy = part * 2.0;
  part = {};
  CHECK_FALSE(lent.held());
  CHECK(copy.to_vector() == Values{2, 4, 6});
}

TEST_CASE("over: a tape holds the memory until it is replayed or gone, if a vjp reads it") {
  for (const bool replayed : {true, false}) {
    Lent squared, added;
    const auto w = ones({3}, f64);
    std::optional<Tape> tape(std::in_place);
    const auto loss = sum(constant(squared.tensor()) * w + constant(added.tensor()));
    CHECK(squared.held());
    CHECK_FALSE(added.held());
    if (replayed) CHECK(tape->gradient(loss, {w})[0].to_vector() == Values{1, 2, 3});
    else tape.reset();
    CHECK_FALSE(squared.held());
  }
}

TEST_CASE("over: an owner may be any function that runs at the end") {
  Values memory{4};
  int ended = 0;
  Tensor x = Tensor::over(memory.data(), {1}, f64, DeviceKind::cpu,
                          std::shared_ptr<void>(static_cast<void*>(nullptr), [&](void*) { ++ended; }));
  CHECK(x.item() == 4);
  CHECK(ended == 0);
  x = {};
  CHECK(ended == 1);
}

TEST_CASE("over: read-only memory is read, and neither filled nor trained") {
  const Values memory{1, 2};
  Tensor x = Tensor::over(memory.data(), {2}, f64);
  CHECK(sum(x).item() == 3);
  CHECK(error_text([&] { x.mutable_data<double>(); }) ==
        "[tensor] the memory is read-only, as it was given to Tensor::over() by a pointer to const: float64 [2]");
  Parameters parameters;
  CHECK(error_text([&] { parameters.add("w", x, true); }) ==
        "[parameter] w lies in read-only memory, which an optimizer would change: float64 [2]");
}

TEST_CASE("over: a parameter in memory of the program stays there, and steps arrive in it") {
  std::array<double, 2> memory{1, 2};
  Parameters parameters;
  parameters.add("own", Tensor::over(memory.data(), {2}, f64), true);
  parameters.add("other", from_vector({1}, {5}, f64), true);
  parameters.pack();
  CHECK(parameters[0].value.data<double>() == memory.data());
  SGD sgd(parameters, {.learning_rate = 0.5});
  Tape tape(parameters);
  sgd.step(tape.gradient(sum(square(parameters[0].value)) + sum(parameters[1].value)));
  CHECK(memory == std::array<double, 2>{0, 0});
  CHECK(parameters[1].value.item() == 4.5);
}

TEST_CASE("over: memory that is none, lies between elements or on no device is refused") {
  alignas(8) std::array<std::byte, 24> memory{};
  double* none = nullptr;
  CHECK(error_text([&] { Tensor::over(none, {2}, f64); }) == "[over] the memory is a null pointer: float64 [2]");
  CHECK(error_text([&] { Tensor::over(memory.data() + 4, {2}, f64); })
            .ends_with("is no multiple of 8 bytes, the size of an element: "
                       "float64 [2]"));
  CHECK(error_text([&] { Tensor::over(memory.data(), {2}, f64, DeviceKind::dry); }) ==
        "[over] the dry device has no memory: float64 [2]");
  CHECK(Tensor::over(memory.data() + 4, {2}, DType::float32).elements() == 2);
  CHECK(Tensor::over(none, {0}, f64).elements() == 0);
  if (!cuda::available())
    CHECK(error_text([&] { Tensor::over(memory.data(), {2}, f64, DeviceKind::cuda); }).ends_with(": float64 [2]"));
}

TEST_CASE("gpu: over: memory on a GPU is used without a copy, and released with the last tensor") {
  if (no_gpu("over on a GPU")) return;
  auto owned = std::make_shared<Tensor>(to(from_vector({3}, {1, 2, 3}, f64), DeviceKind::cuda));
  const std::weak_ptr<Tensor> watch = owned;
  void* data = owned->raw();
  Tensor x = Tensor::over(data, {3}, f64, DeviceKind::cuda, std::exchange(owned, nullptr));
  CHECK(x.raw() == data);
  Tape tape;
  const auto loss = sum(square(x));
  CHECK(tape.gradient(loss, {x})[0].to_vector() == Values{2, 4, 6});
  const auto y = x * 2.0;
  x = {};
  CHECK(watch.expired());
  CHECK(y.to_vector() == Values{2, 4, 6});
}
