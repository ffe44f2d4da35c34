#pragma once
// Runs a test's body on ranks that are threads of this process. What a rank throws ends the others and arrives here.

#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "comm/communicator.h"
#include "comm/launch.h"
#include "tests/support/errors.h"

namespace mpigrad::testing {

using RankBody = std::function<void(const Communicator&)>;

inline void on_ranks(int ranks, const RankBody& body) {
  run_threads(ranks, [&](std::shared_ptr<Transport> transport) {
    set_threads_of_rank(*transport);
    body(Communicator(std::move(transport)));
  });
}

// The same; an error fails the surrounding test, which goes on.
inline void check_on_ranks(int ranks, const std::string& what, const RankBody& body) {
  try {
    on_ranks(ranks, body);
  } catch (const std::exception& error) {
    FAIL_CHECK(what << ", " << ranks << " ranks: " << std::string(error.what()));
  }
}

}  // namespace mpigrad::testing
