#include "comm/messages/request.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "comm/messages/transfer.h"

namespace mpigrad {
namespace detail {
namespace {

// Starts the adjoint of a transfer, and then the adjoints that waited for it.
void launch_adjoint(Transfer& transfer) {
  transfer.adjoint = transfer.start_adjoint(std::exchange(transfer.held, {}));
  for (auto follower = transfer.followers.rbegin(); follower != transfer.followers.rend(); ++follower)
    if (--(*follower)->missing == 0) launch_adjoint(**follower);
}

// Determines which adjoints this one must wait for: those of all collectives that started later and were waited for earlier.
void close_transfer(const std::shared_ptr<Transfer>& transfer) {
  auto& list = transfer->open->open;
  const auto shares_tape = [&](std::uint64_t tape) {
    return std::find(transfer->tapes.begin(), transfer->tapes.end(), tape) != transfer->tapes.end();
  };
  for (auto later = std::find(list.begin(), list.end(), transfer); later != list.end(); ++later) {
    if (!(*later)->waited) continue;
    if (std::any_of((*later)->tapes.begin(), (*later)->tapes.end(), shares_tape))
      (*later)->followers.push_back(transfer), ++transfer->leaders;
    else transfer->late = true;
  }
  if (transfer->late) ++transfer->leaders;
  transfer->waited = true;
  list.erase(list.begin(), std::find_if(list.begin(), list.end(), [](const auto& t) { return !t->waited; }));
  transfer->open = nullptr;
}

Status finish(Transfer& transfer) {
  const double start = counting_costs() ? seconds_now() : 0;
  transfer.operation.wait();
  // Counts the waiting time that computation does not hide among the operations between ranks.
  if (counting_costs()) count_cost("wait", {}, seconds_now() - start, {}, {});
  const Status arrived = transfer.arrive ? transfer.arrive(transfer.operation) : Status();
  transfer.operation = {};
  transfer.x = {};
  return arrived;
}

void require_tapes(const Transfer& transfer) {
  if (!transfer.differentiable) return;
  for (const auto tape : Tape::recorders())
    require(std::find(transfer.tapes.begin(), transfer.tapes.end(), tape) != transfer.tapes.end(),
            "[wait] this call was started before the tape that records its wait, or under Untaped: {}", transfer.what);
}

Tensor complete(const std::shared_ptr<Transfer>& transfer, Status* status) {
  const Status arrived = finish(*transfer);
  if (status) *status = arrived;
  transfer->tapes = Tape::recorders();
  if (transfer->open) close_transfer(transfer);
  Tensor y = std::exchange(transfer->y, {});
  if (transfer->recorded())
    Tape::record({.name = "wait",
                  .communicates = true,
                  .keeps_inputs = 0,
                  .keeps_outputs = 0,
                  .inputs = {},
                  .outputs = y ? Tensors{y} : Tensors{},
                  .vjp =
                      [transfer](const Replay&, Inputs g) {
                        transfer->held = g.empty() ? Tensor() : g[0];
                        transfer->missing = transfer->leaders;
                        if (transfer->missing == 0) launch_adjoint(*transfer);
                        return Tensors();
                      },
                  .request = {transfer, &transfer->what}});
  return y;
}

}  // namespace

bool is_recorded(const Tensor& x, bool constants) {
  return Tape::recording() && is_differentiable(x.dtype()) && (constants || !x.is_constant());
}

Request start(std::shared_ptr<Transfer> transfer, const Tensor& x, bool constants, const std::shared_ptr<OpenCollectives>& open) {
  const Tensor& moved = x ? x : transfer->y;
  transfer->differentiable = is_differentiable(moved.dtype()) && (constants || !moved.is_constant()) && !moved.is_stand_in();
  transfer->tapes = Tape::recorders();
  if (transfer->y && !transfer->differentiable) transfer->y = transfer->y.as_constant();
  if (!transfer->recorded()) return Request(std::move(transfer));
  Tape::record({.name = transfer->name,
                .communicates = true,
                .keeps_inputs = transfer->finish_adjoint ? 1u : 0u,
                .keeps_outputs = 0,
                .inputs = x ? Tensors{x} : Tensors{},
                .outputs = {},
                .vjp =
                    [transfer](const Replay& at, Inputs) {
                      if (transfer->late && --transfer->missing == 0) launch_adjoint(*transfer);
                      require(static_cast<bool>(transfer->adjoint), "[{}] its adjoint has not started: {}", transfer->name,
                              transfer->what);
                      Tensor arrived = wait(transfer->adjoint);
                      if (at.inputs() == 0) return Tensors();
                      if (transfer->finish_adjoint) arrived = transfer->finish_adjoint(at, arrived);
                      return Tensors{arrived};
                    },
                .request = {transfer, &transfer->what}});
  if (open) {
    open->open.push_back(transfer);
    transfer->open = open;
  }
  return Request(std::move(transfer));
}

Transfer::Transfer() : exceptions_(std::uncaught_exceptions()) {}
Transfer::~Transfer() {
  if (operation && unwinding()) give_up();
}

bool Transfer::unwinding() const { return std::uncaught_exceptions() > exceptions_; }

void Transfer::give_up() noexcept {
  // Keeps the buffers of abandoned operations, which the transport may read and write until the job ends.
  static std::mutex mutex;
  static auto& buffers = *new Tensors;
  {
    std::lock_guard lock(mutex);
    buffers.push_back(std::move(x));
    buffers.push_back(std::move(y));
  }
  operation.cancel();
  operation = {};
  if (lose) lose();
}

}  // namespace detail

Request& Request::operator=(Request&& other) noexcept {
  std::swap(transfer_, other.transfer_);
  return *this;
}
Request::~Request() {
  if (!transfer_) return;
  if (transfer_->open) std::erase(std::exchange(transfer_->open, nullptr)->open, transfer_);
  if (transfer_->unwinding()) {
    if (transfer_->operation) transfer_->give_up();
  } else if (!transfer_->recorded()) {
    try {
      detail::finish(*transfer_);
    } catch (...) {  // the next call throws the same error
    }
  }
}

Tensor wait(Request& request, Status* status) {
  if (!request) return {};
  detail::require_tapes(*request.get());
  return detail::complete(request.release(), status);
}

std::vector<Tensor> waitall(std::span<Request> requests) {
  std::vector<Tensor> arrived;
  for (auto& request : requests) arrived.push_back(wait(request));
  return arrived;
}

std::optional<Tensor> test(Request& request, Status* status) {
  if (request && !request.get()->operation.test()) return std::nullopt;
  return wait(request, status);
}

Completed waitany(std::span<Request> requests) {
  while (std::any_of(requests.begin(), requests.end(), [](const Request& r) { return static_cast<bool>(r); })) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (!requests[i]) continue;
      Completed completed{static_cast<int>(i), {}, {}};
      if (auto value = test(requests[i], &completed.status)) {
        completed.value = std::move(*value);
        return completed;
      }
    }
    std::this_thread::yield();
  }
  return {};
}

std::vector<Completed> waitsome(std::span<Request> requests) {
  std::vector<Completed> all;
  if (auto first = waitany(requests); first.index >= 0) all.push_back(std::move(first));
  for (std::size_t i = 0; !all.empty() && i < requests.size(); ++i) {
    if (!requests[i]) continue;
    Completed completed{static_cast<int>(i), {}, {}};
    if (auto value = test(requests[i], &completed.status)) {
      completed.value = std::move(*value);
      all.push_back(std::move(completed));
    }
  }
  return all;
}

}  // namespace mpigrad
