#include "framework/tensor/tensor.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "framework/base/warning.h"
#include "framework/cuda/cuda.h"

namespace mpigrad {
namespace {

std::uint64_t next_id() {
  static std::atomic<std::uint64_t> counter{0};
  return ++counter;
}

// The bytes of a tensor to be allocated.
std::int64_t checked_bytes(const TensorType& type) {
  std::int64_t bytes = size_of(type.dtype);
  for (const auto extent : type.shape)
    require(extent >= 0 && !__builtin_mul_overflow(bytes, std::max<std::int64_t>(extent, 1), &bytes),
            "[tensor] {} {} is larger than any memory", name_of(type.dtype), type.shape);
  return type.shape.elements() * size_of(type.dtype);
}

thread_local int halo_dimension = -1;

// make() creates the tensor on the CPU; for a GPU it is copied.
template <class Make>
Tensor on_current_device(const TensorType& type, const Make& make) {
  if (current_device() == DeviceKind::dry) return Tensor(type);
  if (current_device() == DeviceKind::cpu) return make();
  Tensor result;
  {
    UseDevice cpu(DeviceKind::cpu);
    result = make();
  }
  return detail::copied(result, current_device());
}

}  // namespace

namespace detail {

Tensor copied(const Tensor& x, DeviceKind to) {
  require(x.device() != DeviceKind::dry && to != DeviceKind::dry, "[to] the dry device has no elements to copy: {}", x);
  if (!x.storage()) refuse_unkept("to", "the elements of this tensor", x);
  Tensor result(x.type(), to);
  if (x.bytes() == 0) return result;
  const bool from_gpu = x.device() == DeviceKind::cuda, to_gpu = to == DeviceKind::cuda;
  if (from_gpu && to_gpu) cuda::copy_on_device(result.raw(), x.raw(), x.bytes());
  else if (to_gpu) cuda::copy_to_device(result.raw(), x.raw(), x.bytes());
  else if (from_gpu) cuda::copy_to_host(result.raw(), x.raw(), x.bytes());
  else std::memcpy(result.raw(), x.raw(), static_cast<std::size_t>(x.bytes()));
  return result;
}

Tensor as_numbers(const Tensor& x) {
  if (!is_complex(x.dtype())) return x;
  Shape shape = x.shape();
  shape.push_back(2);
  return {{shape, real_type(x.dtype())}, x.storage(), x.offset()};
}

double local_item(const Tensor& x) {
  require(x.elements() == 1, "[item] one element is needed: {}", x);
  require(!is_complex(x.dtype()), "[item] a complex element is not one number; take real(), imag() or abs(): {}", x);
  return x.without_layout().to_vector()[0];
}

void warn_if_partial(std::string_view reader, const Tensor& x) {
  if (!x.layout()) return;
  const auto& axes = x.layout()->axes;
  const auto& extents = x.layout()->grid->extents;
  for (std::size_t a = 0; a < axes.size(); ++a)
    if (axes[a].placement == Placement::partial && extents[a] > 1)
      return warn_once("partial sum",
                       fmt::format("[{}] this rank's part of a sum over ranks; total(x) is the sum{}: {}", reader,
                                   x.elements() == 1 ? "" : " of one element, redistribute() that of more", to_string(x)));
}

}  // namespace detail

HaloRoom::HaloRoom(int dimension) : previous_(halo_dimension) { halo_dimension = dimension; }
HaloRoom::~HaloRoom() { halo_dimension = previous_; }

std::int64_t HaloRoom::bytes(const TensorType& type, const LayoutPtr& layout) {
  int dimension = halo_dimension;
  for (int d = 1; layout && dimension < 0 && d < type.shape.rank(); ++d)
    if (layout->axis_of(d) >= 0) dimension = d;
  if (dimension < 1 || dimension >= type.shape.rank() || type.shape.elements(0, dimension) != 1) return 0;
  constexpr std::int64_t alignment = 64;
  const auto index = type.shape.elements(dimension + 1, type.shape.rank()) * size_of(type.dtype);
  return (index + alignment - 1) / alignment * alignment;
}

Tensor Tensor::with_room(const TensorType& type, DeviceKind device, std::int64_t room) {
  const auto bytes = checked_bytes(type);
  return {type, std::make_shared<Storage>(bytes + 2 * room, device, room), room};
}

Tensor Tensor::stand_in(const TensorType& type) { return {type, Storage::stand_in(checked_bytes(type))}; }

Tensor Tensor::where(const Tensor& x, const TensorType& type) {
  return x.is_stand_in() ? stand_in(type) : Tensor(type, x.device());
}

Tensor::Tensor(const Tensor& other) = default;
Tensor& Tensor::operator=(const Tensor& other) = default;
Tensor::Tensor(Tensor&& other) noexcept = default;
Tensor& Tensor::operator=(Tensor&& other) noexcept = default;
Tensor::~Tensor() = default;

Tensor::Tensor(const TensorType& type, DeviceKind device)
    : type_(type), storage_(std::make_shared<Storage>(checked_bytes(type), device)), id_(next_id()), device_(device) {}

Tensor::Tensor(const TensorType& type, std::shared_ptr<Storage> storage, std::int64_t offset)
    : type_(type), storage_(std::move(storage)), offset_(offset), id_(next_id()), device_(storage_->device()) {
  require(offset_ + bytes() <= storage_->bytes(), "[tensor] {} bytes at offset {} do not fit in storage of {} bytes", bytes(),
          offset_, storage_->bytes());
}

namespace {

Tensor over_memory(void* memory, const TensorType& type, DeviceKind device, std::shared_ptr<const void> keep_alive,
                   bool writable) {
  const auto bytes = checked_bytes(type);
  detail::require_memory("over", memory, type);
  require(device != DeviceKind::dry, "[over] the dry device has no memory: {} {}", name_of(type.dtype), type.shape);
  require(device != DeviceKind::cuda || cuda::available(), "[over] {}: {} {}", cuda::unavailable(), name_of(type.dtype),
          type.shape);
  return Tensor(type, std::make_shared<Storage>(memory, bytes, device, std::move(keep_alive), writable));
}

}  // namespace

void detail::require_memory(std::string_view reader, const void* memory, const TensorType& type) {
  require(memory != nullptr || type.shape.elements() == 0, "[{}] the memory is a null pointer: {} {}", reader,
          name_of(type.dtype), type.shape);
  require(reinterpret_cast<std::uintptr_t>(memory) % static_cast<std::uintptr_t>(size_of(type.dtype)) == 0,
          "[{}] the address {} is no multiple of {} bytes, the size of an element: {} {}", reader, memory, size_of(type.dtype),
          name_of(type.dtype), type.shape);
}

Tensor Tensor::over(void* memory, const Shape& shape, DType dtype, DeviceKind device, std::shared_ptr<const void> keep_alive) {
  return over_memory(memory, {shape, dtype}, device, std::move(keep_alive), true);
}
Tensor Tensor::over(const void* memory, const Shape& shape, DType dtype, DeviceKind device,
                    std::shared_ptr<const void> keep_alive) {
  return over_memory(const_cast<void*>(memory), {shape, dtype}, device, std::move(keep_alive), false);
}

void Tensor::check_access(DType asked, bool to_write) const {
  require(id_ != 0, "[tensor] access to an empty tensor");
  require(asked == dtype(), "[tensor] elements are {}, accessed as {}", name_of(dtype()), name_of(asked));
  require(device_ != DeviceKind::cuda, "[tensor] the elements are on the GPU; copy them with to(x, DeviceKind::cpu) first: {}",
          *this);
  require(device_ == DeviceKind::cpu, "[tensor] elements of a tensor on device {} cannot be read here", name_of(device_));
  if (!storage_) detail::refuse_unkept("tensor", "the elements of this tensor", *this);
  if (!to_write || !storage_->foreign()) return;
  require(storage_->writable(), "[tensor] the memory is read-only, as it was given to Tensor::over() by a pointer to const: {}",
          *this);
  storage_->note_write();
}

double Tensor::item() const {
  detail::warn_if_partial("item", *this);
  return detail::local_item(*this);
}

std::vector<double> Tensor::to_vector() const {
  detail::warn_if_partial("to_vector", *this);
  if (device_ == DeviceKind::cuda && storage_) return detail::copied(*this, DeviceKind::cpu).to_vector();
  if (is_complex(dtype()) && storage_) return detail::as_numbers(without_layout()).to_vector();
  std::vector<double> values(static_cast<std::size_t>(elements()));
  visit_any(dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* from = data<T>();
    std::transform(from, from + elements(), values.begin(), [](T value) { return static_cast<double>(value); });
  });
  return values;
}

