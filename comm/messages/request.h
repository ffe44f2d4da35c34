#pragma once
// Requests, as in MPI: operations under way. The adjoint of `wait` starts the opposite transfer, and the adjoint of the call that
// made the request completes it: the backward pass overlaps the same operations as the forward pass.

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "comm/transport/transport.h"
#include "framework/tensor/tensor.h"

namespace mpigrad {

namespace detail {
struct Transfer;
}

// The result of isend, irecv, iallreduce, ...; it can be moved, not copied, and is empty once it has been waited for. Every
// request must be waited for under the tape that recorded its start. Otherwise gradient() throws an Error that names the request.
// A request that is not recorded waits when it is destroyed, except while an exception unwinds the stack.
class [[nodiscard]] Request {
 public:
  Request() = default;
  explicit Request(std::shared_ptr<detail::Transfer> transfer) : transfer_(std::move(transfer)) {}
  Request(Request&&) noexcept = default;
  Request& operator=(Request&& other) noexcept;
  ~Request();

  explicit operator bool() const { return transfer_ != nullptr; }
  detail::Transfer* get() const { return transfer_.get(); }
  std::shared_ptr<detail::Transfer> release() { return std::move(transfer_); }

 private:
  std::shared_ptr<detail::Transfer> transfer_;
};

// The received tensor: none for a send or an empty request. `status` returns source and tag of a message.
Tensor wait(Request& request, Status* status = nullptr);
inline Tensor wait(Request&& request, Status* status = nullptr) { return wait(request, status); }
// One by one, in the order of the list.
std::vector<Tensor> waitall(std::span<Request> requests);
// Waits for the first that is complete; index -1 if all are empty.
struct Completed {
  int index = -1;
  Tensor value;
  Status status;
};
Completed waitany(std::span<Request> requests);
// Waits until one is complete, and returns all that are. Returns nothing if all are empty.
std::vector<Completed> waitsome(std::span<Request> requests);
// wait(request) if that does not block, else nothing.
std::optional<Tensor> test(Request& request, Status* status = nullptr);

}  // namespace mpigrad
