#include "examples/studies/plan/planner/search/estimate.h"

#include <algorithm>
#include <cmath>

#include "examples/studies/plan/planner/formulas/collective_cost.h"
#include "framework/optim/division.h"

namespace mpigrad::planner {
namespace {

double part(std::int64_t n, int ranks) {
  if (n <= 0) return 1;
  return static_cast<double>((n + ranks - 1) / ranks) / static_cast<double>(n);
}

// The part of an activation on the rank with the largest block.
double part_of(const Shape& shape, const GridExtents& g) {
  if (shape.rank() == 0) return 1;
  double result = part(shape[0], g.sample);
  if (shape.rank() == 5) result *= part(shape[1], g.depth) * part(shape[2], g.height) * part(shape[3], g.width);
  return result;
}

// The activation that an op processes: the first operand of products; otherwise the operand or result with the most elements.
const Shape& activation(const StepEvent& event) {
  static const Shape none;
  if (is_product(event.op) && !event.in.empty()) return event.in[0].shape;
  const Shape* result = &none;
  std::int64_t most = 0;
  for (const auto* list : {&event.in, &event.out})
    for (const auto& type : *list)
      if (type.shape.rank() > 0 && type.shape.elements() > most) most = type.shape.elements(), result = &type.shape;
  return *result;
}

}  // namespace

Estimate::Estimate(const StepTrace& whole, const Machine& machine, const SearchOptions& options, const OpTimes& ops)
    : whole_(whole), machine_(machine), options_(options), ops_(ops) {
  // Measured ops are known by their types, which parts of these do not have; the roofline orders grids equally well.
  for (const auto& event : whole.events)
    if (!event.view && event.op != "end") works_.push_back({&event, &activation(event), is_product(event.op), ops.needs(event)});
}

Estimate::Result Estimate::of(const Choice& choice) const {
  const auto& g = choice.grid;
  const int ranks = ranks_of(g), spatial = g.depth * g.height * g.width;
  const auto at_level = [&](int level) {
    const auto& link = machine_.levels[static_cast<std::size_t>(level)];
    return Link{.latency = link.latency, .seconds_per_byte = link.sharing / link.bandwidth};
  };
  const auto link = [&](int members) { return at_level(machine_.level_between(0, members - 1)); };
  // Neighbours along each spatial dimension.
  const int axes[] = {g.depth, g.height, g.width}, parts = weight_parts(g);
  const int strides[] = {g.height * g.width * parts, g.width * parts, parts};
  Link near[3];
  for (int a = 0; a < 3; ++a)
    if (axes[a] > 1) near[a] = at_level(farthest_level(machine_, g, 0, strides[a]));
  const auto channels = link(parts), far = link(ranks);
  // As Division does; weights in blocks are not divided.
  const bool divided = !machine_.device.gpu && parts == 1 && ranks > 1 && whole_.optimizer_bytes >= Division::least_state;
  Result result;
  double backward = 0, work = 0;
  for (const auto& [at, of, product, needs] : works_) {
    const auto& event = *at;
    const auto& shape = *of;
    double share = event.phase == StepEvent::Phase::update ? 1 : part_of(shape, g);
    if (product || event.phase == StepEvent::Phase::update) share /= parts;
    if (event.phase == StepEvent::Phase::update && (choice.sharded_weights || divided))
      share /= static_cast<double>(ranks) / parts;
    const double seconds = ops_.roof(needs, share);
    work += seconds;
    if (event.phase == StepEvent::Phase::backward) backward += seconds;
    if (!product || event.in.size() < 2) continue;
    // Planes around the block, and channels of other ranks.
    const auto item = static_cast<double>(size_of(event.in[0].dtype));
    const auto& w = event.in[1].shape;
    if (spatial > 1 && shape.rank() == 5 && w.rank() == 5 && event.op != "conv_weight") {
      const auto local_elements = static_cast<double>(shape.elements()) * part_of(shape, g);
      for (int a = 0; a < 3; ++a) {
        const auto reach = w[a + 1] / 2;
        if (axes[a] == 1 || reach == 0) continue;
        const double plane = local_elements / std::max(1.0, std::ceil(static_cast<double>(shape[a + 1]) / axes[a]));
        result.seconds += near[a].latency + 2 * static_cast<double>(reach) * plane * item * near[a].seconds_per_byte;
      }
    }
    if (parts == 1) continue;
    const double bytes = static_cast<double>(shape.elements()) * part_of(shape, g) * item;
    // On two axes, layers alternate between them.
    const auto sums = [&](int over, int parts_of_each) {
      return best(CollectiveKind::allreduce, over, bytes / parts_of_each, channels).seconds / 2;
    };
    result.seconds += g.filter > 1 ? sums(g.channel, g.filter) + sums(g.filter, g.channel)
                                   : best(CollectiveKind::allgather, g.channel, bytes, channels).seconds;
  }
  result.seconds += work;
  const double weights = static_cast<double>(whole_.parameter_bytes) / parts;
  const int copies = ranks / parts;
  if (copies > 1) {
    const double reduction = best(CollectiveKind::allreduce, copies, weights, far).seconds * (choice.sharded_weights ? 1.5 : 1);
    result.seconds += machine_.overlaps ? std::max(0.0, reduction - backward) : reduction;
  }
  const double state = static_cast<double>(whole_.parameter_bytes + whole_.optimizer_bytes);
  const double own = divided && !choice.sharded_weights
                         ? static_cast<double>(whole_.parameter_bytes) + static_cast<double>(whole_.optimizer_bytes) / ranks
                         : state / (choice.sharded_weights ? ranks : parts);
  const double activations = std::max(0.0, static_cast<double>(whole_.peak_bytes) - state);
  // With recomputation a network keeps about 0.4 of its activations.
  result.bytes = own + activations * part_of({options_.batch, whole_.layers.empty() ? 1 : 1 << 20, 1 << 20, 1 << 20, 1}, g) *
                           (choice.recompute ? 0.4 : 1) / (parts > 1 ? std::sqrt(parts) : 1);
  return result;
}

}  // namespace mpigrad::planner
