// Host code for GPUs: memory, streams, copies, errors found by kernels. On any GPU, including the emulator.

#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <thread>

#include "framework/base/error.h"
#include "framework/cuda/cuda.h"
#include "framework/engine/tape.h"
#include "framework/optim/optimizer.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"
#include "ops/norm/channel_norm.h"
#include "ops/reduce/reduce.h"
#include "ops/views/to_device.h"
#include "ops/views/views.h"
#include "tests/support/gpu.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

using Values = std::vector<double>;

}  // namespace

TEST_CASE("gpu: copies carry every byte, and the source may change at once") {
  if (no_gpu("gpu: copies carry every byte, and the source may change at once")) return;
  // Around the sizes of staging buffers.
  for (const std::int64_t bytes : {1, 3, 4096, (64 << 10) + 1, (16 << 20) - 1, (16 << 20) + 5}) {
    std::vector<std::uint8_t> sent(static_cast<std::size_t>(bytes)), got(sent.size());
    for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::uint8_t>(i * 7 + i / 251);
    const auto kept = sent;
    void* memory = cuda::allocate(bytes);
    cuda::copy_to_device(memory, sent.data(), bytes);
    std::fill(sent.begin(), sent.end(), std::uint8_t{0});
    cuda::copy_to_host(got.data(), memory, bytes);
    cuda::release(memory);
    CHECK(std::memcmp(got.data(), kept.data(), got.size()) == 0);
  }
  // Many small copies, more than fit into staging at a time.
  const UseDevice device(DeviceKind::cuda);
  std::vector<Tensor> sent;
  for (int i = 0; i < 300; ++i) sent.push_back(from_vector({2}, Values{double(i), 1}));
  for (int i = 0; i < 300; ++i) CHECK(sent[static_cast<std::size_t>(i)].to_vector()[0] == i);
}

TEST_CASE("gpu: streams go on where others have come to") {
  if (no_gpu("gpu: streams go on where others have come to")) return;
  const UseDevice device(DeviceKind::cuda);
  const std::int64_t n = 5000, bytes = n * 4;
  for (int round = 0; round < 3; ++round) {
    const auto x = full({n}, 1 + round);
    Tensor halo(x.type(), DeviceKind::cuda), bucket(x.type(), DeviceKind::cuda);
    cuda::wait(cuda::halo_stream(), cuda::compute_stream());
    cuda::copy(halo.raw(), (x * 2).raw(), bytes, cuda::compute_stream());  // the next op uses the memory of x * 2
    const auto other = x * 5;
    cuda::wait(cuda::halo_stream(), cuda::compute_stream());
    cuda::copy(bucket.raw(), other.raw(), bytes, cuda::halo_stream());
    cuda::wait(cuda::bucket_stream(), cuda::halo_stream());
    cuda::copy(halo.raw(), bucket.raw(), bytes / 2, cuda::bucket_stream());
    cuda::wait(cuda::compute_stream(), cuda::bucket_stream());
    const auto sums = (halo + bucket).to_vector();
    CHECK(sums.front() == 10.0 * (1 + round));
    CHECK(sums.back() == 7.0 * (1 + round));
  }
  cuda::Event never, now;
  CHECK(never.reached());
  never.hold(cuda::compute_stream());
  never.synchronise();
  const cuda::PinnedBuffer buffer(bytes);
  const auto x = full({n}, 3);
  cuda::copy(buffer.data(), x.raw(), bytes, cuda::compute_stream());
  now.record(cuda::compute_stream());
  while (!now.reached()) std::this_thread::yield();
  float last = 0;
  std::memcpy(&last, buffer.data() + bytes - 4, 4);
  CHECK(last == 3);
}

TEST_CASE("gpu: a step waits for nothing, asks for no memory and meets the same addresses again") {
  if (no_gpu("gpu: a step waits for nothing, asks for no memory and meets the same addresses again")) return;
  const UseDevice device(DeviceKind::cuda);
  Parameters parameters;
  parameters.add("w", full({8}, 0.5), true);
  parameters.add("b", full({8}, 0.25), false);
  parameters.pack();
  Adam adam(parameters, {.learning_rate = 0.1});
  std::vector<float> host(100 * 8, 0.5F);
  const Tensor x({Shape{100, 8}, DType::float32}, DeviceKind::cuda);
  std::vector<const void*> addresses;
  std::vector<std::int64_t> waits, segments;
  Tensor loss;
  for (int step = 0; step < 6; ++step) {
    cuda::copy_to_device(x.raw(), host.data(), x.bytes());
    Tape tape(parameters);
    const auto y = tanh(x * parameters[0].value + parameters[1].value);
    loss = sum(square(y - 1.0));
    addresses.push_back(y.raw());
    adam.step(tape.gradient(loss));
    waits.push_back(cuda::statistics().host_synchronisations);
    segments.push_back(cuda::memory().segments_requested);
  }
  CHECK(waits.back() == waits.front());
  CHECK(segments.back() == segments[1]);
  CHECK(addresses[5] == addresses[2]);
  CHECK(addresses[4] == addresses[1]);
  CHECK(std::isfinite(loss.to_vector()[0]));
  CHECK(cuda::statistics().host_synchronisations == waits.back() + 1);
}

