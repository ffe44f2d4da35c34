// Transports of a GPU's tensors, with host memory in place of a GPU (tests/comm/transport/fake_device.h): staging, device copies
// between threads, the choice between them, and widening and order of reductions.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "comm/transport/device/device_transport.h"
#include "comm/transport/device/in_process.h"
#include "comm/transport/device/staged.h"
#include "comm/transport/forwarding.h"
#include "comm/transport/watch/checks.h"
#include "tests/comm/transport/device_cases.h"

using namespace mpigrad;
using namespace mpigrad::transport_cases;
using testing::check_device_cases;
using testing::FakeDevice;
using testing::FromHost;

namespace {

using Make = std::function<std::shared_ptr<Transport>(std::shared_ptr<Transport> host, std::shared_ptr<FakeDevice> device)>;

// body(a transport for host buffers whose data pass through the device, the device)
void on_devices(int ranks, const Make& make, const std::function<void(Transport&, FakeDevice&)>& body, bool limited = false) {
  run_threads(ranks, [&](std::shared_ptr<Transport> host) {
    auto device = std::make_shared<FakeDevice>(limited);
    const auto t = staged(make(host, device), std::make_shared<FromHost>(device));
    body(*t, *device);
    device->synchronise();
    host->barrier();  // no device may disappear while others may still read from it
  });
}

const std::vector<DType> every_type(std::begin(all_types), std::end(all_types));
const std::vector<DType> some_types{DType::float32, DType::bfloat16, DType::int16, DType::uint16, DType::boolean};

// A receive from any source, and one that never gets a message.
void check_wildcards(Transport& t) {
  Buffer in(DType::float32, 4);
  if (t.rank() == 0) {
    const Message any{any_source, any_tag, in.data(), 4};
    for (int i = 1; i < t.size(); ++i) {
      auto receive = t.start_receive(any, DType::float32);
      receive.wait();
      const auto from = receive.status();
      require(from.source > 0 && from.tag == 10 + from.source, "[test] from {} tag {}", from.source, from.tag);
      for (std::int64_t k = 0; k < 4; ++k) expect(in, k, value(from.source, k, DType::float32), "receive from anybody");
    }
  } else {
    Buffer out = filled(t.rank(), 4, DType::float32);
    const Message message{0, 10 + t.rank(), out.data(), 4};
    t.exchange({&message, 1}, {}, DType::float32);
  }
  const Message never{0, 3, in.data(), 4};
  t.start_receive(never, DType::float32).cancel();
}

// A transport whose max and min ignore NaN, like NCCL's kernels.
class LosesNan final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  bool loses_nan() const override { return true; }
  void perform(const Collective& call) override {
    check(call);
    inner().perform(call);
  }
  Pending begin(const Collective& call) override {
    check(call);
    return inner().begin(call);
  }

 private:
  static void check(const Collective& call) {
    require(call.kind != CollectiveKind::allreduce || call.op == CombineOp::sum || call.op == CombineOp::prod,
            "[test] the transport's own max of {} is not to be used", name_of(call.type));
  }
  std::shared_ptr<Transport> wrap(std::shared_ptr<Transport>) const override { return nullptr; }
};

GpuPlace place(const char* host, const char* gpu, bool named = false) {
  GpuPlace result;
  std::strcpy(result.host, host);
  std::strcpy(result.gpu, gpu);
  result.named_host = named;
  return result;
}

}  // namespace

TEST_CASE("staged: every call through host memory") {
  for (int ranks : {1, 2, 3, 5})
    on_devices(
        ranks, [](auto host, auto device) { return staged(host, device); },
        [&](Transport& t, FakeDevice&) {
          check_device_cases(t, ranks == 3 ? every_type : some_types);
          check_half_rounding(t);
          check_wildcards(t);
        });
}

