// Contrastive losses, direct and around a ring, on a GPU: values and gradients equal those of the CPU.

#include <doctest/doctest.h>

#include "framework/base/error.h"
#include "ops/views/to_device.h"
#include "tests/models/losses/contrastive_cases.h"
#include "tests/support/gpu.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

TEST_CASE("gpu: contrastive losses and their gradients") {
  if (no_cublas("gpu: contrastive losses and their gradients")) return;
  for (const auto& loss : contrastive::cases())
    for (const auto& [dtype, tolerance] : {std::pair{DType::float64, 1e-10}, std::pair{DType::float32, 1e-5}}) {
      const auto type = dtype;
      contrastive::Gradient expected;
      on_ranks(1, [&](const Communicator& comm) {
        expected = contrastive::gradient_of(loss, contrastive::part_of(comm, contrastive::balanced(1)), type);
      });
      for (const int ranks : {1, 2, 3}) {
        double value = 0, difference = 1;
        INFO(loss.name, ", ", name_of(type), ", ", ranks, " ranks");
        CHECK_NOTHROW(on_ranks(ranks, [&](const Communicator& comm) {
          const auto part = contrastive::part_of(comm, contrastive::lopsided(ranks));
          UseDevice gpu(DeviceKind::cuda);
          const auto found = contrastive::gradient_of(loss, part, type);
          for (const auto& g : found.embeddings) require(g.device() == DeviceKind::cuda, "[test] a gradient is not on the GPU");
          const auto off = contrastive::relative_difference(found, expected, part);
          if (comm.rank() == 0) value = found.value, difference = off;
        }));
        CHECK(std::abs(value - expected.value) <= tolerance * std::abs(expected.value));
        CHECK(difference <= tolerance);
      }
    }
}
