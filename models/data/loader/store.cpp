#include "models/data/loader/store.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
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

// Rows of targets are sent like cells: as the single cell of this box.
const Box& one_cell() {
  static const Box box{Shape{0, 0, 0}, Shape{1, 1, 1}};
  return box;
}

// Length of the reason that a rank receives instead of cells that could not be read. Messages of any size have room for it.
constexpr std::int64_t reason_bytes = 600;
std::int64_t message_bytes(std::int64_t cells) { return 1 + std::max(cells, reason_bytes); }

void set_reason(std::vector<std::byte>& message, const std::exception_ptr& error) {
  std::string text = "an exception that is not a std::exception";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    text = known.what();
  } catch (...) {
  }
  text.resize(std::min(text.size(), static_cast<std::size_t>(reason_bytes) - 1));
  message[0] = std::byte{1};
  std::memcpy(message.data() + 1, text.c_str(), text.size() + 1);
}

}  // namespace

// ---- StoreBatch

StoreBatch::~StoreBatch() {
  if (std::uncaught_exceptions() > exceptions_) {
    pending_.cancel();
    return;
  }
  try {
    finish();
  } catch (...) {  // peers get the same error
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
    // The first byte tells whether cells follow or the reason of an error: peers wait for the message in any case.
    peer.bytes.resize(static_cast<std::size_t>(message_bytes(bytes)));
    auto* to = peer.bytes.data() + 1;
    try {
      for (const auto& part : peer.parts) {
        part.from->ready.get();
        copy_cells(part.from->bytes.get(), part.from->box, part.box, part.box, part.cell, to);
        to += part.box.elements() * part.cell;
      }
    } catch (...) {
      if (!error_) error_ = std::current_exception();
      set_reason(peer.bytes, std::current_exception());
    }
    sends.push_back({.peer = rank, .tag = tag_, .data = peer.bytes.data(), .count = message_bytes(bytes)});
  }
  for (auto& [rank, peer] : receives_) {
    std::int64_t bytes = 0;
    for (const auto& part : peer.parts) bytes += part.box.elements() * part.cell;
    peer.bytes.resize(static_cast<std::size_t>(message_bytes(bytes)));
    receives.push_back({.peer = rank, .tag = tag_, .data = peer.bytes.data(), .count = message_bytes(bytes)});
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
    require(peer.bytes[0] == std::byte{0}, "[data] rank {} could not read a sample of this batch: {}", rank,
            reinterpret_cast<const char*>(peer.bytes.data() + 1));
    const auto* from = peer.bytes.data() + 1;
    for (const auto& part : peer.parts) {
      copy_cells(from, part.box, part.box, part.to->box, part.cell, part.to->bytes.get());
      from += part.box.elements() * part.cell;
    }
  }
  sends_.clear(), receives_.clear(), own_.clear();
}

// ---- SampleStore

SampleStore::SampleStore(SourcePtr source, GridPtr grid, std::int64_t bytes, std::int64_t piece_bytes)
    : source_(std::move(source)), grid_(std::move(grid)), limit_(bytes), piece_bytes_(piece_bytes) {
  require(bytes > 0 || (bytes == 0 && piece_bytes > 0), "[data] a store needs room for at least one byte, not {}", bytes);
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
    // Each group keeps the same number of samples, to within one.
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
    // Failed reads are repeated.
    if (block[p] && !failed(*block[p])) continue;
    if (!block[p]) bytes_ += box.elements() * cells[p];
    block[p] = start_read(source_, part, sample, box, reads);
  }
  reads.start(*source_);
  return block;
}

std::vector<SampleStore::Holder> SampleStore::pieces(int group, const std::vector<std::vector<Box>>& boxes,
                                                     std::int64_t turn) const {
  // For windows, only the cells that they need.
  Box all{Shape{0, 0, 0}, Shape{0, 0, 0}};
  for (const auto& of_rank : boxes)
    for (const auto& box : of_rank) {
      if (box.elements() == 0) continue;
      if (all.elements() == 0) all = box;
      for (int a = 0; a < 3; ++a)
        all.begin[a] = std::min(all.begin[a], box.begin[a]), all.end[a] = std::max(all.end[a], box.end[a]);
    }
  const auto planes = all.extents()[0];
  if (all.elements() == 0) return {};
  const auto& ranks = members(group);
  const auto [values, targets] = cell_bytes();
  const auto most = std::min(static_cast<std::int64_t>(ranks.size()), planes);
  const auto readers = std::clamp<std::int64_t>(all.elements() * (values + targets) / piece_bytes_, 1, most);
  const auto cuts = balanced_cuts(planes, static_cast<int>(readers));
  // Consecutive ranks are on one node and have adjacent blocks: each piece is read by one rank of its own row of consecutive
  // ranks, in turns.
  const auto row = [&](std::int64_t piece) { return piece * static_cast<std::int64_t>(ranks.size()) / readers; };
  std::vector<Holder> result;
  for (std::int64_t piece = 0; piece < readers; ++piece) {
    const auto reader = row(piece) + turn % (row(piece + 1) - row(piece));
    const auto at = static_cast<std::size_t>(piece);
    auto box = all;
    box.begin[0] = all.begin[0] + cuts[at], box.end[0] = all.begin[0] + cuts[at + 1];
    result.push_back({ranks[static_cast<std::size_t>(reader)], box});
  }
  return result;
}

