// Sizes of every rank's data after an operation, and checks of the arguments.

#include <algorithm>
#include <numeric>

#include "examples/tools/adjoint/operations.h"
#include "framework/base/joined.h"
#include "framework/tensor/layout.h"

namespace mpigrad::adjoint::shapes {
namespace {

Sizes sizes_of(const Problem& p) {
  Sizes sizes;
  for (std::size_t r = 0; r < p.size(); ++r) sizes.push_back(p.x_size(r));
  return sizes;
}

std::int64_t sum_of(const Sizes& sizes) { return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}); }

void require_equal(const Problem& p, const char* hint) {
  const auto sizes = sizes_of(p);
  for (const auto n : sizes)
    if (n != sizes[0])
      refuse("--x: {} takes as many numbers from every rank, not {}{}", p.operation->name, joined(sizes, ", "), hint);
}

Rows one_count_per_rank(const Problem& p) {
  const auto rows = parse_list("--counts", *p.counts, 0);
  if (rows.size() != p.size()) refuse("--counts: one number for each of the {} ranks is needed, not {}", p.ranks, rows.size());
  return rows;
}

constexpr const char* v_form = "; --counts selects the v form";

// Blocks as held by the ranks.
Rows held(const Problem& p, bool any) {
  const auto sizes = sizes_of(p);
  if (!p.counts) {
    if (!any) require_equal(p, v_form);
    return sizes;
  }
  const auto rows = one_count_per_rank(p);
  for (std::size_t r = 0; r < rows.size(); ++r)
    if (rows[r] != sizes[r]) refuse("--counts: {} of rank {}, which holds {}", rows[r], r, sizes[r]);
  return rows;
}

// n numbers split into blocks.
Rows cut(const Problem& p, std::int64_t n) {
  if (p.counts) {
    const auto rows = one_count_per_rank(p);
    if (sum_of(rows) != n) refuse("--counts: the blocks hold {} numbers together, x has {}", sum_of(rows), n);
    return rows;
  }
  if (n % p.ranks != 0)
    refuse("--x: {} needs to split {} numbers into {} equal blocks, which is impossible{}", p.operation->name, n, p.ranks,
           v_form);
  return Rows(p.size(), n / p.ranks);
}

std::vector<std::vector<int>> sources_of(const Problem& p) {
  std::vector<std::vector<int>> sources(p.size());
  for (std::size_t r = 0; r < p.size(); ++r)
    for (const int dest : p.graph[r]) sources[static_cast<std::size_t>(dest)].push_back(static_cast<int>(r));
  return sources;
}

// The lists of --counts, one for each rank.
std::vector<Rows> count_lists(const Problem& p, const std::vector<std::size_t>& lengths) {
  const auto lists = parse_lists("--counts", *p.counts, 0);
  if (lists.size() != p.size())
    refuse("--counts: one row for each of the {} ranks, separated by semicolons, is needed, not {}", p.ranks, lists.size());
  for (std::size_t r = 0; r < p.size(); ++r) {
    if (lists[r].size() != lengths[r]) refuse("--counts: row {} needs {} numbers, not {}", r, lengths[r], lists[r].size());
    if (sum_of(lists[r]) != p.x_size(r))
      refuse("--counts: rank {} sends {} numbers in all, x has {}", r, sum_of(lists[r]), p.x_size(r));
  }
  return lists;
}

}  // namespace

void equal(Problem& p) {
  require_equal(p, "");
  p.y_sizes = sizes_of(p);
}

void gather(Problem& p) {
  p.rows = held(p, false);
  p.y_sizes.assign(p.size(), 0);
  p.y_sizes[static_cast<std::size_t>(p.root)] = sum_of(p.rows);
}

void allgather(Problem& p) {
  p.rows = held(p, false);
  p.y_sizes.assign(p.size(), sum_of(p.rows));
}

void allgather_any(Problem& p) {
  p.rows = held(p, true);
  p.y_sizes.assign(p.size(), sum_of(p.rows));
}

void scatter(Problem& p) {
  const auto root = static_cast<std::size_t>(p.root);
  for (std::size_t r = 0; r < p.size(); ++r)
    if (r != root && !p.x[r].empty())
      refuse("--x: scatter needs empty fields on all ranks except the root, {}; rank {} holds {} numbers", p.root, r,
             p.x[r].size());
  p.y_sizes = p.rows = cut(p, p.x_size(root));
}

void reduce_scatter(Problem& p) {
  require_equal(p, "");
  p.y_sizes = p.rows = cut(p, p.x_size(0));
}

