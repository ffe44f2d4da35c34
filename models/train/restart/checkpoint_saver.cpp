#include "models/train/restart/checkpoint_saver.h"

#ifdef __linux__
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <chrono>
#include <cstring>

#include "comm/distributed/same_parameters.h"
#include "comm/together.h"
#include "framework/base/host_memory.h"
#include "framework/base/job_queue.h"
#include "framework/cuda/cuda.h"
#include "framework/engine/activity.h"
#include "models/train/checkpoint/file.h"

namespace mpigrad {
namespace {

// A copy between parts of host memory.
struct Copy {
  std::byte* to;
  const std::byte* from;
  std::int64_t bytes;
};

void add(std::vector<Copy>& copies, std::byte* to, const std::byte* from, std::int64_t bytes) {
  constexpr std::int64_t at_once = 1 << 18;
  for (std::int64_t at = 0; at < bytes; at += at_once) copies.push_back({to + at, from + at, std::min(at_once, bytes - at)});
}

void run(const std::vector<Copy>& copies) {
  const auto count = static_cast<std::int64_t>(copies.size());
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < count; ++i) {
    const auto& copy = copies[static_cast<std::size_t>(i)];
    std::memcpy(copy.to, copy.from, static_cast<std::size_t>(copy.bytes));
  }
}

// Bytes for the copy of a part, rounded up so that the next one begins at a block.
std::int64_t room_for(const checkpoint_file::Part& part) {
  return (part.value.bytes() + checkpoint_file::block_bytes - 1) / checkpoint_file::block_bytes * checkpoint_file::block_bytes;
}

// Lowers the priority of the calling thread below those that compute.
void give_way() {
#ifdef __linux__
  constexpr int nice = 10;
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), nice);
#endif
}

}  // namespace

CheckpointSaver::CheckpointSaver(const Communicator& world) : world_(world) {}

CheckpointSaver::~CheckpointSaver() {
  if (written_.valid()) written_.wait();
}

void CheckpointSaver::reserve(nn::Module& net, const SaveOptions& options) {
  make_room(checkpoint_file::contents_of(checkpoint_file::tensors_of(net, options), options.half, world_.rank()));
}

void CheckpointSaver::make_room(const checkpoint_file::Contents& contents) {
  std::int64_t bytes = 0;
  for (const auto& part : contents.parts) bytes += room_for(part);
  if (bytes <= bytes_) return;
  require_host_memory("[checkpoint] a copy of the tensors to save", static_cast<double>(bytes));
  copies_.reset(static_cast<std::byte*>(
      std::aligned_alloc(static_cast<std::size_t>(checkpoint_file::block_bytes), static_cast<std::size_t>(bytes))));
  require(copies_ != nullptr, "[checkpoint] there is no memory for a copy of the tensors to save, {} bytes", bytes);
  std::memset(copies_.get(), 0, static_cast<std::size_t>(bytes));
  bytes_ = bytes;
}

std::string CheckpointSaver::outcome() {
  if (!written_.valid()) return {};
  try {
    written_.get();
    ++durable_;
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
}

bool CheckpointSaver::stage(const std::filesystem::path& path, nn::Module& net, const SaveOptions& options,
                            std::function<void()> before, std::function<void()> after) {
  return stage(path, net, options,
               [path, first = world_.rank() == 0, before = std::move(before), after = std::move(after)](
                   auto& contents, auto& remarks, const auto& transport) {
                 together(transport.get(), [&] {
                   if (first && before) before();
                 });
                 checkpoint_file::write_file(path, contents, remarks, checkpoint_file::Replaces::checkpoints, transport);
                 together(transport.get(), [&] {
                   if (first && after) after();
                 });
               });
}

bool CheckpointSaver::stage_part(const std::filesystem::path& path, nn::Module& net, const SaveOptions& options,
                                 std::function<void()> after, std::function<void()> settled) {
  return stage(path, net, options,
               [path, rank = world_.rank(), ranks = world_.size(), after = std::move(after), settled = std::move(settled)](
                   auto& contents, auto& remarks, const auto& transport) {
                 together(transport.get(), [&] {
                   require(transport != nullptr, "[checkpoint] {} has no blocks: nothing to write in parts", path.string());
                   checkpoint_file::write_part(path, contents, remarks, rank, ranks);
                 });
                 together(transport.get(), after);
                 together(transport.get(), settled);
               });
}

bool CheckpointSaver::stage(const std::filesystem::path& path, nn::Module& net, const SaveOptions& options,
                            const Writing& writing) {
  const detail::SlowPhase phase(detail::SlowPhase::checkpoint);
  checkpoint_file::Remarks remarks(options);  // on every rank: the same errors on all of them
  std::int64_t busy = written_.valid() && written_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  world_.transport().bcast(&busy, 1, DType::int64, 0);
  if (busy != 0) return false;
  checkpoint_file::throw_everywhere(world_, outcome());
  require_same_parameters(fmt::format("[checkpoint] {} is not written", path.string()), net.parameters(), world_.transport());
  auto contents = checkpoint_file::contents_of(checkpoint_file::tensors_of(net, options), options.half, world_.rank());
  make_room(contents);
  if (contents.shared && !transport_) transport_ = world_.transport().control();
  std::vector<Copy> copies;
  auto* to = copies_.get();
  for (auto& part : contents.parts) {
    const auto& from = part.value;
    if (from.device() == DeviceKind::cuda) cuda::copy_to_host(to, from.raw(), from.bytes());
    else add(copies, to, from.raw(), from.bytes());
    part.copy = to, to += room_for(part);
  }
  run(copies);
  for (auto& part : contents.parts) part.value = {};
  const bool first = world_.rank() == 0;
  if (!first && !contents.shared) return true;
  const auto transport = contents.shared ? transport_ : nullptr;
  auto write = [contents = std::move(contents), remarks = std::move(remarks), transport, writing]() mutable {
    writing(contents, remarks, transport);
  };
  if (!thread_) {
    const bool here = transport && !transport->any_thread();
    thread_ = std::make_unique<JobQueue>(here ? 0 : 1);
    if (!here) thread_->run(give_way);
  }
  written_ = thread_->submit(std::move(write));
  return true;
}

void CheckpointSaver::finish() {
  const detail::SlowPhase phase(detail::SlowPhase::checkpoint);
  checkpoint_file::throw_everywhere(world_, outcome());
}

}  // namespace mpigrad
