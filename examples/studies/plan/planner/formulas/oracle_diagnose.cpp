#include <algorithm>

#include "examples/studies/plan/planner/formulas/oracle.h"
#include "framework/base/error.h"

namespace mpigrad::planner {
namespace {

double seconds_of(const OracleResult& result, const std::string& name) {
  double seconds = 0;
  for (const auto& term : result.terms)
    if (term.name == name) seconds += term.seconds;
  return seconds;
}

// Groups of ranks with different samples, and the ranks of each group, which share the work on them.
struct Sharing {
  double groups = 1, group = 1;
};
Sharing sharing_of(const OracleInput& in) {
  const auto ranks = static_cast<double>(in.ranks);
  if (in.strategy == Strategy::data) return {ranks, 1};
  if (is_hybrid(in.strategy)) return {static_cast<double>(in.groups), static_cast<double>(in.group)};
  return {1, ranks};
}

}  // namespace

std::vector<Diagnosis> diagnose(const OracleInput& in, const OracleResult& result) {
  std::vector<Diagnosis> found;
  const auto s = in.strategy;
  const auto report = [&](Diagnosis::Kind kind, const char* name, double number, std::string sentence) {
    found.push_back({kind, name, number, std::move(sentence)});
  };
  const double known = result.communication + result.compute.value_or(0);
  const char* of = result.compute ? "of the epoch" : "of the epoch's communication";
  const auto part_of_time = [&](double seconds) { return known > 0 ? seconds / known : 0; };
  const auto share = [&](Diagnosis::Kind kind, const char* name, const char* term, const char* what) {
    const double seconds = seconds_of(result, term), part = part_of_time(seconds);
    if (seconds > 0 && part >= reported_part)
      report(kind, name, part, fmt::format("{} take {:.4g} s, {:.1f} % {}", what, seconds, 100 * part, of));
  };
  const auto [groups, group] = sharing_of(in);
  const bool shares_samples = s != Strategy::serial && s != Strategy::data && s != Strategy::pipeline && group > 1;

  share(Diagnosis::Kind::limitation, "gradient exchange", "gradient all-reduce", "sums of gradients over ranks");
  share(Diagnosis::Kind::limitation, "layer-wise collectives", "layer collectives",
        "gathers and sums of every layer's activations");
  share(Diagnosis::Kind::bottleneck, "halo messages", "halo", "planes from neighbours");
  share(Diagnosis::Kind::bottleneck, "pipeline messages", "pipeline messages", "activations handed to the next group");
  if (in.ranks >= congested_ranks)
    report(Diagnosis::Kind::bottleneck, "network congestion", static_cast<double>(in.ranks),
           fmt::format("on {} ranks and more, reductions were seen to take up to four times what is computed here; there are {}",
                       congested_ranks, in.ranks));
  if (shares_samples && !in.layers.empty()) {
    const double bytes = static_cast<double>(in.samples) / groups * in.layers[0].inputs * in.bytes_per_element;
    const double seconds = bytes / in.group_bandwidth.value_or(in.bandwidth);
    if (seconds > 0 && part_of_time(seconds) >= reported_part)
      report(Diagnosis::Kind::bottleneck, "input and staging", part_of_time(seconds),
             fmt::format("if one rank of a group reads samples for all, handing them on takes {:.4g} s: {:.1f} % {}", seconds,
                         100 * part_of_time(seconds), of));
  }

  // Ranks of a pipeline hold different weights; that is uneven, which is another class.
  if (result.memory_bytes && !in.layers.empty() && in.ranks > 1 && s != Strategy::pipeline) {
    OracleInput on_one = in;
    on_one.strategy = Strategy::serial, on_one.ranks = 1;
    const double redundant = 1 - *evaluate(on_one).memory_bytes / (*result.memory_bytes * static_cast<double>(in.ranks));
    if (redundant >= reported_part)
      report(Diagnosis::Kind::bottleneck, "memory redundancy", redundant,
             fmt::format("{:.1f} % of all ranks' memory holds what other ranks hold, too", 100 * redundant));
  }
  if (result.memory_bytes && in.memory > 0 && *result.memory_bytes >= fragmented_part * in.memory)
    report(Diagnosis::Kind::bottleneck, "memory fragmentation", *result.memory_bytes / in.memory,
           fmt::format("{:.4g} bytes are {:.1f} % of a rank's memory; fragments need additional room", *result.memory_bytes,
                       100 * *result.memory_bytes / in.memory));

  if (result.compute && *result.compute > 0 && *result.update / *result.compute >= reported_part)
    report(Diagnosis::Kind::limitation, "weight update", *result.update / *result.compute,
           fmt::format("updates of weights take {:.4g} s, {:.1f} % of what is computed", *result.update,
                       100 * *result.update / *result.compute));
  if (s == Strategy::pipeline && result.imbalance - 1 >= reported_part)
    report(Diagnosis::Kind::limitation, "workload balance", result.imbalance,
           fmt::format("the group with most work has {:.2f} times the mean", result.imbalance));
  if (shares_samples)
    report(Diagnosis::Kind::bottleneck, "computation redundancy", group,
           fmt::format("{:.0f} ranks share a layer's work, which is taken to be {:.0f} times as fast; smaller pieces are less",
                       group, group));
  if (s != Strategy::serial && static_cast<double>(in.ranks) >= result.limit.value)
    report(Diagnosis::Kind::limitation, "number of ranks", result.limit.value,
           fmt::format("{} allows {:.0f} ranks; there are {}", result.limit.name, result.limit.value, in.ranks));
  else if (result.limit.exceeded)
    report(Diagnosis::Kind::limitation, "number of ranks", result.limit.value,
           fmt::format("{} allows {:.0f} ranks, but not in this arrangement of {}", result.limit.name, result.limit.value,
                       in.ranks));
  return found;
}

}  // namespace mpigrad::planner
