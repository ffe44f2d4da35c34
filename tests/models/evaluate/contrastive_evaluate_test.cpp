// Evaluation of embeddings: against plain loops over the whole set, on any number of ranks, and at the limits of each scale.

#include "models/evaluate/embeddings.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/views/views.h"
#include "tests/models/losses/contrastive_cases.h"
#include "tests/models/losses/contrastive_formulas.h"
#include "tests/support/gradient_check.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;
namespace losses = mpigrad::contrastive;
namespace formulas = mpigrad::testing::contrastive::formulas;

namespace {

constexpr std::int64_t n = 37, width = 6;
constexpr int sizes[] = {1, 2, 3, 5, 8};

Tensor normal(const Shape& shape, std::uint64_t key, DType dtype = DType::float64) {
  return random_normal(shape, {.key = key}, 0, 1, dtype);
}
Tensor integers(const std::vector<double>& values) {
  return constant(from_vector({static_cast<std::int64_t>(values.size())}, values, DType::int64));
}
// Points around `classes` centres; class i % classes.
struct Clusters {
  Tensor z, labels;
};
Clusters clusters(std::int64_t samples, std::int64_t classes, double spread, std::uint64_t key) {
  std::vector<double> labels;
  for (std::int64_t i = 0; i < samples; ++i) labels.push_back(static_cast<double>(i % classes));
  const auto at = integers(labels);
  return {take(normal({classes, width}, 99), at) + normal({samples, width}, key) * spread, at};
}
// This rank's rows; blocks of 0, 1, 2, ... rows, and the rest on the last rank.
Tensor mine(const Tensor& x, const Communicator& comm) {
  const int p = comm.size(), r = comm.rank();
  const auto begin = std::min<std::int64_t>(x.dim(0), r * (r - 1) / 2);
  return slice(x, 0, begin, r + 1 == p ? x.dim(0) : std::min<std::int64_t>(x.dim(0), r * (r + 1) / 2));
}
losses::Labelled mine(const Clusters& all, const Communicator& comm) { return {mine(all.z, comm), mine(all.labels, comm)}; }

formulas::Rows unit_rows(const Tensor& z) { return formulas::unit(mpigrad::testing::contrastive::matrix_of(z)); }

void on_all_sizes(const std::function<void(const Communicator&)>& body) {
  for (const int size : sizes) check_on_ranks(size, "evaluate", body);
}
void close(double found, double expected, double tolerance = 1e-12) {
  require(std::abs(found - expected) <= tolerance * (1 + std::abs(expected)), "[test] {} where {} is expected", found, expected);
}

}  // namespace

TEST_CASE("evaluate: neighbours and their vote are those of all pairs") {
  const auto bank = clusters(n, 5, 1.5, 1), queries = clusters(23, 5, 1.5, 2);
  const auto q = unit_rows(queries.z), k = unit_rows(bank.z);
  const auto labels = bank.labels.to_vector(), truth = queries.labels.to_vector();
  double right = 0;
  std::vector<std::vector<std::int64_t>> expected;
  for (std::size_t i = 0; i < q.size(); ++i) {
    std::vector<std::pair<double, std::int64_t>> all;
    for (std::size_t j = 0; j < k.size(); ++j) all.emplace_back(-formulas::dot(q[i], k[j]), static_cast<std::int64_t>(j));
    std::sort(all.begin(), all.end());
    std::map<double, double> votes;
    expected.emplace_back();
    for (std::size_t j = 0; j < 7; ++j) {
      expected.back().push_back(all[j].second);
      votes[labels[static_cast<std::size_t>(all[j].second)]] += std::exp(-all[j].first / 0.2);
    }
    const auto best = std::max_element(votes.begin(), votes.end(), [](auto& a, auto& b) { return a.second < b.second; });
    right += best->first == truth[i] ? 1 : 0;
  }
  CHECK(right > 7);
  CHECK(right < 23);
  on_all_sizes([&](const Communicator& comm) {
    const auto here = mine(queries, comm), there = mine(bank, comm);
    const auto found = losses::nearest(here.embeddings, there.embeddings, comm, {.count = 7, .tile = 4});
    require(found.count == 7, "[test] {}", found.count);
    const auto first = here.labels.dim(0) == 0 ? 0 : static_cast<std::size_t>(comm.rank() * (comm.rank() - 1) / 2);
    for (std::size_t i = 0; i < found.neighbour.size(); ++i)
      require(found.neighbour[i] == expected[first + i / 7][i % 7], "[test] neighbour {}", i);
    close(losses::neighbour_accuracy(here, there, comm, {.neighbours = 7, .temperature = 0.2, .tile = 3}), right / 23);
    // A set that each rank holds as a whole.
    const auto alone = comm.split(comm.rank(), 0);
    close(losses::neighbour_accuracy({queries.z, queries.labels}, {bank.z, bank.labels}, alone,
                                     {.neighbours = 7, .temperature = 0.2}),
          right / 23);
  });
}

