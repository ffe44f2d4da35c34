#pragma once
// Boxes of samples in memory: what is read, and what is kept of it.

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <unordered_map>
#include <vector>

#include "comm/distributed/grid.h"
#include "models/data/source.h"

namespace mpigrad::data {

// Memory for what is read, which is used again: fresh pages cost about as much as reading into them. Any thread.
struct ReleaseRoom {
  void operator()(std::byte* bytes) const;
};
using Room = std::unique_ptr<std::byte[], ReleaseRoom>;
Room take_room(std::int64_t bytes);

// A box of a sample, or of its targets, in memory or on its way there. Other threads write into it, so it waits before it goes.
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
// What is wanted of one sample: read one after the other, as one job, since a source that decodes whole samples would let the
// jobs beside the first one wait, each on a thread of its own. Who gives it up before it starts leaves failed reads.
class Reads {
 public:
  std::shared_future<void> add(std::packaged_task<void()> read);
  // Where the source wants it.
  void start(const Source& source);

 private:
  std::vector<std::packaged_task<void()>> reads_;
};

// A box, to be read with others of its sample; at once, and here, if it is in memory. The region goes before the source.
RegionPtr start_read(const SourcePtr& source, Region::Part part, std::int64_t sample, const Box& box, Reads& reads);
// Whether reading it has ended with an error.
bool failed(const Region& region);

// Reads boxes of samples, or of their targets, where the source wants it; keeps them if all that is ever asked for fits. For one
// thread.
class Regions {
 public:
  using Part = Region::Part;
  // `largest` holds every box that is ever asked for; `samples` are the different samples of this rank. bytes < 0: 1 GiB per
  // node.
  Regions(SourcePtr source, Part part, const Box& largest, std::size_t samples, std::int64_t bytes, const GridPtr& grid);
  // What has to be read for it is among `reads`.
  RegionPtr get(std::int64_t sample, const Box& box, Reads& reads);
  // Of those bytes, what is not for keeping these.
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
