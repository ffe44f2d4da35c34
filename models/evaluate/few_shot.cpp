#include <algorithm>
#include <cmath>
#include <map>

#include "framework/tensor/random.h"
#include "models/evaluate/embeddings.h"
#include "models/evaluate/evaluate_set.h"
#include "ops/elementwise/elementwise.h"
#include "ops/views/views.h"

namespace mpigrad::contrastive {
namespace {

using Places = std::vector<std::int64_t>;

// The classes of a group that have enough samples; each with the indices of its samples in the whole set.
using Classes = std::vector<Places>;

std::vector<Classes> groups_of(const Places& labels, const Places& groups, const FewShotAttributes& at) {
  std::map<std::int64_t, std::map<std::int64_t, Places>> all;  // ordered: independent of the order of the set
  std::map<std::int64_t, std::int64_t> group_of;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto [known, fresh] = group_of.try_emplace(labels[i], groups[i]);
    require(known->second == groups[i], "[few_shot] class {} is in the groups {} and {}", labels[i], known->second, groups[i]);
    all[groups[i]][labels[i]].push_back(static_cast<std::int64_t>(i));
  }
  std::vector<Classes> result;
  for (const auto& [group, classes] : all) {
    Classes usable;
    for (const auto& [label, places] : classes)
      if (static_cast<std::int64_t>(places.size()) >= at.shots + at.queries) usable.push_back(places);
    if (static_cast<std::int64_t>(usable.size()) >= at.ways) result.push_back(std::move(usable));
  }
  require(!result.empty(), "[few_shot] no group has as many classes as there are ways, {}, with at least {} samples each",
          at.ways, at.shots + at.queries);
  return result;
}

// Draws `count` distinct elements of `from` by the first steps of a Fisher-Yates shuffle. `next` is the counter of random
// numbers.
template <class T>
std::vector<T> drawn(std::vector<T> from, std::int64_t count, const Philox& random, std::uint64_t& next) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
    std::swap(from[i], from[i + static_cast<std::size_t>(random.below(next++, from.size() - i))]);
  from.resize(static_cast<std::size_t>(count));
  return from;
}

// The samples of an episode, class by class: support, then queries.
Places episode_of(const std::vector<Classes>& groups, const FewShotAttributes& at, std::int64_t episode) {
  const Philox random{.key = at.seed, .stream = 0x65706973000000 + static_cast<std::uint64_t>(episode)};
  std::uint64_t next = 0;
  const auto& group = groups[static_cast<std::size_t>(random.below(next++, groups.size()))];
  Places places;
  for (const auto& samples : drawn(group, at.ways, random, next))
    for (const auto place : drawn(samples, at.shots + at.queries, random, next)) places.push_back(place);
  return places;
}

// Fraction of queries nearest to their own class; rows: unit vectors in the order of episode_of.
double accuracy_of(const double* rows, std::int64_t width, const FewShotAttributes& at) {
  const auto each = at.shots + at.queries;
  const auto row = [&](std::int64_t c, std::int64_t i) { return rows + (c * each + i) * width; };
  std::vector<double> centres(static_cast<std::size_t>(at.ways * width), 0.0);
  for (std::int64_t c = 0; c < at.ways; ++c) {
    double* centre = centres.data() + c * width;
    double squares = 0;
    for (std::int64_t d = 0; d < width; ++d) {
      for (std::int64_t s = 0; s < at.shots; ++s) centre[d] += row(c, s)[d];
      squares += centre[d] * centre[d];
    }
    const double scale = 1 / std::max(1e-12, std::sqrt(squares));
    for (std::int64_t d = 0; d < width; ++d) centre[d] *= scale;
  }
  double right = 0;
  for (std::int64_t c = 0; c < at.ways; ++c)
    for (std::int64_t q = at.shots; q < each; ++q) {
      std::vector<double> cosine(static_cast<std::size_t>(at.ways), 0.0);
      for (std::int64_t other = 0; other < at.ways; ++other)
        for (std::int64_t d = 0; d < width; ++d)
          cosine[static_cast<std::size_t>(other)] += row(c, q)[d] * centres[static_cast<std::size_t>(other * width + d)];
      // Ties are shared equally, so identical embeddings get only the accuracy of chance.
      const double largest = *std::max_element(cosine.begin(), cosine.end());
      if (cosine[static_cast<std::size_t>(c)] == largest)
        right += 1.0 / static_cast<double>(std::count(cosine.begin(), cosine.end(), largest));
    }
  return right / static_cast<double>(at.ways * at.queries);
}

}  // namespace

