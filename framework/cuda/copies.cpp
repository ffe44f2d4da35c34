// Pinned memory and copies.

#include <algorithm>
#include <cstring>
#include <utility>

#include "framework/base/error.h"
#include "framework/cuda/context.h"
#include "framework/cuda/recording.h"
#include "framework/cuda/staging.h"

namespace mpigrad::cuda {
namespace {

void count_copy(cudaMemcpyKind kind, std::int64_t bytes) {
  auto& counter = kind == cudaMemcpyHostToDevice   ? counters().to_device
                  : kind == cudaMemcpyDeviceToHost ? counters().to_host
                                                   : counters().on_device;
  counter.fetch_add(bytes, std::memory_order_relaxed);
}

}  // namespace

PinnedBuffer::PinnedBuffer(std::int64_t bytes) : bytes_(bytes) {
  context();
  void* memory = nullptr;
  MPIGRAD_CUDA(cudaHostAlloc(&memory, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1)), cudaHostAllocPortable));
  data_ = static_cast<std::byte*>(memory);
}
PinnedBuffer::~PinnedBuffer() {
  if (data_) static_cast<void>(cudaFreeHost(data_));
}
PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void copy(void* to, const void* from, std::int64_t bytes, Stream stream) {
  if (bytes == 0) return;
  MPIGRAD_CUDA(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, native(stream)));
}

void copy_from_pinned(void* to, const void* from, std::int64_t bytes, Stream stream) {
  copy(to, from, bytes, stream);
  count_copy(cudaMemcpyHostToDevice, bytes);
}

void copy_to_device(void* to, const void* from, std::int64_t bytes) {
  auto& here = context();
  if (auto* captured = recording(); captured && bytes > 0) {
    MPIGRAD_CUDA(
        cudaMemcpyAsync(to, captured->kept(from, bytes), static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, here.compute));
    return;
  }
  for (std::int64_t at = 0; at < bytes; at += Staging::largest) {
    const auto part = std::min(Staging::largest, bytes - at);
    const auto size = static_cast<std::size_t>(part);
    auto buffer = here.staging.take(part);
    std::memcpy(buffer.memory.data(), static_cast<const std::byte*>(from) + at, size);
    MPIGRAD_CUDA(
        cudaMemcpyAsync(static_cast<std::byte*>(to) + at, buffer.memory.data(), size, cudaMemcpyHostToDevice, here.compute));
    buffer.busy.record(here.compute);
    here.staging.give_back(std::move(buffer));
  }
  count_copy(cudaMemcpyHostToDevice, bytes);
}

void copy_to_host(void* to, const void* from, std::int64_t bytes) {
  require_not_recording("a copy to the host");
  auto& here = context();
  for (std::int64_t at = 0; at < bytes; at += Staging::largest) {
    const auto part = std::min(Staging::largest, bytes - at);
    const auto size = static_cast<std::size_t>(part);
    auto buffer = here.staging.take(part);
    MPIGRAD_CUDA(cudaMemcpyAsync(buffer.memory.data(), static_cast<const std::byte*>(from) + at, size, cudaMemcpyDeviceToHost,
                                 here.compute));
    synchronise(here.compute);
    std::memcpy(static_cast<std::byte*>(to) + at, buffer.memory.data(), size);
    here.staging.give_back(std::move(buffer));
  }
  count_copy(cudaMemcpyDeviceToHost, bytes);
}

void copy_on_device(void* to, const void* from, std::int64_t bytes) {
  if (bytes == 0) return;
  MPIGRAD_CUDA(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, native(compute_stream())));
  count_copy(cudaMemcpyDeviceToDevice, bytes);
}

void zero(void* memory, std::int64_t bytes) {
  if (bytes == 0) return;
  MPIGRAD_CUDA(cudaMemsetAsync(memory, 0, static_cast<std::size_t>(bytes), native(compute_stream())));
}