TEST_CASE("evaluate: a sample is no neighbour of its own, equals come in order, and few are few") {
  on_all_sizes([&](const Communicator& comm) {
    const auto z = mine(ones({6, 2}), comm);
    const auto found = losses::nearest(z, z, comm, {.count = 20, .skip_own = true, .tile = 2});
    require(found.count == 5, "[test] {}", found.count);
    const auto first = std::min<std::int64_t>(6, comm.rank() * (comm.rank() - 1) / 2);
    for (std::int64_t i = 0; i < z.dim(0); ++i)
      for (std::int64_t j = 0, place = 0; j < 5; ++j, ++place) {
        place += place == first + i ? 1 : 0;
        require(found.neighbour[static_cast<std::size_t>(5 * i + j)] == place, "[test] {} {}", i, j);
      }
  });
}

TEST_CASE("evaluate: recall of partners and of labels") {
  const auto a = normal({n, width}, 3), b = a + normal({n, width}, 4) * 0.8;
  const auto x = unit_rows(a), y = unit_rows(b);
  const auto few = clusters(n, 9, 1.2, 5);
  const auto z = unit_rows(few.z);
  const auto labels = few.labels.to_vector();
  const std::vector<std::int64_t> k{1, 5, 100};
  std::vector<double> pairs(3, 0.0), alike(3, 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    std::int64_t before = 0, other = 0;
    double best = -2;  // the nearest one with the same label
    for (std::size_t j = 0; j < n; ++j) {
      before += formulas::dot(x[i], y[j]) > formulas::dot(x[i], y[i]) ? 1 : 0;
      if (j != i && labels[j] == labels[i]) best = std::max(best, formulas::dot(z[i], z[j]));
    }
    for (std::size_t j = 0; j < n; ++j) other += j != i && formulas::dot(z[i], z[j]) > best ? 1 : 0;
    for (std::size_t c = 0; c < 3; ++c) {
      pairs[c] += before < k[c] ? 1.0 / n : 0;
      alike[c] += other < k[c] ? 1.0 / n : 0;
    }
  }
  CHECK((pairs[0] > 0.2 && pairs[0] < pairs[1] && pairs[1] < 1));
  CHECK((alike[0] > 0.2 && alike[0] < alike[1]));
  on_all_sizes([&](const Communicator& comm) {
    const auto found = losses::paired_recall(mine(a, comm), mine(b, comm), comm, k, 5),
               of_labels = losses::label_recall(mine(few, comm), comm, k, 5);
    for (std::size_t c = 0; c < 3; ++c) close(found[c], pairs[c]), close(of_labels[c], alike[c]);
    // Identical embeddings find neighbours only by chance.
    const auto same = mine(ones({n, width}), comm);
    close(losses::paired_recall(same, same, comm, {1})[0], 0);
    close(losses::paired_recall(same, same, comm, {n})[0], 1);
  });
}

