#include "comm/halos/overlapped.h"

#include <utility>

#include "comm/distributed/bias_activation.h"
#include "comm/halos/ghosts.h"
#include "comm/messages/nonblocking.h"
#include "ops/views/pack_boxes.h"
#include "ops/views/views.h"

namespace mpigrad::spatial {
namespace {

// The elements of the slab, from those that have arrived.
Tensor assembled(const Tensor& arrived, const Slab& slab) {
  std::int64_t elements = 0;
  for (const auto& part : slab.parts) elements += part.elements();
  const auto packed = slice(arrived, 0, slab.first, slab.first + elements);
  const auto shape = slab.box.extents();
  return slab.parts.size() == 1 ? reshape(packed, shape) : boxes_in_zeros(packed, shape, slab.parts);
}

// activation(conv(x, w) + bias) for this rank's outputs, as a local tensor. w and bias are local already.
Tensor windowed_conv(const ConvPlan& plan, const Tensor& x, const Tensor& w, const Tensor& bias, Activation activation) {
  if (!x.layout()) return local::conv_bias_activation(x, w, bias, activation, plan.a);
  const int room = plan.pool ? -1 : halo_dimension(plan.window);
  if (!plan.halos) {
    const auto input = windowed_input(x, plan.window);
    const HaloRoom scope(room);
    return local::conv_bias_activation(input, w, bias, activation, plan.a);
  }
  const auto& halos = *plan.halos;
  const auto sent = with_packed_boxes(x.without_layout(), halos.sent);
  Request request = ineighbor_alltoall(sent.packed, halos.topology, halos.sent_rows, halos.received_rows);
  const bool activates = !activation.is_none();  // the activation is applied to the whole sum
  Tensor y;
  {
    const HaloRoom scope(activates ? -1 : room);
    y = local::conv_bias_activation(sent.x, w, activates ? Tensor() : bias, Activation::none, plan.a);
  }
  const auto arrived = wait(request);
  for (const auto& slab : halos.slabs) y = add_boxes(std::move(y), local::conv(assembled(arrived, slab), w, slab.a), {slab.out});
  if (!activates) return y;
  const HaloRoom scope(room);
  return local::bias_activation(y, bias, activation);
}

}  // namespace

Tensor run_conv(const ConvPlan& plan, const Tensor& x, const Tensor& w, const Tensor& bias) {
  const auto part = product_operands(plan.product, x, w, bias);
  const auto activation = plan.product.sums ? Activation::none : plan.activation;
  auto y = windowed_conv(plan, part.x, part.w, parameter_for(part.x, part.bias), activation);
  if (!x.layout() || plan.pool) return y;
  y = y.with_layout(plan.window.out);
  return whole_product(plan.product, std::move(y), bias, plan.activation);
}

}  // namespace mpigrad::spatial
