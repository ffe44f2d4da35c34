#include "models/data/loader/regions.h"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "framework/base/host_memory.h"
#include "framework/base/host_pool.h"
#include "framework/base/job_queue.h"

namespace mpigrad::data {

namespace {

// Never destroyed, because regions may outlive it otherwise.
HostPool& rooms() {
  static HostPool* instance =
      new HostPool(static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
  return *instance;
}

}  // namespace

void ReleaseRoom::operator()(std::byte* bytes) const { rooms().release(bytes); }
Room take_room(std::int64_t bytes) { return Room(rooms().allocate(static_cast<std::size_t>(bytes))); }

namespace {

// True if the part is read on the calling thread.
bool reads_here(const Source& source, Region::Part part) {
  return part == Region::Part::values ? source.in_memory() : source.targets_in_memory();
}

std::int64_t bytes_of(const Source& source, Region::Part part, const Box& box) {
  if (part == Region::Part::targets) return target_elements(source, box) * size_of(source.target_type().type);
  return box.elements() * source.channels() * size_of(source.type());
}

}  // namespace

std::shared_future<void> Reads::add(std::packaged_task<void()> read) {
  reads_.push_back(std::move(read));
  return reads_.back().get_future().share();
}

void Reads::start(const Source& source) {
  if (reads_.empty()) return;
  source.queue().submit([reads = std::exchange(reads_, {})]() mutable {
    for (auto& read : reads) read();
  });
}

// Regions, cached or not, are destroyed before the source, so a job may hold its address.
RegionPtr start_read(const SourcePtr& source, Region::Part part, std::int64_t sample, const Box& box, Reads& reads) {
  auto region = std::make_shared<Region>();
  region->box = box;
  const auto bytes = bytes_of(*source, part, box);
  if (bytes > (std::int64_t{1} << 26))
    require_host_memory(fmt::format("[data] {}: the cells {}", source->name_of_sample(sample), to_string(box)),
                        static_cast<double>(bytes));
  region->bytes = take_room(bytes);
  std::packaged_task<void()> read([source = source.get(), part, sample, box, to = region->bytes.get()] {
    if (part == Region::Part::values) source->read(sample, box, to);
    else source->read_targets(sample, box, to);
  });
  if (reads_here(*source, part)) {
    region->ready = read.get_future().share();
    read();
  } else {
    region->ready = reads.add(std::move(read));
  }
  return region;
}

bool failed(const Region& region) {
  if (region.ready.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
  try {
    region.ready.get();
    return false;
  } catch (...) {
    return true;
  }
}

Regions::Regions(SourcePtr source, Part part, const Box& largest, std::size_t samples, std::int64_t bytes, const GridPtr& grid)
    : source_(std::move(source)), part_(part), largest_(largest) {
  const auto budget = bytes >= 0 ? bytes : (std::int64_t{1} << 30) / (grid ? grid->world().transport().node_size() : 1);
  constexpr double around = 1024;  // bytes of a region in addition to its elements
  const auto all = (static_cast<double>(bytes_of(*source_, part, largest)) + around) * static_cast<double>(samples);
  keep_ = !reads_here(*source_, part) && all <= static_cast<double>(budget);
  left_ = budget - (keep_ ? static_cast<std::int64_t>(all) : 0);
}

// The region that contains `box`: a cached region of a sample contains every box that is ever asked for.
RegionPtr Regions::get(std::int64_t sample, const Box& box, Reads& reads) {
  if (!keep_) return start_read(source_, part_, sample, box, reads);
  auto& found = kept_[sample];
  if (!found || failed(*found)) found = start_read(source_, part_, sample, largest_, reads);  // failed reads are repeated
  return found;
}

}  // namespace mpigrad::data
