#pragma once
// FNV-1a (Fowler, Noll and Vo): a 64-bit hash of a text or of numbers, the same on all machines and in all versions. Not
// cryptographic.

#include <cstdint>
#include <string_view>

namespace mpigrad {

inline constexpr std::uint64_t fnv_start = 14695981039346656037ULL;

constexpr std::uint64_t fnv1a(std::uint64_t hash, std::uint64_t next) { return (hash ^ next) * 1099511628211ULL; }
constexpr std::uint64_t fnv1a(std::uint64_t hash, std::string_view text) {
  for (const char c : text) hash = fnv1a(hash, static_cast<unsigned char>(c));
  return hash;
}

}  // namespace mpigrad
