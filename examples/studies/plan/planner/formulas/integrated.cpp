#include "examples/studies/plan/planner/formulas/integrated.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/base/error.h"

namespace mpigrad::planner {
namespace {

double ceil_log(double ranks) { return std::ceil(std::log2(ranks)); }

// alpha ceil(log P) + beta (P - 1)/P n: an all-gather of n elements; a ring all-reduce is two of them.
double gather_seconds(double ranks, double elements, const ElementLink& link) {
  return link.latency * ceil_log(ranks) + link.seconds_per_element * (ranks - 1) / ranks * elements;
}

// The dimension along which a layer's places are split.
std::size_t split_dimension(const Layer& layer) { return layer.in_extents[0] > 1 ? 0 : 1; }

// Planes of inputs forward and of outputs' gradients backward, for so many samples.
double halo_seconds(const Layer& layer, double samples, const ElementLink& link) {
  const auto d = split_dimension(layer);
  const auto input_planes = static_cast<double>(layer.kernel[d] / 2), output_planes = static_cast<double>(layer.kernel[2] / 2);
  if (input_planes == 0 && output_planes == 0) return 0;
  double input = static_cast<double>(layer.in_channels), output = static_cast<double>(layer.out_channels);
  for (std::size_t e = d + 1; e < 3; ++e)
    input *= static_cast<double>(layer.in_extents[e]), output *= static_cast<double>(layer.out_extents[e]);
  return 2 * link.latency + link.seconds_per_element * samples * (input * input_planes + output * output_planes);
}

template <class F>
double sum_over(const std::vector<Layer>& layers, const F& seconds) {
  double sum = 0;
  for (const auto& layer : layers)
    if (layer.has_product()) sum += seconds(layer);
  return sum;
}

}  // namespace

double model_seconds(const std::vector<Layer>& layers, double ranks, double batch, const ElementLink& link, double factor) {
  return sum_over(layers, [&](const Layer& layer) { return factor * gather_seconds(ranks, batch * layer.outputs, link); });
}

double batch_seconds(const std::vector<Layer>& layers, double ranks, const ElementLink& link) {
  return sum_over(layers, [&](const Layer& layer) { return 2 * gather_seconds(ranks, layer.weights, link); });
}

double batch_by_model(const Layer& layer, double batch, double factor) { return crossover_batch(layer, factor) / batch; }
double crossover_batch(const Layer& layer, double factor) { return 2 * layer.weights / (factor * layer.outputs); }

double redistribution_seconds(const Layer& layer, double ranks, double batch, const ElementLink& link) {
  return gather_seconds(ranks, batch * layer.outputs, link);
}

double domain_seconds(const std::vector<Layer>& layers, double ranks, double batch, const ElementLink& link) {
  return integrated_seconds({}, layers, ranks, 1, batch, link);
}

double model_batch_seconds(const std::vector<Layer>& layers, double pr, double pc, double batch, const ElementLink& link,
                           double factor) {
  return sum_over(layers, [&](const Layer& layer) {
    return factor * gather_seconds(pr, batch * layer.outputs / pc, link) + 2 * gather_seconds(pc, layer.weights / pr, link);
  });
}

double integrated_seconds(const std::vector<Layer>& model, const std::vector<Layer>& domain, double pr, double pc, double batch,
                          const ElementLink& link, double factor) {
  const double halos = pr > 1 ? sum_over(domain, [&](const Layer& layer) { return halo_seconds(layer, batch / pc, link); }) : 0;
  return model_batch_seconds(model, pr, pc, batch, link, factor) + halos + batch_seconds(domain, pr * pc, link);
}

IntegratedResult search_grids(const IntegratedInput& in) {
  require(in.ranks >= 1 && in.batch >= 1 && in.samples >= 1,
          "[integrated] {} ranks, a batch of {} and {} samples: all are at least 1", in.ranks, in.batch, in.samples);
  require(std::isfinite(in.latency) && in.latency >= 0 && std::isfinite(in.bandwidth) && in.bandwidth > 0 &&
              in.bytes_per_element > 0 && in.factor > 0,
          "[integrated] a latency of {} s, {} bytes per second, {} bytes per element, a factor of {}", in.latency, in.bandwidth,
          in.bytes_per_element, in.factor);
  require(in.convolutions != Convolutions::batch || in.ranks <= in.batch,
          "[integrated] convolutions split by samples need one for each of {} ranks; the batch has {}", in.ranks, in.batch);
  std::vector<Layer> convolutions, products;
  for (const auto& layer : in.layers)
    if (layer.has_product()) (layer.kind == "linear" ? products : convolutions).push_back(layer);
  require(!convolutions.empty() || !products.empty(), "[integrated] there are no convolutions or products");

  const ElementLink link{.latency = in.latency, .seconds_per_element = in.bytes_per_element / in.bandwidth};
  const auto ranks = static_cast<double>(in.ranks), batch = static_cast<double>(in.batch);
  auto fewest_planes = std::numeric_limits<std::int64_t>::max();
  for (const auto& layer : convolutions) fewest_planes = std::min(fewest_planes, layer.in_extents[split_dimension(layer)]);
  IntegratedResult result;
  result.iterations = (in.samples + in.batch - 1) / in.batch;
  const auto iterations = static_cast<double>(result.iterations);
  result.batch_only = iterations * (batch_seconds(convolutions, ranks, link) + batch_seconds(products, ranks, link));
  for (std::int64_t pr = 1; pr <= in.ranks; ++pr) {
    if (in.ranks % pr != 0) continue;
    const auto pc = in.ranks / pr;
    const auto r = static_cast<double>(pr), c = static_cast<double>(pc);
    double seconds = 0;
    switch (in.convolutions) {
      case Convolutions::batch:
        seconds = batch_seconds(convolutions, ranks, link) + model_batch_seconds(products, r, c, batch, link, in.factor);
        break;
      case Convolutions::same:
        seconds = model_batch_seconds(convolutions, r, c, batch, link, in.factor) +
                  model_batch_seconds(products, r, c, batch, link, in.factor);
        break;
      case Convolutions::domain: seconds = integrated_seconds(products, convolutions, r, c, batch, link, in.factor); break;
    }
    const bool planes = in.convolutions != Convolutions::domain || pr <= fewest_planes;
    result.grids.push_back({pr, pc, iterations * seconds, pc <= in.batch && planes});
  }
  const auto cost = [](const IntegratedGrid& grid) {
    return grid.possible ? grid.communication : std::numeric_limits<double>::infinity();
  };
  result.best = *std::min_element(result.grids.begin(), result.grids.end(),
                                  [&](const auto& a, const auto& b) { return cost(a) < cost(b); });
  require(result.best.possible, "[integrated] on no grid of {} ranks has each a sample of {} and a plane of {} of its own",
          in.ranks, in.batch, fewest_planes);
  if (result.best.communication > 0) result.speedup = result.batch_only / result.best.communication;
  return result;
}

}  // namespace mpigrad::planner
