#include "framework/cuda/staging.h"

#include <cstring>
#include <utility>

#include "framework/base/error.h"

namespace mpigrad::cuda {

namespace {

// Waits for copies before the memory that they read or write is released.
void finish(const Event& copied) noexcept {
  try {
    if (!copied.reached()) copied.synchronise();
  } catch (...) {  // a failed GPU makes no more copies
  }
}

std::int64_t bytes_of(const TensorType& type) { return type.shape.elements() * size_of(type.dtype); }

// Memory that is no longer used when the copy stream reaches this point.
Tensor free_memory(std::shared_ptr<Storage>& storage, const TensorType& type) {
  if (!storage || storage.use_count() > 1 || storage->bytes() < bytes_of(type)) {
    storage = std::make_shared<Storage>(bytes_of(type), DeviceKind::cuda);
    wait(copy_stream(), compute_stream());  // which may just have released it
  }
  return {type, storage, 0};
}

}  // namespace

// ---- Uploads

struct Uploads::Pinned {
  PinnedBuffer memory;
  Event copied;

  explicit Pinned(std::int64_t bytes) : memory(bytes) {}
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  ~Pinned() { finish(copied); }
};

Uploads::Uploads() = default;
Uploads::~Uploads() = default;
Uploads::Places::Places() = default;
Uploads::Places::~Places() = default;

void Uploads::Places::step_is_given() { places_[1 - next_].used.record(compute_stream()); }

std::vector<Tensor> Uploads::upload(std::span<const TensorType> types, Places& places,
                                    const std::function<void(std::span<std::byte* const>)>& fill) {
  constexpr std::int64_t alignment = 512;
  std::vector<std::int64_t> offsets;
  std::int64_t bytes = 0;
  for (const auto& type : types) {
    offsets.push_back(bytes);
    bytes += (bytes_of(type) + alignment - 1) / alignment * alignment;
  }
  auto& host = pinned_[std::exchange(next_, 1 - next_)];
  if (host) host->copied.throttle();
  if (!host || host->memory.bytes() < bytes) host = std::make_unique<Pinned>(bytes);
  std::vector<std::byte*> from;
  for (const auto offset : offsets) from.push_back(host->memory.data() + offset);
  fill(from);

  auto& place = places.places_[std::exchange(places.next_, 1 - places.next_)];
  const auto stream = copy_stream();
  place.used.hold(stream);
  place.memory.resize(types.size());
  std::vector<Tensor> uploaded;
  for (std::size_t i = 0; i < types.size(); ++i) uploaded.push_back(free_memory(place.memory[i], types[i]));
  for (std::size_t i = 0; i < types.size(); ++i) copy_from_pinned(uploaded[i].raw(), from[i], bytes_of(types[i]), stream);
  host->copied.record(stream);
  host->copied.hold(compute_stream());
  return uploaded;
}

// ---- Readbacks

struct Readbacks::Place {
  PinnedBuffer memory{sizeof(double)};
  Event done;
};

Readbacks::Readbacks() = default;

Readbacks::~Readbacks() {
  for (const auto& each : pending_) finish(each.place->done);
}

void Readbacks::add(const Tensor& value) {
  require(value.elements() == 1, "[readback] one element is read, not {}", value);
  require(pending_.size() < most, "[readback] {} values are pending", most);
  auto& place = places_[std::exchange(next_, (next_ + 1) % most)];
  if (!place) place = std::make_unique<Place>();
  copy(place->memory.data(), value.raw(), value.bytes(), compute_stream());
  place->done.record(compute_stream());
  pending_.push_back({value.dtype(), place.get()});
}

double Readbacks::take() {
  require(!pending_.empty(), "[readback] nothing is pending");
  const auto first = pending_.front();
  first.place->done.throttle();
  pending_.pop_front();
  return visit_any_floating(first.dtype, [&](auto zero) {
    std::memcpy(&zero, first.place->memory.data(), sizeof(zero));
    return static_cast<double>(zero);
  });
}

}  // namespace mpigrad::cuda
