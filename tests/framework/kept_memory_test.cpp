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

TEST_CASE("gradient: memory of the program that changes under a tape is refused where contents are compared") {
  detail::check_foreign_memory(true);
  std::array<double, 2> memory{1, 2};
  const auto w = from_vector({2}, {3, 4}, f64);
  const auto gradient = [&](double change) {
    Tape tape;
    const auto loss = sum(constant(Tensor::over(memory.data(), {2}, f64)) * w);
    memory[1] += change;
    return tape.gradient(loss, {w})[0].to_vector();
  };
  CHECK(gradient(0) == std::vector<double>{1, 2});
  CHECK(
      error_text([&] { gradient(5); }).starts_with("[multiply] memory of the program (Tensor::over) has changed since this op"));
  detail::check_foreign_memory(false);
}

TEST_CASE("gradient: writes to memory of the program that the library sees are refused, in any build") {
  detail::check_foreign_memory(false);
  std::array<double, 2> memory{1, 2};
  auto x = Tensor::over(memory.data(), {2}, f64);
  const auto w = from_vector({2}, {3, 4}, f64);
  for (const bool announced : {true, false}) {
    x.mutable_data<double>()[0] += 1;  // before: this is allowed
    Tape product, linear;
    const auto loss = sum(x * w), other = sum(x + w);
    if (announced) memory[1] = 7, x.storage()->note_write();
    else x.mutable_data<double>()[1] = 8;
    CHECK(error_text([&] {
            product.gradient(loss, {w});
          }).starts_with("[multiply] memory of the program (Tensor::over) has changed since this op was recorded, and its vjp"));
    CHECK(linear.gradient(other, {w})[0].to_vector() == std::vector<double>{1, 1});  // reads no element of x
  }
  Tape tape;
  CHECK(tape.gradient(sum(x * w), {w})[0].to_vector() == std::vector<double>{3, 8});
}

TEST_CASE("gradient: of a constant it is refused") {
  const auto x = constant(ones({2})), w = ones({2});
  Tape tape;
  const auto loss = sum(x * w);
  CHECK(error_text([&] { tape.gradient(loss, {w, x}); }).starts_with("[gradient] of a constant, as are batches of a loader"));
  CHECK(error_text([&] { tape.gradient({}, {square(x)}); }).starts_with("[gradient] of a constant"));
  CHECK(tape.gradient(loss, {w})[0].to_vector() == std::vector<double>{1, 1});
}
