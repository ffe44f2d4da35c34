// Messages: rings, pairs, wildcards, all ways to wait, halos, and messages that do not match.

#include "tests/comm/messages/message_cases.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "comm/check/adjoint_check.h"
#include "comm/collectives/collectives.h"
#include "comm/messages/point_to_point.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tests/comm/messages/rank_orders.h"
#include "tests/support/errors.h"

namespace mpigrad::testing {
namespace {

// The value of own() on another rank.
Tensor of_rank(int rank, const Shape& shape, std::uint64_t seed) {
  return global_tensor(shape, 1000 * seed + static_cast<std::uint64_t>(rank));
}

int next(const Communicator& comm) { return (comm.rank() + 1) % comm.size(); }
int previous(const Communicator& comm) { return (comm.rank() + comm.size() - 1) % comm.size(); }

}  // namespace

void check_ring(const Communicator& comm, Idiom idiom, std::int64_t elements) {
  const auto x = full({elements}, comm.rank(), DType::float64);
  Tape tape;
  Tensor y;
  if (idiom == Idiom::both) {
    auto receive = irecv(x.type(), comm, previous(comm));
    auto sent = isend(x, comm, next(comm));
    y = wait(receive);
    wait(sent);
  } else if (idiom == Idiom::only_send) {
    auto sent = isend(x, comm, next(comm));
    y = recv(x.type(), comm, previous(comm));
    wait(sent);
  } else {
    auto receive = irecv(x.type(), comm, previous(comm));
    send(x, comm, next(comm));
    y = wait(receive);
  }
  require_close("what the ring brings", y, full({elements}, previous(comm), DType::float64));
  const auto g = tape.gradient(sum(y) * comm.rank(), {x})[0];
  require_close("gradient of the ring", g, full({elements}, next(comm), DType::float64));
}

void check_permuted_waits(const Communicator& comm, std::uint64_t seed, int messages) {
  const int partner = (comm.rank() ^ 1) < comm.size() ? comm.rank() ^ 1 : comm.rank();
  const Shape shape{3};
  const auto count = static_cast<std::size_t>(messages);
  Dice common(seed);  // both ranks of a pair send the same tags
  std::vector<int> tags;
  Tensors x, weights, theirs;
  for (std::size_t k = 0; k < count; ++k) {
    tags.push_back(static_cast<int>(common(0, 2)));
    x.push_back(own(comm, shape, seed * 100 + k));
    weights.push_back(own(comm, shape, seed * 100 + 50 + k));  // weights of the receiver
    theirs.push_back(of_rank(partner, shape, seed * 100 + 50 + k));
  }
  auto dice = dice_of_rank(comm, seed);
  for (const bool all : {false, true}) {
    Tape tape;
    std::vector<Request> requests;
    for (const auto tag : tags) requests.push_back(irecv(x[0].type(), comm, partner, tag));
    for (std::size_t k = 0; k < count; ++k) requests.push_back(isend(x[k], comm, partner, tags[k]));
    const auto order = shuffled(requests.size(), dice);
    Tensors y(requests.size());
    if (all) {
      std::vector<Request> permuted;
      for (const auto i : order) permuted.push_back(std::move(requests[i]));
      const auto arrived = waitall(permuted);
      for (std::size_t i = 0; i < order.size(); ++i) y[order[i]] = arrived[i];
    } else {
      for (const auto i : order) y[i] = wait(requests[i]);
    }
    auto loss = zeros({}, DType::float64);
    for (std::size_t k = 0; k < count; ++k) {
      require_close("what the pair sends", y[k], of_rank(partner, shape, seed * 100 + k));
      loss = loss + dot(weights[k], square(y[k]));
    }
    const auto g = tape.gradient(loss, x, Record::yes);
    Tensors second_weights;
    auto inner = zeros({}, DType::float64);
    for (std::size_t k = 0; k < count; ++k) {
      require_close("gradient of the pair's messages", g[k], 2 * theirs[k] * x[k]);
      inner = inner + dot(g[k], x[k] * weights[k]);
    }
    const auto h = tape.gradient(inner, x);  // 2 theirs x^2 weights, twice
    for (std::size_t k = 0; k < count; ++k)
      require_close("second derivatives of the pair's messages", h[k], 4 * theirs[k] * x[k] * weights[k]);
  }
}

void check_wildcards(const Communicator& comm, std::uint64_t seed) {
  // x_k of rank r holds 100 r + k; its cotangent is 1000 plus that, independent of the receive that took it.
  constexpr int tags[] = {1, 1, 2, 4, 2, 1};
  const Shape shape{2};
  Tensors x;
  if (comm.rank() > 0 || comm.size() == 1)
    for (int k = 0; k < 6; ++k) x.push_back(full(shape, 100.0 * comm.rank() + k, DType::float64));
  auto dice = dice_of_rank(comm, seed);
  Tape tape;
  std::vector<Request> requests;
  for (std::size_t k = 0; k < x.size(); ++k) requests.push_back(isend(x[k], comm, 0, tags[k]));
  Tensor loss;
  if (comm.rank() == 0) {
    const auto sends = requests.size();
    const int first = comm.size() == 1 ? 0 : 1;
    // All messages with tag 1 by any source, then the remaining messages of each rank by any tag.
    for (int i = first; i < comm.size(); ++i)
      for (int k = 0; k < 3; ++k) requests.push_back(irecv({shape, DType::float64}, comm, any_source, 1));
    for (int i = first; i < comm.size(); ++i)
      for (int k = 0; k < 3; ++k) requests.push_back(irecv({shape, DType::float64}, comm, i, any_tag));
    loss = zeros({}, DType::float64);
    for (const auto i : shuffled(requests.size(), dice)) {
      Status status;
      const auto y = wait(requests[i], &status);
      if (i < sends) continue;
      const double value = y.to_vector()[0];
      require(status.source == static_cast<int>(value) / 100 && status.tag == tags[static_cast<int>(value) % 100],
              "[test] the status names rank {}, tag {} for the message {}", status.source, status.tag, value);
      loss = loss + dot(y, constant(full(shape, 1000 + value, DType::float64)));
    }
  } else {
    for (const auto i : shuffled(requests.size(), dice)) wait(requests[i]);
  }
  const auto g = tape.gradient(loss, x);
  for (std::size_t k = 0; k < x.size(); ++k) require_close("gradient of what a wildcard took", g[k], x[k] + 1000);
}

void check_order_of_receives(const Communicator& comm) {
  if (comm.rank() > 1) return;
  constexpr int tag = 5;
  const TensorType type{{}, DType::float64};
  const std::array<std::pair<int, int>, 4> kinds{{{1, tag}, {any_source, tag}, {1, any_tag}, {any_source, any_tag}}};
  std::array order{0, 1, 2, 3};
  do {
    std::vector<Request> receives;
    if (comm.rank() == 0) {
      for (const int kind : order) {
        const auto [source, which] = kinds[static_cast<std::size_t>(kind)];
        receives.push_back(irecv(type, comm, source, which));
      }
      send(zeros({}, DType::float64), comm, 1, 0);  // all are posted
      for (std::size_t i = 0; i < receives.size(); ++i) {
        const auto y = wait(receives[i]);
        require(y.item() == static_cast<double>(i), "[test] receive {} took message {}", i, y.item());
      }
    } else {
      recv(type, comm, 0, 0);
      for (int i = 0; i < 4; ++i) send(full({}, i, DType::float64), comm, 0, tag);
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

void check_ways_to_wait(const Communicator& comm) {
  const int to = next(comm), from = previous(comm);
  const auto start = [&](const Tensors& in) {  // two messages around the ring, in one list
    std::vector<Request> requests;
    for (int k = 0; k < 2; ++k) requests.push_back(irecv(in[0].type(), comm, from, k));
    for (int k = 0; k < 2; ++k) requests.push_back(isend(in[static_cast<std::size_t>(k)], comm, to, k));
    return requests;
  };
  const auto any = [&](const Tensors& in) {
    auto requests = start(in);
    Tensors y(4);
    for (auto done = waitany(requests); done.index >= 0; done = waitany(requests))
      y[static_cast<std::size_t>(done.index)] = done.value;
    return Tensors{y[0], y[1] * 2};
  };
  const auto some = [&](const Tensors& in) {
    auto requests = start(in);
    Tensors y(4);
    for (auto done = waitsome(requests); !done.empty(); done = waitsome(requests))
      for (auto& one : done) y[static_cast<std::size_t>(one.index)] = one.value;
    return Tensors{y[0], y[1] * 2};
  };
  const auto tested = [&](const Tensors& in) {
    auto requests = start(in);
    Tensors y(4);
    for (std::size_t i = 4; i-- > 0;)
      while (requests[i])
        if (auto value = test(requests[i])) y[i] = *value;
    return Tensors{y[0], y[1] * 2};
  };
  const auto persistent = [&](const Tensors& in) {
    const auto sends = send_init(comm, to, 3);
    const auto receives = recv_init(in[0].type(), comm, from, 3);
    Tensors y;
    for (const auto& x : in) {
      auto receive = receives.start(), sent = sends.start(x);
      y.push_back(wait(receive));
      wait(sent);
    }
    return y;
  };
  const auto any_source_ring = [&](const Tensors& in) {
    auto first = irecv(in[0].type(), comm, any_source, 5);
    auto second = irecv(in[0].type(), comm, from, any_tag);
    auto a = isend(in[0], comm, to, 5), b = isend(in[1], comm, to, 6);
    Tensors y{{}, wait(second)};
    y[0] = wait(first);
    wait(b), wait(a);
    return y;
  };
  const auto replaced = [&](const Tensors& in) {
    return Tensors{sendrecv_replace(in[0], comm, to, from, 1, 1), sendrecv_replace(in[1], comm, from, to)};
  };
  const Tensors in{own(comm, {3}, 1), own(comm, {3}, 2)};
  require_adjoint("waitany", any, in, comm);
  require_adjoint("waitsome", some, in, comm);
  require_adjoint("test", tested, in, comm);
  require_adjoint("persistent requests", persistent, in, comm);
  require_adjoint("any_source and any_tag", any_source_ring, in, comm);
  require_adjoint("sendrecv_replace", replaced, in, comm);
}

void check_unused(const Communicator& comm) {
  const auto x = own(comm, {4}, 1);
  {
    Tape tape;
    auto sent = isend(x, comm, next(comm));
    const auto y = recv(x.type(), comm, previous(comm));
    wait(sent);
    const auto loss = comm.rank() == 0 ? sum(x) : sum(y);  // rank 0 does not use what it has received
    const auto expected = (comm.rank() == 0 ? 1.0 : 0.0) + (next(comm) == 0 ? 0.0 : 1.0);
    require_close("gradient where a received value is not used", tape.gradient(loss, {x})[0],
                  full({4}, expected, DType::float64));
  }
  Tape tape;
  auto sent = isend(x, comm, next(comm));
  const auto y = recv(x.type(), comm, previous(comm));
  wait(sent);
  Tensor loss;
  if (comm.rank() == 0) loss = sum(square(y));
  require_close("gradient of one rank's loss", tape.gradient(loss, {x})[0], next(comm) == 0 ? 2 * x : zeros({4}, DType::float64));
}

void check_periodic_halo(const Communicator& comm) {
  constexpr std::int64_t rows = 3;
  const TensorType row{{1, 2}, DType::float64};
  const auto by_messages = [&](const Tensors& in) {
    auto up = isend(slice(in[0], 0, rows - 1, rows), comm, next(comm));
    auto down = isend(slice(in[0], 0, 0, 1), comm, previous(comm));
    auto low = irecv(row, comm, previous(comm)), high = irecv(row, comm, next(comm));
    // The upper one first: the orders of waits and of posting differ.
    const auto above = wait(high), below = wait(low);
    wait(down), wait(up);
    return Tensors{concatenate({below, in[0], above}, 0)};
  };
  const auto by_shift = [&](const Tensors& in) {
    return Tensors{
        concatenate({shift(slice(in[0], 0, rows - 1, rows), comm, 1), in[0], shift(slice(in[0], 0, 0, 1), comm, -1)}, 0)};
  };
  const auto x = own(comm, {rows, 2}, 3);
  require_close("a halo by messages", by_messages({x})[0], by_shift({x})[0]);
  require_adjoint("a periodic halo by messages", by_messages, {x}, comm);
  require_adjoint("a periodic halo by shifts", by_shift, {x}, comm);
}

void check_wrong_messages(const Communicator& comm) {
  if (comm.size() < 2) return;
  const int last = comm.size() - 1;
  const auto take = [&](const std::string& way, const TensorType& type) {
    const int source = way == "wildcards" ? any_source : 0, tag = way == "wildcards" ? any_tag : 7;
    if (way == "persistent") {
      auto receive = recv_init(type, comm, source, tag);
      auto request = receive.start();
      wait(request);
    } else if (way == "irecv") {
      auto request = irecv(type, comm, source, tag);
      wait(request);
    } else {
      recv(type, comm, source, tag);
    }
  };
  const TensorType sent{Shape{5}, DType::float64};
  for (const std::string way : {"recv", "irecv", "wildcards", "persistent"})
    for (const auto& [expected, number] : std::vector<std::pair<TensorType, std::string>>{{{Shape{4}, DType::float64}, "4"},
                                                                                          {{Shape{6}, DType::float64}, "6"},
                                                                                          {{Shape{0}, DType::float64}, "0"},
                                                                                          {{Shape{5}, DType::float32}, "5"}}) {
      barrier(comm);  // any_source takes the message of this round
      if (comm.rank() == 0) send(zeros(sent.shape, sent.dtype), comm, last, 7);
      if (comm.rank() != last) continue;
      const auto text = error_text([&, &type = expected] { take(way, type); });
      const auto told = fmt::format(" with tag 7 to rank {}, which expects {}", last, number);
      require(text.starts_with("[") && text.find("] rank 0 sent ") != std::string::npos && text.find(told) != std::string::npos &&
                  text.find('\n') == std::string::npos,
              "[test] {} of {} {} where 5 float64 were sent: '{}'", way, number, name_of(expected.dtype), text);
    }
  barrier(comm);
}

}  // namespace mpigrad::testing
