#include "comm/transport/device/device_transport.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>

#include "comm/transport/device/in_process.h"
#include "comm/transport/device/staged.h"
#include "comm/transport/forwarding.h"
#include "comm/transport/watch/checks.h"
#include "framework/base/error.h"

namespace mpigrad {
namespace {

// Forwards everything except collectives and rounds to the host's transport.
class DeviceTransport final : public ForwardingTransport {
 public:
  DeviceTransport(std::shared_ptr<Transport> host, const SummationMode& mode, Lane lane, std::shared_ptr<DeviceMemory> memory,
                  const GpuPlace& place)
      : ForwardingTransport(host), mode_(mode), lane_(lane), memory_(std::move(memory)), place_(place) {
    // Threads of one process exchange addresses; whether MPI accepts device memory is known only to the user.
    const bool direct = host->can_ask() && !host->in_one_process() && cuda_aware_mpi();
    staged_ = staged(host, memory_, {.direct = direct, .direct_reductions = direct && !mode_.fixed_order});
    // The staged transport has the mode of the host's transport. The in-process one is watched only for the watchdog: if checks
    // are on, the host's transport compares its calls.
    messages_ = host->in_one_process() ? with_mode(watched(in_process(host, memory_), {}), mode_, memory_) : staged_;
  }

  bool capturable() override {
    static_cast<void>(engine());
    // NCCL's guide, "Using NCCL with CUDA Graphs": captured work on several GPUs of one process may deadlock.
    return size() == 1 || (kind_ == DeviceEngine::nccl && !mode_.fixed_order && !inner().in_one_process());
  }

  void perform(const Collective& call) override { serving(call).perform(call); }
  Pending begin(const Collective& call) override {
    if (lane_ == Lane::buckets) return serving(call).begin(call);
    // A non-blocking call must not wait for other ranks: another rank may be in a call on another communicator that needs this
    // rank. Therefore it is no place for all ranks to choose an engine together, nor for NCCL, which needs one order of all calls
    // on a stream.
    return (traits_of(call.kind).reduces && !memory_->computes(call.type, call.op) ? *staged_ : *messages_).begin(call);
  }
  Pending start_round(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    return engine().start_round(sends, receives, type);
  }

  void exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    messages_->exchange(sends, receives, type);
  }
  Pending start_exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    return messages_->start_exchange(sends, receives, type);
  }
  Pending start_receive(const Message& message, DType type) override { return messages_->start_receive(message, type); }

  std::shared_ptr<Transport> control() override { return inner().control(); }

 private:
  std::shared_ptr<Transport> wrap(std::shared_ptr<Transport> made) const override {
    return device_transport(std::move(made), mode_, lane_, memory_, place_);
  }

  Transport& engine() {
    if (!engine_) engine_ = make_engine();
    return *engine_;
  }
  Transport& serving(const Collective& call) {
    auto& engine = this->engine();
    if (!traits_of(call.kind).reduces || kind_ == DeviceEngine::staged || memory_->computes(call.type, call.op)) return engine;
    const bool known =
        kind_ == DeviceEngine::nccl && call.type != DType::int16 && traits_of(call.op).on_gpu && !mode_.fixed_order;
    return known ? engine : *staged_;
  }

  std::shared_ptr<Transport> make_engine() {
    std::vector<GpuPlace> places(static_cast<std::size_t>(size()));
    const std::vector<std::int64_t> counts(places.size(), sizeof(GpuPlace));
    inner().allgather(&place_, places.data(), counts, DType::uint8);
    kind_ = choose_engine(places, inner().in_one_process());
    if (kind_ == DeviceEngine::staged) return staged_;
    auto host = inner().duplicate();
    auto made = kind_ == DeviceEngine::nccl ? nccl_transport(std::move(host), lane_) : in_process(std::move(host), memory_);
    return with_mode(watched(std::move(made)), mode_, memory_);
  }

  SummationMode mode_;
  Lane lane_;
  std::shared_ptr<DeviceMemory> memory_;
  GpuPlace place_;
  std::shared_ptr<Transport> staged_, messages_, engine_;
  DeviceEngine kind_ = DeviceEngine::staged;
};

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

}  // namespace

GpuPlace gpu_place() {
  GpuPlace place;
  gethostname(place.host, sizeof(place.host) - 1);
  const auto gpu = nccl_gpu();
  require(gpu.size() < sizeof(place.gpu), "[nccl] the GPU's name is too long: {}", gpu);
  std::memcpy(place.gpu, gpu.data(), gpu.size());
  place.named_host = is_set("NCCL_HOSTID");
  return place;
}

DeviceEngine choose_engine(std::span<const GpuPlace> places, bool in_process) {
  const auto otherwise = in_process ? DeviceEngine::in_process : DeviceEngine::staged;
  // A communicator of one rank needs no host transport to exchange addresses: grids have axes of one rank.
  if (places.size() < 2) return DeviceEngine::in_process;
  if (std::any_of(places.begin(), places.end(), [](const GpuPlace& p) { return p.gpu[0] == '\0'; })) return otherwise;
  // NCCL reads the environment of the process, which threads share.
  if (!in_process && std::all_of(places.begin(), places.end(), [](const GpuPlace& p) { return p.named_host; }))
    return DeviceEngine::nccl;
  std::vector<std::pair<std::string_view, std::string_view>> gpus;
  for (const auto& place : places) gpus.emplace_back(place.host, place.gpu);
  std::sort(gpus.begin(), gpus.end());
  const bool shared = std::adjacent_find(gpus.begin(), gpus.end()) != gpus.end();
  return shared ? otherwise : DeviceEngine::nccl;
}

std::shared_ptr<Transport> device_transport(std::shared_ptr<Transport> host, const SummationMode& mode, Lane lane,
                                            std::shared_ptr<DeviceMemory> memory, const GpuPlace& place) {
  return std::make_shared<DeviceTransport>(std::move(host), mode, lane, std::move(memory), place);
}

bool cuda_aware_mpi() {
  const char* value = std::getenv("MPIGRAD_CUDA_AWARE_MPI");
  const std::string_view text = value ? value : "";
  require(text.empty() || text == "0" || text == "1", "[staged] MPIGRAD_CUDA_AWARE_MPI is 0 or 1, got '{}'", text);
  return text == "1";
}

}  // namespace mpigrad
