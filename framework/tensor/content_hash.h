#pragma once
// A hash of numbers and their positions: the sum over the elements of a mix of bits and position. The hashes of the parts of a
// tensor, computed in any order or by different ranks, add up to the hash of the tensor. It detects damage and drift; it is not
// cryptographic.
//
// A difference in one element always changes the sum; differences in several elements, including exchanged elements, change it
// with probability 1 - 2^-64. The hash is the same on every processor and for every byte order.

#include <cstdint>
#include <string_view>

#include "framework/tensor/dtype.h"

namespace mpigrad {

// The hash of `count` elements at `values`, in host memory, which are the elements `first`, first + 1, ... of a tensor.
std::uint64_t content_hash(DType type, const void* values, std::int64_t count, std::int64_t first = 0);
// The hash of a text and its length.
std::uint64_t content_hash(std::string_view text);

}  // namespace mpigrad
