#pragma once
// Messages and non-blocking collectives whose cotangents must come home to the right place, whatever the order of the waits. Run
// on the `threads` transport by point_to_point_test.cpp and under mpiexec by mpi_messages_test.cpp. Collective; the first wrong
// value throws.

#include "comm/communicator.h"

namespace mpigrad::testing {

enum class Idiom : std::uint8_t { both, only_send, only_receive };  // what is non-blocking

// x goes to the next rank, the loss is rank * what arrives: every gradient is (rank + 1) mod P.
void check_ring(const Communicator& comm, Idiom idiom, std::int64_t elements);
// Neighbours in pairs send each other messages with tags of 0 to 2; both wait for everything in orders of their own.
void check_permuted_waits(const Communicator& comm, std::uint64_t seed, int messages);
// Everybody sends rank 0 messages of one size; it takes them by any_source and any_tag and waits in an order of its own.
void check_wildcards(const Communicator& comm, std::uint64_t seed);
// Receives by name, any_source and any_tag, posted in every order: each message goes to the first of them.
void check_order_of_receives(const Communicator& comm);
// First and second order of each way to wait, of persistent requests and of sendrecv_replace.
void check_ways_to_wait(const Communicator& comm);
// A received value that nobody uses, and the loss of one rank only.
void check_unused(const Communicator& comm);
// Ghost rows on both sides by messages with equal tags, which two ranks send each other and one rank sends itself.
void check_periodic_halo(const Communicator& comm);
// Several non-blocking collectives under way, each rank waiting in an order of its own, blocking ones and parameters between.
void check_collective_orders(const Communicator& comm, std::uint64_t seed);
// Messages that are shorter or longer than what is expected, or of another type, taken in every way: the receiver's error names
// both ends, the tag and what was expected.
void check_wrong_messages(const Communicator& comm);
// A collective under way while recompute runs another: some ranks wait for it before, some after.
void check_around_recompute(const Communicator& comm);

}  // namespace mpigrad::testing
