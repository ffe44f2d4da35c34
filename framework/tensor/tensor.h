#ifndef MPIGRAD_FRAMEWORK_TENSOR_TENSOR_H
#define MPIGRAD_FRAMEWORK_TENSOR_TENSOR_H
// A tensor: a row-major, contiguous array with a type, a device and an identity for the tape. Copies of a handle are the same
// tensor. User-facing functions return new tensors; nothing modifies a tensor in place while a tape needs it. Optimizers change
// parameters after the tape is done.

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "framework/tensor/device.h"
#include "framework/tensor/dtype.h"
#include "framework/tensor/layout.h"
#include "framework/tensor/shape.h"
#include "framework/tensor/storage.h"

namespace mpigrad {

struct TensorType {
  Shape shape;
  DType dtype = DType::float32;
  bool operator==(const TensorType&) const = default;
};

class Tensor {
 public:
  Tensor() = default;  // no tensor: `if (!x)`
  // Not inline, to save compile time: the cost of a call is negligible compared with an op.
  Tensor(const Tensor& other);
  Tensor& operator=(const Tensor& other);
  Tensor(Tensor&& other) noexcept;
  Tensor& operator=(Tensor&& other) noexcept;
  ~Tensor();

  // Uninitialised.
  explicit Tensor(const TensorType& type, DeviceKind device = current_device());
  // Uninitialised, in storage with `room` bytes before and after the elements.
  static Tensor with_room(const TensorType& type, DeviceKind device, std::int64_t room);
  // A stand-in for a tensor that only other ranks hold. It has a type but no elements, and is on the dry device. Results of ops
  // on stand-ins are stand-ins, and tapes do not record them.
  static Tensor stand_in(const TensorType& type);
  // Uninitialised, on the device of x; a stand-in if x is one.
  static Tensor where(const Tensor& x, const TensorType& type);
  bool is_stand_in() const { return storage_ && storage_->is_stand_in(); }
  // Shares `storage`, beginning at `offset` bytes.
  Tensor(const TensorType& type, std::shared_ptr<Storage> storage, std::int64_t offset = 0);
  // A tensor over row-major, contiguous memory of the caller, on `device` (a GPU: this thread's), without a copy. A pointer to
  // const makes a read-only tensor: mutable_data() and Parameters refuse it. The caller must keep the memory alive until the last
  // tensor that uses it is gone, including those that tapes keep; then `keep_alive` is released. The caller must complete its
  // work on GPU memory before the call. from_strided() (ops/views/strided_memory.h) copies arrays with gaps.
  //
  // The memory must not change until gradients of what was computed from it are complete. A change through mutable_data(), and
  // one that storage()->note_write() announces, make gradient() an Error where the tape needs the old elements. Other changes are
  // found on CPUs with MPIGRAD_CHECKS=memory and in builds without optimisation.
  //
  // Errors: a null pointer; an address that is not a multiple of the element size; the dry device; a GPU where there is none.
  static Tensor over(void* memory, const Shape& shape, DType dtype, DeviceKind device = DeviceKind::cpu,
                     std::shared_ptr<const void> keep_alive = {});
  static Tensor over(const void* memory, const Shape& shape, DType dtype, DeviceKind device = DeviceKind::cpu,
                     std::shared_ptr<const void> keep_alive = {});

  explicit operator bool() const { return id_ != 0; }
  const Shape& shape() const { return type_.shape; }
  std::int64_t dim(int i) const {  // of dimension i; negative i counts from the end; Error: out of range
    if (i >= rank() || i < -rank()) refuse_dimension(i);
    return type_.shape[i];
  }
  int rank() const { return type_.shape.rank(); }
  DType dtype() const { return type_.dtype; }
  const TensorType& type() const { return type_; }
  std::int64_t elements() const { return type_.shape.elements(); }
  std::int64_t bytes() const { return elements() * size_of(type_.dtype); }
  DeviceKind device() const { return device_; }

