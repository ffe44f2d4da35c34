// Tests of the emulator itself: it runs kernels as a GPU does, and reports mistakes that a GPU would not detect as errors. Run it
// in all three modes.

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "framework/cuda/launch.cuh"
#include "tests/emulation/runtime.h"

using namespace mpigrad;

namespace mpigrad::cuda {
// The library's function throws.
void fail_call(cudaError_t code, const char* call) { throw std::string(call) + ": " + cudaGetErrorString(code); }
}  // namespace mpigrad::cuda

namespace {

cudaStream_t new_stream() {
  cudaStream_t stream{};
  REQUIRE(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0) == cudaSuccess);
  return stream;
}
template <class T>
T* device_array(std::size_t n) {
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, n * sizeof(T)) == cudaSuccess);
  return static_cast<T*>(memory);
}
template <class T>
T* pinned_array(std::size_t n) {
  void* memory = nullptr;
  REQUIRE(cudaHostAlloc(&memory, n * sizeof(T), cudaHostAllocPortable) == cudaSuccess);
  return static_cast<T*>(memory);
}

// The error of a call, or empty.
template <class F>
std::string failure_of(cudaStream_t stream, const F& f) {
  std::string result;
  try {
    f();
    cuda::check(cudaStreamSynchronize(stream), "synchronise");
  } catch (const std::string& text) {
    result = text;
  }
  emulation::forgive();
  static_cast<void>(cudaGetLastError());
  return result;
}

__global__ void number_kernel(unsigned* y) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  y[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 1000 + thread;
}

// Each thread passes its value to the next, `rounds` times.
__global__ void pass_on_kernel(int rounds, int* y) {
  __shared__ int shared[1024];
  const unsigned t = threadIdx.x;
  shared[t] = static_cast<int>(t);
  for (int i = 0; i < rounds; ++i) {
    __syncthreads();
    const int left = shared[(t + blockDim.x - 1) % blockDim.x];
    __syncthreads();
    shared[t] = left;
  }
  y[t] = shared[t];
}
__global__ void without_barrier_kernel(int* y) {
  __shared__ int shared[64];
  shared[threadIdx.x] = static_cast<int>(threadIdx.x);
  y[threadIdx.x] = shared[63 - threadIdx.x];  // from a thread that may not have written yet
}

__global__ void shuffle_kernel(double* y) {
  const double own = threadIdx.x;
  double sum = own;
  for (unsigned step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffU, sum, step);
  y[threadIdx.x] = threadIdx.x % 32 == 0 ? sum : __shfl_xor_sync(0xfffffffeU, own, threadIdx.x % 32 > 1 ? 1 : 0);
}

__global__ void leave_kernel() {
  if (threadIdx.x < 3) return;
  __syncthreads();
}
__global__ void part_of_warp_kernel(int* y) {
  if (threadIdx.x % 2 == 0) y[threadIdx.x] = __shfl_down_sync(0xffffffffU, 1, 1);
}
__global__ void two_barriers_kernel(int* y) {
  if (threadIdx.x < 32) __syncthreads();
  else y[0] = __shfl_down_sync(0xffffffffU, 1, 1), __syncwarp(), y[1] = __shfl_down_sync(0xffffffffU, 1, 1);
}
__global__ void add_kernel(unsigned long long* y) { atomicAdd(y, 1ULL); }
__global__ void set_kernel(float* y, float value) { *y = value; }
__global__ void double_kernel(float* y) { *y *= 2; }

}  // namespace

TEST_CASE("emulation: all threads of all blocks run, each in its place") {
  const auto stream = new_stream();
  constexpr std::size_t n = 3 * 2 * 2 * 4 * 5 * 2;
  auto* y = device_array<unsigned>(n);
  cuda::launch("number", number_kernel, dim3(3, 2, 2), dim3(4, 5, 2), stream, y);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  for (unsigned i = 0; i < n; ++i) REQUIRE(y[i] == i / 40 * 1000 + i % 40);
  auto* sum = device_array<unsigned long long>(1);
  REQUIRE(cudaMemsetAsync(sum, 0, 8, stream) == cudaSuccess);
  cuda::launch("add", add_kernel, 100, 256, stream, sum);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(*sum == 25600);
}

TEST_CASE("emulation: barriers, and what it costs to leave one out") {
  const auto stream = new_stream();
  auto* y = device_array<int>(1024);
  for (const int threads : {1, 32, 33, 256, 1024})
    for (const int rounds : {0, 1, 7}) {
      cuda::launch("pass on", pass_on_kernel, 1, static_cast<unsigned>(threads), stream, rounds, y);
      REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
      for (int t = 0; t < threads; ++t) REQUIRE(y[t] == ((t - rounds) % threads + threads) % threads);
    }
  cuda::launch("without", without_barrier_kernel, 1, 64, stream, y);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  int wrong = 0;
  for (int t = 0; t < 64; ++t) wrong += y[t] != 63 - t;
  CHECK(wrong > 0);
}

