#pragma once
// Messages and non-blocking collectives whose cotangents must return to the right place for any order of waits. Run on the
// `threads` transport by point_to_point_test.cpp and under mpiexec by mpi_messages_test.cpp. Collective; the first wrong value
// throws.

#include "comm/communicator.h"

namespace mpigrad::testing {

enum class Idiom : std::uint8_t { both, only_send, only_receive };  // the non-blocking calls

// x goes to the next rank, the loss is rank * the received value: every gradient is (rank + 1) mod P.
void check_ring(const Communicator& comm, Idiom idiom, std::int64_t elements);
// Pairs of neighbours send each other messages with tags of 0 to 2; both wait for all of them in different orders.
void check_permuted_waits(const Communicator& comm, std::uint64_t seed, int messages);
// All ranks send rank 0 messages of one size; it receives them with any_source and any_tag and waits in another order.
void check_wildcards(const Communicator& comm, std::uint64_t seed);
// Receives by name, any_source and any_tag, posted in every order: each message goes to the first matching one.
void check_order_of_receives(const Communicator& comm);
// First and second derivatives for each way to wait, for persistent requests and for sendrecv_replace.
void check_ways_to_wait(const Communicator& comm);
// An unused received value, and a loss on one rank only.
void check_unused(const Communicator& comm);
// Ghost rows on both sides by messages with equal tags, between two ranks and from one rank to itself.
void check_periodic_halo(const Communicator& comm);
// Several running non-blocking collectives, each rank waiting in a different order, with blocking ones and parameters in between.
void check_collective_orders(const Communicator& comm, std::uint64_t seed);
// Messages shorter or longer than expected, or of another type, with every kind of receive: the receiver's error names both ends,
// the tag and the expectation.
void check_wrong_messages(const Communicator& comm);
// A collective that is running while recompute runs another one: some ranks wait for it before, some after.
void check_around_recompute(const Communicator& comm);

}  // namespace mpigrad::testing