TEST_CASE("evaluate: alignment and uniformity are means over pairs") {
  const auto a = normal({n, width}, 3), b = a + normal({n, width}, 4) * 0.8;
  const auto x = unit_rows(a), y = unit_rows(b);
  const auto squares = [](const formulas::Row& u, const formulas::Row& v) { return 2 - 2 * formulas::dot(u, v); };
  double near = 0, cubes = 0, spread = 0;
  for (std::size_t i = 0; i < n; ++i) {
    near += squares(x[i], y[i]) / n, cubes += std::pow(squares(x[i], y[i]), 1.5) / n;
    for (std::size_t j = 0; j < n; ++j) spread += j == i ? 0 : std::exp(-2 * squares(x[i], x[j])) / (n * (n - 1));
  }
  on_all_sizes([&](const Communicator& comm) {
    close(losses::alignment(mine(a, comm), mine(b, comm), comm), near);
    close(losses::alignment(mine(a, comm), mine(b, comm), comm, 3), cubes);
    close(losses::uniformity(mine(a, comm), comm, 2, 5), std::log(spread));
    close(losses::uniformity(mine(ones({n, width}), comm), comm), 0, 1e-6);
    close(losses::alignment(mine(a, comm), mine(a, comm), comm), 0);
  });
}

TEST_CASE("evaluate: eigenvalues of symmetric matrices") {
  // The matrix of second differences has the eigenvalues 2 - 2 cos(k pi / (n + 1)).
  for (const std::int64_t size : {1, 2, 3, 17}) {
    std::vector<double> a(static_cast<std::size_t>(size * size), 0.0);
    for (std::int64_t i = 0; i < size; ++i) {
      a[static_cast<std::size_t>(i * size + i)] = 2;
      if (i > 0) a[static_cast<std::size_t>(i * size + i - 1)] = a[static_cast<std::size_t>((i - 1) * size + i)] = -1;
    }
    const auto values = losses::symmetric_eigenvalues(a, size);
    for (std::int64_t k = 0; k < size; ++k)
      CHECK(values[static_cast<std::size_t>(k)] ==
            doctest::Approx(2 - 2 * std::cos(static_cast<double>(k + 1) * M_PI / static_cast<double>(size + 1))).epsilon(1e-12));
  }
  // A full matrix: V diag V^T with a reflection V = 1 - 2 v v^T / |v|^2 and repeated eigenvalues.
  const std::vector<double> expected{-3, 0, 0, 1, 1, 1, 8}, v{1, -2, 3, 0.5, 2, -1, 4};
  const double square = formulas::dot(v, v);
  std::vector<double> a(49, 0.0);
  for (std::size_t i = 0; i < 7; ++i)
    for (std::size_t j = 0; j < 7; ++j)
      for (std::size_t k = 0; k < 7; ++k)
        a[i * 7 + j] +=
            expected[k] * ((i == k ? 1 : 0) - 2 * v[i] * v[k] / square) * ((j == k ? 1 : 0) - 2 * v[j] * v[k] / square);
  const auto values = losses::symmetric_eigenvalues(a, 7);
  for (std::size_t k = 0; k < 7; ++k) CHECK(std::abs(values[k] - expected[k]) < 1e-13);
  CHECK(losses::symmetric_eigenvalues({}, 0).empty());
}

TEST_CASE("evaluate: collapse is seen") {
  const auto z = normal({400, 4}, 8);
  const auto scales = from_vector({1, 4}, {1, 1, 0, 0}, DType::float64);
  on_all_sizes([&](const Communicator& comm) {
    const auto all = losses::collapse(mine(z, comm), comm), two = losses::collapse(mine(z * scales + 1e-9 * z, comm), comm);
    require(all.effective_rank > 3.95 && all.effective_rank <= 4, "[test] {}", all.effective_rank);
    require(std::abs(all.mean_deviation - 1) < 0.03, "[test] {}", all.mean_deviation);
    require(std::abs(two.effective_rank - 2) < 0.02, "[test] {}", two.effective_rank);
    require(two.deviation[0] > 0.5 && two.deviation[3] < 1e-8, "[test] {}", two.deviation[3]);
    const auto point = losses::collapse(mine(ones({n, 4}, DType::float32) * 0.3, comm), comm);
    require(point.effective_rank == 0 && point.mean_deviation < 1e-7, "[test] {}", point.effective_rank);
    // Embeddings of any length: the deviation is that of directions.
    close(losses::collapse(mine(z * 1000, comm), comm).mean_deviation, all.mean_deviation);
  });
}