TEST_CASE("staged: the device is waited for once for all messages of a call, and not to receive") {
  run_threads(2, [](std::shared_ptr<Transport> host) {
    auto device = std::make_shared<FakeDevice>();
    const auto t = staged(host, device);
    std::vector<float> out(30, 1.0f), in(30);
    std::vector<Message> sends, receives;
    for (int i = 0; i < 3; ++i) {
      sends.push_back({1 - t->rank(), i, out.data() + 10 * i, 10});
      receives.push_back({1 - t->rank(), i, in.data() + 10 * i, 10});
    }
    auto pending = t->start_exchange(sends, receives, DType::float32);
    require(device->synchronisations == 1, "[test] waited {} times", device->synchronisations);
    pending.wait();
    if (t->rank() == 0) t->exchange(sends, {}, DType::float32);
    else t->exchange({}, receives, DType::float32);
    require(device->synchronisations == 2 - t->rank(), "[test] rank {} waited {} times", t->rank(), device->synchronisations);
    device->synchronise();
    require(std::count(in.begin(), in.end(), 1.0f) == 30, "[test] not received");
    host->barrier();
  });
}

TEST_CASE("staged: a transport that takes device memory gets its addresses") {
  struct Addresses final : ForwardingTransport {
    using ForwardingTransport::ForwardingTransport;
    std::vector<const void*> seen;
    void perform(const Collective& call) override {
      if (call.kind == CollectiveKind::allreduce) seen.push_back(call.in);
      inner().perform(call);
    }
    Pending start_exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
      for (const auto& message : sends) seen.push_back(message.data);
      return inner().start_exchange(sends, receives, type);
    }
    std::shared_ptr<Transport> wrap(std::shared_ptr<Transport> made) const override { return made; }
  };
  for (const bool sums : {false, true})
    run_threads(2, [&](std::shared_ptr<Transport> host) {
      auto device = std::make_shared<FakeDevice>();
      const auto addresses = std::make_shared<Addresses>(host);
      const auto t = staged(addresses, device, {.direct = true, .direct_reductions = sums});
      float x[2] = {1, 2}, y[2] = {};
      const Message send{1 - t->rank(), 0, x, 2}, receive{1 - t->rank(), 0, y, 2};
      t->exchange({&send, 1}, {&receive, 1}, DType::float32);
      require(addresses->seen.size() == 1 && addresses->seen[0] == x, "[test] the message was staged");
      require(device->synchronisations == 1, "[test] the device was waited for {} times", device->synchronisations);
      t->allreduce(x, y, 2, DType::float32, CombineOp::sum);
      require((addresses->seen[1] == x) == sums, "[test] direct sums: {}", sums);
      BFloat16 half(1.0f);
      t->allreduce(&half, &half, 1, DType::bfloat16, CombineOp::sum);
      device->synchronise();
      require(addresses->seen[2] != &half && float(half) == 2, "[test] 16-bit sums are never direct");
    });
  on_devices(
      3, [](auto host, auto device) { return staged(host, device, {.direct = true, .direct_reductions = true}); },
      [](Transport& t, FakeDevice&) {
        check_device_cases(t, {DType::float32, DType::bfloat16});
      });
}

TEST_CASE("in process: every call by device copies") {
  for (int ranks : {1, 2, 3, 5})
    on_devices(
        ranks, [](auto host, auto device) { return in_process(host, device); },
        [&](Transport& t, FakeDevice& device) {
          check_device_cases(t, ranks == 3 ? every_type : some_types);
          check_half_rounding(t);
          check_wildcards(t);
          device.synchronisations = 0;
        });
}

TEST_CASE("in process: the host never waits for a device") {
  run_threads(3, [](std::shared_ptr<Transport> host) {
    auto device = std::make_shared<FakeDevice>();
    const auto t = with_mode(in_process(host, device), {.fixed_order = true}, device);
    std::vector<BFloat16> x(100, BFloat16(1.0f)), y(300);
    const std::vector<std::int64_t> counts(3, 100);
    t->allreduce(x.data(), x.data(), 100, DType::bfloat16, CombineOp::sum);
    t->allgather(x.data(), y.data(), counts, DType::bfloat16);
    t->start_allreduce(y.data(), y.data(), 300, DType::bfloat16, CombineOp::max).wait();
    const Message send{(t->rank() + 1) % 3, 0, y.data(), 100}, receive{(t->rank() + 2) % 3, 0, x.data(), 100};
    t->exchange({&send, 1}, {&receive, 1}, DType::bfloat16);
    require(device->synchronisations == 0, "[test] the host waited {} times", device->synchronisations);
    device->synchronise();
    for (const auto& e : x) require(float(e) == 3, "[test] {}", float(e));
    host->barrier();
  });
}

