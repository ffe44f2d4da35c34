// Contrastive losses: formulas as plain loops; values and gradients on any number of ranks against one rank; detection of common
// wrong constructions by the same comparison; second derivatives; reference values of other projects.

#include <nlohmann/json.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>

#include "models/losses/contrastive/pairs.h"
#include "models/losses/ranking.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/views/views.h"
#include "tests/models/losses/contrastive_cases.h"
#include "tests/models/losses/contrastive_formulas.h"
#include "tests/support/gradient_check.h"
#include "tests/support/ranks.h"
#include "tests/support/shared_data.h"
#include "tests/support/skip.h"

using namespace mpigrad;
using namespace mpigrad::testing;
using namespace mpigrad::testing::contrastive;

namespace {

constexpr int sizes[] = {1, 2, 3, 4, 5, 8};  // with 7 samples: on 8 ranks some rank has none

Gradient one_rank(const LossCase& loss, DType dtype) {
  Gradient result;
  on_ranks(1, [&](const Communicator& comm) { result = gradient_of(loss, part_of(comm, balanced(1)), dtype); });
  return result;
}

// Relative error of the gradient on this number of ranks, the larger one of balanced and uneven blocks; and of the value.
struct Errors {
  double gradient = 0, value = 0;
};
Errors errors(const LossCase& loss, const Gradient& expected, int ranks, DType dtype) {
  Errors worst;
  on_ranks(ranks, [&](const Communicator& comm) {
    for (const auto& rows : {balanced(ranks), lopsided(ranks)}) {
      const auto part = part_of(comm, rows);
      const auto g = gradient_of(loss, part, dtype);
      const auto difference = relative_difference(g, expected, part);
      if (comm.rank() > 0) continue;
      const auto larger = [](double a, double b) { return b <= a ? a : b; };  // NaN counts as larger
      worst.gradient = larger(worst.gradient, difference);
      worst.value = larger(worst.value, std::abs(g.value - expected.value) / std::abs(expected.value));
    }
  });
  return worst;
}

}  // namespace

TEST_CASE("contrastive: losses are what their formulas say") {
  for (const auto& loss : cases()) {
    std::vector<Matrix> views;
    on_ranks(1, [&](const Communicator& comm) {
      Tensors noise(static_cast<std::size_t>(loss.views), zeros({samples, width}, DType::float64));
      for (const auto& z : embed(loss, weights(DType::float64), noise, part_of(comm, balanced(1)))) views.push_back(matrix_of(z));
    });
    const double expected = loss.formula(views, learned_of(loss, DType::float64));
    INFO(loss.name);
    CHECK(one_rank(loss, DType::float64).value == doctest::Approx(expected).epsilon(1e-12));
  }
}

namespace {

void check_ranks(DType type, double gradient, double value) {
  for (const auto& loss : cases()) {
    const auto expected = one_rank(loss, type);
    for (const int size : sizes) {
      INFO(loss.name, ", ", size, " ranks");
      Errors found{1, 1};
      CHECK_NOTHROW(found = errors(loss, expected, size, type));
      CHECK(found.gradient < gradient);
      CHECK(found.value < value);
    }
  }
}

}  // namespace

TEST_CASE("contrastive: gradients on any number of ranks are those of one, in float64") {
  check_ranks(DType::float64, 1e-11, 1e-12);
}
TEST_CASE("contrastive: gradients on any number of ranks are those of one, in float32") {
  check_ranks(DType::float32, 1e-5, 1e-5);
}

TEST_CASE("contrastive: the comparison finds wrong constructions") {
  for (const auto& loss : wrong_cases()) {
    const auto expected = one_rank(loss, DType::float64);
    const bool right = loss.name.find("right") != std::string::npos;
    for (const int size : {2, 3, 4, 8}) {
      // With local negatives only, the gradient vanishes if a rank has one sample, which is a difference, too.
      const auto found = errors(loss, expected, size, DType::float64).gradient;
      INFO(loss.name, ", ", size, " ranks: ", found);
      if (right) CHECK(found < 1e-11);
      else CHECK_FALSE(found < 0.02);
    }
  }
}

TEST_CASE("contrastive: wrong constructions give the ratios that are known of them") {
  const auto ratio = [](const std::string& name, int ranks) {
    double result = 0;
    for (const auto& loss : wrong_cases()) {
      if (loss.name != name) continue;
      const auto expected = one_rank(loss, DType::float64);
      on_ranks(ranks, [&](const Communicator& comm) {
        const auto g = gradient_of(loss, part_of(comm, balanced(ranks)), DType::float64);
        if (comm.rank() == 0) result = g.same[0].to_vector()[0] / expected.same[0].to_vector()[0];
      });
    }
    return result;
  };
  CHECK(ratio("full matrix, summed gradients", 4) == doctest::Approx(4).epsilon(1e-10));
  CHECK(ratio("averaged instead of summed", 4) == doctest::Approx(0.25).epsilon(1e-10));
  CHECK(ratio("barlow twins, full loss on every rank", 3) == doctest::Approx(3).epsilon(1e-10));
}

