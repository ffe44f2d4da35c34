#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "framework/cuda/boxes.h"
#include "framework/cuda/launch.cuh"

namespace mpigrad::cuda {
namespace {

struct alignas(16) Bytes16 {
  std::uint64_t low, high;
};

// Where element i of the packed box lies in the array.
__device__ std::int64_t place(const BoxRows& box, std::int64_t i) {
  std::int64_t row = i / box.length, at = i % box.length;
  for (int d = box.rank - 1; d >= 0; --d) {
    at += row % box.extents[d] * box.strides[d];
    row /= box.extents[d];
  }
  return at;
}

template <class T>
__global__ void pack_kernel(T* packed, const T* array, BoxRows box, std::int64_t count) {
  for (std::int64_t i = first_index(); i < count; i += grid_stride()) packed[i] = array[place(box, i)];
}
template <class T>
__global__ void unpack_kernel(T* array, const T* packed, BoxRows box, std::int64_t count) {
  for (std::int64_t i = first_index(); i < count; i += grid_stride()) array[place(box, i)] = packed[i];
}

__device__ float sum(float a, float b) { return a + b; }
__device__ double sum(double a, double b) { return a + b; }
__device__ std::uint64_t sum(std::uint64_t a, std::uint64_t b) { return a + b; }  // unsigned: wraps without undefined behaviour
__device__ std::uint32_t sum(std::uint32_t a, std::uint32_t b) { return a + b; }
__device__ std::uint16_t sum(std::uint16_t a, std::uint16_t b) { return static_cast<std::uint16_t>(a + b); }
__device__ std::uint8_t sum(std::uint8_t a, std::uint8_t b) { return static_cast<std::uint8_t>(a + b); }
__device__ __nv_bfloat16 sum(__nv_bfloat16 a, __nv_bfloat16 b) {
  return __float2bfloat16_rn(__bfloat162float(a) + __bfloat162float(b));
}
__device__ __half sum(__half a, __half b) { return __float2half_rn(__half2float(a) + __half2float(b)); }

template <class T>
__global__ void add_kernel(T* array, const T* packed, BoxRows box, std::int64_t count) {
  for (std::int64_t i = first_index(); i < count; i += grid_stride()) {
    T& y = array[place(box, i)];
    y = sum(y, packed[i]);
  }
}

// f(T{}, the box in elements of T, their number) with the widest T in whose units everything lies.
template <class F>
void in_units(const void* a, const void* b, const BoxRows& box, std::int64_t item, const F& f) {
  const auto fits = [&](std::int64_t width) {
    bool all = box.length * item % width == 0 && reinterpret_cast<std::uintptr_t>(a) % static_cast<std::uintptr_t>(width) == 0 &&
               reinterpret_cast<std::uintptr_t>(b) % static_cast<std::uintptr_t>(width) == 0;
    for (int d = 0; d < box.rank; ++d) all = all && box.strides[d] * item % width == 0;
    return all;
  };
  const auto as = [&](auto unit) {
    const auto width = static_cast<std::int64_t>(sizeof(unit));
    BoxRows units = box;
    units.length = box.length * item / width;
    for (int d = 0; d < box.rank; ++d) units.strides[d] = box.strides[d] * item / width;
    f(unit, units, units.rows() * units.length);
  };
  if (fits(16)) return as(Bytes16{});
  if (fits(8)) return as(std::uint64_t{});
  if (fits(4)) return as(std::uint32_t{});
  if (fits(2)) return as(std::uint16_t{});
  as(std::uint8_t{});
}

bool empty(const BoxRows& box) { return box.rows() == 0 || box.length == 0; }

template <class T>
void add_as(void* array, const void* packed, const BoxRows& box) {
  const auto count = box.rows() * box.length;
  add_kernel<<<blocks_for(count), block_threads, 0, native(compute_stream())>>>(static_cast<T*>(array),
                                                                                static_cast<const T*>(packed), box, count);
  check_launch("add_box");
}

}  // namespace

void pack_box(void* packed, const void* array, const BoxRows& box, std::int64_t item) {
  if (empty(box)) return;
  in_units(packed, array, box, item, [&](auto unit, const BoxRows& units, std::int64_t count) {
    using T = decltype(unit);
    pack_kernel<<<blocks_for(count), block_threads, 0, native(compute_stream())>>>(static_cast<T*>(packed),
                                                                                   static_cast<const T*>(array), units, count);
  });
  check_launch("pack_box");
}

void unpack_box(void* array, const void* packed, const BoxRows& box, std::int64_t item) {
  if (empty(box)) return;
  in_units(array, packed, box, item, [&](auto unit, const BoxRows& units, std::int64_t count) {
    using T = decltype(unit);
    unpack_kernel<<<blocks_for(count), block_threads, 0, native(compute_stream())>>>(static_cast<T*>(array),
                                                                                     static_cast<const T*>(packed), units, count);
  });
  check_launch("unpack_box");
}

void add_box(void* array, const void* packed, const BoxRows& box, std::int64_t item, Addends kind) {
  if (empty(box)) return;
  if (kind == Addends::bfloats) return add_as<__nv_bfloat16>(array, packed, box);
  const bool floats = kind == Addends::floats;
  switch (item) {
    case 8: return floats ? add_as<double>(array, packed, box) : add_as<std::uint64_t>(array, packed, box);
    case 4: return floats ? add_as<float>(array, packed, box) : add_as<std::uint32_t>(array, packed, box);
    case 2: return floats ? add_as<__half>(array, packed, box) : add_as<std::uint16_t>(array, packed, box);
    default: return add_as<std::uint8_t>(array, packed, box);
  }
}

}  // namespace mpigrad::cuda
