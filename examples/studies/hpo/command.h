#pragma once
// The command line of a trial: where its ranks go, what the program is given.

#include <filesystem>
#include <string>
#include <vector>

#include "examples/studies/hpo/strategy.h"

namespace mpigrad::hpo {

struct PlaceOptions {
  std::vector<std::string> hosts{};
  int cores = 0;               // of a host; 0: of this one, or of the allocation
  int ranks = 1, threads = 1;  // of a trial, of a rank
  int slots = 0;               // 0: as many as there is room for
  std::string launcher{};
};

// Slots for trials on the hosts of an allocation.
class Places {
 public:
  // UsageError: more than there is room for.
  explicit Places(const PlaceOptions& options);
  int slots() const { return slots_; }
  int ranks() const { return ranks_; }
  int threads() const { return threads_; }
  // Words ahead of the program; none where a rank needs no launcher.
  std::vector<std::string> launcher(int slot) const;

 private:
  std::vector<std::string> hosts_;
  std::string launcher_;
  int slots_, ranks_, threads_, ranks_per_host_ = 1, hosts_per_trial_ = 1;
};

// The program with a setting; `resource` is given where the space has one.
std::vector<std::string> command_of(const Space& space, const Setting& setting, int resource, const std::filesystem::path& out);
// As a shell takes it.
std::string shell_text(const std::vector<std::string>& words);
// "optimizer=adam batch=32"
std::string text_of(const Space& space, const Setting& setting);

// UsageError: there is no such program, or its --help does not know an option that it will get.
void check_program(const Space& space);

}  // namespace mpigrad::hpo
