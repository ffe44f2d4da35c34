// Maxima and minima over ranks when some are NaN, by every reduction and scan: the cotangent passes to the ranks with NaN, as in
// nan_test.cpp for functions on one rank.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/collectives/collectives.h"
#include "comm/collectives/reductions.h"
#include "comm/collectives/scan.h"
#include "framework/engine/tape.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

using Values = std::vector<double>;

// The values of ranks for some elements, [element][rank]: NaN on one rank, on two, on all; and a tie.
std::vector<Values> over_ranks(int size) {
  const auto ranks = static_cast<std::size_t>(size);
  std::vector<Values> values(5, Values(ranks));
  for (std::size_t r = 0; r < ranks; ++r) {
    for (auto& element : values) element[r] = static_cast<double>(r * 3 % 5);
    values[2][r] = NAN, values[3][r] = 1;
  }
  values[0][ranks / 2] = values[1][0] = values[1][ranks - 1] = values[4][ranks - 1] = NAN;
  return values;
}

// Adds to each of some ranks its part of the cotangent of their extremum.
void add_shares(Values& shares, double cotangent, const Values& x, std::vector<std::size_t> ranks, bool largest, Ties ties) {
  const auto wins = [&](std::size_t a, std::size_t b) {
    if (std::isnan(x[a]) || std::isnan(x[b])) return std::isnan(x[a]) && !std::isnan(x[b]);
    return largest ? x[a] > x[b] : x[a] < x[b];
  };
  std::vector<std::size_t> winners;
  for (const auto r : ranks)
    if (std::none_of(ranks.begin(), ranks.end(), [&](auto other) { return wins(other, r); })) winners.push_back(r);
  if (ties == Ties::first && !winners.empty()) winners.erase(winners.begin() + 1, winners.end());
  for (const auto r : winners) shares[r] += cotangent / static_cast<double>(winners.size());
}

enum class Form : std::uint8_t { allreduce, reduce, reduce_scatter, scan, scan_down, exscan, loc };

void check_over_ranks(const Communicator& comm, Form form, bool largest, Ties ties, DType type) {
  const auto size = static_cast<std::size_t>(comm.size()), rank = static_cast<std::size_t>(comm.rank());
  const auto values = over_ranks(comm.size());
  const auto n = static_cast<std::int64_t>(values.size());
  const int root = comm.size() - 1;
  Rows rows(size, 0);
  rows[0] = 2, rows[size - 1] += n - 2;
  Values mine;
  for (const auto& element : values) mine.push_back(element[rank]);
  const auto x = from_vector({n}, mine, type);
  const auto op = largest ? ReduceOp::max : ReduceOp::min;
  Tape tape;
  const auto y = [&] {
    switch (form) {
      case Form::allreduce: return allreduce(x, comm, op, ties);
      case Form::reduce: return reduce(x, comm, root, op, ties);
      case Form::reduce_scatter: return reduce_scatter(x, comm, rows, op, ties);
      case Form::scan: return scan(x, comm, op, ties);
      case Form::scan_down: return scan(x, comm, op, ties, Direction::down);
      case Form::exscan: return exscan(x, comm, op, ties);
      case Form::loc: break;
    }
    const auto located = largest ? allreduce_maxloc(x, comm) : allreduce_minloc(x, comm);
    const auto index = located.index.to_vector();
    for (std::size_t i = 0; i < index.size(); ++i) {
      Values shares(size, 0.0);
      std::vector<std::size_t> all(size);
      for (std::size_t r = 0; r < size; ++r) all[r] = r;
      add_shares(shares, 1, values[i], all, largest, Ties::first);
      require(shares[static_cast<std::size_t>(index[i])] == 1, "[test] the extremum of element {} is not on rank {}", i,
              index[i]);
    }
    return located.value;
  }();
  const auto found = tape.vjp({y}, {full(y.shape(), static_cast<double>(rank) + 1, type)}, {x})[0].to_vector();
  for (std::size_t i = 0; i < values.size(); ++i) {
    Values shares(size, 0.0);
    for (std::size_t s = 0; s < size; ++s) {  // the cotangent of rank s, and the ranks of its value
      std::vector<std::size_t> from;
      for (std::size_t r = 0; r < size; ++r)
        if (form == Form::scan ? r <= s : form == Form::exscan ? r < s : form != Form::scan_down || r >= s) from.push_back(r);
      if (form == Form::scan_down) std::reverse(from.begin(), from.end());
      const auto begin = static_cast<std::size_t>(s == 0 ? 0 : 2);
      const bool has = form == Form::reduce ? s == static_cast<std::size_t>(root)
                                            : form != Form::reduce_scatter || size == 1 ||
                                                  (i >= begin && i < begin + static_cast<std::size_t>(rows[s]));
      if (has) add_shares(shares, static_cast<double>(s) + 1, values[i], from, largest, form == Form::loc ? Ties::first : ties);
    }
    require(std::abs(found[i] - shares[rank]) <= (is_half(type) ? 0.02 : 1e-6) * std::abs(shares[rank]),
            "[test] form {}, {}, ties {}, {}: cotangent {} of element {}, not {}", static_cast<int>(form), name_of(op),
            static_cast<int>(ties), name_of(type), found[i], i, shares[rank]);
  }
}

}  // namespace

TEST_CASE("NaN: maxima and minima over ranks pass the cotangent to the ranks that have it") {
  for (const int size : {1, 2, 3, 5})
    check_on_ranks(size, "maxima and minima", [](const Communicator& comm) {
      for (const auto form :
           {Form::allreduce, Form::reduce, Form::reduce_scatter, Form::scan, Form::scan_down, Form::exscan, Form::loc})
        for (const bool largest : {true, false})
          for (const auto ties : {Ties::split, Ties::first})
            for (const auto type : {DType::float64, DType::float32, DType::bfloat16})
              check_over_ranks(comm, form, largest, ties, type);
    });
}