void SampleStore::deliver(StoreBatch& to, Region::Part part, std::size_t i, int group, const std::vector<Holder>& holders,
                          const RegionPtr& block, const std::function<std::vector<Box>(int rank)>& boxes) const {
  const auto p = static_cast<std::size_t>(part);
  const auto& target = source_->target_type();
  const auto cell =
      part == Region::Part::values || target.per_cell ? cell_bytes()[p] : target.shape.elements() * size_of(target.type);
  const int me = rank();
  if (block)
    for (const int rank : members(group)) {
      if (rank == me) continue;
      for (const auto& box : boxes(rank))
        if (const auto both = intersection(block->box, box); both.elements() > 0)
          to.sends_[rank].parts.push_back({.from = block, .to = {}, .box = both, .cell = cell});
    }
  if (group != group_of(me)) return;
  for (const auto& box : boxes(me)) {
    if (block && holds(block->box, box)) {
      to.regions_[p][i].push_back(block);
      continue;
    }
    auto region = std::make_shared<Region>();
    region->box = box, region->ready = at_once();
    region->bytes = take_room(box.elements() * cell);
    to.regions_[p][i].push_back(region);
    for (const auto& holder : holders) {
      const auto both = intersection(holder.box, box);
      if (both.elements() == 0) continue;
      if (holder.rank == me) to.own_.push_back({.from = block, .to = region, .box = both, .cell = cell});
      else to.receives_[holder.rank].parts.push_back({.from = {}, .to = region, .box = both, .cell = cell});
    }
  }
}

void SampleStore::read_together(StoreBatch& to, std::size_t i, const Wanted& wanted, const BoxesOf& boxes) const {
  const int me = rank();
  const auto& ranks = members(wanted.group);
  std::vector<std::vector<Box>> all;
  for (const int rank : ranks) all.push_back(boxes(i, rank));
  const auto turn = batches_ + static_cast<std::int64_t>(i);
  const auto holders = pieces(wanted.group, all, turn);
  const auto boxes_of = [&](int rank) {
    return all[static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin())];
  };
  Reads reads;
  const auto block_in = [&](Region::Part part, const std::vector<Holder>& of) -> RegionPtr {
    const auto mine = std::find_if(of.begin(), of.end(), [&](const auto& holder) { return holder.rank == me; });
    return mine == of.end() ? nullptr : start_read(source_, part, wanted.sample, mine->box, reads);
  };
  deliver(to, Region::Part::values, i, wanted.group, holders, block_in(Region::Part::values, holders), boxes_of);
  if (cells_have_targets()) {
    deliver(to, Region::Part::targets, i, wanted.group, holders, block_in(Region::Part::targets, holders), boxes_of);
  } else if (!source_->targets_in_memory() && source_->target_type().shape.elements() > 0) {
    // A row of targets is read by a rank that reads the sample anyway.
    const auto reader = holders.empty() ? ranks[static_cast<std::size_t>(turn) % ranks.size()] : holders.front().rank;
    const std::vector<Holder> row{{reader, one_cell()}};
    deliver(to, Region::Part::targets, i, wanted.group, row, block_in(Region::Part::targets, row),
            [](int) { return std::vector<Box>{one_cell()}; });
  }
  reads.start(*source_);
}

std::shared_ptr<StoreBatch> SampleStore::start(const std::vector<Wanted>& batch, const BoxesOf& boxes, bool later) {
  if (grid_ && !transport_) {
    transport_ = grid_->world().transport().control();
    std::array<std::int64_t, 2> agreed{limit_, piece_bytes_};
    transport_->allreduce(agreed.data(), agreed.data(), 2, DType::int64, CombineOp::min);
    limit_ = agreed[0], piece_bytes_ = agreed[1];
  }
  std::shared_ptr<StoreBatch> result(new StoreBatch());
  auto& to = *result;
  for (auto& each : to.regions_) each.resize(batch.size());
  const int me = rank(), mine = group_of(me);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const auto [sample, group] = batch[i];
    const int keeper_group = keeper(sample, group);
    if (keeper_group < 0) {
      if (piece_bytes_ > 0 && group == mine) read_together(to, i, batch[i], boxes);
      continue;
    }
    const bool keeps = keeper_group == mine;
    if (!keeps && group != mine) continue;
    const Block block = keeps ? read(sample) : Block{};
    std::vector<Holder> holders;
    for (const int rank : members(keeper_group)) holders.push_back({rank, block_of(sample, rank)});
    const auto boxes_of = [&](int rank) { return boxes(i, rank); };
    deliver(to, Region::Part::values, i, group, holders, block[0], boxes_of);
    if (cells_have_targets()) deliver(to, Region::Part::targets, i, group, holders, block[1], boxes_of);
  }
  to.transport_ = transport_;
  if (transport_) to.tag_ = static_cast<int>(batches_ % std::min(transport_->max_tag(), 1 << 14));
  ++batches_;
  if (!later && to.ready()) to.post();
  return result;
}

}  // namespace mpigrad::data
