// DLPack in one process: types, shapes, lifetimes, refusals. dlpack.sh tests it with NumPy and PyTorch.

#include "framework/dlpack/dlpack.h"

#include <dlpack/dlpack.h>
#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <utility>

#include "framework/engine/tape.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/to_device.h"
#include "tests/support/errors.h"
#include "tests/support/gpu.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

constexpr auto f64 = DType::float64;
using Values = std::vector<double>;

// Another library's tensor [2, 3], which counts the calls of its deleter.
struct Other {
  std::array<double, 8> memory{0, 1, 2, 3, 4, 5, 6, 7};
  std::array<std::int64_t, 2> shape{2, 3}, strides{3, 1};
  int deleted = 0;
  DLManagedTensor managed{};
  Other() {
    managed.dl_tensor = {.data = memory.data(),
                         .device = {kDLCPU, 0},
                         .ndim = 2,
                         .dtype = {kDLFloat, 64, 1},
                         .shape = shape.data(),
                         .strides = strides.data(),
                         .byte_offset = 0};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensor* self) { ++static_cast<Other*>(self->manager_ctx)->deleted; };
  }
  std::string refusal() {
    const auto text = error_text([&] { from_dlpack(&managed); });
    CHECK(deleted == 0);  // after an Error it is still the caller's
    return text;
  }
};

}  // namespace

TEST_CASE("dlpack: every type goes out and comes back without a copy") {
  REQUIRE(dlpack_available());
  for (const DType type : {DType::float64, DType::float32, DType::int64, DType::int32, DType::int16, DType::uint8, DType::boolean,
                           DType::bfloat16, DType::float16, DType::uint16, DType::complex64, DType::complex128}) {
    const Tensor x = is_complex(type) ? zeros({2, 3}, type) : full({2, 3}, 1, type);
    auto* managed = to_dlpack(x);
    CHECK(managed->dl_tensor.ndim == 2);
    CHECK(managed->dl_tensor.shape[1] == 3);
    CHECK(managed->dl_tensor.strides[0] == 3);
    CHECK(managed->dl_tensor.dtype.bits == 8 * size_of(type));
    const Tensor back = from_dlpack(managed);
    CHECK(back.type() == x.type());
    CHECK(back.raw() == x.raw());
  }
  CHECK(from_dlpack(to_dlpack(full({}, 7, f64))).item() == 7);
  CHECK(from_dlpack(to_dlpack(ones({2, 0}, f64))).shape() == Shape{2, 0});
}

TEST_CASE("dlpack: memory that goes out lives until the deleter is called") {
  auto memory = std::make_shared<Values>(Values{1, 2});
  const std::weak_ptr<Values> watch = memory;
  auto* data = memory->data();
  auto* managed = to_dlpack(Tensor::over(data, {2}, f64, DeviceKind::cpu, std::exchange(memory, nullptr)));
  CHECK(static_cast<double*>(managed->dl_tensor.data)[1] == 2);
  CHECK_FALSE(watch.expired());
  managed->deleter(managed);
  CHECK(watch.expired());
}

TEST_CASE("dlpack: memory that comes in is given back with its last tensor, tapes included") {
  Other other;
  other.managed.dl_tensor.byte_offset = 8;
  const auto w = ones({2, 3}, f64);
  Tape tape;
  {
    const Tensor x = from_dlpack(&other.managed);
    CHECK(x.data<double>() == other.memory.data() + 1);
    const auto loss = sum(constant(x) * w);
    CHECK(other.deleted == 0);
    CHECK(tape.gradient(loss, {w})[0].to_vector() == Values{1, 2, 3, 4, 5, 6});
    CHECK(other.deleted == 0);
  }
  CHECK(other.deleted == 1);
  Other plain;
  plain.managed.dl_tensor.strides = nullptr;  // row-major
  plain.managed.deleter = nullptr;
  CHECK(from_dlpack(&plain.managed).to_vector() == Values{0, 1, 2, 3, 4, 5});
  Other single;
  single.shape = {1, 3}, single.strides = {77, 1};  // the stride of a single element means nothing
  CHECK(from_dlpack(&single.managed).to_vector() == Values{0, 1, 2});
  CHECK(single.deleted == 1);
}

TEST_CASE("dlpack: what tensors cannot be is refused") {
  Other other;
  other.strides = {1, 2};
  CHECK(
      other.refusal() ==
      "[from_dlpack] the elements are not row-major, as those of tensors are: copy them with from_strided(): float64 [2, 3] with "
      "strides 1, 2");
  other.strides = {3, 1};
  other.managed.dl_tensor.dtype = {kDLFloat, 32, 4};
  CHECK(other.refusal() == "[from_dlpack] tensors do not have elements of type code 2, 32 bits, 4 lanes");
  other.managed.dl_tensor.dtype = {kDLOpaqueHandle, 64, 1};
  CHECK(other.refusal() == "[from_dlpack] tensors do not have elements of type code 3, 64 bits, 1 lanes");
  other.managed.dl_tensor.dtype = {kDLFloat, 64, 1};
  other.managed.dl_tensor.device = {kDLVulkan, 0};
  CHECK(other.refusal() == "[from_dlpack] device type 7 is neither a CPU nor a CUDA GPU: float64 [2, 3]");
  other.managed.dl_tensor.device = {kDLCPU, 0};
  other.managed.dl_tensor.byte_offset = 4;
  CHECK(other.refusal().find("is no multiple of 8 bytes") != std::string::npos);
  other.managed.dl_tensor.data = nullptr;
  CHECK(other.refusal() == "[over] the memory is a null pointer: float64 [2, 3]");
  CHECK(error_text([] { from_dlpack(nullptr); }) == "[from_dlpack] there is no tensor");
  const Values memory{1, 2};
  CHECK(error_text([&] { to_dlpack(Tensor::over(memory.data(), {2}, f64)); }).starts_with("[to_dlpack] the memory is read-only"));
  CHECK(error_text([&] { to_dlpack(Tensor({{2}, f64}, DeviceKind::dry)); }).starts_with("[to_dlpack] the dry device"));
  CHECK(error_text([&] { to_dlpack(ones({2}).without_storage()); }).find("were not kept") != std::string::npos);
}

TEST_CASE("gpu: dlpack: memory of a GPU goes out and comes back without a copy") {
  if (no_gpu("dlpack on a GPU")) return;
  const Tensor x = to(from_vector({2}, {1, 2}, f64), DeviceKind::cuda);
  auto* managed = to_dlpack(x);
  CHECK(managed->dl_tensor.device.device_type == kDLCUDA);
  const Tensor back = from_dlpack(managed);
  CHECK(back.raw() == x.raw());
  CHECK(back.to_vector() == Values{1, 2});
}
