#pragma once
// Uploads assembled batches to the device of the steps: to a GPU through pinned memory on a stream of its own, where stored
// integers are converted; and gives the batches their layouts and ghost planes. Not installed.

#include <optional>

#include "framework/cuda/staging.h"
#include "models/data/loader/assembler.h"
#include "models/data/loader/fetch.h"
#include "models/data/loader/options.h"
#include "models/data/loader/schedule.h"
#include "models/data/narrow.h"

namespace mpigrad::data {

class Uploader {
 public:
  // All arguments except the source must outlive it.
  Uploader(SourcePtr source, const LoaderOptions& options, Schedule& schedule, const Assembler& assembler);

  // The batch on its device; the host waits for copies to a GPU.
  Batch upload(Fetch& fetch);
  // The batch on a GPU, in one of several places in turn; the copy overlaps with the previous step.
  Batch upload(Fetch& fetch, cuda::Uploads::Places& places);

 private:
  Batch laid_out(const Fetch& fetch, const Tensor& x, const Tensor& y);
  // laid_out() for a batch that has arrived on a GPU.
  Batch arrived(const Fetch& fetch, const Tensor& x, const Tensor& y) {
    return laid_out(fetch, widening_ ? (*widening_)(x) : x, y);
  }

  SourcePtr source_;
  const LoaderOptions& options_;
  Schedule& schedule_;
  const Assembler& assembler_;
  std::optional<Widening> widening_;  // converts integers that arrive as stored
  cuda::Uploads uploads_;
};

}  // namespace mpigrad::data