TEST_CASE("in process: calls that differ are the same error on all ranks, and so are messages of another length") {
  const auto errors = [](const std::function<void(Transport&)>& body) {
    std::vector<std::string> all(2);
    run_threads(2, [&](std::shared_ptr<Transport> host) {
      auto device = std::make_shared<FakeDevice>();
      const auto t = in_process(host, device);
      all[static_cast<std::size_t>(t->rank())] = testing::error_text([&] { body(*t); });
      device->synchronise();
      host->barrier();
    });
    return all;
  };
  float x[8] = {}, y[16] = {};
  for (const auto& text : errors([&](Transport& t) { t.bcast(t.rank() ? x : y, t.rank() + 1, DType::float32, 0); }))
    CHECK(text == "[bcast] the ranks' calls differ: rank 0 bcast(1 float32, root 0); rank 1 bcast(2 float32, root 0)");
  for (const auto& text : errors([&](Transport& t) {
         const std::int64_t send[2] = {1, 1}, receive[2] = {1, t.rank() + 1};
         t.alltoall(x, send, y + 8 * t.rank(), receive, DType::float32);
       }))
    CHECK(text == "[alltoall] rank 1 sends 1 float32 to rank 1, which expects 2");
  const auto sent = errors([&](Transport& t) {
    const Message m = {1 - t.rank(), 3, t.rank() ? x : y, t.rank() + 1};
    t.rank() ? t.exchange({}, {&m, 1}, DType::float32) : t.exchange({&m, 1}, {}, DType::float32);
  });
  CHECK(sent[1] == "[exchange] rank 0 sent 1 float32 with tag 3 to rank 1, which expects 2 float32");
  // The remains of another rank's failure have no effect, and the error is the first one.
  float all[3] = {};
  CHECK_THROWS_WITH(run_threads(3,
                                [&](std::shared_ptr<Transport> host) {
                                  auto device = std::make_shared<FakeDevice>();
                                  const auto t = in_process(host, device);
                                  float& z = all[t->rank()];
                                  auto pending = t->start_allreduce(&z, &z, 1, DType::float32, CombineOp::sum);
                                  if (t->rank() == 1) throw Error("first");
                                  pending.wait();
                                  t->allreduce(&z, &z, 1, DType::float32, CombineOp::sum);
                                }),
                    "first");
}

TEST_CASE("checks watch a device's calls as the host's") {
  run_threads(3, [](std::shared_ptr<Transport> host) {
    auto device = std::make_shared<FakeDevice>();
    const auto t = watched(in_process(host, device), {.signatures = 1});
    float x = static_cast<float>(t->rank());
    t->allreduce(&x, &x, 1, DType::float32, CombineOp::sum);
    device->synchronise();
    require(x == 3, "[test] {}", x);
    const auto text = testing::error_text(
        [&] { t->rank() == 1 ? t->bcast(&x, 1, DType::float32, 0) : t->allreduce(&x, &x, 1, DType::float32, CombineOp::sum); });
    require(text.starts_with(
                "[checks] the ranks of a communicator of 3 do not make the same call: ranks 0,2: allreduce of 1 float32"),
            "[test] got '{}'", text);
  });
}

TEST_CASE("device transport: threads without GPUs of their own copy; types without kernels and wildcards go through the host") {
  for (const bool limited : {false, true})
    for (const bool fixed : {false, true})
      for (int ranks : {1, 2, 4}) {
        const SummationMode mode{.fixed_order = fixed, .sixteen_bit = true};
        on_devices(
            ranks, [&](auto host, auto device) { return device_transport(with_mode(host, mode), mode, Lane::halos, device, {}); },
            [&](Transport& t, FakeDevice&) {
              check_device_cases(t, some_types);
              check_half_rounding(t);
              check_wildcards(t);
            },
            limited);
      }
}

