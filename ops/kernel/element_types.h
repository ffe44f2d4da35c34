#pragma once
// Lists of element types, for files that instantiate one kernel per type. No list has uint16, as nothing computes with it: code
// that converts it or looks it up adds it.

#include <cstdint>

#include "framework/tensor/bytes16.h"
#include "framework/tensor/half.h"

#define MPIGRAD_FLOATING_TYPES(X) X(float) X(double) X(BFloat16) X(Float16)
#define MPIGRAD_INTEGER_TYPES(X) X(std::int64_t) X(std::int32_t) X(std::int16_t) X(std::uint8_t)
#define MPIGRAD_ALL_TYPES(X) MPIGRAD_FLOATING_TYPES(X) MPIGRAD_INTEGER_TYPES(X) X(bool)
// For kernels that only move elements.
#define MPIGRAD_WIDTHS(X) X(std::uint8_t) X(std::uint16_t) X(std::uint32_t) X(std::uint64_t) X(Bytes16)
