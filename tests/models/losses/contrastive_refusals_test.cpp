// Batches that contrastive losses cannot use: the same error on all ranks, before anything changes.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "comm/distributed/distributed.h"
#include "comm/distributed/invariant.h"
#include "framework/optim/optimizer.h"
#include "models/losses/contrastive/dino.h"
#include "models/losses/contrastive/moco.h"
#include "models/losses/contrastive/pairs.h"
#include "models/losses/contrastive/statistics.h"
#include "models/losses/contrastive/swav.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "tests/models/losses/contrastive_cases.h"
#include "tests/support/gradient_check.h"
#include "tests/support/random.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;
using namespace mpigrad::testing::contrastive;
namespace losses = mpigrad::contrastive;

namespace {

// The errors of all ranks; an exception on one rank does not end the others.
std::vector<std::string> texts_of(int ranks, const std::function<void(const Communicator&)>& body) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  on_ranks(ranks, [&](const Communicator& comm) {
    texts[static_cast<std::size_t>(comm.rank())] = error_text([&] { body(comm); });
    barrier(comm);  // no messages are left over
  });
  return texts;
}
void check_refused(const std::string& expected, const std::function<void(const Communicator&)>& body, int ranks = 3) {
  for (const auto& text : texts_of(ranks, body)) CHECK(text == expected);
}

}  // namespace

TEST_CASE("contrastive: a batch that cannot be used is the same error on all ranks") {
  const auto good = [](const Communicator& comm, std::int64_t n = 2, std::int64_t d = width, std::uint64_t seed = 1) {
    return random_tensor({n, d}, 100 * seed + static_cast<std::uint64_t>(comm.rank()));
  };
  const auto with = [](const Tensor& z, std::int64_t row, double value) {
    auto values = z.to_vector();
    for (std::int64_t j = 0; j < z.dim(1); ++j)
      if (value == 0 || j == 1) values[static_cast<std::size_t>(row * z.dim(1) + j)] = value;
    return from_vector(z.shape(), values, z.dtype());
  };
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  check_refused("[nt_xent] needs at least 2 samples in all ranks together, the batch has 1", [&](const Communicator& comm) {
    losses::nt_xent(good(comm, comm.rank() == 1 ? 1 : 0), good(comm, comm.rank() == 1 ? 1 : 0), comm);
  });
  for (const double value : {nan, infinity, -infinity})
    check_refused("[nt_xent] the embedding of sample 3 (rank 1, its sample 1, view 1) is not finite",
                  [&](const Communicator& comm) {
                    const auto b = good(comm, 2, width, 2);
                    losses::nt_xent(good(comm), comm.rank() == 0 ? b : with(b, comm.rank() == 1 ? 1 : 0, value), comm);
                  });
  check_refused("[barlow_twins] the embedding of sample 4 (rank 2, its sample 0, view 0) is not finite",
                [&](const Communicator& comm) {
                  const auto a = good(comm);
                  losses::barlow_twins(comm.rank() == 2 ? with(a, 0, nan) : a, good(comm), comm);
                });
  check_refused(
      "[clip] the embedding of sample 1 (rank 0, its sample 1, view 0) is zero and has no direction (refuse_zeros = false allows "
      "it)",
      [&](const Communicator& comm) {
        const auto a = good(comm);
        losses::clip(comm.rank() == 0 ? with(a, 1, 0) : a, good(comm), ones({}, DType::float64), comm);
      });
  check_refused("[vicreg] ranks have embeddings of different widths: 5 on rank 0, 6 on rank 2", [&](const Communicator& comm) {
    const auto d = comm.rank() == 2 ? width + 1 : width;
    losses::vicreg(good(comm, 2, d), good(comm, 2, d), comm);
  });
  check_refused("[spectral] ranks have embeddings of different types: float64 on rank 0, float32 on rank 1",
                [&](const Communicator& comm) {
                  const auto z = comm.rank() == 1 ? cast(good(comm), DType::float32) : good(comm);
                  losses::spectral(z, z, comm);
                });
  check_refused("[siglip] all views have one shape and type; those of rank 1 differ", [&](const Communicator& comm) {
    const auto one = ones({}, DType::float64);
    losses::siglip(good(comm), good(comm, comm.rank() == 1 ? 3 : 2), one, one, comm);
  });
  check_refused("[moco] embeddings are floating-point matrices [samples, width]; those of rank 2 are not",
                [&](const Communicator& comm) {
                  const auto z = comm.rank() == 2 ? ones({3}, DType::float64) : good(comm);
                  losses::moco(z, z, ones({4, width}, DType::float64), comm);
                });
  for (const double temperature : {0.0, -0.1, nan})
    check_refused(fmt::format("[nt_xent] the temperature is positive and finite, got {} on rank 1", temperature),
                  [&](const Communicator& comm) {
                    losses::nt_xent(good(comm), good(comm), comm, {.temperature = comm.rank() == 1 ? temperature : 0.1});
                  });
  check_refused("[swav] ranks have different temperatures: 0.1 on rank 0, 0.2 on rank 2", [&](const Communicator& comm) {
    losses::swav({good(comm), good(comm)}, good(comm), comm, {.temperature = comm.rank() == 2 ? 0.2 : 0.1});
  });
  check_refused("[clip] the learned scale or bias is not finite on rank 0: nan",
                [&](const Communicator& comm) { losses::clip(good(comm), good(comm), full({}, nan, DType::float64), comm); });
}

