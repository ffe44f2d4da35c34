#include "comm/hdf5/gather.h"

#include <algorithm>
#include <array>

#include "framework/base/error.h"
#include "framework/base/joined.h"

namespace mpigrad::hdf5 {
namespace {

// Moves arrays between this rank and a peer, both ranks with the same calls.
class Line {
 public:
  Line(Transport& transport, int peer, bool sends) : transport_(transport), peer_(peer), sends_(sends) {}

  void pass(void* data, std::size_t count, DType type) const {
    constexpr std::int64_t most = 1 << 26;  // elements of one message: MPI before version 4 counts in int
    const auto all = static_cast<std::int64_t>(count);
    for (std::int64_t first = 0; first < all; first += most) {
      const Message message{peer_, 0, static_cast<std::byte*>(data) + first * size_of(type), std::min(most, all - first)};
      if (sends_) transport_.exchange(std::span(&message, 1), {}, type);
      else transport_.exchange({}, std::span(&message, 1), type);
    }
  }

  void pass(KeptBox& box) const {
    std::array<std::int64_t, 4> sizes{static_cast<std::int64_t>(box.type), std::ssize(box.dataset), std::ssize(box.begin),
                                      std::ssize(box.values)};
    pass(sizes.data(), sizes.size(), DType::int64);
    const auto size = [&](std::size_t i) { return static_cast<std::size_t>(sizes[i]); };
    box.type = static_cast<DType>(sizes[0]);
    box.dataset.resize(size(1)), box.begin.resize(size(2)), box.end.resize(size(2)), box.values.resize(size(3));
    pass(box.dataset.data(), size(1), DType::uint8);
    pass(box.begin.data(), size(2), DType::int64);
    pass(box.end.data(), size(2), DType::int64);
    pass(box.values.data(), size(3), DType::uint8);
  }

 private:
  Transport& transport_;
  int peer_;
  bool sends_;
};

}  // namespace

KeptBox kept_box(const std::string& dataset, std::span<const std::int64_t> begin, std::span<const std::int64_t> end, DType type,
                 const void* data) {
  bool fits = begin.size() == end.size();
  std::int64_t elements = 1;
  for (std::size_t i = 0; fits && i < begin.size(); ++i) fits = begin[i] <= end[i], elements *= end[i] - begin[i];
  require(fits, "[hdf5] dataset '{}': there is no box [{}] to [{}]", dataset, joined(begin, ", "), joined(end, ", "));
  const auto* bytes = static_cast<const std::byte*>(data);
  return {dataset, {begin.begin(), begin.end()}, {end.begin(), end.end()}, type, {bytes, bytes + elements * size_of(type)}};
}

std::exception_ptr gather_boxes(Transport& transport, std::vector<KeptBox> boxes,
                                const std::function<void(const KeptBox&)>& write) {
  const auto own = transport.duplicate();  // no other message is in it
  const auto size = static_cast<std::size_t>(own->size());
  std::vector<std::int64_t> counts(size);
  const std::int64_t mine = std::ssize(boxes);
  own->allgather(&mine, counts.data(), std::vector<std::int64_t>(size, 1), DType::int64);
  if (own->rank() > 0) {
    for (auto& box : boxes) {
      Line(*own, 0, true).pass(box);
      box = {};
    }
    return nullptr;
  }
  std::exception_ptr failure;
  for (std::size_t peer = 1; peer < size; ++peer) {
    for (std::int64_t i = 0; i < counts[peer]; ++i) {
      KeptBox box;
      Line(*own, static_cast<int>(peer), false).pass(box);
      try {
        if (!failure) write(box);
      } catch (...) {
        failure = std::current_exception();
      }
    }
  }
  return failure;
}

}  // namespace mpigrad::hdf5
