#include "comm/transport/device/device_memory.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

#include "comm/transport/reduce_into.h"
#include "framework/cuda/cuda.h"
#include "ops/elementwise/elementwise_ops.h"

namespace mpigrad {
namespace {

// ---- host memory

class NoEvent final : public DeviceEvent {
 public:
  void hold() const override {}
};

class HostMemory final : public DeviceMemory {
 public:
  Bytes allocate(std::int64_t bytes) override {
    return Bytes(new std::byte[static_cast<std::size_t>(bytes)], std::default_delete<std::byte[]>());
  }
  void copy(void* to, const void* from, std::int64_t bytes) override {
    if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  bool computes(DType, CombineOp) const override { return true; }
  void combine(void* a, const void* in, std::int64_t count, DType type, CombineOp op) override {
    reduce_into(a, in, count, type, op);
  }
  void convert(const void* in, DType from, void* out, DType to, std::int64_t count) override {
    visit_any_floating(from, [&](auto source) {
      visit_any_floating(to, [&](auto target) {
        const auto* x = static_cast<const decltype(source)*>(in);
        auto* y = static_cast<decltype(target)*>(out);
        for (std::int64_t i = 0; i < count; ++i) y[i] = static_cast<decltype(target)>(x[i]);
      });
    });
  }
  std::shared_ptr<DeviceEvent> mark() override { return std::make_shared<NoEvent>(); }
  Bytes allocate_host(std::int64_t bytes) override { return allocate(bytes); }
  void to_host(void* host, const void* device, std::int64_t bytes) override { copy(host, device, bytes); }
  void to_device(void* device, const void* host, std::int64_t bytes) override { copy(device, host, bytes); }
  void synchronise() override {}
};

// ---- memory of a GPU

class CudaEvent final : public DeviceEvent {
 public:
  CudaEvent() { event_.record(cuda::compute_stream()); }
  void hold() const override { event_.hold(cuda::compute_stream()); }

 private:
  cuda::Event event_;
};

// Pinned buffers, which are expensive to allocate: each is kept here for reuse once the copies that its last user issued are
// done.
class PinnedPool {
 public:
  PinnedPool() = default;
  // The last copies may still be under way, and freeing memory does not wait for them.
  ~PinnedPool() {
    try {
      for (const auto& buffer : idle_)
        if (!buffer.busy.reached()) buffer.busy.synchronise();
    } catch (...) {  // a device that has failed
    }
  }
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  std::byte* take(std::int64_t bytes) {
    std::int64_t size = 4096;
    while (size < bytes) size *= 2;
    std::lock_guard lock(mutex_);
    for (auto at = idle_.begin(); at != idle_.end(); ++at) {
      if (at->memory.bytes() != size || !at->busy.reached()) continue;
      used_.push_back(std::move(*at));
      idle_.erase(at);
      return used_.back().memory.data();
    }
    used_.push_back({cuda::PinnedBuffer(size), cuda::Event()});
    return used_.back().memory.data();
  }
  void give_back(std::byte* data) {
    std::lock_guard lock(mutex_);
    const auto found = std::find_if(used_.begin(), used_.end(), [&](const Buffer& b) { return b.memory.data() == data; });
    found->busy.record(cuda::compute_stream());
    idle_.push_back(std::move(*found));
    used_.erase(found);
  }

 private:
  struct Buffer {
    cuda::PinnedBuffer memory;
    cuda::Event busy;
  };
  std::mutex mutex_;
  std::vector<Buffer> used_, idle_;
};

Tensor on_gpu(const void* memory, DType type, std::int64_t count) {
  const auto bytes = count * size_of(type);
  const TensorType described{Shape{count}, type};
  return {described, std::make_shared<Storage>(const_cast<void*>(memory), bytes, DeviceKind::cuda, nullptr)};
}

class CudaMemory final : public DeviceMemory {
 public:
  Bytes allocate(std::int64_t bytes) override {
    return Bytes(static_cast<std::byte*>(cuda::allocate(bytes)), [](std::byte* memory) { cuda::release(memory); });
  }
  void copy(void* to, const void* from, std::int64_t bytes) override {
    if (bytes > 0 && to != from) cuda::copy(to, from, bytes, cuda::compute_stream());
  }
  int place() const override { return cuda::selected(); }
  bool computes(DType type, CombineOp op) const override {
    return traits_of(op).on_gpu && (is_differentiable(type) || type == DType::int64 || type == DType::int32);
  }
  void combine(void* a, const void* in, std::int64_t count, DType type, CombineOp op) override {
    if (count == 0) return;
    const auto part = real_type(type);  // sums of complex numbers
    const auto parts = count * parts_of(type);
    const Tensor operands[] = {on_gpu(a, part, parts), on_gpu(in, part, parts)};
    Tensor result = operands[0];  // elementwise: each element is read before it is written
    const auto run = [&](const auto& kernel) { kernel.run(Cuda{cuda::selected()}, Inputs(operands), Outputs(&result, 1)); };
    if (op == CombineOp::sum) return run(ops::Binary<ops::Add>{});
    if (op == CombineOp::prod) return run(ops::Binary<ops::Multiply>{});
    if (op == CombineOp::max) return run(ops::Binary<ops::Maximum>{});
    if (op == CombineOp::min) return run(ops::Binary<ops::Minimum>{});
    fail("[cuda] no kernel combines by {}", name_of(op));
  }
  void convert(const void* in, DType from, void* out, DType to, std::int64_t count) override {
    if (count == 0) return;
    const Tensor operand = on_gpu(in, from, count);
    Tensor result = on_gpu(out, to, count);
    ops::Cast{to}.run(Cuda{cuda::selected()}, Inputs(&operand, 1), Outputs(&result, 1));
  }
  std::shared_ptr<DeviceEvent> mark() override { return std::make_shared<CudaEvent>(); }
  Bytes allocate_host(std::int64_t bytes) override {
    return Bytes(pool_->take(bytes), [pool = pool_](std::byte* memory) { pool->give_back(memory); });
  }
  void to_host(void* host, const void* device, std::int64_t bytes) override { copy(host, device, bytes); }
  void to_device(void* device, const void* host, std::int64_t bytes) override { copy(device, host, bytes); }
  void synchronise() override { cuda::synchronise(cuda::compute_stream()); }

 private:
  std::shared_ptr<PinnedPool> pool_ = std::make_shared<PinnedPool>();
};

}  // namespace

std::shared_ptr<DeviceMemory> host_memory() { return std::make_shared<HostMemory>(); }
std::shared_ptr<DeviceMemory> cuda_memory() { return std::make_shared<CudaMemory>(); }

}  // namespace mpigrad
