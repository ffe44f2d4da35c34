#pragma once
// Boxes of samples in memory: data being read, and data kept.

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <unordered_map>
#include <vector>

#include "comm/distributed/grid.h"
#include "models/data/source.h"

namespace mpigrad::data {

// Memory for read data, which is reused: fresh pages cost about as much as reading into them. Thread-safe.
struct ReleaseRoom {
  void operator()(std::byte* bytes) const;
};
using Room = std::unique_ptr<std::byte[], ReleaseRoom>;
Room take_room(std::int64_t bytes);

// A box of a sample, or of its targets, in memory or being read. Other threads write into it, so its destructor waits.
struct Region {
  enum class Part : std::uint8_t { values, targets };
  Box box;
  Room bytes;
  std::shared_future<void> ready;

  Region() = default;
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region() {
    if (ready.valid()) ready.wait();
  }
};
using RegionPtr = std::shared_ptr<Region>;
// Reads of one sample, run one after the other as one job: as separate jobs, a source that decodes whole samples would make each
// of them wait on a thread of its own. Destroying it before start() makes its reads fail.
class Reads {
 public:
  std::shared_future<void> add(std::packaged_task<void()> read);
  // Runs the reads on the source's queue.
  void start(const Source& source);

 private:
  std::vector<std::packaged_task<void()>> reads_;
};

// Adds a box to the reads of its sample; a source in memory is read at once, on this thread. The region must not outlive the
// source.
RegionPtr start_read(const SourcePtr& source, Region::Part part, std::int64_t sample, const Box& box, Reads& reads);
// True if reading the region has ended with an error.
bool failed(const Region& region);

// Reads boxes of samples, or of their targets, on the source's queue; keeps them if everything that is ever asked for fits. Not
// thread-safe.
class Regions {
 public:
  using Part = Region::Part;
  // `largest` contains every box that is ever asked for; `samples` is the number of different samples of this rank. bytes < 0: 1
  // GiB per node.
  Regions(SourcePtr source, Part part, const Box& largest, std::size_t samples, std::int64_t bytes, const GridPtr& grid);
  // The region of a box; what must be read for it is added to `reads`.
  RegionPtr get(std::int64_t sample, const Box& box, Reads& reads);
  // The part of `bytes` that is not used for keeping regions.
  std::int64_t left() const { return left_; }

 private:
  SourcePtr source_;
  Part part_;
  Box largest_;
  bool keep_ = false;
  std::int64_t left_ = 0;
  std::unordered_map<std::int64_t, RegionPtr> kept_;
};

}  // namespace mpigrad::data
