#include "comm/request.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "comm/transfer.h"

namespace mpigrad {
namespace detail {
namespace {

// Runs start_adjoint, and that of whoever had to wait for it.
void launch_adjoint(Transfer& transfer) {
  transfer.adjoint = transfer.start_adjoint(std::exchange(transfer.held, {}));
  for (auto follower = transfer.followers.rbegin(); follower != transfer.followers.rend(); ++follower)
    if (--(*follower)->missing == 0) launch_adjoint(**follower);
}

Tensor complete(const std::shared_ptr<Transfer>& transfer, Status* status) {
  require(!transfer->untaped || !Tape::recording(), "[wait] this call was started before the tape that sees its wait: {}",
          transfer->what);
  if (transfer->operation) transfer->operation->wait();
  const Status arrived = transfer->arrive ? transfer->arrive(transfer->operation.get()) : Status();
  if (status) *status = arrived;
  transfer->operation = nullptr;
  transfer->arrive = nullptr;
  transfer->waited = true;
  transfer->x = {};
  Tensor y = std::exchange(transfer->y, {});
  if (transfer->recorded && Tape::recording())
    Tape::record({.name = "wait",
                  .communicates = true,
                  .keeps_inputs = 0,
                  .keeps_outputs = 0,
                  .inputs = {},
                  .outputs = y ? Tensors{y} : Tensors{},
                  .vjp = [transfer](const Replay&, Inputs g) {
                    transfer->held = g.empty() ? Tensor() : g[0];
                    transfer->missing = transfer->leaders;
                    if (transfer->missing == 0) launch_adjoint(*transfer);
                    return Tensors();
                  }});
  return y;
}

}  // namespace

bool is_recorded(const Tensor& x, bool constants) {
  return Tape::recording() && is_floating(x.dtype()) && (constants || !x.is_constant());
}

Request start(std::shared_ptr<Transfer> transfer, const Tensor& x, bool constants, const std::shared_ptr<OpenCollectives>& open) {
  const Tensor& moved = x ? x : transfer->y;
  transfer->recorded = is_recorded(moved, constants);
  transfer->untaped = !Tape::recording() && is_floating(moved.dtype());
  if (transfer->y && !transfer->recorded && (!is_floating(moved.dtype()) || (x && x.is_constant())))
    transfer->y = transfer->y.as_constant();
  if (!transfer->recorded) return Request(std::move(transfer));
  Tape::record({.name = transfer->name,
                .communicates = true,
                .keeps_inputs = transfer->finish_adjoint ? 1u : 0u,
                .keeps_outputs = 0,
                .inputs = x ? Tensors{x} : Tensors{},
                .outputs = {},
                .vjp = [transfer](const Replay& at, Inputs) {
                  require(static_cast<bool>(transfer->adjoint), "[{}] under this tape nobody has waited for this call: {}",
                          transfer->name, transfer->what);
                  Tensor arrived = wait(transfer->adjoint);
                  if (at.inputs() == 0) return Tensors();
                  if (transfer->finish_adjoint) arrived = transfer->finish_adjoint(at, arrived);
                  return Tensors{arrived};
                }});
  if (open) {
    open->open.push_back(transfer);
    transfer->arrive = [open, before = transfer->arrive, self = std::weak_ptr(transfer)](const PendingOperation* operation) {
      const auto mine = self.lock();
      auto& list = open->open;
      for (auto later = std::find(list.begin(), list.end(), mine); later != list.end(); ++later)
        if ((*later)->waited) (*later)->followers.push_back(mine), ++mine->leaders;
      mine->waited = true;
      list.erase(list.begin(), std::find_if(list.begin(), list.end(), [](const auto& t) { return !t->waited && !t->dropped; }));
      return before ? before(operation) : Status();
    };
  }
  return Request(std::move(transfer));
}

}  // namespace detail

Request& Request::operator=(Request&& other) noexcept {
  std::swap(transfer_, other.transfer_);
  return *this;
}
Request::~Request() {
  if (transfer_) transfer_->dropped = true, transfer_->arrive = nullptr;  // the list of open collectives lets it go
}

Tensor wait(Request& request, Status* status) {
  if (!request) return {};
  return detail::complete(request.release(), status);
}

std::vector<Tensor> waitall(std::span<Request> requests) {
  std::vector<Tensor> arrived;
  for (auto& request : requests) arrived.push_back(wait(request));
  return arrived;
}

std::optional<Tensor> test(Request& request, Status* status) {
  if (request && request.get()->operation && !request.get()->operation->test()) return std::nullopt;
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
