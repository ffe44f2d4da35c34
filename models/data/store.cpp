#include "models/data/store.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "models/data/sources/bytes.h"

namespace mpigrad::data {
namespace {

std::shared_future<void> at_once() {
  std::promise<void> promise;
  promise.set_value();
  return promise.get_future().share();
}

bool is_ready(const Region& region) { return region.ready.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }

bool holds(const Box& outer, const Box& inner) { return intersection(outer, inner) == inner; }

}  // namespace

// ---- StoreBatch

StoreBatch::~StoreBatch() {
  if (std::uncaught_exceptions() > exceptions_) {
    pending_.cancel();
    return;
  }
  try {
    finish();
  } catch (...) {  // peers meet the same failure
  }
}

bool StoreBatch::ready() const {
  for (const auto& [rank, peer] : sends_)
    for (const auto& part : peer.parts)
      if (!is_ready(*part.from)) return false;
  return true;
}

void StoreBatch::post() {
  posted_ = true;
  std::vector<Message> sends, receives;
  for (auto& [rank, peer] : sends_) {
    std::int64_t bytes = 0;
    for (const auto& part : peer.parts) bytes += part.box.elements() * part.cell;
    // The first byte says whether the others are worth anything: peers wait for them in any case.
    peer.bytes.resize(static_cast<std::size_t>(bytes) + 1);
    auto* to = peer.bytes.data() + 1;
    try {
      for (const auto& part : peer.parts) {
        part.from->ready.get();
        copy_cells(part.from->bytes.get(), part.from->box, part.box, part.box, part.cell, to);
        to += part.box.elements() * part.cell;
      }
    } catch (...) {
      if (!error_) error_ = std::current_exception();
      peer.bytes[0] = std::byte{1};
    }
    sends.push_back({.peer = rank, .tag = tag_, .data = peer.bytes.data(), .count = bytes + 1});
  }
  for (auto& [rank, peer] : receives_) {
    std::int64_t bytes = 0;
    for (const auto& part : peer.parts) bytes += part.box.elements() * part.cell;
    peer.bytes.resize(static_cast<std::size_t>(bytes) + 1);
    receives.push_back({.peer = rank, .tag = tag_, .data = peer.bytes.data(), .count = bytes + 1});
  }
  if (!sends.empty() || !receives.empty()) pending_ = transport_->start_exchange(sends, receives, DType::uint8);
}

void StoreBatch::finish() {
  if (std::exchange(finished_, true)) return;
  if (!posted_) post();
  pending_.wait();
  if (error_) std::rethrow_exception(error_);
  for (const auto& part : own_) {
    part.from->ready.get();
    copy_cells(part.from->bytes.get(), part.from->box, part.box, part.to->box, part.cell, part.to->bytes.get());
  }
  for (const auto& [rank, peer] : receives_) {
    require(peer.bytes[0] == std::byte{0}, "[data] rank {}, which keeps it, could not read a sample of this batch and says why",
            rank);
    const auto* from = peer.bytes.data() + 1;
    for (const auto& part : peer.parts) {
      copy_cells(from, part.box, part.box, part.to->box, part.cell, part.to->bytes.get());
      from += part.box.elements() * part.cell;
    }
  }
  sends_.clear(), receives_.clear(), own_.clear();
}

// ---- SampleStore

SampleStore::SampleStore(SourcePtr source, GridPtr grid, std::int64_t bytes)
    : source_(std::move(source)), grid_(std::move(grid)), limit_(bytes) {
  require(bytes > 0, "[data] a store has room for some bytes, not {}", bytes);
  if (!grid_) {
    coordinates_ = {{0, 0, 0, 0}}, members_ = {{0}}, used_ = {0};
    return;
  }
  for (int rank = 0; rank < grid_->ranks(); ++rank) coordinates_.push_back(grid_->coordinates(rank));
  members_.resize(static_cast<std::size_t>(grid_->extents[0])), used_.resize(members_.size());
  const auto& mine = coordinates_[static_cast<std::size_t>(grid_->rank)];
  for (int rank = 0; rank < grid_->ranks(); ++rank) {
    const auto& theirs = coordinates_[static_cast<std::size_t>(rank)];
    if (std::equal(theirs.begin() + 4, theirs.end(), mine.begin() + 4, mine.end()))
      members_[static_cast<std::size_t>(theirs[0])].push_back(rank);
  }
}

std::array<std::int64_t, 2> SampleStore::cell_bytes() const {
  const auto& target = source_->target_type();
  return {source_->channels() * size_of(source_->type()), target.per_cell ? target.shape.elements() * size_of(target.type) : 0};
}

std::int64_t SampleStore::most_bytes(std::int64_t sample) const {
  const auto extents = source_->extents_of(sample);
  std::int64_t cells = 1;
  for (int a = 0; a < 3; ++a) {
    const std::int64_t parts = grid_ ? grid_->extents[static_cast<std::size_t>(a + 1)] : 1;
    cells *= (extents[a] + parts - 1) / parts;
  }
  const auto [values, targets] = cell_bytes();
  return cells * (values + targets);
}

std::int64_t SampleStore::room_for(const std::vector<std::int64_t>& samples) const {
  std::int64_t room = 0, left = limit_;
  const auto groups = static_cast<std::int64_t>(members_.size());
  for (const auto sample : samples) {
    const auto bytes = most_bytes(sample);
    if (bytes > left) continue;
    // Each group has as many, to within one.
    ++room;
    if (room % groups == 0) left -= bytes;
  }
  return room;
}

Box SampleStore::block_of(std::int64_t sample, int rank) const {
  const auto extents = source_->extents_of(sample);
  Box box{Shape{0, 0, 0}, extents};
  if (!grid_) return box;
  for (int a = 0; a < 3; ++a) {
    const auto axis = static_cast<std::size_t>(a + 1);
    const auto cuts = balanced_cuts(extents[a], grid_->extents[axis]);
    const auto at = static_cast<std::size_t>(coordinates_[static_cast<std::size_t>(rank)][axis]);
    box.begin[a] = cuts[at], box.end[a] = cuts[at + 1];
  }
  return box;
}

int SampleStore::keeper(std::int64_t sample, int group) {
  if (const auto found = kept_by_.find(sample); found != kept_by_.end()) return found->second;
  auto& used = used_[static_cast<std::size_t>(group)];
  const auto bytes = most_bytes(sample);
  if (used + bytes > limit_) return -1;
  used += bytes;
  kept_by_[sample] = group;
  return group;
}

const SampleStore::Block& SampleStore::read(std::int64_t sample) {
  auto& block = kept_[sample];
  const auto box = block_of(sample, rank());
  const auto cells = cell_bytes();
  Reads reads;
  for (const auto part : {Region::Part::values, Region::Part::targets}) {
    const auto p = static_cast<std::size_t>(part);
    if (part == Region::Part::targets && !cells_have_targets()) continue;
    // What could not be read is asked for again.
    if (block[p] && !failed(*block[p])) continue;
    if (!block[p]) bytes_ += box.elements() * cells[p];
    block[p] = start_read(source_, part, sample, box, reads);
  }
  reads.start(*source_);
  return block;
}

std::shared_ptr<StoreBatch> SampleStore::start(const std::vector<Wanted>& batch, const BoxesOf& boxes, bool later) {
  if (grid_ && !transport_) {
    transport_ = grid_->world().transport().control();
    transport_->allreduce(&limit_, &limit_, 1, DType::int64, CombineOp::min);
  }
  std::shared_ptr<StoreBatch> result(new StoreBatch());
  auto& to = *result;
  const auto cells = cell_bytes();
  const std::size_t parts = cells_have_targets() ? 2 : 1;
  for (auto& each : to.regions_) each.resize(batch.size());
  const int me = rank(), mine = group_of(me);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const auto [sample, group] = batch[i];
    const int keeper_group = keeper(sample, group);
    if (keeper_group < 0) continue;
    const bool keeps = keeper_group == mine;
    const Block block = keeps ? read(sample) : Block{};
    const auto own = block_of(sample, me);
    if (keeps)
      for (const int rank : members(group)) {
        if (rank == me) continue;
        for (std::size_t p = 0; p < parts; ++p)
          for (const auto& box : boxes(i, rank))
            if (const auto both = intersection(own, box); both.elements() > 0)
              to.sends_[rank].parts.push_back({.from = block[p], .to = {}, .box = both, .cell = cells[p]});
      }
    if (group != mine) continue;
    for (std::size_t p = 0; p < parts; ++p)
      for (const auto& box : boxes(i, me)) {
        if (keeps && holds(own, box)) {
          to.regions_[p][i].push_back(block[p]);
          continue;
        }
        auto region = std::make_shared<Region>();
        region->box = box, region->ready = at_once();
        region->bytes = take_room(box.elements() * cells[p]);
        to.regions_[p][i].push_back(region);
        for (const int rank : members(keeper_group)) {
          const auto both = intersection(block_of(sample, rank), box);
          if (both.elements() == 0) continue;
          if (rank == me) to.own_.push_back({.from = block[p], .to = region, .box = both, .cell = cells[p]});
          else to.receives_[rank].parts.push_back({.from = {}, .to = region, .box = both, .cell = cells[p]});
        }
      }
  }
  to.transport_ = transport_;
  if (transport_) to.tag_ = static_cast<int>(batches_++ % std::min(transport_->max_tag(), 1 << 14));
  if (!later && to.ready()) to.post();
  return result;
}

}  // namespace mpigrad::data
