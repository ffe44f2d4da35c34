#pragma once
// Assembles batches in the host's memory: pieces of samples become this rank's block, with flips, shifts, deformations and other
// intensities; targets become rows. Not installed.

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "framework/base/job_queue.h"
#include "framework/tensor/tensor.h"
#include "models/data/loader/fetch.h"
#include "models/data/loader/options.h"
#include "models/data/loader/schedule.h"

namespace mpigrad::data {

class Assembler {
 public:
  // Errors: intensities that are negative. `options` and `schedule` outlive it.
  Assembler(SourcePtr source, const LoaderOptions& options, const Schedule& schedule);

  // The types of this rank's part of a batch, as it is put together: x of options.dtype, or of the stored type on the way to a
  // GPU, which applies the transform.
  std::pair<TensorType, TensorType> types(const Fetch& fetch) const;
  bool as_stored() const { return as_stored_; }
  Transform transform() const { return transform_; }
  // Decodes and augments into memory of the host.
  void assemble(Fetch& fetch, std::byte* x, std::byte* y) const;
  // The same by a thread of its own, which on_host() waits for.
  void assemble_ahead(const FetchPtr& fetch);
  // Host memory of a batch, filled.
  std::pair<Tensor, Tensor> on_host(Fetch& fetch) const;

 private:
  // One part of a sample's block, [d, h, w, cell elements]: the pieces of its regions, zeros where there are none, or what the
  // deformation makes of the one.
  struct Values {
    DType stored, type;
    std::int64_t channels = 1;
    Transform transform = Transform::none;
    bool nearest = false;                // of what is deformed; else interpolated
    Transform on_gpu = Transform::none;  // of values that are widened there
  };
  void assemble(const Fetch::Item& item, const std::vector<RegionPtr>& read, const Values& values, std::byte* to) const;

  SourcePtr source_;
  const LoaderOptions& options_;
  const Schedule& schedule_;
  Transform transform_ = Transform::none;
  bool as_stored_ = false;
  DType type_ = DType::float32;     // of x where it is put together
  std::optional<JobQueue> worker_;  // ends first
};

}  // namespace mpigrad::data