TEST_CASE("emulation: lanes exchange") {
  const auto stream = new_stream();
  auto* y = device_array<double>(64);
  cuda::launch("shuffle", shuffle_kernel, 1, 64, stream, y);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(y[0] == 31 * 32 / 2);
  CHECK(y[32] == 31 * 32 / 2 + 32 * 32);
  CHECK(y[1] == 1);
  CHECK(y[2] == 3);
  CHECK(y[63] == 62);
}

TEST_CASE("emulation: threads that miss each other are an error, and the next kernel runs") {
  const auto stream = new_stream();
  auto* y = device_array<int>(1024);
  const auto says = [&](const std::string& text, const auto& f) {
    const auto error = failure_of(stream, f);
    INFO(error);
    CHECK(error.find(text) != std::string::npos);
    cuda::launch("pass on", pass_on_kernel, 1, 64, stream, 1, y);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(y[1] == 0);
  };
  says("61 of 64 threads wait at __syncthreads for others, which have left, block 0, 0, 0",
       [&] { cuda::launch("leave", leave_kernel, 1, 64, stream); });
  says("threads wait for lanes of their warp", [&] { cuda::launch("part", part_of_warp_kernel, 1, 32, stream, y); });
  says("32 of 64 threads wait at __syncthreads", [&] { cuda::launch("two", two_barriers_kernel, 1, 64, stream, y); });
  says("threads wait for lanes of their warp",
       [&] { cuda::launch("shuffle", shuffle_kernel, 1, 20, stream, device_array<double>(64)); });
}

TEST_CASE("emulation: launches beyond a GPU's limits are refused") {
  const auto stream = new_stream();
  auto* y = device_array<int>(1024);
  const auto refused = [&](const std::string& text, dim3 grid, dim3 block) {
    const auto error = failure_of(stream, [&] { cuda::launch("pass on", pass_on_kernel, grid, block, stream, 1, y); });
    INFO(error);
    CHECK(error.find("pass on: invalid configuration argument") == 0);
    CHECK(error.find(text) != std::string::npos);
  };
  refused("a block of 1025 threads", 1, 1025);
  refused("a block of 1056 threads", 1, dim3(33, 32));
  refused("a block of 65 threads", 1, dim3(1, 1, 65));
  refused("a block of 0 threads", 1, dim3(0));
  refused("a grid of 1 x 65536 x 1 blocks", dim3(1, 65536), 32);
  refused("a grid of 0 x 1 x 1 blocks", dim3(0), 32);
  CHECK(failure_of(stream, [&] { cuda::launch("pass on", pass_on_kernel, 1, 32, nullptr, 1, y); }).find("not a stream") !=
        std::string::npos);
}

TEST_CASE("emulation: addresses that a GPU cannot reach") {
  const auto stream = new_stream();
  int local = 0;
  const auto error = [&](const auto& f) { return failure_of(stream, f); };
  CHECK(error([&] {
          cuda::launch("pass on", pass_on_kernel, 1, 1, stream, 1, &local);
        }).find("memory of the host that is not pinned") != std::string::npos);
  CHECK(error([&] { cuda::launch("pass on", pass_on_kernel, 1, 1, stream, 0, pinned_array<int>(1)); }).empty());
  auto* y = device_array<int>(100);
  std::vector<int> host(100);
  const auto copied = [&](void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    return error([&] { cuda::check(cudaMemcpyAsync(to, from, bytes, kind, stream), "copy"); });
  };
  CHECK(copied(y, host.data(), 400, cudaMemcpyHostToDevice).find("not pinned") != std::string::npos);
  auto* pinned = pinned_array<int>(100);
  CHECK(copied(y, pinned, 400, cudaMemcpyHostToDevice).empty());
  CHECK(copied(y, pinned, 400, cudaMemcpyDefault).empty());
  CHECK(copied(y, pinned, 404, cudaMemcpyHostToDevice).find("beyond the end") != std::string::npos);
  CHECK(copied(y, pinned, 400, cudaMemcpyDeviceToDevice).find("memory of the host") != std::string::npos);
  CHECK(copied(y, y + 50, 400 - 200, cudaMemcpyDeviceToDevice).empty());
  CHECK(copied(y, y + 49, 200, cudaMemcpyDeviceToDevice).find("onto itself") != std::string::npos);
  if (emulation::settings().devices > 1) {
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    const auto there = new_stream();
    CHECK(failure_of(there, [&] { cuda::launch("pass on", pass_on_kernel, 1, 1, there, 1, y); }).find("memory of GPU 0") !=
          std::string::npos);
    CHECK(error([&] { cuda::launch("pass on", pass_on_kernel, 1, 1, stream, 1, y); }).find("another GPU") != std::string::npos);
    auto* other = device_array<int>(100);
    CHECK(copied(other, y, 400, cudaMemcpyDefault).empty());
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
  }
  REQUIRE(cudaFree(y) == cudaSuccess);
  CHECK(error([&] { cuda::launch("pass on", pass_on_kernel, 1, 1, stream, 1, y); }).find("not pinned") != std::string::npos);
  CHECK(cudaFree(y) == cudaErrorInvalidValue);
  static_cast<void>(cudaGetLastError());
}

