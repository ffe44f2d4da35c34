#pragma once
// Uploads batches that were assembled to where steps compute: to a GPU through pinned memory and a stream of its own, with what
// integers become there; and gives them their layouts and ghost planes. Not installed.

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
  // All but the source outlive it.
  Uploader(SourcePtr source, const LoaderOptions& options, Schedule& schedule, const Assembler& assembler);

  // The batch on its device; the host waits for copies to a GPU.
  Batch upload(Fetch& fetch);
  // The batch on a GPU, in one of the places in turn, while the step before is computed.
  Batch upload(Fetch& fetch, cuda::Uploads::Places& places);

 private:
  Batch laid_out(const Fetch& fetch, const Tensor& x, const Tensor& y);
  // The same on a GPU, of what arrived there.
  Batch arrived(const Fetch& fetch, const Tensor& x, const Tensor& y) {
    return laid_out(fetch, widening_ ? (*widening_)(x) : x, y);
  }

  SourcePtr source_;
  const LoaderOptions& options_;
  Schedule& schedule_;
  const Assembler& assembler_;
  std::optional<Widening> widening_;  // of integers that arrive as they are stored
  cuda::Uploads uploads_;
};

}  // namespace mpigrad::data
