#pragma once
// The ranks of a program: from argc and argv, or on an existing communicator.

#include <concepts>
#include <functional>
#include <type_traits>

#include "comm/distributed/grid.h"

namespace mpigrad {

class Session {
 public:
  explicit Session(std::shared_ptr<Transport> transport) : world_(std::move(transport)) {}
  explicit Session(const Communicator& world) : world_(world) {}

  const Communicator& world() const { return world_; }
  int rank() const { return world_.rank(); }
  int ranks() const { return world_.size(); }
  // A grid of all ranks: sample x depth x height x width.
  GridPtr grid(const GridExtents& extents, Overlap overlap = Overlap::automatic) const {
    return make_grid(world_, extents, overlap);
  }
  // Rank 0 prints one line, "name value".
  void log(const std::string& name, double value) const;

 private:
  Communicator world_;
};

namespace detail {
int run_on_ranks(int argc, char** argv, const std::function<int(Session&)>& body);
}

// Runs body on every rank: under mpiexec or srun each process is a rank; with `--transport threads --ranks P` (or
// MPIGRAD_TRANSPORT and MPIGRAD_RANKS) the ranks are P threads of this process. An uncaught error is printed, with its source
// line if the program was compiled with -g, and ends every rank. Returns the exit code.
template <std::invocable<Session&> Body>
int run(int argc, char** argv, Body body) {
  return detail::run_on_ranks(argc, argv, [&](Session& session) {
    if constexpr (std::is_void_v<std::invoke_result_t<Body&, Session&>>) return body(session), 0;
    else return static_cast<int>(body(session));
  });
}

}  // namespace mpigrad