TEST_CASE("evaluate: the probe is the minimum, on any number of ranks") {
  const auto train = clusters(90, 3, 1.6, 11), test = clusters(60, 3, 1.6, 12);
  losses::Probe one;
  double accuracy = 0;
  on_ranks(1, [&](const Communicator& comm) {
    one = losses::train_probe(mine(train, comm), comm, {.decay = 1e-2, .tolerance = 1e-9});
    accuracy = losses::probe_accuracy(one, mine(test, comm), comm);
  });
  CHECK(one.classes == 3);
  CHECK(one.iterations > 3);
  CHECK(one.iterations < 200);
  CHECK(accuracy > 0.6);
  // The objective, as plain loops, is stationary there: any small step increases it.
  const auto x = mpigrad::testing::contrastive::matrix_of(train.z);
  const auto labels = train.labels.to_vector();
  const auto objective = [&](const std::vector<double>& w) {
    double loss = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      double scores[3], sum = 0;
      for (std::size_t c = 0; c < 3; ++c) {
        scores[c] = w[c * (width + 1) + width];
        for (std::size_t d = 0; d < width; ++d) scores[c] += w[c * (width + 1) + d] * (x[i][d] - one.mean[d]) * one.scale[d];
        sum += std::exp(scores[c]);
      }
      loss += (std::log(sum) - scores[static_cast<std::size_t>(labels[i])]) / static_cast<double>(x.size());
    }
    for (std::size_t i = 0; i < w.size(); ++i) loss += i % (width + 1) == width ? 0 : 0.005 * w[i] * w[i];
    return loss;
  };
  CHECK(objective(one.weights) == doctest::Approx(one.loss).epsilon(1e-12));
  for (std::size_t i = 0; i < one.weights.size(); ++i) {
    auto up = one.weights, down = one.weights;
    up[i] += 1e-4, down[i] -= 1e-4;
    CHECK(std::abs(objective(up) - objective(down)) / 2e-4 < 1e-7);
  }
  on_all_sizes([&](const Communicator& comm) {
    const auto probe = losses::train_probe(mine(train, comm), comm, {.decay = 1e-2, .tolerance = 1e-9, .tile = 7});
    for (std::size_t i = 0; i < probe.weights.size(); ++i) close(probe.weights[i], one.weights[i], 1e-6);
    close(losses::probe_accuracy(probe, mine(test, comm), comm), accuracy);
  });
}

TEST_CASE("evaluate: the probe's area under the curve, and what it refuses") {
  const auto train = clusters(80, 2, 2.5, 13);
  double whole = 0;
  for (const int size : sizes)
    check_on_ranks(size, "auc", [&](const Communicator& comm) {
      const auto probe = losses::train_probe(mine(train, comm), comm);
      const double found = losses::probe_auc(probe, mine(train, comm), comm);
      require(found > 0.6 && found < 1, "[test] {}", found);
      if (size == 1) whole = found;
      close(found, whole, 1e-3);
    });
  for (const int size : {1, 3})
    on_ranks(size, [&](const Communicator& comm) {
      const auto z = mine(train.z, comm), labels = mine(train.labels, comm);
      const auto text = [&](const auto& f) { return error_text(f); };
      require(has(text([&] {
                    losses::train_probe({z, comm.rank() == comm.size() - 1 ? Tensor() : labels}, comm);
                  }),
                  fmt::format("[probe] each sample has one label, int64; those of rank {} do not", size - 1)),
              "[test] missing labels");
      require(has(text([&] {
                    losses::train_probe({z, labels}, comm, {.classes = 1});
                  }),
                  "[probe] labels 0 to 1 for 1 classes"),
              "[test] classes");
      require(has(text([&] {
                    losses::neighbour_accuracy({z, labels}, {z, Tensor()}, comm);
                  }),
                  "[neighbours] each sample has one label"),
              "[test] bank");
      require(has(text([&] { losses::nearest(z, slice(z, 1, 0, 2), comm); }), "different widths"), "[test] widths");
      barrier(comm);
    });
}

