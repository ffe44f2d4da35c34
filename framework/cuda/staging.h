#pragma once
// What goes between the host and this thread's GPU beside the steps that are computed there: batches on their way to it, single
// values on their way back. Neither makes the host wait for a step that the GPU has just been given.

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

// As copy(), from pinned memory to the GPU, counted as bytes to it.
void copy_from_pinned(void* to, const void* from, std::int64_t bytes, Stream stream);

// y[i] = table[x[i]] on the compute stream. x: integers of 8 or 16 bits; `table`: float32 or float64, as y, an element for each
// pattern of their bits, in the order of unsigned integers. So any function of such integers has the bits of the host that made
// the table. All three are on the GPU.
void look_up(const Tensor& x, const Tensor& table, Tensor& y);

// Tensors that the host fills and a step on the GPU reads: two pinned buffers in turn, and two places on the GPU in turn, so that
// one is filled while the other is computed with.
class Uploads {
 public:
  Uploads();
  ~Uploads();  // the host waits for the copies
  Uploads(const Uploads&) = delete;
  Uploads& operator=(const Uploads&) = delete;

  // Memory on the GPU, for as long as steps follow each other: an epoch.
  class Places {
   public:
    Places();
    ~Places();
    Places(const Places&) = delete;
    Places& operator=(const Places&) = delete;
    // All work that reads what was uploaded last has been given to the compute stream.
    void step_is_given();

   private:
    friend class Uploads;
    struct Place {
      std::vector<std::shared_ptr<Storage>> memory;  // of each tensor
      Event used;                                    // behind the work of the step that used it
    };
    std::array<Place, 2> places_;
    std::size_t next_ = 0;
  };

  // Tensors of these types on the GPU, with the bytes that `fill` writes at the addresses that it gets, one for each. The compute
  // stream waits for the copies; the host waits for nothing but the copies of the upload before the last.
  std::vector<Tensor> upload(std::span<const TensorType> types, Places& places,
                             const std::function<void(std::span<std::byte* const>)>& fill);

 private:
  struct Pinned;
  std::array<std::unique_ptr<Pinned>, 2> pinned_;
  std::size_t next_ = 0;
};

// Single values that are computed on the GPU and read by the host, the oldest first.
class Readbacks {
 public:
  static constexpr std::size_t most = 2;

  Readbacks();
  ~Readbacks();  // the host waits for the copies
  Readbacks(const Readbacks&) = delete;
  Readbacks& operator=(const Readbacks&) = delete;

  std::size_t pending() const { return pending_.size(); }
  // Of one floating-point element; at most `most` of them are pending.
  void add(const Tensor& value);
  // The host waits until the oldest has arrived, being ahead of the GPU. Throws what kernels have found wrong meanwhile.
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
