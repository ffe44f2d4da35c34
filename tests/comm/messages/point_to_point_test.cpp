// Differentiable messages and requests on ranks as threads: cotangents return for any order of waits, and calls without a
// derivative are refused by name. The cases are in tests/comm/messages/message_cases.h, which also run under mpiexec.

#include "comm/messages/point_to_point.h"

#include <stdexcept>

#include "comm/messages/nonblocking.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "tests/comm/messages/message_cases.h"
#include "tests/support/distributed.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

Tensor numbered(const Communicator& comm, const Shape& shape = {2}) { return full(shape, comm.rank() + 1, DType::float64); }
int other(const Communicator& comm) { return 1 - comm.rank(); }

// The error message of gradient() on two ranks after `body`.
std::string gradient_error(const RankBody& body) {
  return error_text([&] { on_ranks(2, body); });
}

}  // namespace

TEST_CASE("point to point: rings need no ordering by the user") {
  check_on_ranks(2, "ring of 10^7", [](const auto& c) { check_ring(c, Idiom::both, 10'000'000); });
  for (const int ranks : {1, 2, 3})
    for (const auto idiom : {Idiom::both, Idiom::only_send, Idiom::only_receive})
      check_on_ranks(ranks, "ring", [&](const auto& c) { check_ring(c, idiom, 100'000); });
}

TEST_CASE("point to point: cotangents come home whatever the order of the waits") {
  for (const int ranks : {1, 2, 3, 4})
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      check_on_ranks(ranks, "permuted waits", [&](const auto& c) { check_permuted_waits(c, seed, 6); });
      check_on_ranks(ranks, "wildcards", [&](const auto& c) { check_wildcards(c, seed); });
    }
}

TEST_CASE("point to point: of receives that all take a message the first posted gets it") {
  check_on_ranks(2, "order of receives", check_order_of_receives);
}

TEST_CASE("point to point: every way to wait, to second order") {
  for (const int ranks : {1, 2, 3, 5}) {
    check_on_ranks(ranks, "ways to wait", check_ways_to_wait);
    check_on_ranks(ranks, "values not used", check_unused);
    check_on_ranks(ranks, "periodic halo", check_periodic_halo);
  }
}

TEST_CASE("non-blocking collectives are matched whatever the order of the waits") {
  for (const int ranks : {1, 2, 3, 4})
    for (std::uint64_t seed = 1; seed <= 10; ++seed)
      check_on_ranks(ranks, "collectives", [&](const auto& c) { check_collective_orders(c, seed); });
  for (const int ranks : {1, 2, 3}) check_on_ranks(ranks, "recompute", check_around_recompute);
}

// Sequence numbers count per communicator: equal tags on three communicators, used in turn.
TEST_CASE("point to point: duplicates and sub-communicators used in turn") {
  check_on_ranks(4, "communicators", [](const Communicator& world) {
    const Communicator comms[] = {world, world.duplicate(), world.split(world.rank() % 2, -world.rank())};
    const auto x = numbered(world);
    Tape tape;
    std::vector<Request> requests;
    auto loss = zeros({}, DType::float64);
    for (int round = 0; round < 3; ++round)
      for (const auto& comm : comms) {
        const int p = comm.size();
        requests.push_back(irecv(x.type(), comm, (comm.rank() + p - 1) % p));
        requests.push_back(isend(x * (round + 1), comm, (comm.rank() + 1) % p));
      }
    for (std::size_t i = 0; i < requests.size(); ++i)
      if (const auto y = wait(requests[world.rank() == 1 ? requests.size() - 1 - i : i])) loss = loss + sum(y);
    require_close("gradient", tape.gradient(loss, {x})[0], full({2}, 18, DType::float64));
  });
}

TEST_CASE("point to point: nested tapes, two replays of one tape, constants, no peer") {
  check_on_ranks(2, "tapes", [](const Communicator& comm) {
    const auto x = numbered(comm), c = comm.rank() == 0 ? constant(numbered(comm)) : numbered(comm);
    Tape outer;
    auto open = isend(x, comm, other(comm), 3);  // recorded on the outer tape only
    Tensors inner_gradient;
    {
      Tape inner;
      const auto y = sendrecv(x, comm, {.dest = other(comm), .source = other(comm)});
      send(c, comm, other(comm), 1);  // a constant on rank 0 only
      const auto z = recv(x.type(), comm, other(comm), 1);
      const auto nothing = sendrecv(x, comm, {.dest = proc_null, .source = proc_null});
      require_close("nothing", nothing, zeros({2}, DType::float64));
      const auto loss = sum(square(y) * z) + sum(nothing);
      inner_gradient = inner.gradient(loss, {x}, Record::yes);
      require_close("again", inner.gradient(loss, {x})[0], inner_gradient[0]);
    }
    const double there = 2.0 - comm.rank();  // the other rank's x
    const double own = comm.rank() + 1;
    require_close("inner", inner_gradient[0], full({2}, 2 * own * own, DType::float64));
    const auto y = recv(x.type(), comm, other(comm), 3);
    wait(open);
    const auto g = outer.gradient(sum(inner_gradient[0] * y), {x})[0];
    // inner = 2 x z' with constant z'; d/dx = 2 x y, plus the cotangent of y from the other rank's inner gradient.
    require_close("outer", g, full({2}, 2 * own * there + 2 * there * there, DType::float64));
  });
  check_on_ranks(2, "constants of all ranks are not recorded", [](const Communicator& comm) {
    const auto c = constant(numbered(comm));
    auto early = iallreduce(c, comm);  // before the tape, which is allowed for constants
    Tape tape;
    const auto y = wait(early), z = sendrecv(c, comm, {.dest = other(comm), .source = other(comm)}), s = wait(ibcast(c, comm));
    CHECK((y.is_constant() && z.is_constant() && s.is_constant()));
    CHECK(tape.entries().empty());
    auto numbers = isend(arange(3), comm, other(comm));
    CHECK(wait(irecv({{3}, DType::int64}, comm, other(comm))).is_constant());
    wait(numbers);
    CHECK(tape.entries().empty());
  });
}

// Only rank 0 has a loss; its cotangent is a constant there and zero elsewhere: the adjoint is on all tapes or on none.
TEST_CASE("non-blocking collectives: a constant cotangent on one rank") {
  check_on_ranks(3, "second order", [](const Communicator& comm) {
    const auto x = numbered(comm);
    Tape tape;
    const auto y = wait(iallreduce(square(x), comm));
    const bool first = comm.rank() == 0;
    const Tensors outputs = first ? Tensors{y} : Tensors(), seeds = first ? Tensors{constant(ones_like(y))} : Tensors();
    const auto g = tape.vjp(outputs, seeds, {x}, Record::yes)[0];
    require_close("first", g, 2 * x);
    require_close("second", tape.gradient(sum(g), {x})[0], full({2}, 2, DType::float64));
  });
}

TEST_CASE("point to point: more messages than there are identities") {
  const auto run = [](bool reversed) {
    on_ranks(2, [&](const Communicator& comm) {
      const auto n = static_cast<std::size_t>(recorded_tags(comm)) + 10;
      const auto x = full({}, 1, DType::float64);
      Tape tape;
      std::vector<Request> requests(n);
      Tensor loss;  // on the receiver
      for (std::size_t i = 0; i < n; ++i)
        requests[i] = comm.rank() == 0 ? isend(x * static_cast<double>(i), comm, 1) : irecv(x.type(), comm, 0);
      for (std::size_t i = 0; i < n; ++i) {
        const auto at = reversed && comm.rank() == 0 ? n - 1 - i : i;
        const auto y = wait(requests[at]);
        if (!y || at % 5 != 0) continue;
        const auto term = y * static_cast<double>(at);
        loss = loss ? loss + term : term;
      }
      double expected = 0;
      for (std::size_t i = 0; i < n && comm.rank() == 0; i += 5) expected += static_cast<double>(i * i);
      const auto g = tape.gradient(loss, {x})[0];
      require_close("gradient", g, full({}, expected, DType::float64));
    });
  };
  CHECK(error_text([&] { run(false); }) == "");
  const auto text = error_text([&] { run(true); });
  CHECK_MESSAGE(has(text, "was waited for before message"), text);
}

TEST_CASE("point to point: requests that are dropped, and receives that stay open") {
  check_on_ranks(2, "requests", [](const Communicator& comm) {
    const auto x = numbered(comm);
    const auto exchange_by_tape = [&] {
      Tape tape;
      auto sent = isend(x, comm, other(comm));
      const auto y = recv(x.type(), comm, other(comm));
      wait(sent);
      require_close("gradient", tape.gradient(sum(y) * (comm.rank() + 1), {x})[0], full({2}, other(comm) + 1, DType::float64));
    };
    {  // a request dropped outside a tape completes, and counts as a message
      auto receive = irecv(x.type(), comm, any_source), sent = isend(x, comm, other(comm));
      receive = irecv(x.type(), comm, other(comm));
      send(x, comm, other(comm));
    }
    exchange_by_tape();
    // Receives that cannot match messages with names or with another tag.
    auto open = irecv({{1}, DType::int64}, comm, other(comm), 9), wild = irecv({{1}, DType::int64}, comm, any_source, 8);
    exchange_by_tape();
    send(arange(1), comm, other(comm), 9), send(arange(1), comm, other(comm), 8);
    wait(open), wait(wild);
    exchange_by_tape();
  });
  // The message taken by a receive is unknown if an exception has abandoned it.
  const auto text = gradient_error([](const Communicator& comm) {
    const auto x = numbered(comm);
    try {
      auto lost = irecv(x.type(), comm, other(comm));
      throw std::runtime_error("somebody else's");
    } catch (const std::runtime_error&) {
    }
    Tape tape;
    auto sent = isend(x, comm, other(comm));
    const auto y = recv(x.type(), comm, other(comm));
    wait(sent);
    tape.gradient(sum(y), {x});
  });
  CHECK_MESSAGE(has(text, "[irecv] a receive posted before this one was never waited for: rank"), text);
}

TEST_CASE("point to point: an error in the middle of a replay ends all ranks") {
  const auto text = error_text([] {
    on_ranks(3, [](const Communicator& comm) {
      const auto x = numbered(comm);
      Tape tape;
      auto sent = isend(x, comm, (comm.rank() + 1) % 3);
      if (comm.rank() == 1)
        Tape::record(
            {.name = "broken", .communicates = true, .inputs = {}, .outputs = {}, .vjp = [](const Replay&, Inputs) -> Tensors {
               fail("[broken] this vjp fails");
             }});
      const auto y = recv(x.type(), comm, (comm.rank() + 2) % 3);
      wait(sent);
      tape.gradient(sum(y), {x});
    });
  });
  CHECK(text == "[broken] this vjp fails");
}

TEST_CASE("point to point: a message of another length or type names both ends and what was expected") {
  for (const int ranks : {2, 3}) check_on_ranks(ranks, "wrong messages", check_wrong_messages);
}

TEST_CASE("point to point: errors name the call") {
  SUBCASE("never waited for, found before anybody waits for its adjoint") {
    const auto text = gradient_error([](const Communicator& comm) {
      const auto x = numbered(comm);
      Tape tape;
      if (comm.rank() == 0) {
        auto forgotten = irecv(x.type(), comm, 1, 7);
        send(x, comm, 1);
        tape.gradient({}, {x});
      } else {
        const auto y = recv(x.type(), comm, 0);
        send(x, comm, 0, 7);
        tape.gradient(sum(y), {x});
      }
    });
    CHECK(text == "[irecv] under this tape there is no wait for this call: irecv from rank 1, tag 7: float64 [2]");
    const auto collective = gradient_error([](const Communicator& comm) {
      const auto x = numbered(comm);
      Tape tape;
      auto forgotten = iallreduce(x, comm);
      tape.gradient(sum(x), {x});
    });
    CHECK_MESSAGE(has(collective, "[iallreduce] under this tape there is no wait for this call: iallreduce: "), collective);
  }
  SUBCASE("waited for under Untaped, which the tape has not seen") {
    on_ranks(1, [](const Communicator& comm) {
      const auto x = numbered(comm);
      Tape tape;
      auto request = iallreduce(x, comm);
      Tensor y;
      {
        Untaped scope;
        y = wait(request);
      }
      CHECK(has(error_text([&] { tape.vjp({x}, {x}, {x}); }), "[iallreduce] under this tape there is no wait for this call"));
    });
  }
  SUBCASE("waited for under a tape that has not seen the start, after which it can still be waited for") {
    on_ranks(1, [](const Communicator& comm) {
      const auto x = numbered(comm);
      const std::string rule = "[wait] this call was started before the tape that records its wait, or under Untaped: i";
      auto sent = isend(x, comm, 0);
      Request under_tape, hidden;
      {
        Tape tape;
        CHECK(has(error_text([&] { wait(sent); }), rule + "send to rank 0, tag 0"));
        under_tape = irecv(x.type(), comm, 0);
        {
          Tape inner;
          CHECK(has(error_text([&] { wait(under_tape); }), rule + "recv from rank 0, tag 0"));
        }
        Untaped scope;
        hidden = iallreduce(x, comm);
      }
      {
        Tape second;
        CHECK(has(error_text([&] { wait(under_tape); }), rule + "recv"));
        CHECK(has(error_text([&] { wait(hidden); }), rule + "allreduce"));
      }
      wait(sent), wait(hidden);
      require_close("value", wait(under_tape), x);
    });
  }
  SUBCASE("tags and peers") {
    on_ranks(1, [](const Communicator& comm) {
      const auto x = numbered(comm);
      const int most = recorded_tags(comm) - 1;
      const auto own = [&](int tag) {
        return error_text([&] { sendrecv(x, comm, {.dest = 0, .source = 0, .send_tag = tag, .receive_tag = tag}); });
      };
      CHECK(own(most + 1) == "");
      Tape tape;
      CHECK(own(most) == "");
      CHECK(own(most + 1) == fmt::format("[sendrecv] tags are 0 to {} under a tape, got {}", most, most + 1));
      CHECK(error_text([&] { send(x, comm, 0, most + 1); }) ==
            fmt::format("[isend] tags are 0 to {} under a tape, got {}", most, most + 1));
      CHECK(error_text([&] { recv(x.type(), comm, 0, most + 1); }) ==
            fmt::format("[irecv] tags are 0 to {} under a tape, got {}", most, most + 1));
      CHECK(error_text([&] { send(x, comm, 1); }) == "[isend] peer 1 is not one of 1 ranks, nor proc_null");
      CHECK(error_text([&] { send(x, comm, any_source); }) == "[isend] peer -2 is not one of 1 ranks, nor proc_null");
      CHECK(error_text([&] { recv(x.type(), comm, 1); }) ==
            "[irecv] peer 1 is not one of 1 ranks, nor proc_null, nor any_source");
      CHECK(tape.entries().size() == 4);  // all of the one sendrecv
    });
  }
}

TEST_CASE("point to point: the dry device counts messages and their adjoints") {
  auto log = std::make_shared<std::vector<DryRecord>>();
  const Communicator comm(dry_world(0, 2, log));
  UseDevice dry(DeviceKind::dry);
  const auto x = zeros({5});
  Tape tape;
  auto sent = isend(x, comm, 1, 2);
  const auto y = recv(x.type(), comm, 1, 2);
  wait(sent);
  log->clear();
  tape.gradient(sum(y), {x});
  REQUIRE(log->size() == 2);
  CHECK(((*log)[0].what == DryRecord::What::receive && (*log)[1].what == DryRecord::What::send));
  CHECK(((*log)[0].bytes == 20 && (*log)[1].bytes == 20 && (*log)[0].tag == (*log)[1].tag));
}
