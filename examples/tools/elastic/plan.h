#pragma once
// With what a job goes on when ranks or nodes are lost.

#include <map>
#include <string>
#include <vector>

#include "comm/distributed/grid.h"

namespace mpigrad::elastic {

// The grid for at most so many ranks that is nearest to what was wanted: fewer groups along `sample` first, of which each has the
// memory that it had; where not even one group is left, the largest grid whose axes are not longer than wanted, the deeper one of
// equals. `ranks` is 1 or more.
GridExtents next_grid(const GridExtents& wanted, int ranks);

// A template with names in braces, as "mpiexec -n {ranks} -hosts {hosts}", in words; quotes keep a word together. UsageError: a
// name that is not in `values`, a quote without its end.
std::vector<std::string> fill(const std::string& text, const std::map<std::string, std::string>& values);

// The hosts of a job, and what is known against them.
class Hosts {
 public:
  // `ranks` on each.
  Hosts(std::vector<std::string> names, int ranks, int forgiven);
  const std::vector<std::string>& names() const { return names_; }
  int ranks_per_host() const { return ranks_; }
  int ranks() const { return static_cast<int>(names_.size()) * ranks_; }
  // It does not answer. Whether there are others.
  bool drop(const std::string& name);
  // A rank on it died. The host goes when that has happened more often than is forgiven; the last one has a rank less then. What
  // is said about it; empty: nothing changes.
  std::string accuse(const std::string& name);

 private:
  std::vector<std::string> names_;
  int ranks_, forgiven_;
  std::map<std::string, int> deaths_;
};

}  // namespace mpigrad::elastic