namespace {

// Whether T can represent the number (floating-point numbers up to rounding).
template <class T, class From>
bool holds(From value) {
  if constexpr (std::is_integral_v<From>) {
    const auto number = static_cast<std::int64_t>(value);
    if constexpr (std::is_same_v<T, bool>) return number == 0 || number == 1;
    else if constexpr (std::is_integral_v<T>) return std::in_range<T>(number);
    else return std::abs(static_cast<double>(number)) <= std::ldexp(1.0, std::numeric_limits<T>::digits);
  } else {
    const auto size = std::abs(static_cast<double>(value));
    return std::is_floating_point_v<T> && !(std::isfinite(size) && size > static_cast<double>(std::numeric_limits<T>::max()));
  }
}

}  // namespace

template <class T>
requires std::is_arithmetic_v<T> std::vector<T> Tensor::to_vector()
const {
  detail::warn_if_partial("to_vector", *this);
  if (device_ == DeviceKind::cuda && storage_) return detail::copied(*this, DeviceKind::cpu).to_vector<T>();
  std::vector<T> values(static_cast<std::size_t>(elements()));
  visit_any(dtype(), [&](auto zero) {
    using From = decltype(zero);
    const From* from = data<From>();
    std::transform(from, from + elements(), values.begin(), [&](From value) {
      if (!holds<T>(value))
        fail("[to_vector] {} has the element {}, which is not converted to {}", *this, static_cast<double>(value),
             name_of(dtype_of<T>()));
      return static_cast<T>(value);
    });
  });
  return values;
}