FewShot few_shot(const Labelled& samples, const Tensor& groups, const Communicator& comm, const FewShotAttributes& at) {
  Untaped scope;
  require(at.ways >= 2 && at.shots >= 1 && at.queries >= 1 && at.episodes >= 1 && at.block >= 1,
          "[few_shot] {} ways, {} shots, {} queries, {} episodes are invalid", at.ways, at.shots, at.queries, at.episodes);
  const auto batch = inspect("few_shot", {samples.embeddings}, comm);
  const auto labels = gathered_labels("few_shot", samples.labels, batch);
  const auto of_group = groups ? gathered_labels("few_shot", groups, batch) : Places(labels.size(), 0);
  const auto classes = groups_of(labels, of_group, at);
  UseDevice device(batch.views[0].device());
  const auto unit = cast(unit_rows(batch.views[0]), DType::float64);

  // A round of episodes: rank r computes the r-th run of them, and every rank sends it its samples of these episodes.
  const int p = comm.size(), me = comm.rank();
  const auto size = at.ways * (at.shots + at.queries), each = std::max<std::int64_t>(1, at.block / size);
  std::vector<double> accuracies(static_cast<std::size_t>(at.episodes), 0.0);
  const auto owner_of = [&](std::int64_t place) {
    std::int64_t first = 0;
    std::size_t r = 0;
    while (place >= first + batch.rows[r]) first += batch.rows[r++];
    return r;
  };
  for (std::int64_t start = 0; start < at.episodes; start += each * p) {
    Rows sent(static_cast<std::size_t>(p), 0), received(static_cast<std::size_t>(p), 0);
    std::vector<double> leaving;                // own samples, in the order of destinations
    std::vector<Places> from(received.size());  // by source rank: places of its samples in this rank's episodes
    std::int64_t places_here = 0;
    for (int r = 0; r < p; ++r)
      for (auto e = start + r * each; e < std::min(at.episodes, start + (r + 1) * each); ++e)
        for (const auto place : episode_of(classes, at, e)) {
          const auto owner = owner_of(place);
          if (owner == static_cast<std::size_t>(me))
            leaving.push_back(static_cast<double>(place - batch.first)), ++sent[static_cast<std::size_t>(r)];
          if (r == me) ++received[owner], from[owner].push_back(places_here++);
        }
    const auto rows = from_vector({static_cast<std::int64_t>(leaving.size())}, leaving, DType::int64);
    const auto arrived = alltoall(take(unit, rows), comm, sent, received).to_vector();
    std::vector<double> ordered(static_cast<std::size_t>(places_here * batch.width));
    auto next = arrived.begin();
    for (const auto& of_rank : from)
      for (const auto place : of_rank) {
        std::copy(next, next + batch.width, ordered.begin() + place * batch.width);
        next += batch.width;
      }
    for (std::int64_t i = 0; i < places_here / size; ++i)
      accuracies[static_cast<std::size_t>(start + me * each + i)] =
          accuracy_of(ordered.data() + i * size * batch.width, batch.width, at);
  }
  sum_over_ranks(accuracies, comm);
  FewShot result;
  const auto n = static_cast<double>(at.episodes);
  for (const double value : accuracies) result.accuracy += value / n;
  for (const double value : accuracies) result.standard_error += (value - result.accuracy) * (value - result.accuracy);
  result.standard_error = n > 1 ? std::sqrt(result.standard_error / (n - 1) / n) : 0;
  return result;
}

}  // namespace mpigrad::contrastive
