#pragma once
// A hash of numbers and their places: the sum, over the elements, of a mix of each one's bits and place. Parts of a tensor that
// are hashed in any order, or by different ranks, add up to the hash of all of it. For damage and drift, not against intent.
//
// One element that differs always changes the sum, several that differ by a chance of 1 - 2^-64; so do elements that have
// exchanged their places. The same on every processor and in every order of bytes.

#include <cstdint>
#include <string_view>

#include "framework/tensor/dtype.h"

namespace mpigrad {

// Of `count` elements at `values`, in host memory, which are the elements `first`, first + 1, ... of a whole.
std::uint64_t content_hash(DType type, const void* values, std::int64_t count, std::int64_t first = 0);
// Of a text and its length.
std::uint64_t content_hash(std::string_view text);

}  // namespace mpigrad