template std::vector<float> Tensor::to_vector<float>() const;
template std::vector<double> Tensor::to_vector<double>() const;
template std::vector<std::int64_t> Tensor::to_vector<std::int64_t>() const;
template std::vector<std::int32_t> Tensor::to_vector<std::int32_t>() const;
template std::vector<std::int16_t> Tensor::to_vector<std::int16_t>() const;
template std::vector<std::uint16_t> Tensor::to_vector<std::uint16_t>() const;
template std::vector<std::uint8_t> Tensor::to_vector<std::uint8_t>() const;
template std::vector<bool> Tensor::to_vector<bool>() const;

Tensor Tensor::with_layout(LayoutPtr layout) const {
  Tensor result = *this;
  result.layout_ = std::move(layout);
  if (result.layout_)
    if (const auto local = result.layout_->box().extents(); local != shape())
      fail("[layout] the local part is {}, the tensor is {}: layout {}", local, shape(), to_string(*result.layout_));
  return result;
}

Tensor Tensor::without_storage() const {
  Tensor result = *this;
  result.storage_ = nullptr;
  return result;
}

Tensor Tensor::as_constant() const {
  Tensor result = *this;
  if (result) result.id_ = next_id();
  result.constant_ = true;
  return result;
}

void Tensor::refuse_dimension(int i) const { fail("[dim] there is no dimension {} of {}", i, to_string(*this)); }