namespace {

// Every loss with its other arguments, by name.
struct NamedLoss {
  std::string name;
  std::function<void(const Tensor& a, const Tensor& b, double temperature, const Communicator&)> run;
  bool has_temperature = false, has_direction = false;
  std::int64_t smallest = 2;
};
const std::vector<NamedLoss>& all_losses() {
  using C = const Communicator&;
  using T = const Tensor&;
  const auto one = [] { return ones({}, DType::float64); };
  const auto rows = [](T z) { return ones({4, z.dim(1)}, z.dtype()); };
  static const std::vector<NamedLoss> list{
      {"nt_xent", [](T a, T b, double t, C comm) { losses::nt_xent(a, b, comm, {.temperature = t}); }, true, true},
      {"sup_con",
       [](T a, T, double t, C comm) { losses::sup_con(a, constant(zeros({a.dim(0)}, DType::int64)), comm, {.temperature = t}); },
       true, true},
      {"clip", [=](T a, T b, double, C comm) { losses::clip(a, b, one(), comm); }, false, true},
      {"siglip", [=](T a, T b, double, C comm) { losses::siglip(a, b, one(), one(), comm); }, false, true, 1},
      {"barlow_twins", [](T a, T b, double, C comm) { losses::barlow_twins(a, b, comm); }},
      {"vicreg", [](T a, T b, double, C comm) { losses::vicreg(a, b, comm); }},
      {"spectral", [](T a, T b, double, C comm) { losses::spectral(a, b, comm, {.all_pairs = false}); }},
      {"moco", [=](T a, T b, double t, C comm) { losses::moco(a, b, rows(a), comm, {.temperature = t}); }, true, true, 1},
      {"swav",
       [=](T a, T b, double t, C comm) {
         losses::swav({a, b}, rows(a), comm, {.temperature = t});
       },
       true, true}};
  return list;
}

}  // namespace

