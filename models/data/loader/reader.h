#pragma once
// Reads what a batch is made of: from files, out of what was kept of them, out of the store of all ranks, or together with other
// ranks. Not installed.

#include <cstdint>
#include <optional>
#include <vector>

#include "models/data/loader/fetch.h"
#include "models/data/loader/options.h"
#include "models/data/loader/regions.h"
#include "models/data/loader/schedule.h"
#include "models/data/loader/store.h"

namespace mpigrad::data {

class Reader {
 public:
  // Errors: bytes of a store or of pieces that are none. `schedule` outlives it.
  Reader(SourcePtr source, const LoaderOptions& options, Schedule& schedule);

  // Whether ranks read together, so that each plans all of a batch.
  bool needs_all() const { return store_.has_value(); }
  // Whether another thread may wait for what is read.
  bool any_thread() const { return !store_ || store_->any_thread(); }
  // Starts to read a batch that was planned. Collective where ranks read together; with `later` nothing is sent before
  // fetch.stored->finish().
  void read(Fetch& fetch, bool later);
  const std::optional<SampleStore>& store() const { return store_; }

 private:
  void take_from_store(Fetch& fetch, bool later);
  void read(Fetch::Item& item);

  SourcePtr source_;
  Schedule& schedule_;
  std::optional<Regions> values_, targets_;
  std::optional<SampleStore> store_;
};

}  // namespace mpigrad::data
