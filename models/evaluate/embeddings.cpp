#include "models/evaluate/embeddings.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "comm/collectives/ring.h"
#include "models/evaluate/evaluate_set.h"
#include "models/losses/contrastive/blocks.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/views/to_device.h"
#include "ops/views/views.h"

namespace mpigrad::contrastive {
namespace {

Tensor part(const Tensor& x, std::int64_t begin, std::int64_t length) {
  return slice(x, 0, begin, std::min(x.dim(0), begin + length));
}
// Cosines of unit rows, [rows, columns], on the host.
std::vector<double> cosines(const Tensor& rows, const Tensor& columns) {
  return matmul(rows, columns, {.transpose_b = true}).to_vector();
}
Rows firsts(const Rows& rows) {
  Rows result(rows.size() + 1, 0);
  for (std::size_t r = 0; r < rows.size(); ++r) result[r + 1] = result[r] + rows[r];
  return result;
}

struct Candidate {
  double similarity;
  std::int64_t place;
  bool operator<(const Candidate& other) const {  // true: comes earlier in the result
    return similarity != other.similarity ? similarity > other.similarity : place < other.place;
  }
};

// Sums counts over ranks and divides them by the number `all` of rows of all ranks.
std::vector<double> shares(std::vector<double> found, std::int64_t all, const Communicator& comm) {
  sum_over_ranks(found, comm);
  for (auto& value : found) value /= static_cast<double>(all);
  return found;
}

void require_ranks(std::string_view what, const std::vector<std::int64_t>& k) {
  require(!k.empty() && *std::min_element(k.begin(), k.end()) > 0, "[{}] recall needs positive numbers of neighbours", what);
}

}  // namespace

std::vector<std::int64_t> gathered_labels(std::string_view what, const Tensor& labels, const Batch& batch) {
  std::vector<std::int64_t> fits(batch.rows.size());
  const std::int64_t mine = labels && labels.rank() == 1 && labels.dtype() == DType::int64 && labels.dim(0) == batch.here ? 1 : 0;
  const Rows ones(fits.size(), 1);
  batch.comm.transport().allgather(&mine, fits.data(), ones, DType::int64);
  for (std::size_t r = 0; r < fits.size(); ++r)
    require(fits[r] != 0, "[{}] each sample has one label, int64; those of rank {} do not", what, r);
  const auto all = to(allgather(constant(labels.without_layout()), batch.comm, batch.rows), DeviceKind::cpu);
  const auto* values = all.data<std::int64_t>();
  return {values, values + all.elements()};
}

void sum_over_ranks(std::vector<double>& values, const Communicator& comm) {
  const auto count = static_cast<std::int64_t>(values.size());
  comm.transport().reduce(values.data(), values.data(), count, DType::float64, CombineOp::sum, 0);
  comm.transport().bcast(values.data(), count, DType::float64, 0);
}
double sum_over_ranks(double value, const Communicator& comm) {
  std::vector<double> values{value};
  sum_over_ranks(values, comm);
  return values[0];
}

Nearest nearest(const Tensor& queries, const Tensor& bank, const Communicator& comm, const NearestAttributes& at) {
  Untaped scope;
  require(at.count > 0 && at.tile > 0, "[nearest] at least one neighbour and one row of a tile, got {} and {}", at.count,
          at.tile);
  const auto asked = inspect("nearest", {queries}, comm, {.smallest = 0}),
             held = inspect("nearest", {bank}, comm, {.smallest = 1});
  require(asked.width == held.width, "[nearest] queries and bank have different widths: {} and {}", asked.width, held.width);
  require(!at.skip_own || asked.rows == held.rows, "[nearest] queries and bank are not one set: {} and {} rows", asked.all,
          held.all);
  UseDevice device(held.views[0].device());
  const auto q = unit_rows(asked.views[0]), k = unit_rows(held.views[0]);
  const auto first = firsts(held.rows);
  Nearest result{.count = std::min(at.count, held.all - (at.skip_own ? 1 : 0)), .similarity = {}, .neighbour = {}};
  const auto count = static_cast<std::size_t>(result.count);
  std::vector<std::vector<Candidate>> best(static_cast<std::size_t>(asked.here));
  for_each_block({k}, comm, held.rows, [&](const Tensors& block, int owner) {
    for (std::int64_t j = 0; j < block[0].dim(0); j += at.tile) {
      const auto columns = part(block[0], j, at.tile);
      const auto place = first[static_cast<std::size_t>(owner)] + j, width = columns.dim(0);
      for (std::int64_t i = 0; i < asked.here; i += at.tile) {
        const auto rows = part(q, i, at.tile);
        const auto similarity = cosines(rows, columns);
#pragma omp parallel for schedule(static)
        for (std::int64_t r = 0; r < rows.dim(0); ++r) {
          auto& mine = best[static_cast<std::size_t>(i + r)];
          const auto own = at.skip_own ? asked.first + i + r - place : -1;
          for (std::int64_t c = 0; c < width; ++c) {
            const Candidate candidate{similarity[static_cast<std::size_t>(r * width + c)], place + c};
            if (c == own || (mine.size() == count && !(count > 0 && candidate < mine.back()))) continue;
            if (mine.size() == count) mine.pop_back();
            mine.insert(std::upper_bound(mine.begin(), mine.end(), candidate), candidate);
          }
        }
      }
    }
  });
  for (const auto& mine : best)
    for (const auto& candidate : mine)
      result.similarity.push_back(candidate.similarity), result.neighbour.push_back(candidate.place);
  return result;
}

double neighbour_accuracy(const Labelled& queries, const Labelled& bank, const Communicator& comm,
                          const NeighbourVoteAttributes& at) {
  Untaped scope;
  require(at.temperature > 0, "[neighbours] the temperature is positive, got {}", at.temperature);
  const auto asked = inspect("neighbours", {queries.embeddings}, comm, {.smallest = 1});
  const auto held = inspect("neighbours", {bank.embeddings}, comm, {.smallest = 1});
  const auto truth = gathered_labels("neighbours", queries.labels, asked),
             labels = gathered_labels("neighbours", bank.labels, held);
  const auto found = nearest(queries.embeddings, bank.embeddings, comm, {.count = at.neighbours, .tile = at.tile});
  double right = 0;
  for (std::int64_t i = 0; i < asked.here; ++i) {
    std::map<std::int64_t, double> votes;
    for (auto n = i * found.count; n < (i + 1) * found.count; ++n) {
      const auto at_n = static_cast<std::size_t>(n);
      votes[labels[static_cast<std::size_t>(found.neighbour[at_n])]] += std::exp((found.similarity[at_n] - 1) / at.temperature);
    }
    const auto winner =
        std::max_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    right += winner->first == truth[static_cast<std::size_t>(asked.first + i)] ? 1 : 0;
  }
  return sum_over_ranks(right, comm) / static_cast<double>(asked.all);
}

std::vector<double> paired_recall(const Tensor& a, const Tensor& b, const Communicator& comm, const std::vector<std::int64_t>& k,
                                  std::int64_t tile) {
  Untaped scope;
  require_ranks("paired_recall", k);
  require(tile > 0, "[paired_recall] a tile has at least one row, got {}", tile);
  const auto batch = inspect("paired_recall", {a, b}, comm, {.smallest = 1});
  UseDevice device(batch.views[0].device());
  const auto x = unit_rows(batch.views[0]), y = unit_rows(batch.views[1]);
  const auto here = static_cast<std::size_t>(batch.here);
  std::vector<double> partner(here), before(here, 0.0);
  // Computes the partner's cosine in the same tiles, so that rounding does not distinguish it from equal cosines.
  for (std::int64_t i = 0; i < batch.here; i += tile) {
    const auto rows = part(x, i, tile);
    const auto own = cosines(rows, part(y, i, tile));
    for (std::int64_t r = 0; r < rows.dim(0); ++r)
      partner[static_cast<std::size_t>(i + r)] = own[static_cast<std::size_t>(r * (rows.dim(0) + 1))];
  }
  for_each_block({y}, comm, batch.rows, [&](const Tensors& block, int) {
    for (std::int64_t j = 0; j < block[0].dim(0); j += tile)
      for (std::int64_t i = 0; i < batch.here; i += tile) {
        const auto rows = part(x, i, tile), columns = part(block[0], j, tile);
        const auto all = cosines(rows, columns);
        const auto width = columns.dim(0);
        for (std::int64_t r = 0; r < rows.dim(0); ++r) {
          const auto at = static_cast<std::size_t>(i + r);
          for (auto c = r * width; c < (r + 1) * width; ++c) {
            const double other = all[static_cast<std::size_t>(c)];
            before[at] += other > partner[at] ? 1 : other == partner[at] ? 0.5 : 0;
          }
        }
      }
  });
  std::vector<double> found;
  for (const auto rank : k)  // the partner itself counted as a half
    found.push_back(static_cast<double>(
        std::count_if(before.begin(), before.end(), [&](double rows) { return rows - 0.5 < static_cast<double>(rank); })));
  return shares(found, batch.all, comm);
}

std::vector<double> label_recall(const Labelled& samples, const Communicator& comm, const std::vector<std::int64_t>& k,
                                 std::int64_t tile) {
  Untaped scope;
  require_ranks("label_recall", k);
  const auto batch = inspect("label_recall", {samples.embeddings}, comm);
  const auto labels = gathered_labels("label_recall", samples.labels, batch);
  const auto found = nearest(samples.embeddings, samples.embeddings, comm,
                             {.count = *std::max_element(k.begin(), k.end()), .skip_own = true, .tile = tile});
  std::vector<double> hits(k.size(), 0.0);
  for (std::int64_t i = 0; i < batch.here; ++i) {
    std::int64_t n = 0;
    const auto own = labels[static_cast<std::size_t>(batch.first + i)];
    while (n < found.count &&
           labels[static_cast<std::size_t>(found.neighbour[static_cast<std::size_t>(i * found.count + n)])] != own)
      ++n;
    for (std::size_t j = 0; j < k.size(); ++j) hits[j] += n < std::min(k[j], found.count) ? 1 : 0;
  }
  return shares(hits, batch.all, comm);
}

double alignment(const Tensor& a, const Tensor& b, const Communicator& comm, double power) {
  Untaped scope;
  const auto batch = inspect("alignment", {a, b}, comm, {.smallest = 1});
  const auto distance = sum(square(cast(unit_rows(batch.views[0]) - unit_rows(batch.views[1]), DType::float64)), {1});
  const double mine = sum(pow(distance, power / 2)).item();
  return sum_over_ranks(mine, comm) / static_cast<double>(batch.all);
}

// |u - v|^2 = 2 - 2 u.v for unit vectors: sums of exp(2 t u.v) over the others.
double uniformity(const Tensor& z, const Communicator& comm, double t, std::int64_t tile) {
  Untaped scope;
  const auto batch = inspect("uniformity", {z}, comm);
  const auto u = unit_rows(batch.views[0]);
  const auto sums =
      cast(ring_logsumexp(u * (2 * t), u, comm, {.rows = batch.rows, .skip_own = true, .tile = tile}), DType::float64);
  const double mine = sum(exp(sums - 2 * t)).item(), n = static_cast<double>(batch.all);
  return std::log(sum_over_ranks(mine, comm) / (n * (n - 1)));
}

}  // namespace mpigrad::contrastive
