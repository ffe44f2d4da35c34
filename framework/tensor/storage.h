#ifndef MPIGRAD_FRAMEWORK_TENSOR_STORAGE_H
#define MPIGRAD_FRAMEWORK_TENSOR_STORAGE_H
// Memory of tensors: reference-counted blocks from a pooled allocator with statistics.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "framework/tensor/device.h"

namespace mpigrad {

class Storage {
 public:
  // Uninitialised memory, 64-byte aligned; on a GPU that of this thread. On the dry device nothing is allocated, but the bytes
  // are counted. The first and the last `room` bytes belong to no tensor until claim_room().
  Storage(std::int64_t bytes, DeviceKind device, std::int64_t room = 0);
  // Of a stand-in, for a tensor of other ranks (comm/distributed/stages.h): on the dry device, and not counted.
  static std::shared_ptr<Storage> stand_in(std::int64_t bytes);
  bool is_stand_in() const { return stand_in_; }
  // Memory that the caller owns. `keep_alive` is released with the last tensor; on a GPU the host first waits for the compute
  // stream. If it is not writable, Tensor::mutable_data() and optimizers refuse it.
  Storage(void* memory, std::int64_t bytes, DeviceKind device, std::shared_ptr<const void> keep_alive, bool writable = true);
  // Bytes [offset, offset + bytes) of other storage, which they keep alive.
  Storage(std::shared_ptr<Storage> whole, std::int64_t offset, std::int64_t bytes);
  bool part() const { return part_; }
  // Storage of the same memory, whose accesses do not wait for elements that arrive. Only of a part.
  std::shared_ptr<Storage> alias() const;
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  // Elements that are still on their way to memory, such as weights that other ranks update.
  class Arrival {
   public:
    virtual ~Arrival() = default;
    // Waits for all elements and writes those that belong to `data`. Called by the first access to each storage that waits for
    // this arrival, possibly by several threads at a time.
    virtual void finish(std::byte* data) = 0;
  };
  // The next access calls arrival->finish(). Every reader gets its pointer from data(), and therefore the new elements.
  void await(std::shared_ptr<Arrival> arrival);
  // Storage whose memory is allocated by its first access, and filled by `arrival`.
  static std::shared_ptr<Storage> arriving(std::int64_t bytes, DeviceKind device, std::shared_ptr<Arrival> arrival);
  // Waits as an access does, but does not restore dropped memory.
  void wait() const {
    if (incomplete_.load(std::memory_order_acquire) && !dropped_) complete();
  }
  // The last one, also after it has finished.
  const std::shared_ptr<Arrival>& arrival() const { return arrival_; }

  std::int64_t room() const { return room_; }
  // True for the first caller only.
  bool claim_room() { return !room_claimed_.exchange(true); }
  // True for memory of the second constructor, which the caller owns.
  bool foreign() const { return foreign_; }
  bool writable() const { return writable_; }

  std::byte* data() const {
    if (incomplete_.load(std::memory_order_acquire)) complete();
    return data_;
  }
  std::int64_t bytes() const { return bytes_; }
  DeviceKind device() const { return device_; }

  // How often an optimizer, or a program that owns the memory, has changed elements; note_write() counts a change. Only for the
  // thread that uses the tensors.
  std::uint64_t writes() const { return writes_; }
  void note_write() { ++writes_; }

  // Attaches data to the elements for their lifetime: ghost planes around a block (comm/halos/ghosts.h).
  void keep_beside(std::shared_ptr<const void> what) { beside_ = std::move(what); }
  const std::shared_ptr<const void>& beside() const { return beside_; }

  // `compute` writes the bytes [begin, end) again as they were. It gets this storage, not owned.
  struct Recipe {
    std::int64_t begin = 0, end = 0;
    std::function<void(const std::shared_ptr<Storage>& storage)> compute;
  };
  void set_recipe(Recipe recipe) { recipe_ = std::make_unique<Recipe>(std::move(recipe)); }
  // Releases the memory; the next access allocates it and runs the recipe. Halos around the recipe's bytes are kept. Does nothing
  // without a recipe. Only for the thread that uses the tensor, after it has waited for all messages that read the memory.
  void drop();
  bool can_drop() const { return recipe_ != nullptr; }

 private:
  void allocate() const;
  void release() const;
  void restore() const;
  void complete() const;

  mutable std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0, room_ = 0;
  std::uint64_t writes_ = 0;
  DeviceKind device_ = DeviceKind::cpu;
  bool foreign_ = false, stand_in_ = false, writable_ = true;
  std::atomic<bool> room_claimed_{false};
  std::shared_ptr<const void> keep_alive_;
  bool part_ = false;  // of the storage keep_alive_
  std::unique_ptr<Recipe> recipe_;
  std::shared_ptr<const void> beside_;
  std::shared_ptr<Arrival> arrival_;
  mutable std::atomic<bool> incomplete_{false};  // the next access must restore() dropped elements, or wait for those that arrive
  mutable bool dropped_ = false, unallocated_ = false;
  mutable std::unique_ptr<Storage> around_;  // of dropped memory: the bytes before and after the recipe's
};

struct MemoryStatistics {
  std::int64_t current_bytes = 0;  // held by tensors now
  std::int64_t peak_bytes = 0;     // highest value of current_bytes since the last reset
  std::int64_t allocations = 0;    // calls so far
};

// Statistics of all threads of this process; for the dry device those of this thread, because each dry rank is a thread.
MemoryStatistics memory_statistics(DeviceKind device);
void reset_peak_memory(DeviceKind device);

namespace detail {

// Copies and zeroes bytes in the memory of one device; does nothing on the dry device.
void copy_bytes(DeviceKind device, void* to, const void* from, std::int64_t bytes);
void zero_bytes(DeviceKind device, void* memory, std::int64_t bytes);

}  // namespace detail
}  // namespace mpigrad

#endif
