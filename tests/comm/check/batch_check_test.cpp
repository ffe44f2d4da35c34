// The audit of losses over divided batches: right losses pass, wrong ones are named with their factor.

#include <doctest/doctest.h>

#include <cmath>

#include "comm/check/batch_check.h"
#include "comm/collectives/collectives.h"
#include "comm/distributed/invariant.h"
#include "models/losses/contrastive/dino.h"
#include "models/losses/contrastive/pairs.h"
#include "models/losses/contrastive/spread.h"
#include "models/losses/contrastive/statistics.h"
#include "models/losses/ranking.h"
#include "ops/complex/complex.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tests/support/random.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

Tensors batch() { return {random_tensor({9, 4}, 1, DType::float64), random_tensor({9, 4}, 2, DType::float64)}; }

// The mean over samples of (x w)^2, on every rank.
Tensor mean_square(const Tensors& x, const Tensors& same, const Communicator& comm) {
  return allreduce(sum(square(matmul(x[0], replicate(same[0], comm)))), comm) * (1.0 / 9);
}

std::string audit(const BatchLoss& loss, int ranks, const Tensors& same = {}) {
  std::string message;
  on_ranks(ranks, [&](const Communicator& comm) {
    const auto report = batch_check(loss, batch(), comm, {.same = same});
    if (comm.rank() == 0) message = report.message;
  });
  return message;
}

}  // namespace

TEST_CASE("invariant: losses of the library do not depend on how a batch is divided") {
  const Tensor labels = from_vector({9}, {1, 0, 0, 1, 0, 1, 1, 0, 0}, DType::int64);
  for (const int ranks : {2, 3, 5})
    on_ranks(ranks, [&](const Communicator& comm) {
      using namespace contrastive;
      const auto x = batch();
      require_invariant(
          "nt_xent", [](auto& z, auto&, auto& c) { return nt_xent(z[0], z[1], c); }, x, comm);
      require_invariant(
          "vicreg", [](auto& z, auto&, auto& c) { return vicreg(z[0], z[1], c); }, x, comm);
      require_invariant(
          "lejepa", [](auto& z, auto&, auto& c) { return lejepa(z, c, {.key = 1}, {.sigreg = {.slices = 7}}); }, x, comm);
      require_invariant(
          "koleo", [](auto& z, auto&, auto& c) { return koleo(z[0], c); }, x, comm);
      // The centre is the mean of the whole batch: wrong if a rank takes its own.
      const auto self_distilled = [](auto& z, auto&, auto& c) {
        const Tensors student{z[0], z[1]}, teacher{constant(z[1]), constant(z[0])};
        return dino(student, teacher, next_centre(zeros({4}, DType::float64), teacher, c), c);
      };
      require_invariant("dino", self_distilled, x, comm);
      require_invariant("clip", [](auto& z, auto& same, auto& c) { return clip(z[0], z[1], same[0], c); }, x, comm,
                        {.same = {full({}, 1.1, DType::float64)}});
      require_invariant(
          "auc", [](auto& z, auto&, auto& c) { return auc_loss(slice(z[0], 1, 0, 1), z[1], c); }, {x[0], labels}, comm);
    });
}

TEST_CASE("invariant: wrong losses are named with their factor") {
  const Tensors w{random_tensor({4, 3}, 3, DType::float64)};
  for (const int ranks : {2, 4}) {
    CAPTURE(ranks);
    // The square of a mean, of which each rank returns 1 / P^power. On one rank it is the same whatever the power.
    const auto share = [](double power) {
      return [power](const Tensors& x, const Tensors& same, const Communicator& comm) {
        return square(mean_square(x, same, comm)) * std::pow(comm.size(), -power);
      };
    };
    CHECK(audit(share(1), ranks, w).empty());
    CHECK(audit(share(0), ranks, w).find(fmt::format("the gradient is {} times that of one rank", ranks)) == 0);
    CHECK(audit(share(2), ranks, w).find(fmt::format("the gradient is 1/{} of that of one rank", ranks)) == 0);
    // Pairs on the same rank only.
    const auto local = [](const Tensors& x, const Tensors&, const Communicator&) {
      return sum(square(matmul(x[0], x[1], {.transpose_b = true})));
    };
    CHECK(audit(local, ranks).find("misses pairs or statistics of other ranks") != std::string::npos);
    // Right gradient, wrong value.
    const auto shifted = [](const Tensors& x, const Tensors&, const Communicator&) { return sum(square(x[0])) + 1; };
    CHECK(audit(shifted, ranks).find("the loss differs from that of one rank by") == 0);
  }
  CHECK_THROWS_WITH(on_ranks(1, [](const Communicator& comm) { batch_check(mean_square, batch(), comm); }),
                    doctest::Contains("[invariant] a batch is divided over at least two ranks; this communicator has 1"));
}

