#pragma once
// Runs the body of a test on ranks as threads of this process. An exception on one rank stops the others and is rethrown here.

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

// Like on_ranks, but an error fails the surrounding test, which then continues.
inline void check_on_ranks(int ranks, const std::string& what, const RankBody& body) {
  try {
    on_ranks(ranks, body);
  } catch (const std::exception& error) {
    FAIL_CHECK(what << ", " << ranks << " ranks: " << std::string(error.what()));
  }
}

}  // namespace mpigrad::testing
