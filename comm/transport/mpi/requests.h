#pragma once
// MPI requests under way.

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/transport/mpi/call.h"
#include "framework/tensor/storage.h"

namespace mpigrad::mpi {

// Requests under way, and the messages expected by the receives among them (the first ones).
class Requests final : public PendingWork {
 public:
  Requests(std::string_view call, int rank, DType type, std::span<const Message> receives)
      : call_(call), rank_(rank), type_(type), receives_(receives.begin(), receives.end()) {}
  MPI_Request* add() { return &requests_.emplace_back(MPI_REQUEST_NULL); }
  MPI_Request& last() { return requests_.back(); }
  std::string_view call() const { return call_; }
  // Kept until the end, because MPI reads them.
  std::deque<Layout> layouts;
  std::function<void(std::size_t i)> arrived{};  // called after the i-th request, in order; may be empty
  std::vector<std::byte> copy;
  std::shared_ptr<Storage> blocks;    // of other ranks
  std::array<std::byte, 16> spare{};  // one element of any type
  std::int64_t bytes = 0;             // number of bytes moved

  void wait() override {
    if (finalized()) return;  // MPI has released all requests
    auto& requests = requests_;
    std::vector<MPI_Status> statuses(requests.size());
    // One by one: all are completed, and each reports its own error, whatever happens to the others.
    int code = MPI_SUCCESS;
    std::size_t failed = 0;
    for (std::size_t i = 0; i < requests.size(); ++i)
      if (const int one = mpi::wait(requests[i], statuses[i], bytes); code == MPI_SUCCESS && one != MPI_SUCCESS)
        code = one, failed = i;
      else if (arrived && code == MPI_SUCCESS) arrived(i);
    int error = MPI_SUCCESS;
    if (code != MPI_SUCCESS) MPI_Error_class(code, &error);
    if (error == MPI_ERR_TRUNCATE && failed < receives_.size()) {
      // The status says which message it was, but not its length.
      const auto& message = receives_[failed];
      fail("[{}] rank {} sent more than {} {} with tag {} to rank {}, which expects {}: more elements, or larger ones", call_,
           message.peer == any_source ? statuses[failed].MPI_SOURCE : message.peer, message.count, name_of(type_),
           message.tag == any_tag ? statuses[failed].MPI_TAG : message.tag, rank_, message.count);
    }
    check(code, call_);
    for (std::size_t i = 0; i < receives_.size(); ++i) {
      Count count = 0;
      check(MPIGRAD_MPI(MPI_Get_count)(&statuses[i], type_of(type_), &count), call_);
      const auto& message = receives_[i];
      status_ = {statuses[i].MPI_SOURCE, statuses[i].MPI_TAG};
      require(count == message.count, "[{}] rank {} sent {} {} with tag {} to rank {}, which expects {}", call_, status_.source,
              count == MPI_UNDEFINED ? std::string("no whole number of") : std::to_string(count), name_of(type_), status_.tag,
              rank_, message.count);
    }
  }

  bool test() override {
    for (auto& request : requests_) {
      int done = 0;
      if (MPI_Request_get_status(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return true;  // wait() throws the error
      if (!done) return false;
    }
    return true;
  }

  // The peers may never answer: the receives are cancelled, the other requests are left to the end of the job.
  void drop() noexcept override {
    for (std::size_t i = 0; i < receives_.size() && i < requests_.size() && !finalized(); ++i) {
      MPI_Cancel(&requests_[i]);
      MPI_Wait(&requests_[i], MPI_STATUS_IGNORE);
    }
  }
  Status status() const override { return status_; }

 private:
  std::string_view call_;
  int rank_;
  DType type_;
  std::vector<Message> receives_;
  std::vector<MPI_Request> requests_;
  Status status_;
};

}  // namespace mpigrad::mpi
