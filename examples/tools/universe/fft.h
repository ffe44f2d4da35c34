#pragma once
// Three-dimensional Fourier transforms of real fields in slabs, by rfft() and irfft(): bitwise the same for every number of
// ranks.

#include <complex>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/distributed/grid.h"
#include "comm/transport/transport.h"

namespace mpigrad::universe {

// Memory of fields, aligned for vector instructions. The process keeps released memory and reuses it: fresh pages of the system
// cost more than the transforms, even more so if all cores ask for them at once.
void* take_field_memory(std::size_t bytes);
void release_field_memory(void* memory);

template <class T>
struct FieldAllocator {
  using value_type = T;
  FieldAllocator() = default;
  template <class U>
  FieldAllocator(const FieldAllocator<U>&) {}
  T* allocate(std::size_t n) { return static_cast<T*>(take_field_memory(n * sizeof(T))); }
  void deallocate(T* p, std::size_t) { release_field_memory(p); }
  friend bool operator==(const FieldAllocator&, const FieldAllocator&) { return true; }
};

template <class T>
using Field = std::vector<T, FieldAllocator<T>>;
using RealField = Field<double>;
using ComplexField = Field<std::complex<double>>;

// [begin, end) of n planes split into `parts` balanced blocks, the first ones one longer; blocks are empty where parts > n.
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
  // Collective: makes communicators.
  SlabFft(const std::shared_ptr<Transport>& transport, std::int64_t n);
  // Another size on the ranks and the communicators of `like`.
  SlabFft(const SlabFft& like, std::int64_t n);

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
  SlabFft(std::shared_ptr<Transport> transport, GridPtr grid, std::int64_t n);

  std::shared_ptr<Transport> transport_;
  GridPtr grid_;
  std::int64_t n_;
  Range rows_;
  LayoutPtr cells_, modes_;  // of [x, y, z], split over x, and of [kx, ky, kz], split over ky
};

}  // namespace mpigrad::universe
