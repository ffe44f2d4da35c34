#pragma once
// Lists of element types, for files that make one kernel of each. None has uint16, with which nothing computes: what converts it
// or looks it up adds it.

#include <cstdint>

#include "framework/tensor/half.h"

#define MPIGRAD_FLOATING_TYPES(X) X(float) X(double) X(BFloat16) X(Float16)
#define MPIGRAD_INTEGER_TYPES(X) X(std::int64_t) X(std::int32_t) X(std::int16_t) X(std::uint8_t)
#define MPIGRAD_ALL_TYPES(X) MPIGRAD_FLOATING_TYPES(X) MPIGRAD_INTEGER_TYPES(X) X(bool)
// Of elements that are only moved.
#define MPIGRAD_WIDTHS(X) X(std::uint8_t) X(std::uint16_t) X(std::uint32_t) X(std::uint64_t)