TEST_CASE("invariant: NaN in any division is a failure, complex inputs are not") {
  // NaN on rank 0 where it has `count` samples: the balanced division, one sample, all but one.
  for (const std::int64_t count : {4, 1, 8})
    for (const bool of_value : {true, false}) {
      CAPTURE(count);
      CAPTURE(of_value);
      const auto loss = [=](const Tensors& x, const Tensors&, const Communicator& comm) -> Tensor {
        const auto share = sum(square(x[0]));
        if (comm.size() == 1 || comm.rank() != 0 || x[0].dim(0) != count) return share;
        return of_value ? share + std::nan("") : share + sum(sqrt(square(x[0] - constant(x[0]))));
      };
      CHECK(audit(loss, 2).find(of_value ? "the loss differs from that of one rank by nan" : "the gradient is not finite") == 0);
    }
  const auto x = batch();
  on_ranks(3, [&](const Communicator& comm) {
    require_invariant(
        "power", [](auto& z, auto&, auto&) { return sum(real(z[0] * conj(z[0]))); }, {complex(x[0], x[1])}, comm);
    CHECK_THROWS_WITH(batch_check([](auto& z, auto&, auto&) { return sum(z[0]); }, {slice(x[0], 0, 0, 1)}, comm),
                      "[invariant] a batch that is divided has at least two samples: float64 [1, 4]");
  });
}

TEST_CASE("invariant: small inputs, a loss of 0, and single precision") {
  // same[1] weighs 1e-11 of the rest: only its own gradient shows that it is not replicated.
  const Tensors w{random_tensor({4, 3}, 3, DType::float64), random_tensor({4, 1}, 4, DType::float64)};
  const auto small = [](bool right, double weight) {
    return [=](const Tensors& x, const Tensors& same, const Communicator& comm) {
      const auto one = replicate(same[0], comm), two = right ? replicate(same[1], comm) : same[1];
      return sum(square(matmul(x[0], one))) + sum(matmul(x[1], two)) * weight;
    };
  };
  CHECK(audit(small(true, 1e-11), 3, w).empty());
  CHECK(audit(small(false, 1e-11), 3, w).find("the gradient of same[1] is ") == 0);
  CHECK(audit(small(false, 0), 3, w).empty());
  // Sums that cancel to 0, but for rounding, in another order in each division.
  const auto x0 = batch()[0];
  on_ranks(3, [&](const Communicator& comm) {
    require_invariant(
        "sums", [](auto& x, auto&, auto&) { return sum(x[0]) + sum(x[1]); }, {x0, x0 * -1}, comm);
  });
  const auto shifted = [](const Tensors& x, const Tensors&, const Communicator& comm) {
    return relu(sum(x[0]) - 1000) + (comm.size() - 1) * 0.5;
  };
  CHECK(audit(shifted, 3) == "the loss is 3, that of one rank 0");
  // Single precision: sums of 2 and of 5 ranks agree to 1e-6, a factor does not hide.
  on_ranks(5, [&](const Communicator& comm) {
    Tensors x;
    for (const auto& each : batch()) x.push_back(cast(each, DType::float32));
    require_invariant(
        "nt_xent", [](auto& z, auto&, auto& c) { return contrastive::nt_xent(z[0], z[1], c); }, x, comm);
    const auto report = batch_check(
        [](auto& z, auto&, auto& c) { return contrastive::nt_xent(z[0], z[1], c) * (1 + 0.01 * (c.size() - 1)); }, x, comm);
    CHECK(report.message.find("the gradient is 1.04 times that of one rank") == 0);
    CHECK_THROWS(require_invariant("nt_xent", [](auto& z, auto&, auto& c) { return contrastive::nt_xent(z[0], z[1], c); }, x,
                                   comm, {.tolerance = 1e-15}));
  });
}
