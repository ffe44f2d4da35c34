#pragma once
// Samples that stay in the memory of the ranks. Ranks along a grid's axis `sample` share the samples: the first of them that
// needs one reads it and keeps it, each rank of its volume its own block as the file has it, and whoever needs cells of it in a
// later batch gets them as a message. So a file is read once, by all ranks together, and an epoch is shuffled, flipped and
// shifted between memories. Where they do not suffice, what fits is kept and the rest is read from the files in every epoch.
//
// Collective reading is the same without keeping: some of the ranks that share a sample read it from the file, each a piece of
// whole planes as they lie there, and all of them get the blocks that they need, ghost planes and targets included, as messages.
// So a file has few readers, every cell is read once, and what is read lies together, whatever the grid. It is done by messages
// of our own and not by HDF5's collective transfers (MPI-IO): those are calls that all ranks make in one order from the threads
// that read, beside the training's own, of which one rank's failure leaves the others waiting; they do not exist for ranks that
// are threads; and where numbers are converted or chunks filtered, HDF5 falls back to others. Messages work on every transport
// and for every format.

#include <array>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "comm/distributed/grid.h"
#include "models/data/loader/regions.h"
#include "models/data/source.h"

namespace mpigrad::data {

class SampleStore;

// The boxes of one batch's samples on their way to this rank.
class StoreBatch {
 public:
  // Sends too: peers wait for that; not where an exception ends this rank, and with it the others.
  ~StoreBatch();
  StoreBatch(const StoreBatch&) = delete;
  StoreBatch& operator=(const StoreBatch&) = delete;

  // Of the i-th sample of the batch, which is this rank's: one region for each of its boxes; empty where the sample is not kept
  // and has to be read. Filled after finish().
  const std::vector<RegionPtr>& values(std::size_t i) const { return regions_[0][i]; }
  const std::vector<RegionPtr>& targets(std::size_t i) const { return regions_[1][i]; }
  // Waits for what is under way. Errors: what reading a sample says, on the rank that reads it and on those that get it from
  // there.
  void finish();

 private:
  friend class SampleStore;
  StoreBatch() = default;

  // A box of a kept block that goes to a rank, or of one that comes from it; to this rank itself without a message.
  struct Part {
    RegionPtr from, to;  // what it is copied out of; what it is copied into
    Box box;
    std::int64_t cell = 1;  // bytes
  };
  struct Peer {
    std::vector<Part> parts;
    std::vector<std::byte> bytes;
  };
  bool ready() const;  // whether what is sent has been read
  void post();

  std::array<std::vector<std::vector<RegionPtr>>, 2> regions_;
  std::vector<Part> own_;
  std::map<int, Peer> sends_, receives_;  // by rank
  std::shared_ptr<Transport> transport_;
  int tag_ = 0;
  bool posted_ = false, finished_ = false;
  std::exception_ptr error_;  // of what was to be sent
  int exceptions_ = std::uncaught_exceptions();
  Pending pending_;  // after what it reads and writes
};

class SampleStore {
 public:
  // `bytes` of each rank: the least that a rank names counts. Without a grid the store of one rank. With piece_bytes > 0 what is
  // not kept is read collectively, in pieces of so many bytes or more; there, too, the least counts.
  SampleStore(SourcePtr source, GridPtr grid, std::int64_t bytes, std::int64_t piece_bytes = 0);

  // The i-th sample of a batch, and which ranks along the axis `sample` it is for.
  struct Wanted {
    std::int64_t sample = 0;
    int group = 0;
  };
  // The boxes of the i-th sample that a rank of the grid needs of its values (and of its targets, where cells have some).
  using BoxesOf = std::function<std::vector<Box>(std::size_t i, int rank)>;
  // Collective over the grid, for the same batches in the same order. With `later` nothing is sent before finish(), which another
  // thread may call then, of one batch after the other.
  std::shared_ptr<StoreBatch> start(const std::vector<Wanted>& batch, const BoxesOf& boxes, bool later = false);
  // Whether another thread may call finish().
  bool any_thread() const { return !grid_ || grid_->world().transport().any_thread(); }

  // Samples that are kept, by all ranks together, and the bytes of them here.
  std::int64_t samples() const { return static_cast<std::int64_t>(kept_by_.size()); }
  std::int64_t bytes() const { return bytes_; }
  // Of all samples of these numbers, how many fit.
  std::int64_t room_for(const std::vector<std::int64_t>& samples) const;

 private:
  using Block = std::array<RegionPtr, 2>;  // values, targets
  // Who has which cells of a sample.
  struct Holder {
    int rank = 0;
    Box box;
  };

  bool cells_have_targets() const { return source_->target_type().per_cell; }
  // Bytes of a cell: of the values, of the targets.
  std::array<std::int64_t, 2> cell_bytes() const;
  // The most that any rank keeps of a sample, the same on all of them.
  std::int64_t most_bytes(std::int64_t sample) const;
  Box block_of(std::int64_t sample, int rank) const;  // of a rank of the grid
  int ranks() const { return grid_ ? grid_->ranks() : 1; }
  int rank() const { return grid_ ? grid_->rank : 0; }
  int group_of(int rank) const { return coordinates_[static_cast<std::size_t>(rank)][0]; }
  // Ranks that have blocks of the samples of a group, and this one's place on the axes that do not split them.
  const std::vector<int>& members(int group) const { return members_[static_cast<std::size_t>(group)]; }
  // The group that keeps a sample, with those that `group` would from now on; -1: none.
  int keeper(std::int64_t sample, int group);
  const Block& read(std::int64_t sample);
  // Which of the ranks that share a sample read which cells of it, so that together they have every box of `boxes`; other ones
  // for every `turn`.
  std::vector<Holder> pieces(int group, const std::vector<std::vector<Box>>& boxes, std::int64_t turn) const;
  // Has a part's boxes of the i-th sample copied from the holders, of which `block` is this rank's, to the ranks of a group.
  void deliver(StoreBatch& to, Region::Part part, std::size_t i, int group, const std::vector<Holder>& holders,
               const RegionPtr& block, const std::function<std::vector<Box>(int rank)>& boxes) const;
  // The i-th sample, which is this rank's, and not kept.
  void read_together(StoreBatch& to, std::size_t i, const Wanted& wanted, const BoxesOf& boxes) const;

  SourcePtr source_;
  GridPtr grid_;
  std::shared_ptr<Transport> transport_;  // made with the first batch, as the limit is agreed on
  std::int64_t limit_ = 0, piece_bytes_ = 0, bytes_ = 0, batches_ = 0;
  std::vector<std::vector<int>> coordinates_;      // of every rank
  std::vector<std::vector<int>> members_;          // by group
  std::vector<std::int64_t> used_;                 // bytes, by group, as most_bytes() counts them
  std::unordered_map<std::int64_t, int> kept_by_;  // by sample: its group
  std::unordered_map<std::int64_t, Block> kept_;   // here
};

}  // namespace mpigrad::data
