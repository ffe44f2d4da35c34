#include "framework/dlpack/dlpack.h"

#include <dlpack/dlpack.h>

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "framework/base/joined.h"
#include "framework/cuda/cuda.h"

namespace mpigrad {
namespace {

constexpr int boolean_code = 6;  // kDLBool, which headers before version 0.8 do not name

DLDataType described(DType type) {
  int code = kDLInt;
  switch (type) {
    case DType::float32:
    case DType::float64:
    case DType::float16: code = kDLFloat; break;
    case DType::bfloat16: code = kDLBfloat; break;
    case DType::uint8:
    case DType::uint16: code = kDLUInt; break;
    case DType::complex64:
    case DType::complex128: code = kDLComplex; break;
    case DType::boolean: code = boolean_code; break;
    case DType::int16:
    case DType::int32:
    case DType::int64: break;
  }
  return {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(8 * size_of(type)), 1};
}

std::optional<DType> type_of(const DLDataType& type) {
  for (const DType each : {DType::float32, DType::float64, DType::int64, DType::int32, DType::int16, DType::uint8, DType::boolean,
                           DType::bfloat16, DType::float16, DType::uint16, DType::complex64, DType::complex128})
    if (const auto like = described(each); like.code == type.code && like.bits == type.bits && like.lanes == type.lanes)
      return each;
  return std::nullopt;
}

// What a managed tensor refers to.
struct Lent {
  Tensor x;
  std::array<std::int64_t, Shape::max_rank> extents{}, strides{};
  DLManagedTensor managed{};
};

// Strides of dimensions with one element, and those of empty tensors, mean nothing.
bool is_row_major(const Shape& shape, const std::int64_t* strides) {
  if (!strides || shape.elements() == 0) return true;
  const auto expected = shape.strides();
  for (int d = 0; d < shape.rank(); ++d)
    if (shape[d] != 1 && strides[d] != expected[static_cast<std::size_t>(d)]) return false;
  return true;
}

}  // namespace

bool dlpack_available() { return true; }

DLManagedTensor* to_dlpack(const Tensor& x) {
  require(static_cast<bool>(x), "[to_dlpack] this is no tensor");
  require(x.device() != DeviceKind::dry, "[to_dlpack] the dry device has no elements: {}", x);
  if (!x.storage()) detail::refuse_unkept("to_dlpack", "the elements of this tensor", x);
  require(x.storage()->writable(), "[to_dlpack] the memory is read-only, which the other library would not know: {}", x);
  detail::warn_if_partial("to_dlpack", x);
  auto lent = std::make_unique<Lent>();
  lent->x = x;
  std::copy(x.shape().begin(), x.shape().end(), lent->extents.begin());
  lent->strides = x.shape().strides();
  const bool on_gpu = x.device() == DeviceKind::cuda;
  if (on_gpu) cuda::synchronise(cuda::compute_stream());
  lent->managed.dl_tensor = {.data = x.raw(),
                             .device = {on_gpu ? kDLCUDA : kDLCPU, on_gpu ? cuda::selected() : 0},
                             .ndim = x.rank(),
                             .dtype = described(x.dtype()),
                             .shape = lent->extents.data(),
                             .strides = lent->strides.data(),
                             .byte_offset = 0};
  lent->managed.manager_ctx = lent.get();
  lent->managed.deleter = [](DLManagedTensor* managed) { delete static_cast<Lent*>(managed->manager_ctx); };
  return &lent.release()->managed;
}

Tensor from_dlpack(DLManagedTensor* managed) {
  require(managed != nullptr, "[from_dlpack] there is no tensor");
  const DLTensor& lent = managed->dl_tensor;
  const auto dtype = type_of(lent.dtype);
  require(dtype.has_value(), "[from_dlpack] tensors do not have elements of type code {}, {} bits, {} lanes",
          static_cast<int>(lent.dtype.code), static_cast<int>(lent.dtype.bits), static_cast<int>(lent.dtype.lanes));
  const Shape shape(std::span<const std::int64_t>(lent.shape, static_cast<std::size_t>(lent.ndim)));
  if (!is_row_major(shape, lent.strides))
    fail(
        "[from_dlpack] the elements are not row-major, as those of tensors are: copy them with from_strided(): {} {} with "
        "strides {}",
        name_of(*dtype), shape, joined(std::vector<std::int64_t>(lent.strides, lent.strides + lent.ndim), ", "));
  const auto kind = lent.device.device_type;
  const bool on_gpu = kind == kDLCUDA;
  require(on_gpu || kind == kDLCPU || kind == kDLCUDAHost, "[from_dlpack] device type {} is neither a CPU nor a CUDA GPU: {} {}",
          static_cast<int>(kind), name_of(*dtype), shape);
  require(!on_gpu || !cuda::available() || lent.device.device_id == cuda::selected(),
          "[from_dlpack] the memory is on GPU {}, this thread uses GPU {}: {} {}", lent.device.device_id,
          on_gpu && cuda::available() ? cuda::selected() : 0, name_of(*dtype), shape);
  auto* data = static_cast<std::byte*>(lent.data);
  if (data) data += lent.byte_offset;
  // First without an owner: what is wrong with the memory is found before it is taken over.
  const auto device = on_gpu ? DeviceKind::cuda : DeviceKind::cpu;
  (void)Tensor::over(static_cast<void*>(data), shape, *dtype, device);
  std::shared_ptr<const void> owner(managed, [](const DLManagedTensor* taken) {
    auto* mine = const_cast<DLManagedTensor*>(taken);
    if (mine->deleter) mine->deleter(mine);
  });
  return Tensor::over(static_cast<void*>(data), shape, *dtype, device, std::move(owner));
}

}  // namespace mpigrad
