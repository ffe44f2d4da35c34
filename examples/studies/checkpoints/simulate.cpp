#include "examples/studies/checkpoints/simulate.h"

#include <algorithm>
#include <string>

#include "examples/studies/plan/planner/formulas/collective_cost.h"
#include "framework/base/error.h"

namespace mpigrad::study {
namespace {

class Simulation {
 public:
  Simulation(const std::vector<Row>& measured, const planner::Machine& machine, const std::string& network, int p)
      : measured_(measured), machine_(machine), network_(network), p_(p),
        level_(machine.levels[static_cast<std::size_t>(machine.level_between(0, p - 1))]), link_{.latency = level_.latency,
                                                                                                 .seconds_per_byte =
                                                                                                     level_.sharing /
                                                                                                     level_.bandwidth} {}

  std::vector<Row> run() {
    const auto& all = of_one_rank(rank_0_writes);
    const auto& weights = of_one_rank(file_per_rank);
    const double agree = collective(CollectiveKind::allreduce, agreement_bytes);
    for (const auto& row : measured_) {
      if (row.network != network_ || row.ranks != 1) continue;
      Row next = row;
      next.ranks = p_, next.oversubscribed = false, next.simulated = true, next.same_bits = "";
      if (row.way == rank_0_writes) {
        next.save = next.still = write(row, 1) + agree;
        next.load = read(row, 1, p_);
      } else if (row.way == training_goes_on) {
        next.save = write(row, 1) + agree;
        next.still = row.still + agree;
        next.load = read(row, 1, p_);
        rows_.push_back(next);
        if (machine_.level_between(0, p_ - 1) == 0 && machine_.levels.size() > 1) continue;  // one node: no partner
        next.way = local_copies;
        next.bytes = 2 * row.bytes;
        next.save = 2 * row.save + planner::cost::point_to_point(row.bytes, link_) + agree;
        next.load = row.load + collective(CollectiveKind::bcast, row.bytes);
      } else if (row.way == file_per_rank) {
        next.save = next.still = write(row, p_);
        next.load = read(row, p_, 1);
        rows_.push_back(next);
        next.way = every_rank_its_part;
        next.bytes = all.bytes;
        next.save = next.still = write(all, p_) + agree;
        next.load = read(all, p_, 1);
      } else if (row.way == restart) {
        // Start, building and a step take the time that the measured restart took in addition to loading; gradients are added up.
        next.save = next.still = write(row, 1) + agree;
        next.load = std::max(0.0, row.load - all.load) + read(all, 1, p_) + collective(CollectiveKind::allreduce, weights.bytes);
      } else if (row.way.starts_with("weights: ")) {
        next.save = next.still = write(row, 1);
        next.load = read(row, 1, 1);
      } else {
        continue;  // no checkpoint
      }
      rows_.push_back(next);
    }
    return std::move(rows_);
  }

 private:
  static constexpr double agreement_bytes = 16;  // checksums of the ranks' parameters, which are compared

  const Row& of_one_rank(const std::string& way) const {
    const auto found = std::find_if(measured_.begin(), measured_.end(),
                                    [&](const Row& row) { return row.network == network_ && row.ranks == 1 && row.way == way; });
    require(found != measured_.end(), "[study] nothing was measured of '{}' on one rank", way);
    return *found;
  }
  double collective(CollectiveKind name, double bytes) const { return planner::best(name, p_, bytes, link_).seconds; }

  // Seconds for `bytes` in total, moved in `parts` equal parts at the same time, and all of it `times` times.
  double move(double bytes, double seconds_of_one, int parts, int times, double of_rank, double of_all) const {
    double seconds = std::max(seconds_of_one / parts, bytes / parts / level_.bandwidth);
    if (of_rank > 0) seconds = std::max(seconds, bytes / parts / of_rank);
    return std::max(seconds, bytes * times / of_all);
  }
  double write(const Row& row, int parts) const {
    return move(row.bytes, row.save, parts, 1, machine_.disk.rank_write, machine_.disk.write);
  }
  double read(const Row& row, int parts, int readers) const {
    return move(row.bytes, row.load, parts, readers, machine_.disk.rank_read, machine_.disk.read);
  }

  const std::vector<Row>& measured_;
  const planner::Machine& machine_;
  const std::string& network_;
  int p_;
  const planner::Level& level_;
  planner::Link link_;
  std::vector<Row> rows_;
};

}  // namespace

std::vector<Row> simulate(const std::vector<Row>& measured, const planner::Machine& machine, const std::vector<int>& ranks) {
  require(machine.disk.read > 0 && machine.disk.write > 0, "[study] {} has no [disk] with read and write", machine.name);
  for (const int p : ranks) require(p <= machine.ranks(), "[study] {} has {} ranks, not {}", machine.name, machine.ranks(), p);
  std::vector<Row> rows;
  std::vector<std::string> networks;
  for (const auto& row : measured)
    if (std::find(networks.begin(), networks.end(), row.network) == networks.end()) networks.push_back(row.network);
  for (const auto& network : networks)
    for (const int p : ranks) {
      const auto more = Simulation(measured, machine, network, p).run();
      rows.insert(rows.end(), more.begin(), more.end());
    }
  return rows;
}

}  // namespace mpigrad::study