void shard(Problem& p) {
  if (p.counts) {
    p.rows = cut(p, p.x_size(0));
  } else {  // as the library does
    const auto cuts = balanced_cuts(p.x_size(0), p.ranks);
    for (std::size_t r = 0; r < p.size(); ++r) p.rows.push_back(cuts[r + 1] - cuts[r]);
  }
  p.y_sizes = p.rows;
}

void alltoall(Problem& p) {
  if (p.counts) {
    p.matrix = count_lists(p, std::vector<std::size_t>(p.size(), p.size()));
  } else {
    require_equal(p, v_form);
    p.matrix.assign(p.size(), cut(p, p.x_size(0)));
  }
  p.y_sizes.assign(p.size(), 0);
  for (const auto& row : p.matrix)
    for (std::size_t s = 0; s < p.size(); ++s) p.y_sizes[s] += row[s];
}

// A rank that receives no message gets zeros: in MPI the receiver sets their number; here it is the number that the rank holds,
// or none if its ybar is empty.
void message(Problem& p) {
  for (std::size_t r = 0; r < p.size(); ++r) {
    if (p.source[r] >= 0) p.y_sizes.push_back(p.x_size(static_cast<std::size_t>(p.source[r])));
    else p.y_sizes.push_back(p.ybar[r].empty() ? 0 : p.x_size(r));
  }
}

void message_in_place(Problem& p) {
  message(p);
  for (std::size_t r = 0; r < p.size(); ++r) {
    if (p.source[r] < 0) p.y_sizes[r] = p.x_size(r);
    if (p.y_sizes[r] != p.x_size(r))
      refuse("--x: the {} numbers of rank {} would be replaced by {}: sizes may not differ", p.x_size(r), r, p.y_sizes[r]);
  }
}

void shift(Problem& p) {
  const auto n = p.ranks, step = ((p.by % n) + n) % n;
  for (int r = 0; r < n; ++r) p.y_sizes.push_back(p.x_size(static_cast<std::size_t>((r + n - step) % n)));
}

void halo(Problem& p) {
  p.rows = sizes_of(p);
  if (p.periodic && p.width > 0 && sum_of(p.rows) == 0) refuse("--periodic: there is nothing that could wrap around");
  for (const auto n : p.rows) p.y_sizes.push_back(n + 2 * p.width);
}

void neighbor_allgather(Problem& p) {
  p.rows = held(p, false);
  for (const auto& sources : sources_of(p)) {
    auto& n = p.y_sizes.emplace_back(0);
    for (const int source : sources) n += p.rows[static_cast<std::size_t>(source)];
  }
}

void neighbor_alltoall(Problem& p) {
  if (p.counts) {
    std::vector<std::size_t> lengths;
    for (const auto& destinations : p.graph) lengths.push_back(destinations.size());
    p.matrix = count_lists(p, lengths);
  } else {
    std::optional<std::int64_t> block;
    for (std::size_t r = 0; r < p.size(); ++r) {
      const auto n = p.x_size(r), edges = static_cast<std::int64_t>(p.graph[r].size());
      if (edges == 0 ? n != 0 : n % edges != 0)
        refuse("--x: rank {} has {} numbers for {} destinations, which are no equal blocks{}", r, n, edges, v_form);
      if (edges == 0) {
        p.matrix.emplace_back();
        continue;
      }
      if (!block) block = n / edges;
      if (*block != n / edges) refuse("--x: blocks of {} and, on rank {}, of {}{}", *block, r, n / edges, v_form);
      p.matrix.emplace_back(p.graph[r].size(), *block);
    }
  }
  p.y_sizes.assign(p.size(), 0);
  for (std::size_t r = 0; r < p.size(); ++r)
    for (std::size_t i = 0; i < p.graph[r].size(); ++i) p.y_sizes[static_cast<std::size_t>(p.graph[r][i])] += p.matrix[r][i];
}

void get(Problem& p) {
  for (const int target : p.target) p.y_sizes.push_back(target < 0 ? 0 : p.x_size(static_cast<std::size_t>(target)));
}

// The window has room for the rank's own x and for everything that is written.
void accumulate(Problem& p) {
  p.y_sizes = sizes_of(p);
  for (std::size_t r = 0; r < p.size(); ++r)
    if (p.target[r] >= 0) {
      auto& n = p.y_sizes[static_cast<std::size_t>(p.target[r])];
      n = std::max(n, p.x_size(r));
    }
}

void put(Problem& p) {
  for (std::size_t r = 0; r < p.size(); ++r)
    for (std::size_t s = 0; s < r; ++s)
      if (p.target[r] >= 0 && p.target[r] == p.target[s] && !p.x[r].empty() && !p.x[s].empty())
        refuse("--target: ranks {} and {} both put into the window of rank {}", s, r, p.target[r]);
  accumulate(p);
}

}  // namespace mpigrad::adjoint::shapes
