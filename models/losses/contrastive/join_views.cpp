#include "models/losses/contrastive/join_views.h"

#include "ops/views/views.h"

namespace mpigrad::contrastive {
namespace {

// The layout with the number of samples multiplied by `times` and divided by `divided`, in the block of every rank.
LayoutPtr with_samples(const LayoutPtr& layout, std::int64_t times, std::int64_t divided) {
  if (!layout) return nullptr;
  auto result = std::make_shared<Layout>(*layout);
  result->global[0] = result->global[0] * times / divided;
  for (auto& axis : result->axes)
    if (axis.placement == Placement::split && axis.dimension == 0)
      for (auto& cut : axis.cuts) cut = cut * times / divided;
  return result;
}

bool divides(const Layout& layout, std::int64_t views) {
  if (layout.global[0] % views != 0) return false;
  for (const auto& axis : layout.axes)
    if (axis.placement == Placement::split && axis.dimension == 0)
      for (const auto cut : axis.cuts)
        if (cut % views != 0) return false;
  return true;
}

}  // namespace

Tensor join_views(const Tensors& views) {
  require(!views.empty() && views[0].rank() >= 1, "[join_views] needs at least one view [n, ...]");
  Tensors plain;
  for (const auto& view : views) {
    const bool alike = view.type() == views[0].type() && !view.layout() == !views[0].layout() &&
                       (!view.layout() || *view.layout() == *views[0].layout());
    require(alike, "[join_views] views have one shape, type and layout: {} and {}", views[0], view);
    plain.push_back(view.without_layout());
  }
  const auto layout = with_samples(views[0].layout(), static_cast<std::int64_t>(views.size()), 1);
  const auto joined = concatenate(plain, 0);
  return layout ? joined.with_layout(layout) : joined;
}

Tensors split_views(const Tensor& joined, int views) {
  require(joined.rank() >= 1 && views > 0 && joined.dim(0) % views == 0 && (!joined.layout() || divides(*joined.layout(), views)),
          "[split_views] the samples of each rank are not {} views: {}", views, joined);
  const auto layout = with_samples(joined.layout(), 1, views);
  const auto n = joined.dim(0) / views;
  Tensors result;
  for (int v = 0; v < views; ++v) {
    const auto view = slice(joined.without_layout(), 0, v * n, (v + 1) * n);
    result.push_back(layout ? view.with_layout(layout) : view);
  }
  return result;
}

}  // namespace mpigrad::contrastive
