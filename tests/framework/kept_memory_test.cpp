// Gradients that could only be wrong are refused: of constants, of data overwritten between forward and backward, of memory that
// the tape does not own.

#include "framework/engine/kept_memory.h"

#include <doctest/doctest.h>

#include <array>

#include "framework/engine/parameter.h"
#include "framework/optim/optimizer.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "tests/support/errors.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {
constexpr auto f64 = DType::float64;
}

TEST_CASE("gradient: an optimizer's step between forward and backward is refused") {
  Parameters parameters;
  parameters.add("w", from_vector({2}, {1, 2}, f64), true);
  parameters.pack();
  const auto& w = parameters[0].value;
  SGD sgd(parameters, {.learning_rate = 0.5});
  Tape early(parameters);
  const auto loss = sum(square(w));
  const auto linear = sum(w);
  {
    Tape tape(parameters);
    sgd.step(tape.gradient(sum(w)));
  }
  CHECK(early.gradient(linear, {w}, Record::yes)[0].to_vector() == std::vector<double>{1, 1});  // reads no element of w
  CHECK(error_text([&] {
          early.gradient(loss);
        }).starts_with("[square] an optimizer has made a step since this op was recorded, and the parameters that"));
  Tape late(parameters);
  CHECK(late.gradient(sum(square(w)))[0].to_vector() == std::vector<double>{1, 3});
}

TEST_CASE("gradient: wrapped memory that changes under a tape is refused where contents are compared") {
  detail::check_wrapped_memory(true);
  std::array<double, 2> memory{1, 2};
  const auto w = from_vector({2}, {3, 4}, f64);
  const auto gradient = [&](double change) {
    Tape tape;
    const auto loss = sum(constant(wrap(memory.data(), {2}, f64)) * w);
    memory[1] += change;
    return tape.gradient(loss, {w})[0].to_vector();
  };
  CHECK(gradient(0) == std::vector<double>{1, 2});
  CHECK(error_text([&] { gradient(5); }).starts_with("[multiply] wrapped memory has changed since this op was recorded"));
  detail::check_wrapped_memory(false);
}

TEST_CASE("gradient: of a constant it is refused") {
  const auto x = constant(ones({2})), w = ones({2});
  Tape tape;
  const auto loss = sum(x * w);
  CHECK(error_text([&] { tape.gradient(loss, {w, x}); }).starts_with("[gradient] of a constant, as are batches of a loader"));
  CHECK(error_text([&] { tape.gradient({}, {square(x)}); }).starts_with("[gradient] of a constant"));
  CHECK(tape.gradient(loss, {w})[0].to_vector() == std::vector<double>{1, 1});
}

TEST_CASE("wrap: memory that is none or lies between elements is refused") {
  alignas(8) std::array<std::byte, 24> memory{};
  CHECK(error_text([] { wrap(nullptr, {2}, f64); }) == "[wrap] the memory is a null pointer: float64 [2]");
  CHECK(error_text([&] { wrap(memory.data() + 4, {2}, f64); })
            .ends_with("is not a multiple of 8 bytes, the size of an element: "
                       "float64 [2]"));
  CHECK(wrap(memory.data() + 4, {2}, DType::float32).elements() == 2);
  CHECK(wrap(nullptr, {0}, f64).elements() == 0);
}
