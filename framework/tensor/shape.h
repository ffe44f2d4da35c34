#ifndef MPIGRAD_FRAMEWORK_TENSOR_SHAPE_H
#define MPIGRAD_FRAMEWORK_TENSOR_SHAPE_H
// Extents of a row-major, contiguous tensor. 64-bit everywhere: CosmoFlow's first activation at 512^3 has 2^31 elements.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "framework/base/error.h"

namespace mpigrad {

class Shape {
 public:
  static constexpr int max_rank = 8;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents) : Shape(std::span(extents.begin(), extents.size())) {}
  explicit Shape(std::span<const std::int64_t> extents) {
    require(extents.size() <= max_rank, "[shape] at most {} dimensions, got {}", max_rank, extents.size());
    for (auto extent : extents) push_back(extent);
  }

  int rank() const { return rank_; }
  std::int64_t operator[](int i) const { return extents_[static_cast<std::size_t>(i < 0 ? i + rank_ : i)]; }
  std::int64_t& operator[](int i) { return extents_[static_cast<std::size_t>(i < 0 ? i + rank_ : i)]; }
  const std::int64_t* begin() const { return extents_.data(); }
  const std::int64_t* end() const { return extents_.data() + rank_; }
  std::int64_t* begin() { return extents_.data(); }
  std::int64_t* end() { return extents_.data() + rank_; }
  std::int64_t back() const { return (*this)[-1]; }
  std::span<const std::int64_t> span() const { return {begin(), end()}; }

  void push_back(std::int64_t extent) {
    require(rank_ < max_rank, "[shape] at most {} dimensions", max_rank);
    require(extent >= 0, "[shape] extents are not negative, got {}", extent);
    extents_[static_cast<std::size_t>(rank_++)] = extent;
  }

  std::int64_t elements() const { return elements(0, rank_); }
  // Product of the extents of dimensions [first, last).
  std::int64_t elements(int first, int last) const {
    std::int64_t product = 1;
    for (int i = first; i < last; ++i) product *= (*this)[i];
    return product;
  }
  // Row-major strides, in elements.
  std::array<std::int64_t, max_rank> strides() const {
    std::array<std::int64_t, max_rank> result{};
    std::int64_t stride = 1;
    for (int i = rank_ - 1; i >= 0; --i) result[static_cast<std::size_t>(i)] = stride, stride *= (*this)[i];
    return result;
  }

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i)
      if (a[i] != b[i]) return false;
    return true;
  }

 private:
  std::array<std::int64_t, max_rank> extents_{};
  int rank_ = 0;
};

// "[8, 32, 32]"
std::string to_string(const Shape& shape);

// Returns the dimension as 0 ... rank - 1; negative ones count from the end. Error, naming `op`: out of range.
int checked_dimension(const char* op, int dimension, int rank);

}  // namespace mpigrad

template <>
struct fmt::formatter<mpigrad::Shape> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }  // only {}
  fmt::format_context::iterator format(const mpigrad::Shape& shape, fmt::format_context& context) const;
};

#endif
