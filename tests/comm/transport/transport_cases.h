#pragma once
// Every call of a transport against its definition, computed locally: the data of each rank are a known function of its rank.
// Collective; the first wrong value throws. Run by transport_test.cpp (threads) and transport_mpi_test.cpp.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "comm/transport/transport.h"
#include "framework/base/error.h"
#include "tests/support/errors.h"

namespace mpigrad::transport_cases {

constexpr DType all_types[] = {DType::float32, DType::float64, DType::int64,     DType::int32,
                               DType::int16,   DType::uint8,   DType::boolean,   DType::bfloat16,
                               DType::float16, DType::uint16,  DType::complex64, DType::complex128};
constexpr CombineOp all_reductions[] = {CombineOp::sum,  CombineOp::max, CombineOp::min, CombineOp::prod,
                                        CombineOp::band, CombineOp::bor, CombineOp::bxor};

// Element i of rank r's buffer: small integers, so that every type represents every result exactly (including products of 7
// ranks). For uint16, which has no reductions, values beyond int16.
inline double value(int r, std::int64_t i, DType type) {
  const auto k = (7 * r + 3 * i + i * i * (r + 1)) % 11;
  if (type == DType::boolean) return static_cast<double>(k % 2);
  return static_cast<double>((type == DType::uint16 ? 65500 : 0) + (k % 3 == 0 ? 2 : 1 + (k == 4 ? 2 : 0)));
}

// Elements as raw bytes, so that one code path serves all types (std::vector<bool> has no data()). A complex element x is x + 2 i
// x.
struct Buffer {
  DType type;
  std::int64_t count;
  std::vector<std::byte> bytes;

  Buffer(DType t, std::int64_t n) : type(t), count(n), bytes(static_cast<std::size_t>(n * size_of(t)), std::byte{0x55}) {}
  void* data() { return count == 0 ? nullptr : bytes.data(); }
  void set(std::int64_t i, double x) {
    visit_element(type, [&](auto zero) {
      auto converted = static_cast<decltype(zero)>(x);
      if constexpr (is_complex(dtype_of<decltype(zero)>())) converted.imag(2 * converted.real());
      std::memcpy(bytes.data() + i * size_of(type), &converted, sizeof(converted));
    });
  }
  double get(std::int64_t i) const {
    return visit_element(type, [&](auto zero) {
      if constexpr (is_complex(dtype_of<decltype(zero)>())) {
        std::memcpy(&zero, bytes.data() + i * size_of(type), sizeof(zero));
        return zero.imag() == 2 * zero.real() ? static_cast<double>(zero.real()) : std::numeric_limits<double>::quiet_NaN();
      } else if constexpr (sizeof(zero) == 1) return static_cast<double>(bytes[static_cast<std::size_t>(i)]);
      else {
        std::memcpy(&zero, bytes.data() + i * size_of(type), sizeof(zero));
        return static_cast<double>(zero);
      }
    });
  }
};

inline Buffer filled(int rank, std::int64_t count, DType type, std::int64_t first = 0) {
  Buffer buffer(type, count);
  for (std::int64_t i = 0; i < count; ++i) buffer.set(i, value(rank, first + i, type));
  return buffer;
}

inline void expect(const Buffer& got, std::int64_t i, double wanted, const std::string& what) {
  require(got.get(i) == wanted, "[transport_cases] {}, {}: element {} is {} instead of {}", what, name_of(got.type), i,
          got.get(i), wanted);
}

inline double reduced(int size, std::int64_t i, DType type, CombineOp op) {
  double result = value(0, i, type);
  for (int r = 1; r < size; ++r) {
    const double x = value(r, i, type);
    if (op == CombineOp::sum) result += x;
    if (op == CombineOp::prod) result *= x;
    if (op == CombineOp::max) result = std::max(result, x);
    if (op == CombineOp::min) result = std::min(result, x);
    const auto a = static_cast<std::int64_t>(result), b = static_cast<std::int64_t>(x);
    if (op == CombineOp::band) result = static_cast<double>(a & b);
    if (op == CombineOp::bor) result = static_cast<double>(a | b);
    if (op == CombineOp::bxor) result = static_cast<double>(a ^ b);
  }
  return result;
}

inline bool allowed(DType type, CombineOp op) {
  const bool extreme = op == CombineOp::max || op == CombineOp::min;
  const bool bits = op == CombineOp::band || op == CombineOp::bor || op == CombineOp::bxor;
  if (is_complex(type)) return op == CombineOp::sum;
  return type != DType::uint16 && (type != DType::boolean || extreme || bits) && (!is_floating(type) || !bits);
}

// uneven, with zeros
inline std::vector<std::int64_t> uneven(int size) {
  std::vector<std::int64_t> counts;
  for (int r = 0; r < size; ++r) counts.push_back(r % 3 == 1 ? 0 : 2 + 3 * r);
  return counts;
}

void check_reductions(Transport& t, DType type, CombineOp op, std::int64_t count);
// Reductions of 16-bit types, by all operations.
void check_half_rounding(Transport& t);
// Two running reductions, completed in another order than started, with a blocking one in between.
void check_overlap(Transport& t);

void check_movement(Transport& t, DType type, int root);
// Rank r sends (r + 2 s) % 4 elements to rank s.
void check_alltoall(Transport& t, DType type);
// Every rank sends two messages with the same tag, one with another tag and an empty one to every rank, itself included.
void check_exchange(Transport& t, DType type, bool blocking);
// Every rank sends to every rank, itself included, messages of lengths that differ between pairs, with tags posted in another
// order than received; then a round in which only rank 0 sends.
void check_round(Transport& t, DType type);
// The non-blocking forms of collectives and messages.
void check_started_movement(Transport& t, DType type);

// The communicator has exactly these members in this order, identified by their rank in `world`.
void check_members(Transport& t, const std::vector<int>& world_ranks, int world_rank);
void check_parts(Transport& t);
void check_communicators(Transport& t);
void check_refusals(Transport& t);

}  // namespace mpigrad::transport_cases
