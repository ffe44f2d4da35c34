#pragma once
// Host memory in the role of a GPU. Each rank has a stream, a thread that executes its work in order and late: code that forgets
// to wait reads memory that is not written yet, and code that releases memory too early finds it overwritten.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

#include "comm/transport/device/device_memory.h"

namespace mpigrad::testing {

class FakeStream {
 public:
  FakeStream() : worker_([this] { run(); }) {}
  ~FakeStream() {
    push([this] { stop_ = true; });
    worker_.join();
  }
  void push(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.notify_all();
  }
  void drain() {
    std::promise<void> reached;
    push([&] { reached.set_value(); });
    reached.get_future().wait();
  }
  // The stream of the calling thread, like CUDA's current device.
  static FakeStream*& current() {
    thread_local FakeStream* stream = nullptr;
    return stream;
  }

 private:
  void run() {
    for (unsigned n = 0; !stop_; ++n) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !tasks_.empty(); });
      auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      if (n % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(30));
      task();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false;
  std::thread worker_;
};

// Created on the rank's thread, and destroyed there last.
class FakeDevice final : public DeviceMemory {
 public:
  // `limited`: only float32 has kernels.
  explicit FakeDevice(bool limited = false) : limited_(limited) { FakeStream::current() = &stream_; }
  ~FakeDevice() override {
    stream_.drain();
    FakeStream::current() = nullptr;
  }

  Bytes allocate(std::int64_t bytes) override {
    auto* memory = new std::byte[static_cast<std::size_t>(bytes) + 1];
    std::memset(memory, 0xAB, static_cast<std::size_t>(bytes));
    return Bytes(memory, [bytes](std::byte* data) {
      const auto release = [data, bytes] {
        std::memset(data, 0xEE, static_cast<std::size_t>(bytes));
        delete[] data;
      };
      auto* stream = FakeStream::current();
      stream ? stream->push(release) : release();
    });
  }
  void copy(void* to, const void* from, std::int64_t bytes) override {
    if (bytes > 0 && to != from) stream_.push([=] { std::memcpy(to, from, static_cast<std::size_t>(bytes)); });
  }
  int place() const override { return device_; }
  bool computes(DType type, CombineOp) const override { return !limited_ || type == DType::float32; }
  void combine(void* a, const void* in, std::int64_t count, DType type, CombineOp op) override {
    stream_.push([=, host = host_] { host->combine(a, in, count, type, op); });
  }
  void convert(const void* in, DType from, void* out, DType to, std::int64_t count) override {
    stream_.push([=, host = host_] { host->convert(in, from, out, to, count); });
  }
  std::shared_ptr<DeviceEvent> mark() override {
    auto reached = std::make_shared<std::promise<void>>();
    auto event = std::make_shared<Event>();
    event->reached = reached->get_future().share();
    stream_.push([reached] { reached->set_value(); });
    return event;
  }
  Bytes allocate_host(std::int64_t bytes) override { return allocate(bytes); }
  void to_host(void* host, const void* device, std::int64_t bytes) override { copy(host, device, bytes); }
  void to_device(void* device, const void* host, std::int64_t bytes) override { copy(device, host, bytes); }
  void synchronise() override {
    ++synchronisations;
    stream_.drain();
  }
  int synchronisations = 0;

 private:
  struct Event final : DeviceEvent {
    std::shared_future<void> reached;
    void hold() const override {
      FakeStream::current()->push([reached = this->reached] { reached.wait(); });
    }
  };
  // Some ranks share a device.
  static int next_device() {
    static std::atomic<int> made{0};
    return made++ % 2;
  }
  bool limited_;
  const int device_ = next_device();
  std::shared_ptr<DeviceMemory> host_ = host_memory();
  FakeStream stream_;
};

// The host seen as a device: with it `staged` passes host buffers to a transport for device memory, which runs the cases of
// tests/comm/transport/transport_cases.h on any such transport.
class FromHost final : public DeviceMemory {
 public:
  explicit FromHost(std::shared_ptr<DeviceMemory> device) : device_(std::move(device)) {}
  Bytes allocate(std::int64_t bytes) override { return host_->allocate(bytes); }
  void copy(void* to, const void* from, std::int64_t bytes) override { host_->copy(to, from, bytes); }
  bool computes(DType, CombineOp) const override { return true; }
  void combine(void* a, const void* in, std::int64_t count, DType type, CombineOp op) override {
    host_->combine(a, in, count, type, op);
  }
  void convert(const void* in, DType from, void* out, DType to, std::int64_t count) override {
    host_->convert(in, from, out, to, count);
  }
  std::shared_ptr<DeviceEvent> mark() override { return host_->mark(); }
  Bytes allocate_host(std::int64_t bytes) override { return device_->allocate(bytes); }
  void to_host(void* device, const void* host, std::int64_t bytes) override {
    if (bytes == 0) return;
    const auto kept = device_->allocate_host(bytes);  // the caller's memory may be released at once
    std::memcpy(kept.get(), host, static_cast<std::size_t>(bytes));
    device_->to_device(device, kept.get(), bytes);
  }
  void to_device(void* host, const void* device, std::int64_t bytes) override {
    if (bytes == 0) return;
    const auto kept = device_->allocate_host(bytes);  // the caller's memory is not for a GPU
    device_->to_host(kept.get(), device, bytes);
    device_->synchronise();
    std::memcpy(host, kept.get(), static_cast<std::size_t>(bytes));
  }
  void synchronise() override {}  // work on the device runs in order

 private:
  std::shared_ptr<DeviceMemory> device_, host_ = host_memory();
};

}  // namespace mpigrad::testing