Tensor Tensor::as_variable() const {
  Tensor result = *this;
  if (result) result.id_ = next_id();
  result.constant_ = false;
  return result;
}

Tensor Tensor::moved(const Tensor& x, std::shared_ptr<Storage> storage, std::int64_t offset) {
  Tensor result = x;
  result.storage_ = std::move(storage);
  result.offset_ = offset;
  return result;
}

std::string to_string(const Tensor& x) {
  if (!x) return "none";
  auto text = fmt::format("{} {}", name_of(x.dtype()), x.shape());
  if (x.layout()) text += " of " + to_string(*x.layout());
  return text;
}

Tensor full(const Shape& shape, double value, DType dtype) {
  Tensor result({shape, dtype});
  if (result.device() == DeviceKind::dry) return result;
  visit_element(dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto element = static_cast<T>(value);
    if (result.device() == DeviceKind::cuda) cuda::fill(result.raw(), result.elements(), size_of(dtype), &element);
    else std::fill_n(result.mutable_data<T>(), result.elements(), element);
  });
  return result;
}

namespace {

// Equal values on all ranks are not a partial sum, so the result of a partial sum has no layout.
Tensor filled_like(const Tensor& x, double value) {
  UseDevice device(x.device());
  const auto y = x.is_stand_in() ? Tensor::stand_in(x.type()) : full(x.shape(), value, x.dtype());
  return x.layout() && !x.layout()->has(Placement::partial) ? y.with_layout(x.layout()) : y;
}

}  // namespace

Tensor zeros_like(const Tensor& x) { return filled_like(x, 0); }
Tensor ones_like(const Tensor& x) { return filled_like(x, 1); }

Tensor arange(std::int64_t n, DType dtype) {
  const TensorType type{Shape{n}, dtype};
  return on_current_device(type, [&] {
    Tensor result(type);
    visit_any(dtype, [&](auto zero) {
      using T = decltype(zero);
      T* out = result.mutable_data<T>();
      for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(i);
    });
    return result;
  });
}

Tensor from_vector(const Shape& shape, std::span<const double> values, DType dtype) {
  if (is_complex(dtype)) {
    Shape numbers = shape;
    numbers.push_back(2);
    const Tensor parts = from_vector(numbers, values, real_type(dtype));
    return {{shape, dtype}, parts.storage(), parts.offset()};
  }
  require(static_cast<std::int64_t>(values.size()) == shape.elements(), "[from_vector] {} values for shape {}", values.size(),
          shape);
  const TensorType type{shape, dtype};
  return on_current_device(type, [&] {
    Tensor result(type);
    visit_any(dtype, [&](auto zero) {
      using T = decltype(zero);
      std::transform(values.begin(), values.end(), result.mutable_data<T>(), [](double value) { return static_cast<T>(value); });
    });
    return result;
  });
}

const Shape& global_shape(const Tensor& x) { return x.layout() ? x.layout()->global : x.shape(); }

Tensor GridShape::sum_over(const std::vector<int>&, const Tensor& x) const {
  fail("[layout] this grid has no communicators to add over: {}", x);
}

void GridShape::bring_together(std::string_view, std::vector<Tensor>&) const {}
Tensor GridShape::brought(const Tensor& x) const { return x; }
std::shared_ptr<const GridShape> GridShape::in_line() const { return nullptr; }
std::uint64_t GridShape::number() const { return 0; }
GridShape::Wait GridShape::start_sum(const Tensor& in, const Tensor&, std::span<const std::int64_t>) const {
  fail("[grid] has no communicators, over which it could sum {}", in);
}
GridShape::Wait GridShape::start_gather(const Tensor& in, const Tensor&, std::span<const std::int64_t>) const {
  fail("[grid] has no communicators, over which it could gather {}", in);
}
void GridShape::gather(const Tensor& in, const Tensor& out, std::span<const std::int64_t> counts) const {
  start_gather(in, out, counts)();
}

}  // namespace mpigrad
