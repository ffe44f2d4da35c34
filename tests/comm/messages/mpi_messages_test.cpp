// Messages and non-blocking collectives under `mpiexec -n P mpi_messages`. Rank 0 prints one line per check; a failure ends all
// ranks with a non-zero exit code. Few calls, because there may be more ranks than cores.

#include <cstdio>
#include <functional>
#include <utility>

#include "comm/launch.h"
#include "tests/comm/messages/message_cases.h"

using namespace mpigrad;
using namespace mpigrad::testing;

int main(int argc, char** argv) {
  return launch(argc, argv, [&](std::shared_ptr<Transport> world) {
    const Communicator comm(world);
    const std::pair<const char*, std::function<void(const Communicator&)>> checks[] = {
        {"rings of large and small messages",
         [](const Communicator& c) {
           check_ring(c, Idiom::both, 1'000'000);
           for (const auto idiom : {Idiom::both, Idiom::only_send, Idiom::only_receive}) check_ring(c, idiom, 100);
           check_ring(c, Idiom::only_send, 50'000);
           check_ring(c, Idiom::only_receive, 50'000);
         }},
        {"messages waited for in any order",
         [](const Communicator& c) {
           check_permuted_waits(c, 1, 6);
           check_permuted_waits(c.duplicate(), 2, 6);
         }},
        {"any source and any tag",
         [](const Communicator& c) {
           check_wildcards(c, 1);
           if (c.size() > 1) check_order_of_receives(c);
           check_wildcards(c.split(0, -c.rank()), 2);
         }},
        {"first and second order of every way to wait", check_ways_to_wait},
        {"values not used, the loss of one rank", check_unused},
        {"a periodic halo", check_periodic_halo},
        {"non-blocking collectives waited for in any order", [](const Communicator& c) { check_collective_orders(c, 1); }},
        {"a collective under way around recompute", check_around_recompute},
        {"messages of another length or type than expected", check_wrong_messages},
    };
    for (const auto& [what, check] : checks) {
      check(comm);
      if (comm.rank() == 0) std::printf("ok: %s, %d ranks\n", what, comm.size()), std::fflush(stdout);
    }
    return 0;
  });
}
