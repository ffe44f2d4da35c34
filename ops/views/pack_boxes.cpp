#include "ops/views/pack_boxes.h"

#include <utility>

#include "framework/tensor/boxes.h"
#include "ops/elementwise/elementwise.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace ops {
namespace {

Box whole_of(const Shape& shape) {
  Box box{shape, shape};
  for (auto& begin : box.begin) begin = 0;
  return box;
}

std::int64_t elements_of(std::string_view op, const std::vector<Box>& boxes, const Tensor& x) {
  std::int64_t elements = 0;
  for (const auto& box : boxes) {
    if (!(box.begin.rank() == x.rank() && intersection(box, whole_of(x.shape())) == box))
      fail("[{}] box {} is not part of {}", op, to_string(box), x);
    elements += box.elements();
  }
  return elements;
}

// Calls f(region of x, its packed elements).
template <class F>
void for_boxes(const std::vector<Box>& boxes, const Tensor& x, const Tensor& packed, const F& f) {
  const auto whole = whole_of(x.shape());
  std::byte* place = packed.raw();
  for (const auto& box : boxes) {
    if (box.elements() == 0) continue;
    f(detail::BoxRegion(whole, box), place);
    place += box.elements() * size_of(x.dtype());
  }
}

void pack(const std::vector<Box>& boxes, const Tensor& x, const Tensor& packed) {
  for_boxes(boxes, x, packed, [&](const auto& region, std::byte* place) { detail::pack_box(region, x, place); });
}

void add_in_place(const std::vector<Box>& boxes, Tensor& y, const Tensor& x, const Tensor& packed) {
  if (y.raw() != x.raw()) detail::copy_bytes(x.device(), y.raw(), x.raw(), x.bytes());
  for_boxes(boxes, y, packed, [&](const auto& region, const std::byte* place) { detail::unpack_box(region, y, place, true); });
}

}  // namespace

Types PackBoxes::infer(Inputs in) const { return {{Shape{elements_of(traits().name, boxes, in[0])}, in[0].dtype()}}; }
void PackBoxes::run(Cpu, Inputs in, Outputs out) const { pack(boxes, in[0], out[0]); }
void PackBoxes::run(Cuda, Inputs in, Outputs out) const { pack(boxes, in[0], out[0]); }
Tensors PackBoxes::vjp(const Replay& at, Inputs g) const { return {boxes_in_zeros(g[0], at.input(0).shape(), boxes)}; }

Types AddBoxes::infer(Inputs in) const {
  const auto elements = elements_of(traits().name, boxes, in[0]);
  require(in[1].elements() == elements && in[1].dtype() == in[0].dtype(), "[{}] the boxes have {} elements of {}: {}",
          traits().name, elements, name_of(in[0].dtype()), in[1]);
  return {in[0].type()};
}
Tensor AddBoxes::reuse(Inputs in) const { return in_place ? Tensor(in[0].type(), in[0].storage(), in[0].offset()) : Tensor(); }
void AddBoxes::run(Cpu, Inputs in, Outputs out) const { add_in_place(boxes, out[0], in[0], in[1]); }
void AddBoxes::run(Cuda, Inputs in, Outputs out) const { add_in_place(boxes, out[0], in[0], in[1]); }
Tensors AddBoxes::vjp(const Replay& at, Inputs g) const {
  return {at.wants(0) ? g[0] : Tensor(), at.wants(1) ? reshape(pack_boxes(g[0], boxes), at.input(1).shape()) : Tensor()};
}

}  // namespace ops

Tensor pack_boxes(const Tensor& x, const std::vector<Box>& boxes) { return mpigrad::apply(ops::PackBoxes{boxes}, {x}); }

Tensor add_boxes(Tensor x, const Tensor& packed, const std::vector<Box>& boxes) {
  const bool in_place = sole_owner(x);
  Tensors in;
  in.push_back(std::move(x));
  in.push_back(packed);
  return mpigrad::apply(ops::AddBoxes{boxes, in_place}, std::move(in));
}

Tensor boxes_in_zeros(const Tensor& packed, const Shape& shape, const std::vector<Box>& boxes) {
  UseDevice device(packed.device());
  return add_boxes(constant(zeros(shape, packed.dtype())), packed, boxes);
}

WithPackedBoxes with_packed_boxes(const Tensor& x, const std::vector<Box>& boxes) {
  if (x.is_constant() || !Tape::recording()) return {x, pack_boxes(x, boxes)};
  WithPackedBoxes result{x.as_variable(), {}};
  {
    const Untaped scope;
    result.packed = pack_boxes(x, boxes).as_variable();
  }
  Tape::record(
      {.name = "with_packed_boxes", .inputs = {x}, .outputs = {result.x, result.packed}, .vjp = [boxes](const Replay&, Inputs g) {
         const bool in_place = sole_owner(g[0]);  // checked before the call copies the handle
         return Tensors{mpigrad::apply(ops::AddBoxes{boxes, in_place}, {g[0], g[1]})};
       }});
  return result;
}

}  // namespace mpigrad