TEST_CASE("contrastive: second derivatives") {
  for (const auto& loss : cases()) {
    if (!loss.second_order) continue;
    for (const int size : {1, 3})
      check_on_ranks(size, loss.name, [&](const Communicator& comm) {
        const auto part = part_of(comm, lopsided(size));
        Tensors inputs{weights(DType::float64)};
        std::vector<Across> across{Across::same};
        for (const auto& x : learned_of(loss, DType::float64)) inputs.push_back(x), across.push_back(Across::same);
        const auto learned = inputs.size() - 1;
        for (int v = 0; v < loss.views; ++v)
          inputs.push_back(zeros({part.here, width}, DType::float64)), across.push_back(Across::varying);
        const auto f = [&](const Tensors& x) {
          const auto at = x.begin() + 1 + static_cast<std::ptrdiff_t>(learned);
          return Tensors{loss.share(embed(loss, x[0], {at, x.end()}, part), {x.begin() + 1, at}, part)};
        };
        require_adjoint(loss.name, f, inputs, comm, {.inputs = across, .linear = false, .difference_tolerance = 1e-6});
      });
  }
}

TEST_CASE("contrastive: ring forms equal the direct ones") {
  std::vector<std::string> names{"nt_xent", "clip"};
  for (const std::string kind : {"L_out", "positives apart"})
    for (const std::string per : {"samples", "pairs"}) names.push_back(fmt::format("sup_con, {}, mean over {}", kind, per));
  for (const auto& name : names) {
    const auto expected = one_rank(case_named(name), DType::float64);
    for (const int size : sizes) {
      const auto found = errors(case_named(name + ", ring"), expected, size, DType::float64);
      INFO(name, ", ", size, " ranks");
      CHECK(found.gradient < 1e-11);
      CHECK(found.value < 1e-12);
    }
  }
}

TEST_CASE("contrastive: NT-Xent and its supervised form give optax's values") {
  using namespace mpigrad::contrastive;
  const auto file = shared_data("conformance/json/optax_ntxent.json");
  if (file.empty()) return skip_test("optax_ntxent", no_shared_data);
  const auto read = nlohmann::json::parse(std::ifstream(file));
  REQUIRE(read.size() == 3);
  for (const int size : {1, 2, 3})
    check_on_ranks(size, "optax", [&](const Communicator& comm) {
      for (std::size_t c = 0; c < 3; ++c) {
        std::vector<double> values;
        for (const auto& row : read[c]["embeddings"])
          for (const double value : row) values.push_back(value);
        const auto z = from_vector({4, 2}, values, DType::float64);
        const double expected = read[c]["expected"], tolerance = read[c]["atol"], temperature = read[c]["temperature"];
        const auto cut = [&](const Tensor& x) {
          const auto cuts = balanced_cuts(x.dim(0), comm.size());
          const auto r = static_cast<std::size_t>(comm.rank());
          return slice(x, 0, cuts[r], cuts[r + 1]);
        };
        // The pairs are (0, 1) and (2, 3).
        const auto even = take(z, constant(from_vector({2}, {0, 2}, DType::int64))),
                   odd = take(z, constant(from_vector({2}, {1, 3}, DType::int64)));
        const auto check = [&](const char* what, const Tensor& share) {
          const double found = total(share, comm);
          require(std::abs(found - expected) < tolerance, "[test] case {}, {}: {}, expected {}", c, what, found, expected);
        };
        if (c != 1)
          for (const auto form : {Form::direct, Form::ring})
            check("nt_xent",
                  nt_xent(cut(even), cut(odd), comm, {.temperature = temperature, .refuse_zeros = c != 2, .form = form}));
        std::vector<double> labels;
        for (const double label : read[c]["labels"]) labels.push_back(label);
        check("sup_con", sup_con(cut(z), cut(constant(from_vector({4}, labels, DType::int64))), comm,
                                 {.temperature = temperature,
                                  .refuse_zeros = c != 2,
                                  .positives_in_denominator = false,
                                  .mean_over_samples = false}));
      }
    });
}

TEST_CASE("losses: the AUC loss of a set with more pairs than a matrix should have") {
  const std::int64_t n = 2500;
  const Tensor scores = random_uniform({n, 1}, {.key = 3}, -1, 1, DType::float64);
  const Tensor labels = cast(random_uniform({n}, {.key = 4}, 0, 1, DType::float64) < 0.3, DType::int64);
  formulas::Rows rows;
  for (const double score : scores.to_vector()) rows.push_back({score});
  const double expected = formulas::auc(rows, labels.to_vector(), 0.7);
  CHECK(auc_loss(scores, labels, {}, {.margin = 0.7}).item() == doctest::Approx(expected).epsilon(1e-12));
}