TEST_CASE("contrastive: every loss refuses what it cannot use, on all ranks alike") {
  const auto rows = [](const Communicator& comm, std::int64_t n, std::int64_t d = width) {
    return random_tensor({n, d}, 7 + static_cast<std::uint64_t>(comm.rank()));
  };
  for (const auto& loss : all_losses()) {
    const auto start = "[" + loss.name + "] ";
    if (loss.smallest == 2)
      check_refused(start + "needs at least 2 samples in all ranks together, the batch has 1", [&](const Communicator& comm) {
        const auto z = rows(comm, comm.rank() == 1 ? 1 : 0);
        loss.run(z, z, 0.1, comm);
      });
    check_refused(start + (loss.smallest == 2 ? "needs at least 2 samples in all ranks together, the batch has 0"
                                              : "needs at least 1 samples in all ranks together, the batch has 0"),
                  [&](const Communicator& comm) { loss.run(rows(comm, 0), rows(comm, 0), 0.1, comm); });
    check_refused(start + "ranks have embeddings of different widths: 5 on rank 0, 4 on rank 1", [&](const Communicator& comm) {
      const auto z = rows(comm, 2, comm.rank() == 1 ? 4 : width);
      loss.run(z, z, 0.1, comm);
    });
    check_refused(start + "the embedding of sample 2 (rank 1, its sample 0" + (loss.name == "sup_con" ? ")" : ", view 0)") +
                      " is not finite",
                  [&](const Communicator& comm) {
                    const auto z = comm.rank() == 1 ? full({2, width}, std::nan(""), DType::float64) : rows(comm, 2);
                    loss.run(z, rows(comm, 2), 0.1, comm);
                  });
    for (const double temperature : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()})
      if (loss.has_temperature)
        check_refused(start + fmt::format("the temperature is positive and finite, got {} on rank 0", temperature),
                      [&](const Communicator& comm) { loss.run(rows(comm, 2), rows(comm, 2), temperature, comm); });
    const auto zero = [&](const Communicator& comm) {
      const auto z = comm.rank() == 2 ? zeros({2, width}, DType::float64) : rows(comm, 2);
      loss.run(z, rows(comm, 2), 0.1, comm);
    };
    if (loss.has_direction)
      check_refused(start + "the embedding of sample 4 (rank 2, its sample 0" + (loss.name == "sup_con" ? ")" : ", view 0)") +
                        " is zero and has no direction (refuse_zeros = false allows it)",
                    zero);
    else check_refused("", zero);
  }
}

TEST_CASE("contrastive: labels that do not fit are the same error on all ranks") {
  const auto z = [](const Communicator& comm) { return random_tensor({2, width}, static_cast<std::uint64_t>(comm.rank())); };
  const std::string text = "[sup_con] each row has one label, int64; the labels of rank 1 are others";
  for (const auto& wrong : {zeros({3}, DType::int64), zeros({2, 1}, DType::int64), zeros({2}, DType::float64), Tensor()})
    check_refused(text, [&](const Communicator& comm) {
      losses::sup_con(z(comm), comm.rank() == 1 ? wrong : constant(zeros({2}, DType::int64)), comm);
    });
}

TEST_CASE("contrastive: a refused step leaves the weights as they were") {
  on_ranks(3, [](const Communicator& comm) {
    Parameters parameters;
    parameters.add("w", weights(DType::float64), true);
    parameters.pack();
    SGD sgd(parameters, {.learning_rate = 0.1, .momentum = 0.9});
    const auto before = parameters[0].value.to_vector();
    const auto part = part_of(comm, balanced(3));
    const auto step = [&](double noise) {
      Tape tape(parameters);
      const auto z = linear(part.of(inputs_of(0, DType::float64)) + noise, replicate(parameters[0].value, comm));
      sgd.step(tape.gradient(losses::nt_xent(z, z + 0.1, comm)));
    };
    const auto text = error_text([&] { step(comm.rank() == 1 ? std::nan("") : 0); });
    require(text == "[nt_xent] the embedding of sample 3 (rank 1, its sample 0, view 0) is not finite", "[test] {}", text);
    require(parameters[0].value.to_vector() == before && sgd.steps() == 0, "[test] the weights have changed");
    step(0);
    require(parameters[0].value.to_vector() != before, "[test] the next step works");
  });
}

TEST_CASE("contrastive: a teacher without views, or with another width than the centre, is refused") {
  const auto scores = random_tensor({2, 3}, 1);
  check_refused("[dino] there are no views", [&](const Communicator& comm) { losses::next_centre(zeros({3}), {}, comm); });
  check_refused("[dino] the centre is float32 [1], scores have width 3",
                [&](const Communicator& comm) { losses::next_centre(zeros({1}, DType::float32), {scores}, comm); });
}
