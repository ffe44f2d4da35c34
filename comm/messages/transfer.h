#pragma once
// What is behind a Request: shared by the handle and by its two tape entries. Used inside comm only.

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
  // Called while an exception unwinds the stack: the operation is let go.
  void give_up() noexcept;
  // Whether an exception that was thrown since this was made unwinds the stack.
  bool unwinding() const;

  std::string_view name;                         // "isend"
  std::string what;                              // "isend to rank 3, tag 5", for errors
  Tensor x, y;                                   // buffers, until it is complete
  Pending operation;                             // none if nothing moves
  std::function<Status(const Pending&)> arrive;  // after the operation; may be none
  std::function<void()> lose;                    // instead, if it is given up; may be none

  // The opposite transfer, from the cotangent of y, if there is one.
  std::function<Request(const Tensor& ybar)> start_adjoint;
  // The cotangent of x from what the opposite transfer brings; may be none.
  std::function<Tensor(const Replay& at, const Tensor& arrived)> finish_adjoint;

  // Collectives are matched by the order in which they start, and so are their adjoints: in reverse order of the forward starts
  // on every rank, whatever the order of the waits. `followers` started before this one and were waited for after it: in a replay
  // their adjoints hold until this one's has started. `late`: one of those that this one has to follow is on other tapes, such
  // as those of recompute, so the adjoint starts where the call is.
  std::vector<std::shared_ptr<Transfer>> followers;
  int leaders = 0;
  bool late = false;
  std::shared_ptr<OpenCollectives> open;  // of the communicator, while this is one of them

  std::vector<std::uint64_t> tapes;  // that saw the start, and then the wait
  bool differentiable = false, waited = false;
  bool recorded() const { return differentiable && !tapes.empty(); }

  // State of a replay.
  Request adjoint;
  Tensor held;
  int missing = 0;

 private:
  int exceptions_;
};

// Collective calls of one rank on one communicator that are under way, or were waited for before an earlier one.
struct OpenCollectives {
  std::vector<std::shared_ptr<Transfer>> open;
};

// Whether a call on x is recorded now. Constants are not where all ranks have declared them, as for collectives.
bool is_recorded(const Tensor& x, bool constants);

// Records the start on the tapes and hands the transfer over. `open`, if any, is that of the communicator.
Request start(std::shared_ptr<Transfer> transfer, const Tensor& x, bool constants,
              const std::shared_ptr<OpenCollectives>& open = {});

}  // namespace mpigrad::detail
