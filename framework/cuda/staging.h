#pragma once
// Transfers between the host and this thread's GPU that overlap with steps: batches to the GPU, single values back to the host.
// Neither makes the host wait for a step just issued to the GPU.

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "framework/cuda/cuda.h"
#include "framework/tensor/tensor.h"

namespace mpigrad::cuda {

// Like copy(), from pinned memory to the GPU; counted in bytes_to_device.
void copy_from_pinned(void* to, const void* from, std::int64_t bytes, Stream stream);

// y[i] = table[x[i]] on the compute stream. x: integers of 8 or 16 bits; `table`: float32 or float64, as y, an element for each
// bit pattern of x, in the order of unsigned integers. The results of a function of such integers thus equal the host's bit for
// bit. All three are on the GPU.
void look_up(const Tensor& x, const Tensor& table, Tensor& y);

// Tensors that the host fills and a step on the GPU reads: two alternating pinned buffers and two alternating places on the GPU,
// so that one is filled while a step uses the other.
class Uploads {
 public:
  Uploads();
  ~Uploads();  // the host waits for the copies
  Uploads(const Uploads&) = delete;
  Uploads& operator=(const Uploads&) = delete;

  // Memory on the GPU for a sequence of steps, such as an epoch.
  class Places {
   public:
    Places();
    ~Places();
    Places(const Places&) = delete;
    Places& operator=(const Places&) = delete;
    // To be called when all work that reads the last upload has been issued to the compute stream.
    void step_is_given();

   private:
    friend class Uploads;
    struct Place {
      std::vector<std::shared_ptr<Storage>> memory;  // one for each tensor
      Event used;                                    // recorded after the work of the step that used it
    };
    std::array<Place, 2> places_;
    std::size_t next_ = 0;
  };

  // Returns tensors of these types on the GPU, with the bytes that `fill` writes to the addresses it gets, one per tensor. The
  // compute stream waits for the copies; the host waits only for the copies of the upload before the last.
  std::vector<Tensor> upload(std::span<const TensorType> types, Places& places,
                             const std::function<void(std::span<std::byte* const>)>& fill);

 private:
  struct Pinned;
  std::array<std::unique_ptr<Pinned>, 2> pinned_;
  std::size_t next_ = 0;
};

// Single values computed on the GPU and read by the host, the oldest first.
class Readbacks {
 public:
  static constexpr std::size_t most = 2;

  Readbacks();
  ~Readbacks();  // the host waits for the copies
  Readbacks(const Readbacks&) = delete;
  Readbacks& operator=(const Readbacks&) = delete;

  std::size_t pending() const { return pending_.size(); }
  // Adds a tensor with one floating-point element; at most `most` values are pending.
  void add(const Tensor& value);
  // Waits for the oldest value and returns it; the wait counts as a throttle. Throws faults that kernels have recorded.
  double take();

 private:
  struct Place;
  struct Pending {
    DType dtype = DType::float32;
    Place* place = nullptr;
  };
  std::array<std::unique_ptr<Place>, most> places_;
  std::size_t next_ = 0;
  std::deque<Pending> pending_;
};

}  // namespace mpigrad::cuda
