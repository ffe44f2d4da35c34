#include "models/data/loader/reader.h"

#include <cstddef>
#include <utility>

#include "framework/base/error.h"

namespace mpigrad::data {

Reader::Reader(SourcePtr source, const LoaderOptions& o, Schedule& schedule) : source_(std::move(source)), schedule_(schedule) {
  // Windows are elsewhere in each epoch, so they are not cached here; a source that keeps samples should cache them.
  const auto& largest = schedule.moves_cells() ? source_->whole() : schedule.spatial();
  require(o.store_bytes >= 0, "[data] the bytes of a store must not be negative, not {}", o.store_bytes);
  require(o.piece_bytes > 0, "[data] the bytes of pieces that are read collectively must be positive, not {}", o.piece_bytes);
  const bool together = (o.store_bytes > 0 || o.collective) && !source_->in_memory();
  const auto cache = together ? 0 : o.cache_bytes;
  const auto samples = schedule.steps().samples.size();
  values_.emplace(source_, Regions::Part::values, largest, samples, o.crop ? 0 : cache, o.grid);
  targets_.emplace(source_, Regions::Part::targets, largest, samples,
                   source_->target_type().per_cell ? values_->left() : o.cache_bytes, o.grid);
  if (together) store_.emplace(source_, o.grid, o.store_bytes, o.collective ? o.piece_bytes : 0);
}

void Reader::read(Fetch& fetch, bool later) {
  if (store_) take_from_store(fetch, later);
  for (auto& item : fetch.items) read(item);
}

// Requests the regions of a sample's block that the store does not have.
void Reader::read(Fetch::Item& item) {
  const bool stored = !item.regions.empty();
  const bool per_cell = source_->target_type().per_cell;
  Reads reads;
  for (const auto& piece : item.pieces) {
    if (!stored) item.regions.push_back(values_->get(item.sample, piece.box, reads));
    if (!stored && per_cell) item.targets.push_back(targets_->get(item.sample, piece.box, reads));
  }
  if (!per_cell && item.targets.empty()) item.targets.push_back(targets_->get(item.sample, schedule_.spatial(), reads));
  reads.start(*source_);
}

// Keeps only this rank's samples of the batch, with their regions if the store has them.
void Reader::take_from_store(Fetch& fetch, bool later) {
  auto batch = std::exchange(fetch.items, {});
  const auto& layout = schedule_.layouts(fetch.n).x;
  std::vector<SampleStore::Wanted> wanted;
  int group = 0;
  for (std::int64_t i = 0; i < fetch.n; ++i) {
    if (layout && layout->axes[0].placement == Placement::split)
      while (layout->axes[0].cuts[static_cast<std::size_t>(group) + 1] <= i) ++group;
    wanted.push_back({batch[static_cast<std::size_t>(i)].sample, group});
  }
  const auto boxes = [&](std::size_t i, int rank) {
    std::vector<Box> result;
    for (const auto& piece : schedule_.pieces_of_rank(batch[i], layout, rank)) result.push_back(piece.box);
    return result;
  };
  fetch.stored = store_->start(wanted, boxes, later);
  const int mine = layout ? layout->grid->coordinates(layout->grid->rank)[0] : 0;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (wanted[i].group != mine) continue;
    auto& item = fetch.items.emplace_back(std::move(batch[i]));
    item.regions = fetch.stored->values(i), item.targets = fetch.stored->targets(i);
  }
}

}  // namespace mpigrad::data
