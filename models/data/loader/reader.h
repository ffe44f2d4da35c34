#pragma once
// Reads the data of a batch: from files, from the cache, from the store of all ranks, or together with other ranks. Not
// installed.

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
  // Errors: negative bytes of a store, invalid bytes of pieces. `schedule` must outlive it.
  Reader(SourcePtr source, const LoaderOptions& options, Schedule& schedule);

  // True if ranks read together, so that each plans the whole batch.
  bool needs_all() const { return store_.has_value(); }
  // True if another thread may wait for the data.
  bool any_thread() const { return !store_ || store_->any_thread(); }
  // Starts to read a planned batch. Collective where ranks read together; with `later` nothing is sent before
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
