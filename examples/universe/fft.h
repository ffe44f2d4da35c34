#pragma once
// Distributed three-dimensional Fourier transform of real fields, in slabs: serial FFTW on the rank's planes, one alltoall
// between the axes. Results are bitwise the same for every number of ranks, because every one-dimensional problem is.

#include <complex>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "comm/transport/transport.h"

namespace mpigrad::universe {

// Storage aligned for vector instructions.
template <class T>
struct AlignedAllocator {
  using value_type = T;
  static constexpr std::align_val_t alignment{64};
  AlignedAllocator() = default;
  template <class U>
  AlignedAllocator(const AlignedAllocator<U>&) {}
  T* allocate(std::size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), alignment)); }
  void deallocate(T* p, std::size_t) { ::operator delete(p, alignment); }
  friend bool operator==(const AlignedAllocator&, const AlignedAllocator&) { return true; }
};

using RealField = std::vector<double, AlignedAllocator<double>>;
using ComplexField = std::vector<std::complex<double>, AlignedAllocator<std::complex<double>>>;

// [begin, end) of n planes cut into `parts` balanced blocks, the first ones one longer; blocks are empty where parts > n.
struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};
Range balanced_block(std::int64_t n, int parts, int part);
int balanced_owner(std::int64_t n, int parts, std::int64_t index);

// Fields on n^3 cells over the ranks of a transport. Position space: [x in x_range(), y, z], z fastest. Fourier space:
// [ky in y_range(), kx, kz in [0, n/2]] (transposed; the rest follows from the field being real).
class SlabFft {
 public:
  SlabFft(std::shared_ptr<Transport> transport, std::int64_t n);
  ~SlabFft();
  SlabFft(SlabFft&&) noexcept;

  std::int64_t n() const { return n_; }
  std::int64_t half() const { return n_ / 2 + 1; }
  Range x_range() const { return rows_; }
  Range y_range() const { return rows_; }
  std::size_t real_size() const { return static_cast<std::size_t>(rows_.size() * n_ * n_); }
  std::size_t complex_size() const { return static_cast<std::size_t>(rows_.size() * n_ * half()); }
  Transport& transport() const { return *transport_; }
  const std::shared_ptr<Transport>& shared_transport() const { return transport_; }

  // F(k) = sum_x f(x) exp(-i k x). Collective.
  ComplexField forward(const RealField& f) const;
  // f(x) = n^-3 sum_k F(k) exp(+i k x). Collective.
  RealField inverse(ComplexField F) const;

  // Signed frequency of an index: 0, 1, ..., n/2, -(n-1)/2, ..., -1.
  std::int64_t frequency(std::int64_t index) const { return 2 * index > n_ ? index - n_ : index; }
  // Frequencies n/2 of an even n have no sign and therefore no derivative.
  bool is_nyquist(std::int64_t index) const { return 2 * index == n_; }

  // Calls f(offset, kx, ky, kz) with the offset into a ComplexField and the signed frequencies of every mode of this rank.
  template <class F>
  void for_each_mode(F&& f) const {
    std::size_t offset = 0;
    for (std::int64_t y = rows_.begin; y < rows_.end; ++y)
      for (std::int64_t x = 0; x < n_; ++x)
        for (std::int64_t z = 0; z < half(); ++z) f(offset++, frequency(x), frequency(y), z);
  }

 private:
  struct Plans;
  std::shared_ptr<Transport> transport_;
  std::int64_t n_;
  Range rows_;
  std::unique_ptr<Plans> plans_;
};

}  // namespace mpigrad::universe
