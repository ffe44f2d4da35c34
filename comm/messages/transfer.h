#pragma once
// The state of a Request, shared by the handle and its two tape entries. Used inside comm only.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/messages/request.h"
#include "framework/engine/op.h"

namespace mpigrad::detail {

struct OpenCollectives;

struct Transfer {
  Transfer();
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;
  // Called while an exception unwinds the stack: abandons the operation.
  void give_up() noexcept;
  // True if an exception that was thrown since this object was made unwinds the stack.
  bool unwinding() const;

  std::string_view name;                         // "isend"
  std::string what;                              // "isend to rank 3, tag 5", for errors
  Tensor x, y;                                   // buffers, kept until it is complete
  Pending operation;                             // none if nothing moves
  std::function<Status(const Pending&)> arrive;  // called after the operation; may be empty
  std::function<void()> lose;                    // called instead if the operation is given up; may be empty

  // Starts the opposite transfer, from the cotangent of y; empty if there is none.
  std::function<Request(const Tensor& ybar)> start_adjoint;
  // The cotangent of x from the result of the opposite transfer; may be empty.
  std::function<Tensor(const Replay& at, const Tensor& arrived)> finish_adjoint;

  // Collectives are matched by the order in which they start. Their adjoints start in reverse order of the forward starts on
  // every rank, whatever the order of the waits. `followers` started before this one and were waited for after it: in a replay
  // their adjoints wait until the adjoint of this one has started. `late`: one of the transfers that this one must follow is on
  // another tape, such as those of recompute, so that the adjoint starts at the place of the call.
  std::vector<std::shared_ptr<Transfer>> followers;
  int leaders = 0;
  bool late = false;
  std::shared_ptr<OpenCollectives> open;  // of the communicator, while this transfer is in it

  std::vector<std::uint64_t> tapes;  // that recorded the start, and then the wait
  bool differentiable = false, waited = false;
  bool recorded() const { return differentiable && !tapes.empty(); }

  // State of a replay.
  Request adjoint;
  Tensor held;
  int missing = 0;

 private:
  int exceptions_;
};

// Collective calls of one rank on one communicator that are under way, or that were waited for before an earlier one.
struct OpenCollectives {
  std::vector<std::shared_ptr<Transfer>> open;
};

// True if a call on x is recorded now. Constants are not recorded where all ranks have declared them, as for collectives.
bool is_recorded(const Tensor& x, bool constants);

// Records the start on the tapes and returns the request of the transfer. `open`, if not null, is that of the communicator.
Request start(std::shared_ptr<Transfer> transfer, const Tensor& x, bool constants,
              const std::shared_ptr<OpenCollectives>& open = {});

}  // namespace mpigrad::detail