TEST_CASE("evaluate: a dimension that does not vary does not disturb the probe") {
  const auto train = clusters(60, 3, 0.5, 14);
  on_ranks(2, [&](const Communicator& comm) {
    const auto z = concatenate({train.z, full({60, 1}, 1e6, DType::float64)}, 1);
    const auto probe = losses::train_probe({mine(z, comm), mine(train.labels, comm)}, comm);
    require(probe.scale.back() == 0 && probe.weights[width] == 0, "[test] {}", probe.weights[width]);
    require(losses::probe_accuracy(probe, {mine(z, comm), mine(train.labels, comm)}, comm) == 1, "[test] accuracy");
  });
}

TEST_CASE("evaluate: few-shot episodes do not depend on ranks, and are chance where nothing is known") {
  // Three groups of eight classes with five samples; one more group has too few classes.
  std::vector<double> labels, groups;
  for (int c = 0; c < 27; ++c)
    for (int i = 0; i < 5; ++i) labels.push_back(100 + c), groups.push_back(c / 8);
  const auto count = static_cast<std::int64_t>(labels.size());
  const auto classes = integers(labels), alphabets = integers(groups);
  const auto centres = normal({200, width}, 21);
  const auto z = take(centres, classes) + normal({count, width}, 22) * 0.6;
  std::map<std::pair<int, int>, losses::FewShot> whole;
  for (const int size : sizes)
    check_on_ranks(size, "few_shot", [&](const Communicator& comm) {
      const losses::Labelled here{mine(z, comm), mine(classes, comm)};
      for (const int shots : {1, 3})
        for (const int queries : {1, 2}) {
          const auto found =
              losses::few_shot(here, mine(alphabets, comm), comm,
                               {.ways = 8, .shots = shots, .queries = queries, .episodes = 50, .seed = 3, .block = 64});
          auto& expected = whole[{shots, queries}];
          if (size == 1) expected = found;
          close(found.accuracy, expected.accuracy);
          close(found.standard_error, expected.standard_error);
        }
      const auto blind =
          losses::few_shot({mine(ones({count, 2}), comm), here.labels}, mine(alphabets, comm), comm, {.ways = 8, .episodes = 20});
      close(blind.accuracy, 1.0 / 8);
      const auto sure =
          losses::few_shot({mine(take(centres, classes), comm), here.labels}, {}, comm, {.ways = 20, .episodes = 20});
      close(sure.accuracy, 1);
    });
  CHECK((whole[{1, 1}].accuracy > 0.4 && whole[{1, 1}].accuracy < 0.95));
  CHECK(whole[{3, 2}].accuracy > whole[{1, 2}].accuracy + 0.03);
  CHECK(whole[{1, 1}].standard_error > 0.005);
  CHECK(whole[{1, 1}].standard_error < 0.05);
  on_ranks(2, [&](const Communicator& comm) {
    const losses::Labelled here{mine(z, comm), mine(classes, comm)};
    require(has(error_text([&] { losses::few_shot(here, mine(alphabets, comm), comm, {.ways = 9}); }),
                "[few_shot] no group has as many classes as there are ways, 9, with at least 2"),
            "[test] ways");
    require(has(error_text([&] { losses::few_shot(here, {}, comm, {.ways = 2, .shots = 5}); }),
                "no group has as many classes as there are ways, 2, with at least 6"),
            "[test] shots");
    require(has(error_text([&] {
                  losses::few_shot(here, mine(integers(std::vector<double>(labels.size(), 0)), comm) + mine(arange(count), comm),
                                   comm);
                }),
                "is in the groups"),
            "[test] groups");
    barrier(comm);
  });
}

TEST_CASE("evaluate: 16-bit embeddings are computed with in float32") {
  const auto all = clusters(n, 5, 1.0, 31);
  on_ranks(2, [&](const Communicator& comm) {
    const losses::Labelled half{cast(mine(all.z, comm), DType::bfloat16), mine(all.labels, comm)};
    const losses::Labelled wide{cast(half.embeddings, DType::float32), half.labels};
    close(losses::neighbour_accuracy(half, half, comm), losses::neighbour_accuracy(wide, wide, comm), 0);
    close(losses::uniformity(half.embeddings, comm), losses::uniformity(wide.embeddings, comm), 0);
    close(losses::train_probe(half, comm).loss, losses::train_probe(wide, comm).loss, 0);
  });
}
