#include "models/train/restart/checkpoint_saver.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "comm/spatial/same_parameters.h"
#include "framework/activity.h"
#include "framework/cuda/cuda.h"
#include "framework/job_queue.h"
#include "models/nn/whole_copy.h"
#include "models/train/checkpoint_file.h"

namespace mpigrad {
namespace {

// Bytes of host memory to other host memory.
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

// A tensor of host memory for a copy of all of `value`; the one that there is, if it is such a one.
void make_room(NamedTensor& copy, const std::string& name, const Tensor& value) {
  copy.name = name;
  const auto& shape = value.layout() ? value.layout()->global : value.shape();
  if (copy.value && copy.value.shape() == shape && copy.value.dtype() == value.dtype()) return;
  copy.value = Tensor({shape, value.dtype()}, DeviceKind::cpu);
  detail::zero_bytes(DeviceKind::cpu, copy.value.raw(), copy.value.bytes());
}

}  // namespace

CheckpointSaver::CheckpointSaver(const Communicator& world) : world_(world) {}

CheckpointSaver::~CheckpointSaver() {
  if (written_.valid()) written_.wait();
}

void CheckpointSaver::reserve(nn::Module& net, const SaveOptions& options) {
  if (world_.rank() != 0) return;
  const auto tensors = checkpoint_file::tensors_of(net, options);
  copies_.resize(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) make_room(copies_[i], tensors[i].name, tensors[i].value);
  if (!thread_) thread_ = std::make_unique<JobQueue>(1);
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
  const detail::UnhurriedPhase phase;
  checkpoint_file::Remarks remarks(options);  // on every rank: what is wrong with them is wrong with all
  std::int64_t busy = written_.valid() && written_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  world_.transport().bcast(&busy, 1, DType::int64, 0);
  if (busy != 0) return false;
  checkpoint_file::throw_everywhere(world_, outcome());
  require_same_parameters(fmt::format("[checkpoint] {} is not written", path.string()), net.parameters(), world_.transport());
  reserve(net, options);
  const auto tensors = checkpoint_file::tensors_of(net, options);
  std::vector<Copy> copies;
  std::vector<Tensor> gathered;  // until they are copied
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto whole = nn::whole_value(tensors[i].value);  // collective where ranks have blocks
    if (world_.rank() != 0) continue;
    const auto& to = copies_[i].value;
    if (whole.device() == DeviceKind::cuda) cuda::copy_to_host(to.raw(), whole.raw(), whole.bytes());
    else add(copies, to.raw(), whole.raw(), whole.bytes()), gathered.push_back(whole);
  }
  if (world_.rank() != 0) return true;
  run(copies);
  written_ = thread_->submit([this, path, half = options.half, overwrite = options.overwrite, remarks = std::move(remarks),
                              before = std::move(before), after = std::move(after)] {
    if (before) before();
    checkpoint_file::Writer writer(path, half, overwrite);
    for (const auto& [name, value] : copies_) writer.add(name, value);
    writer.finish(remarks);
    if (after) after();
  });
  return true;
}

void CheckpointSaver::finish() {
  const detail::UnhurriedPhase phase;
  checkpoint_file::throw_everywhere(world_, outcome());
}

}  // namespace mpigrad