TEST_CASE("device transport: 16-bit reductions are computed in float32 unless told otherwise") {
  for (const bool fixed : {false, true}) {
    const SummationMode mode{.fixed_order = fixed};
    on_devices(
        3, [&](auto host, auto device) { return device_transport(with_mode(host, mode), mode, Lane::halos, device, {}); },
        [&](Transport& t, FakeDevice&) {
          check_device_cases(t, {DType::bfloat16, DType::float16});
          // 256 + 1 + 1 is 256 if every step is rounded to 8 bits, and 258 if the sum is.
          BFloat16 x(t.rank() == 0 ? 256.0f : 1.0f);
          BFloat16 later = x;
          t.allreduce(&x, &x, 1, DType::bfloat16, CombineOp::sum);
          t.start_allreduce(&later, &later, 1, DType::bfloat16, CombineOp::sum).wait();
          require(float(x) == 258 && float(later) == 258, "[test] {} and {}", float(x), float(later));
        });
  }
}

TEST_CASE("reductions of transports that lose NaN are taken in order instead") {
  for (int ranks : {2, 3})
    run_threads(ranks, [](std::shared_ptr<Transport> host) {
      const auto t = with_mode(std::make_shared<LosesNan>(host), {.sixteen_bit = true});
      for (int where = 0; where < t->size(); ++where)
        for (auto op : {CombineOp::max, CombineOp::min}) {
          double x = t->rank() == where ? std::nan("") : t->rank(), y = x;
          t->allreduce(&x, &x, 1, DType::float64, op);
          double z = 0;
          t->start_allreduce(&y, &z, 1, DType::float64, op).wait();
          require(std::isnan(x) && std::isnan(z), "[test] NaN of rank {} got lost", where);
        }
      check_half_rounding(*t);
    });
}

TEST_CASE("device transport: the engine is NCCL where every rank has a GPU of its own") {
  const auto choose = [](std::vector<GpuPlace> places, bool in_process = false) {
    return name_of(choose_engine(places, in_process));
  };
  const auto a0 = place("a", "00:01"), a1 = place("a", "00:02"), b0 = place("b", "00:01"), none = place("a", "");
  CHECK(choose({a0, a1}) == "nccl");
  CHECK(choose({a0, b0}) == "nccl");  // the same bus id on two nodes
  CHECK(choose({a0, a1, b0, a0}) == "staged");
  CHECK(choose({a0, none}) == "staged");
  CHECK(choose({none, none}) == "staged");
  CHECK(choose({a0}) == "in_process");
  CHECK(choose({none}) == "in_process");
  CHECK(choose({a0, a1}, true) == "nccl");
  CHECK(choose({a0, a0}, true) == "in_process");
  CHECK(choose({none}, true) == "in_process");
  CHECK(choose({place("a", "00:01", true), place("a", "00:01", true)}) == "nccl");
  CHECK(choose({place("a", "00:01", true), place("a", "00:01", false)}) == "staged");
  CHECK(choose({place("a", "", true), place("a", "00:01", true)}) == "staged");
  CHECK(choose({place("a", "00:01", true), place("a", "00:01", true)}, true) == "in_process");
  CHECK(std::string_view(gpu_place().host).size() > 0);
  if (!nccl_available()) CHECK(std::string_view(gpu_place().gpu).empty());
}

TEST_CASE("device transport: MPIGRAD_CUDA_AWARE_MPI is 0 or 1") {
  CHECK_FALSE(cuda_aware_mpi());
  setenv("MPIGRAD_CUDA_AWARE_MPI", "1", 1);
  CHECK(cuda_aware_mpi());
  setenv("MPIGRAD_CUDA_AWARE_MPI", "yes", 1);
  CHECK(testing::error_text([] { cuda_aware_mpi(); }) == "[staged] MPIGRAD_CUDA_AWARE_MPI is 0 or 1, got 'yes'");
  unsetenv("MPIGRAD_CUDA_AWARE_MPI");
}
