#pragma once
// A store that keeps samples in the memory of the ranks. Ranks along a grid's axis `sample` share the samples: the first group of
// ranks that needs a sample reads it and keeps it, each rank its own block as stored in the file. Ranks that need cells of it in
// a later batch receive them as messages. So each file is read once by all ranks together, and later epochs shuffle, flip and
// shift between memories. If the memory is too small, some samples are kept, and the rest is read from the files in every epoch.
//
// Collective reading works in the same way without keeping: some of the ranks that share a sample read it from the file, each a
// contiguous piece of whole planes, and all of them receive the blocks that they need, including ghost planes and targets, as
// messages. So a file has few readers, every cell is read once, and reads are contiguous, whatever the grid. We use our own
// messages, not HDF5's collective transfers (MPI-IO), for three reasons: all ranks must make those calls in one order, from
// reading threads that run concurrently with the training's own, and if one rank fails, the others wait; they do not exist for
// the threads transport; and where numbers are converted or chunks filtered, HDF5 falls back to independent transfers. Messages
// work on every transport and for every format.

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

// The boxes of one batch's samples, on their way to this rank.
class StoreBatch {
 public:
  // Sends pending messages, because peers wait for them, unless an exception ends this rank and with it the others.
  ~StoreBatch();
  StoreBatch(const StoreBatch&) = delete;
  StoreBatch& operator=(const StoreBatch&) = delete;

  // The regions of the i-th sample of the batch, which must be this rank's: one for each of its boxes; empty where the sample is
  // not kept and must be read. Filled after finish().
  const std::vector<RegionPtr>& values(std::size_t i) const { return regions_[0][i]; }
  const std::vector<RegionPtr>& targets(std::size_t i) const { return regions_[1][i]; }
  // Waits for pending reads and messages. Errors: a read error of a sample, on the rank that reads it and on the ranks that
  // receive it.
  void finish();

 private:
  friend class SampleStore;
  StoreBatch() = default;

  // A box of a kept block that is sent to a rank, or received from one; for this rank itself it is copied without a message.
  struct Part {
    RegionPtr from, to;  // source and destination of the copy
    Box box;
    std::int64_t cell = 1;  // bytes per cell
  };
  struct Peer {
    std::vector<Part> parts;
    std::vector<std::byte> bytes;
  };
  bool ready() const;  // true if the data to send has been read
  void post();

  std::array<std::vector<std::vector<RegionPtr>>, 2> regions_;
  std::vector<Part> own_;
  std::map<int, Peer> sends_, receives_;  // by rank
  std::shared_ptr<Transport> transport_;
  int tag_ = 0;
  bool posted_ = false, finished_ = false;
  std::exception_ptr error_;  // of the data to send
  int exceptions_ = std::uncaught_exceptions();
  Pending pending_;  // declared after the data that it reads and writes
};

class SampleStore {
 public:
  // `bytes` per rank; the least of all ranks' values applies. Without a grid, the store of one rank. With piece_bytes > 0,
  // samples that are not kept are read collectively, in pieces of at least that many bytes; again the least of all ranks' values
  // applies.
  SampleStore(SourcePtr source, GridPtr grid, std::int64_t bytes, std::int64_t piece_bytes = 0);

  // The i-th sample of a batch, and the coordinate along the axis `sample` of the ranks that need it.
  struct Wanted {
    std::int64_t sample = 0;
    int group = 0;
  };
  // The boxes of the i-th sample that a rank of the grid needs of its values (and of its targets, where they are per cell).
  using BoxesOf = std::function<std::vector<Box>(std::size_t i, int rank)>;
  // Collective over the grid, for the same batches in the same order. With `later` nothing is sent before finish(), which another
  // thread may then call, for one batch after the other.
  std::shared_ptr<StoreBatch> start(const std::vector<Wanted>& batch, const BoxesOf& boxes, bool later = false);
  // True if another thread may call finish().
  bool any_thread() const { return !grid_ || grid_->world().transport().any_thread(); }

  // The number of samples kept by all ranks together, and the bytes kept on this rank.
  std::int64_t samples() const { return static_cast<std::int64_t>(kept_by_.size()); }
  std::int64_t bytes() const { return bytes_; }
  // How many of these samples fit in the store.
  std::int64_t room_for(const std::vector<std::int64_t>& samples) const;

 private:
  using Block = std::array<RegionPtr, 2>;  // values, targets
  // The rank that holds a box of a sample.
  struct Holder {
    int rank = 0;
    Box box;
  };

  bool cells_have_targets() const { return source_->target_type().per_cell; }
  // Bytes of a cell: of the values, of the targets.
  std::array<std::int64_t, 2> cell_bytes() const;
  // The largest number of bytes that any rank keeps of a sample; the same on all ranks.
  std::int64_t most_bytes(std::int64_t sample) const;
  Box block_of(std::int64_t sample, int rank) const;  // of a rank of the grid
  int ranks() const { return grid_ ? grid_->ranks() : 1; }
  int rank() const { return grid_ ? grid_->rank : 0; }
  int group_of(int rank) const { return coordinates_[static_cast<std::size_t>(rank)][0]; }
  // The ranks that have blocks of the samples of a group, at this rank's place on the axes that do not split them.
  const std::vector<int>& members(int group) const { return members_[static_cast<std::size_t>(group)]; }
  // The group that keeps a sample; if there is room, `group` becomes its keeper. -1: none.
  int keeper(std::int64_t sample, int group);
  const Block& read(std::int64_t sample);
  // Distributes reading among the ranks that share a sample, so that together they read every box of `boxes`; other ranks read
  // for every `turn`.
  std::vector<Holder> pieces(int group, const std::vector<std::vector<Box>>& boxes, std::int64_t turn) const;
  // Copies the boxes of one part of the i-th sample from the holders to the ranks of a group. `block` is this rank's data as a
  // holder.
  void deliver(StoreBatch& to, Region::Part part, std::size_t i, int group, const std::vector<Holder>& holders,
               const RegionPtr& block, const std::function<std::vector<Box>(int rank)>& boxes) const;
  // Reads the i-th sample, which is this rank's and not kept, collectively.
  void read_together(StoreBatch& to, std::size_t i, const Wanted& wanted, const BoxesOf& boxes) const;

  SourcePtr source_;
  GridPtr grid_;
  std::shared_ptr<Transport> transport_;  // made with the first batch, when the ranks agree on the limit
  std::int64_t limit_ = 0, piece_bytes_ = 0, bytes_ = 0, batches_ = 0;
  std::vector<std::vector<int>> coordinates_;      // of every rank
  std::vector<std::vector<int>> members_;          // by group
  std::vector<std::int64_t> used_;                 // bytes by group, as counted by most_bytes()
  std::unordered_map<std::int64_t, int> kept_by_;  // the group that keeps each sample
  std::unordered_map<std::int64_t, Block> kept_;   // on this rank
};

}  // namespace mpigrad::data
