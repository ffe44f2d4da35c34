#pragma once
// The command line of a trial: placement of its ranks, arguments of the program.

#include <filesystem>
#include <string>
#include <vector>

#include "examples/studies/hpo/strategy.h"

namespace mpigrad::hpo {

struct PlaceOptions {
  std::vector<std::string> hosts{};
  int cores = 0;               // of a host; 0: those of this host, or of the allocation
  int ranks = 1, threads = 1;  // ranks of a trial, threads of a rank
  int slots = 0;               // 0: as many as fit
  std::string launcher{};
};

// Slots for trials on the hosts of an allocation.
class Places {
 public:
  // UsageError: more slots than fit.
  explicit Places(const PlaceOptions& options);
  int slots() const { return slots_; }
  int ranks() const { return ranks_; }
  int threads() const { return threads_; }
  // Words before the program; none if a rank needs no launcher.
  std::vector<std::string> launcher(int slot) const;

 private:
  std::vector<std::string> hosts_;
  std::string launcher_;
  int slots_, ranks_, threads_, ranks_per_host_ = 1, hosts_per_trial_ = 1;
};

// The program with a setting's arguments; `resource` is an argument if the space has one.
std::vector<std::string> command_of(const Space& space, const Setting& setting, int resource, const std::filesystem::path& out);
// Quoted for a shell.
std::string shell_text(const std::vector<std::string>& words);
// "optimizer=adam batch=32"
std::string text_of(const Space& space, const Setting& setting);

// UsageError: there is no such program, or its --help does not list an option that it will get.
void check_program(const Space& space);

}  // namespace mpigrad::hpo
