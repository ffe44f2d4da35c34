#include "comm/messages/one_sided.h"

#include <algorithm>
#include <numeric>

#include "comm/messages/point_to_point.h"
#include "ops/elementwise/elementwise.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace {

Tensor indices(const std::vector<std::int64_t>& values, DeviceKind device = DeviceKind::cpu) {
  Tensor x(TensorType{Shape{static_cast<std::int64_t>(values.size())}, DType::int64}, DeviceKind::cpu);
  std::copy(values.begin(), values.end(), x.mutable_data<std::int64_t>());
  return device == DeviceKind::cuda ? detail::copied(x, device) : x;
}

// An epoch: the accesses sorted by target, and the requests of the other ranks.
struct Epoch {
  Rows asked, asking;                  // numbers of rows: accessed on each rank by this one, and here by each rank
  Tensor order;                        // place i in the sorted list is access order[i]
  Tensor place;                        // the inverse of order
  Tensor rows;                         // accessed rows of this rank's window, in the order of the requests
  std::vector<std::int64_t> accessed;  // the same on the host
};

// Throws the same Error on all ranks if `mine` is true on one of them.
void agree(std::string_view call, const Communicator& comm, bool mine, std::string_view rule) {
  std::int64_t bad = mine ? comm.rank() : comm.size();
  comm.transport().allreduce(&bad, &bad, 1, DType::int64, CombineOp::min);
  require(bad == comm.size(), "[{}] {}: rank {}", call, rule, bad);
}

Epoch open_epoch(std::string_view call, const Communicator& comm, const Tensor& window, const Access& access) {
  require(comm.transport().can_ask(), "[{}] the dry transport cannot ask the others what they access", call);
  bool wrong = access.targets.size() != access.rows.size() || window.rank() < 1;
  for (const int target : access.targets) wrong = wrong || target < 0 || target >= comm.size();
  agree(call, comm, wrong, "a window has rows, and each access one target, a rank of the communicator, and one row");
  const auto n = access.targets.size();
  std::vector<std::int64_t> order(n), place(n), sorted;
  std::iota(order.begin(), order.end(), 0);
  const auto target = [&](std::int64_t i) { return access.targets[static_cast<std::size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return target(a) < target(b); });
  Epoch epoch;
  epoch.asked.resize(static_cast<std::size_t>(comm.size()));
  epoch.asking.resize(epoch.asked.size());
  for (std::size_t i = 0; i < n; ++i) {
    place[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
    sorted.push_back(access.rows[static_cast<std::size_t>(order[i])]);
    ++epoch.asked[static_cast<std::size_t>(target(order[i]))];
  }
  const Rows one(epoch.asked.size(), 1);
  comm.transport().alltoall(epoch.asked.data(), one, epoch.asking.data(), one, DType::int64);
  epoch.order = indices(order, window.device()), epoch.place = indices(place, window.device());
  const auto asked_here = alltoall(indices(sorted), comm, epoch.asked, epoch.asking);
  const auto* rows = asked_here.data<std::int64_t>();
  epoch.accessed.assign(rows, rows + asked_here.elements());
  const bool outside =
      std::any_of(epoch.accessed.begin(), epoch.accessed.end(), [&](auto r) { return r < 0 || r >= window.dim(0); });
  epoch.rows = indices(epoch.accessed, window.device());
  agree(call, comm, outside, "a row that is accessed lies outside the window of");
  return epoch;
}

void require_source(std::string_view call, const Tensor& window, const Tensor& x, const Access& access) {
  auto expected = window.type();
  if (expected.shape.rank() >= 1) expected.shape[0] = static_cast<std::int64_t>(access.rows.size());
  require(x.type() == expected, "[{}] one row of the window's shape per access, {} in all: window {}, x {}", call,
          access.rows.size(), window, x);
}

}  // namespace

Access rows_of(int target, std::int64_t first, std::int64_t count) {
  Access access{std::vector<int>(static_cast<std::size_t>(count), target),
                std::vector<std::int64_t>(static_cast<std::size_t>(count))};
  std::iota(access.rows.begin(), access.rows.end(), first);
  return access;
}

Tensor get(const Tensor& window, const Communicator& comm, const Access& access) {
  const auto epoch = open_epoch("get", comm, window, access);
  return take(alltoall(take(window, epoch.rows), comm, epoch.asking, epoch.asked), epoch.place);
}

Tensor accumulate(const Tensor& window, const Tensor& x, const Communicator& comm, const Access& access) {
  require_source("accumulate", window, x, access);
  const auto epoch = open_epoch("accumulate", comm, window, access);
  const auto arrived = alltoall(take(x, epoch.order), comm, epoch.asked, epoch.asking);
  return window + scatter_add(arrived, epoch.rows, window.dim(0));
}

Tensor put(const Tensor& window, const Tensor& x, const Communicator& comm, const Access& access) {
  require_source("put", window, x, access);
  const auto epoch = open_epoch("put", comm, window, access);
  std::vector<std::int64_t> writes(static_cast<std::size_t>(window.dim(0)));
  for (const auto row : epoch.accessed) ++writes[static_cast<std::size_t>(row)];
  agree("put", comm, std::any_of(writes.begin(), writes.end(), [](auto n) { return n > 1; }),
        "a row is written twice in one epoch in the window of");
  Shape column = window.shape();
  for (int d = 1; d < column.rank(); ++d) column[d] = 1;
  const auto written = reshape(equal(indices(writes, window.device()), indices(Rows(writes.size(), 1), window.device())), column);
  const auto arrived = alltoall(take(x, epoch.order), comm, epoch.asked, epoch.asking);
  return where(written, scatter_add(arrived, epoch.rows, window.dim(0)), window);
}

}  // namespace mpigrad
