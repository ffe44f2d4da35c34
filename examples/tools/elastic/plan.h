#pragma once
// Plans how a job continues when ranks or nodes are lost.

#include <map>
#include <string>
#include <vector>

#include "comm/distributed/grid.h"

namespace mpigrad::elastic {

// The grid for at most `ranks` ranks that is nearest to `wanted`: first with fewer groups along `sample`, which keeps the memory
// per rank; if not even one group fits, the largest grid whose axes are not longer than wanted, and among equals the deeper one.
// `ranks` is 1 or more.
GridExtents next_grid(const GridExtents& wanted, int ranks);

// Splits a template with names in braces, such as "mpiexec -n {ranks} -hosts {hosts}", into words and fills in the values; quotes
// keep a word together. UsageError: a name that is not in `values`, an unclosed quote.
std::vector<std::string> fill(const std::string& text, const std::map<std::string, std::string>& values);

// The hosts of a job, and the failures counted for each.
class Hosts {
 public:
  // `ranks` on each host.
  Hosts(std::vector<std::string> names, int ranks, int forgiven);
  const std::vector<std::string>& names() const { return names_; }
  int ranks_per_host() const { return ranks_; }
  int ranks() const { return static_cast<int>(names_.size()) * ranks_; }
  // Removes a host that does not answer. True if others are left.
  bool drop(const std::string& name);
  // Counts a rank that died on a host. After more than `forgiven` deaths the host is removed; the last host gets one rank less
  // instead. Returns a message; empty: nothing changed.
  std::string accuse(const std::string& name);

 private:
  std::vector<std::string> names_;
  int ranks_, forgiven_;
  std::map<std::string, int> deaths_;
};

}  // namespace mpigrad::elastic
