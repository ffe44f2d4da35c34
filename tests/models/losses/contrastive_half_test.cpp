// Contrastive losses of 16-bit embeddings: computed in float32, with cotangents in the embeddings' type.

#include <doctest/doctest.h>

#include <cmath>

#include "comm/distributed/distributed.h"
#include "comm/distributed/invariant.h"
#include "models/losses/contrastive/gradient_cache.h"
#include "models/losses/contrastive/pairs.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/views/views.h"
#include "tests/models/losses/contrastive_cases.h"
#include "tests/support/gradient_check.h"
#include "tests/support/random.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;
using namespace mpigrad::testing::contrastive;
namespace losses = mpigrad::contrastive;

TEST_CASE("contrastive: 16-bit embeddings are computed with in float32") {
  for (const auto type : {DType::bfloat16, DType::float16})
    for (const auto& loss : cases()) {
      check_on_ranks(2, loss.name, [&](const Communicator& comm) {
        const auto part = part_of(comm, balanced(2));
        Tensors rounded, wide;
        for (int v = 0; v < loss.views; ++v) {
          rounded.push_back(part.of(random_tensor({samples, width}, 40 + static_cast<std::uint64_t>(v), type)).as_variable());
          wide.push_back(constant(cast(rounded.back(), DType::float32)).as_variable());
        }
        const auto gradient = [&](const Tensors& z, double& value) {
          Tape tape;
          const auto share = loss.share(z, learned_of(loss, DType::float32), part);
          require(share.dtype() == DType::float32, "[test] the share is {}", share);
          value = share.item();
          return tape.gradient(share, z);
        };
        double a = 0, b = 0;
        const auto found = gradient(rounded, a), expected = gradient(wide, b);
        require(a == b, "[test] shares {} and {}", a, b);
        for (std::size_t v = 0; v < found.size(); ++v) {
          require(found[v].dtype() == type, "[test] {}", found[v]);
          require_close("cotangent", cast(found[v], DType::float32), cast(cast(expected[v], type), DType::float32), 1e-30);
        }
      });
    }
}

TEST_CASE("contrastive: 16-bit gradients on any number of ranks are those of one, to their precision") {
  for (const auto& loss : cases()) {
    auto rounded = loss;
    rounded.share = [&](const Tensors& z, const Tensors& learned, const Part& at) {
      Tensors half;
      for (const auto& view : z) half.push_back(cast(view, DType::bfloat16));
      return loss.share(half, learned, at);
    };
    Gradient expected, wide;
    on_ranks(1, [&](const Communicator& comm) {
      expected = gradient_of(rounded, part_of(comm, balanced(1)), DType::float32);
      wide = gradient_of(loss, part_of(comm, balanced(1)), DType::float32);
      // The embeddings have eight bits only, so the gradient is close to that of float32 but not equal.
      const double lost = relative_difference(expected, wide, part_of(comm, balanced(1)));
      INFO(loss.name, ": ", lost);
      CHECK(lost < 0.1);
      CHECK(lost > 1e-4);
    });
    for (const int size : {2, 3, 5})
      check_on_ranks(size, loss.name, [&](const Communicator& comm) {
        const auto part = part_of(comm, lopsided(size));
        const auto found = gradient_of(rounded, part, DType::float32);
        require(std::abs(found.value - expected.value) < 1e-5 * std::abs(expected.value), "[test] {} and {}", found.value,
                expected.value);
        // Cotangents whose float32 value is midway between two bfloat16 numbers may be rounded either way.
        const double difference = relative_difference(found, expected, part);
        require(difference < 4e-3, "[test] {}", difference);
      });
  }
}

TEST_CASE("contrastive: cached gradients of 16-bit embeddings") {
  for (const int size : {1, 3})
    check_on_ranks(size, "gradient cache", [&](const Communicator& comm) {
      const auto part = part_of(comm, lopsided(size));
      Parameters parameters;
      parameters.add("w", weights(DType::float32), true);
      parameters.pack();
      const auto encode = [&](std::int64_t begin, std::int64_t end) {
        Tensors views;
        for (const int view : {0, 1}) {
          const auto x = slice(part.of(inputs_of(view, DType::float32)), 0, begin, end);
          views.push_back(cast(linear(x, replicate(parameters[0].value, comm)), DType::bfloat16));
        }
        return views;
      };
      const auto loss = [&](const Tensors& z) {
        return losses::nt_xent(z[0], z[1], comm, {.form = losses::Form::ring, .tile = 3});
      };
      Tape tape(parameters);
      const auto share = loss(encode(0, part.here));
      const auto expected = tape.gradient(share);
      const auto found = losses::cached_gradient(parameters, encode, loss, comm, {.samples = part.here, .chunk = 2});
      require(found.gradients[0].dtype() == DType::float32, "[test] {}", found.gradients[0]);
      require_close("w", found.gradients[0], expected[0], 1e-5);
    });
}