  // Elements on the CPU; T must be the tensor's type. Error for tensors on a GPU: to_vector() or to() copies them.
  template <class T>
  const T* data() const {
    check_access(dtype_of<T>());
    return reinterpret_cast<const T*>(raw());
  }
  // Only for filling a tensor that has not been recorded or read yet, and for memory of the caller (over()), where each call
  // counts as a change. Error: read-only memory.
  template <class T>
  T* mutable_data() {
    check_access(dtype_of<T>(), true);
    return reinterpret_cast<T*>(raw());
  }
  std::byte* raw() const { return storage_ && storage_->data() ? storage_->data() + offset_ : nullptr; }
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  std::int64_t offset() const { return offset_; }

  // item(): the single element, as a double; Error: it is complex. to_vector(): all elements; of a complex tensor two numbers
  // each, real and imaginary part. On a GPU the host waits for the copy. For a partial sum they return this rank's part, with a
  // warning the first time; total(x) is the sum of a single element over ranks.
  double item() const;
  std::vector<double> to_vector() const;
  // Elements as T: float, double, bool or an integer type of tensors. Floating-point numbers are rounded to T. Errors: complex
  // elements; floating-point elements as integers; a number outside of T's range; an integer beyond 2^24 as float, 2^53 as
  // double.
  template <class T>
  requires std::is_arithmetic_v<T> std::vector<T> to_vector()
  const;

  // Identity on the tape.
  std::uint64_t id() const { return id_; }
  // Declared constant on all ranks, or computed from constants only: no cotangent. An op whose inputs are all constants is not
  // recorded, unless it sends or receives a message (comm/messages/point_to_point.h).
  bool is_constant() const { return constant_; }
  const LayoutPtr& layout() const { return layout_; }

  // The same tensor (same identity) with another layout or without storage.
  Tensor with_layout(LayoutPtr layout) const;
  Tensor without_layout() const { return with_layout(nullptr); }
  Tensor without_storage() const;
  // The same elements under a new identity, so that no cotangent flows back.
  Tensor as_constant() const;
  // A fresh identity, not constant.
  Tensor as_variable() const;
  // x with its elements in other storage; the same identity.
  static Tensor moved(const Tensor& x, std::shared_ptr<Storage> storage, std::int64_t offset);

 private:
  friend class TensorAccess;
  void check_access(DType asked, bool to_write = false) const;
  [[noreturn]] void refuse_dimension(int i) const;

  TensorType type_;
  std::shared_ptr<Storage> storage_;
  std::int64_t offset_ = 0;  // in bytes
  std::uint64_t id_ = 0;
  DeviceKind device_ = DeviceKind::cpu;
  bool constant_ = false;
  LayoutPtr layout_;
};

// While in scope, results of ops on this thread are allocated with spare memory for one more plane of `dimension` on each side
// (only if all earlier dimensions have extent 1). A halo exchange receives halos there and need not copy the tensor.
class HaloRoom {
 public:
  explicit HaloRoom(int dimension);
  ~HaloRoom();
  HaloRoom(const HaloRoom&) = delete;
  HaloRoom& operator=(const HaloRoom&) = delete;
  // Bytes of room for an output; `layout` may be null.
  static std::int64_t bytes(const TensorType& type, const LayoutPtr& layout);