void copy_strided(void* to, const void* from, std::int64_t item, const StridedArrays<2>& walk, Stream stream) {
  if (walk.elements() == 0) return;
  auto arrays = walk.collapsed();
  // Moves as many bytes at a time as strides, extents and both addresses allow, up to 16.
  const auto either = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
  std::int64_t most = 16 / item;
  while (most > 1 && either % static_cast<std::uintptr_t>(most * item) != 0) most /= 2;
  const auto width = arrays.widest(most);
  arrays = arrays.widened(width);
  const StridedWalk<2> kernel_walk(arrays);
  const auto count = arrays.elements();
  switch (item * width) {
    case 1: return move_elements<1>(to, from, kernel_walk, count, stream);
    case 2: return move_elements<2>(to, from, kernel_walk, count, stream);
    case 4: return move_elements<4>(to, from, kernel_walk, count, stream);
    case 8: return move_elements<8>(to, from, kernel_walk, count, stream);
    default: return move_elements<16>(to, from, kernel_walk, count, stream);
  }
}

void add_strided(void* to, const void* from, DType dtype, const StridedArrays<2>& walk, Stream stream) {
  if (walk.elements() == 0) return;
  const StridedWalk<2> kernel_walk(walk.collapsed());
  visit_any_arithmetic(dtype, [&](auto zero_of_type) {
    using T = decltype(zero_of_type);
    add_elements(static_cast<T*>(to), static_cast<const T*>(from), kernel_walk, walk.elements(), stream);
  });
}

void look_up(const Tensor& x, const Tensor& table, Tensor& y) {
  const auto width = size_of(x.dtype());
  require(!is_floating(x.dtype()) && width <= 2, "[look_up] integers of 8 or 16 bits are looked up, not {}", x);
  require(table.elements() == std::int64_t{1} << (8 * width) && table.dtype() == y.dtype() && x.elements() == y.elements(),
          "[look_up] {} of a table {} as {}", x, table, y);
  for (const auto* each : {&x, &table, static_cast<const Tensor*>(&y)})
    require(each->device() == DeviceKind::cuda, "[look_up] {} is not on the GPU", *each);
  visit_floating(y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto with = [&](auto nought) {
      using X = decltype(nought);
      look_up_elements(reinterpret_cast<const X*>(x.raw()), reinterpret_cast<const T*>(table.raw()),
                       reinterpret_cast<T*>(y.raw()), x.elements(), compute_stream());
    };
    if (width == 1) with(std::uint8_t{});
    else with(std::uint16_t{});
  });
}

void fill(void* memory, std::int64_t count, std::int64_t item, const void* value) {
  const auto with = [&](auto zero_of_width) {
    using T = decltype(zero_of_width);
    T bits{};
    std::memcpy(&bits, value, sizeof(T));
    if (bits == 0) zero(memory, count * item);
    else fill_elements(static_cast<T*>(memory), bits, count, compute_stream());
  };
  switch (item) {
    case 1: return with(std::uint8_t{});
    case 2: return with(std::uint16_t{});
    case 4: return with(std::uint32_t{});
    case 8: return with(std::uint64_t{});
    case 16: {  // complex128: zeros, or parts that alternate
      std::uint64_t parts[2];
      std::memcpy(parts, value, sizeof parts);
      if (count == 0 || (parts[0] == 0 && parts[1] == 0)) return zero(memory, count * item);
      StridedArrays<2> walk;
      fill_elements(static_cast<std::uint64_t*>(memory), parts[0], 1, compute_stream());
      fill_elements(static_cast<std::uint64_t*>(memory) + 1, parts[1], 1, compute_stream());
      if (count > 1)
        walk.add(count - 1, {1, 0}), copy_strided(static_cast<std::byte*>(memory) + item, memory, item, walk, compute_stream());
      return;
    }
    default: fail("[cuda] there are no elements of {} bytes", item);
  }
}

}  // namespace mpigrad::cuda