TEST_CASE("emulation: memory is limited, and new memory is full of NaN") {
  auto* x = device_array<double>(100);
  for (int i = 0; i < 100; ++i) CHECK(std::isnan(x[i]));
  std::size_t free = 0, total = 0, free_before = 0;
  REQUIRE(cudaMemGetInfo(&free_before, &total) == cudaSuccess);
  CHECK(total == emulation::settings().memory);
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, total) == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaSuccess);
  REQUIRE(cudaFree(x) == cudaSuccess);
  REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
  CHECK(free == free_before + 800);
}

TEST_CASE("emulation: streams, events, and work that is late") {
  const bool late = emulation::settings().mode == emulation::Mode::late;
  if (emulation::settings().mode == emulation::Mode::concurrent) return;  // without a wait the work may or may not be done
  const auto a = new_stream(), b = new_stream();
  auto *x = device_array<float>(1), *y = device_array<float>(1);
  auto* host = pinned_array<float>(2);
  cudaEvent_t event{};
  REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
  CHECK(cudaEventQuery(event) == cudaSuccess);

  // Without an event b does not wait for a.
  cuda::launch("set", set_kernel, 1, 1, a, x, 3);
  REQUIRE(cudaMemcpyAsync(host, x, 4, cudaMemcpyDeviceToHost, b) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(b) == cudaSuccess);
  CHECK(std::isnan(host[0]) == late);
  // The host reads without waiting.
  cuda::launch("double", double_kernel, 1, 1, a, x);
  CHECK((*x == 6) == !late);
  REQUIRE(cudaEventRecord(event, a) == cudaSuccess);
  cuda::launch("double", double_kernel, 1, 1, a, x);
  REQUIRE(cudaStreamWaitEvent(b, event, 0) == cudaSuccess);
  // Recording the event again does not move the wait; destroying the event does not, either.
  REQUIRE(cudaEventRecord(event, a) == cudaSuccess);
  REQUIRE(cudaEventDestroy(event) == cudaSuccess);
  REQUIRE(cudaMemcpyAsync(y, x, 4, cudaMemcpyDeviceToDevice, b) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(b) == cudaSuccess);
  CHECK(*y == (late ? 6 : 12));
  CHECK(*x == (late ? 6 : 12));
  REQUIRE(cudaStreamSynchronize(a) == cudaSuccess);
  CHECK(*x == 12);

  // A copy reads pinned memory when it runs; kernels get the arguments of the launch.
  host[0] = 1;
  REQUIRE(cudaMemcpyAsync(x, host, 4, cudaMemcpyHostToDevice, a) == cudaSuccess);
  host[0] = 2;
  float value = 5;
  cuda::launch("set", set_kernel, 1, 1, a, y, value);
  value = 6;
  REQUIRE(cudaStreamSynchronize(a) == cudaSuccess);
  CHECK(*x == (late ? 2 : 1));
  CHECK(*y == 5);

  // Repeated queries eventually find the work done.
  REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
  for (int i = 0; i < 3; ++i) cuda::launch("double", double_kernel, 1, 1, a, y);
  REQUIRE(cudaEventRecord(event, a) == cudaSuccess);
  int asked = 0;
  while (cudaEventQuery(event) == cudaErrorNotReady) ++asked;
  CHECK(asked == (late ? 3 : 0));
  static_cast<void>(cudaGetLastError());
  CHECK(*y == 40);

  // Freed device memory is no longer in use; pinned memory must not be in use.
  cuda::launch("double", double_kernel, 1, 1, a, y);
  REQUIRE(cudaFree(y) == cudaSuccess);
  REQUIRE(cudaMemcpyAsync(host, x, 4, cudaMemcpyDeviceToHost, a) == cudaSuccess);
  const auto freed = cudaFreeHost(host);
  CHECK(freed == (late ? cudaErrorLaunchFailure : cudaSuccess));
  CHECK(emulation::failed_for_good() == late);
  emulation::forgive();
  REQUIRE(cudaStreamSynchronize(a) == cudaSuccess);
}