 private:
  int previous_;
};

// Used by apply() only.
class TensorAccess {
 public:
  static void set_constant(Tensor& x, bool constant) { x.constant_ = constant; }
  static void set_layout(Tensor& x, LayoutPtr layout) { x.layout_ = std::move(layout); }
};

namespace detail {
// The elements of x on a device, which may be x's own; not on the tape. See to() in ops/views/to_device.h for the op.
Tensor copied(const Tensor& x, DeviceKind to);
// Errors, which name `reader`: a null pointer to elements; an address that is not a multiple of the element size.
void require_memory(std::string_view reader, const void* memory, const TensorType& type);
// Throws the error for reading elements that the tape did not keep. In a vjp it names the op, and the trait that would have kept
// them.
[[noreturn]] void refuse_unkept(std::string_view reader, std::string_view what, const Tensor& x);
// The elements of a complex x as real numbers [..., 2] in the same memory, not on the tape; x itself if it is not complex.
Tensor as_numbers(const Tensor& x);
// x.item() without the warning about partial sums.
double local_item(const Tensor& x);
// Warns, once, that `reader` gets only this rank's part, if x is a partial sum of several ranks. without_layout() avoids the
// warning.
void warn_if_partial(std::string_view reader, const Tensor& x);
// The text that formatting prints: values with `digits` significant digits, then the type.
std::string values_text(const Tensor& x, int digits);
std::string values_text(const std::vector<Tensor>& tensors, int digits);
}  // namespace detail

// The shape of the global tensor; for a tensor without a layout its own shape.
const Shape& global_shape(const Tensor& x);

// "float32 [8, 32, 32]", with the layout if it has one, and without values: the form of error messages.
std::string to_string(const Tensor& x);

// Prints the values in aligned columns, then type, shape, layout and rank, and a newline. So do fmt::print("{}", x) and
// std::cout << x. Floating-point values have 5 significant digits, with "{:.8}" 8; trailing zeros common to all values are
// omitted. Of more than 1000 elements only the first and last 3 along each dimension are shown. A distributed tensor shows this
// rank's block. Values on a GPU are copied; the dry device has none. An empty handle prints as "none".
void print(const Tensor& x);
void print(const std::vector<Tensor>& tensors);
std::ostream& operator<<(std::ostream& out, const Tensor& x);
std::ostream& operator<<(std::ostream& out, const std::vector<Tensor>& tensors);

namespace detail {
// x as messages show it: to_string(x).
struct TensorSummary {
  const Tensor& tensor;
};
template <>
struct InMessage<Tensor> {
  static TensorSummary of(const Tensor& x) { return {x}; }
};
}  // namespace detail

// ---- making tensors, on the current device. The tape treats them as variables; see constant().

// full(): all elements are `value`, converted to dtype. zeros() and ones(): all are 0 or 1. Errors: a negative extent, 2^63 bytes
// or more.
Tensor full(const Shape& shape, double value, DType dtype = DType::float32);
inline Tensor zeros(const Shape& shape, DType dtype = DType::float32) { return full(shape, 0, dtype); }
inline Tensor ones(const Shape& shape, DType dtype = DType::float32) { return full(shape, 1, dtype); }
// With the shape, type and layout of x. If x is a partial sum, the result has no layout, because equal values on all ranks are
// not a partial sum.
Tensor zeros_like(const Tensor& x);
Tensor ones_like(const Tensor& x);
// 0, 1, ..., n - 1
Tensor arange(std::int64_t n, DType dtype = DType::int64);
// values, row-major, converted to dtype; for a complex type real and imaginary part of each element
Tensor from_vector(const Shape& shape, std::span<const double> values, DType dtype = DType::float32);
inline Tensor from_vector(const Shape& shape, std::initializer_list<double> values, DType dtype = DType::float32) {
  return from_vector(shape, std::span<const double>(values.begin(), values.size()), dtype);
}

// Declares x a constant, on all ranks (as data loaders do): no cotangent is ever computed for it.
inline Tensor constant(const Tensor& x) { return x.as_constant(); }

}  // namespace mpigrad

template <>
struct fmt::formatter<mpigrad::Tensor> {
  constexpr auto parse(fmt::format_parse_context& context) {  // {} or {:.8}
    auto at = context.begin();
    if (at == context.end() || *at != '.') return at;
    digits = 0;
    for (++at; at != context.end() && '0' <= *at && *at <= '9'; ++at)
      if (digits < 100) digits = 10 * digits + (*at - '0');
    return at;
  }
  fmt::format_context::iterator format(const mpigrad::Tensor& x, fmt::format_context& context) const;

  int digits = 5;
};
// Prints one tensor after the other, on one or more lines each.
template <>
struct fmt::formatter<std::vector<mpigrad::Tensor>> : fmt::formatter<mpigrad::Tensor> {
  fmt::format_context::iterator format(const std::vector<mpigrad::Tensor>& tensors, fmt::format_context& context) const;
};
template <>
struct fmt::formatter<mpigrad::detail::TensorSummary> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }  // only {}
  fmt::format_context::iterator format(const mpigrad::detail::TensorSummary& x, fmt::format_context& context) const;
};

#endif
