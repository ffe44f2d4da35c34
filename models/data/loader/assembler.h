#pragma once
// Assembles batches in the host's memory: pieces of samples become this rank's block, with flips, shifts and steps of
// augmentation; targets become rows. Not installed.

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
  // `options` and `schedule` must outlive it.
  Assembler(SourcePtr source, const LoaderOptions& options, const Schedule& schedule);

  // The types of this rank's part of an assembled batch: x has options.dtype, or the stored type on the way to a GPU, which then
  // applies the transform.
  std::pair<TensorType, TensorType> types(const Fetch& fetch) const;
  bool as_stored() const { return as_stored_; }
  Transform transform() const { return transform_; }
  // Decodes and augments into host memory.
  void assemble(Fetch& fetch, std::byte* x, std::byte* y) const;
  // Starts assemble() on a thread of its own; on_host() waits for it.
  void assemble_ahead(const FetchPtr& fetch);
  // Host memory with the assembled batch.
  std::pair<Tensor, Tensor> on_host(Fetch& fetch) const;

 private:
  // Describes one part of a sample's cells `box`, [d, h, w, cell elements]: it consists of the pieces of the regions, with zeros
  // elsewhere, or of the deformed single region.
  struct Values {
    DType stored, type;
    std::int64_t channels = 1;
    Transform transform = Transform::none;
    bool nearest = false;                // how deformed cells are taken; else interpolated
    Transform on_gpu = Transform::none;  // transform of values that are converted on the GPU
  };
  void assemble(const Fetch::Item& item, const std::vector<RegionPtr>& read, const Values& values, const Box& box,
                std::byte* to) const;
  // Only the rank's block of what is read for it.
  void assemble_block(const Fetch::Item& item, const std::vector<RegionPtr>& read, const Values& values, std::byte* to) const;
  // The block's values, changed by the recipe.
  void assemble_changed(const Fetch& fetch, const Fetch::Item& item, std::byte* to) const;

  SourcePtr source_;
  const LoaderOptions& options_;
  const Schedule& schedule_;
  Transform transform_ = Transform::none;
  bool as_stored_ = false;
  DType type_ = DType::float32;     // type of x in host memory
  std::optional<JobQueue> worker_;  // destroyed first
};

}  // namespace mpigrad::data