TEST_CASE("gpu: what kernels find wrong is told when the host next waits, once") {
  if (no_gpu("gpu: what kernels find wrong is told when the host next waits, once")) return;
  const UseDevice device(DeviceKind::cuda);
  const auto x = full({3, 2}, 1);
  const auto index = from_vector({2}, {1, 7}, DType::int64), negative = from_vector({2}, {-1, 0}, DType::int64);
  const auto taken = take(x, index);
  CHECK_THROWS_WITH_AS(taken.to_vector(), doctest::Contains("[take] index 7 is outside the 3 rows"), Error);
  CHECK(taken.to_vector() == Values{1, 1, 0, 0});
  const auto added = scatter_add(full({2, 2}, 1), negative, 4);
  CHECK_THROWS_WITH_AS(added.to_vector(), doctest::Contains("[scatter_add] index -1 is outside 4 rows"), Error);
  CHECK(added.to_vector() == Values{1, 1, 0, 0, 0, 0, 0, 0});
  const auto loss = cross_entropy(full({2, 3}, 1), from_vector({2}, {2, 3}, DType::int64));
  CHECK_THROWS_WITH_AS(loss.to_vector(), doctest::Contains("[cross_entropy] label 3 is not one of 3 classes"), Error);
  CHECK(std::isfinite(cross_entropy(full({2, 3}, 1), from_vector({2}, {2, 0}, DType::int64)).to_vector()[0]));
}

TEST_CASE("gpu: more memory than there is, and memory that other threads release") {
  if (no_gpu("gpu: more memory than there is, and memory that other threads release")) return;
  const UseDevice device(DeviceKind::cuda);
  const std::int64_t huge = std::int64_t{1} << 42;
  const auto one = full({1}, 2);
  CHECK_THROWS_WITH_AS(broadcast_to(one, {huge / 4}),
                       doctest::Contains("[broadcast_to] out of GPU memory: 4398046511104 bytes were asked for on GPU"), Error);
  CHECK((one + one).to_vector()[0] == 4);
  // Memory cached by other threads is returned first. Half of the rest, twice.
  const auto before = cuda::memory_of_process();
  std::thread([&] {
    const UseDevice here(DeviceKind::cuda);
    const auto x = full({3 << 20}, 1);
    CHECK(sum(x).to_vector()[0] == 3 << 20);
  }).join();
  CHECK(cuda::memory_of_process().reserved >= before.reserved);
  CHECK(cuda::trim_memory() >= 12 << 20);
  CHECK(cuda::memory().current > 0);
  CHECK((one + one).to_vector()[0] == 4);
  // Ranks on different GPUs, and memory that another thread releases.
  std::vector<Tensor> results(4);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 4; ++rank)
      threads.emplace_back([&, rank] {
        cuda::select(rank % cuda::devices());
        const UseDevice device(DeviceKind::cuda);
        auto x = full({1000 + rank}, rank);
        for (int i = 0; i < 20; ++i) x = x + 1;
        CHECK(sum(x).to_vector()[0] == (1000.0 + rank) * (rank + 20));
        results[static_cast<std::size_t>(rank)] = x;  // releases the result of the last round, which another thread allocated
      });
    for (auto& thread : threads) thread.join();
  }
  for (int rank = 0; rank < 4; ++rank)
    CHECK(results[static_cast<std::size_t>(rank)].to_vector().size() == 1000U + static_cast<unsigned>(rank));
  CHECK_THROWS_WITH_AS(cuda::select(cuda::devices()), doctest::Contains("is not one of"), Error);
}

TEST_CASE("gpu: strided copies and sums of every width") {
  if (no_gpu("gpu: strided copies and sums of every width")) return;
  // A box of 3 x 5 x n out of 4 x 7 x n + 3 at odd offsets, and added back twice.
  for (const auto type : {DType::uint8, DType::boolean, DType::int16, DType::bfloat16, DType::float16, DType::float32,
                          DType::int32, DType::float64, DType::int64})
    for (const std::int64_t n : {1, 2, 4, 8, 16, 5, 24}) {
      const std::int64_t width = n + (n % 2 == 0 ? 8 : 3), item = size_of(type);
      Values values(static_cast<std::size_t>(4 * 7 * width));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % (type == DType::boolean ? 2 : 60));
      const auto host = from_vector({4, 7, width}, values, type);
      const auto whole = to(host, DeviceKind::cuda);
      for (const std::int64_t first : {0, 1, 2, 3}) {
        Tensor box({Shape{3, 5, n}, type}, DeviceKind::cuda);
        const Tensor target = to(from_vector({4, 7, width}, Values(values.size(), 1), type), DeviceKind::cuda);
        StridedArrays<2> out, back;
        for (const auto& [extent, dense, loose] : {std::array<std::int64_t, 3>{3, 5 * n, 7 * width}, {5, n, width}, {n, 1, 1}}) {
          out.add(extent, {dense, loose});
          back.add(extent, {loose, dense});
        }
        const auto offset = (7 * width + width + first) * item;
        cuda::copy_strided(box.raw(), whole.raw() + offset, item, out, cuda::compute_stream());
        const auto wanted = slice(host, Shape{1, 1, first}, Shape{4, 6, first + n}).to_vector();
        INFO(std::string(name_of(type)), " ", n, " from ", first);
        CHECK(box.to_vector() == wanted);
        if (type == DType::boolean) continue;
        cuda::add_strided(target.raw() + offset, box.raw(), type, back, cuda::compute_stream());
        const auto sums = slice(target, Shape{1, 1, first}, Shape{4, 6, first + n}).to_vector();
        bool same = true;
        for (std::size_t i = 0; i < sums.size(); ++i) same = same && sums[i] == wanted[i] + 1;
        CHECK(same);
        CHECK(target.to_vector()[0] == 1);
      }
    }
}
