#include "comm/distributed/normalisation.h"

#include <algorithm>

#include "comm/collectives/collectives.h"
#include "comm/distributed/channel_parts.h"
#include "comm/distributed/local_parts.h"
#include "framework/engine/op.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace {

using spatial::halo_dimension, spatial::replicated_for, spatial::require_no_share;
using spatial::own_channels, spatial::with_channels_of, spatial::block_beside, spatial::splits_channels;

// The grid axes over which statistics are combined.
std::vector<int> axes_of(const Tensor& x, StatisticsOver over) {
  std::vector<int> axes;
  if (!x.layout() || over == StatisticsOver::local) return axes;
  for (const int axis : x.layout()->varying_axes()) {
    const bool of_samples = x.layout()->axes[static_cast<std::size_t>(axis)].dimension == 0;
    if (over == StatisticsOver::all || of_samples == (over == StatisticsOver::batch_group)) axes.push_back(axis);
  }
  return axes;
}

// The extent of dimension d on all ranks that differ along `axes`, taken together.
double extent_over(const Tensor& x, const std::vector<int>& axes, int d) {
  const int axis = x.layout() ? x.layout()->axis_of(d) : -1;
  const bool combined = axis >= 0 && std::find(axes.begin(), axes.end(), axis) != axes.end();
  return static_cast<double>(combined ? x.layout()->global[d] : x.dim(d));
}

// The moments over `all` rows from those of each rank's `mine` rows. Each rank uses the result differently, so that it varies:
// plain sums over ranks.
Moments combined(const Moments& here, double mine, double all, const Communicator& group) {
  const auto mean = allreduce(here.mean * (mine / std::max(1.0, all)), group);
  return {mean, allreduce(here.m2 + square(here.mean - mean) * mine, group)};
}

void require_groups(std::int64_t channels, std::int64_t groups) {
  require(groups == 0 || (groups > 0 && channels % groups == 0), "[group_norm] {} channels are not {} groups of one size",
          channels, groups);
}

// A group norm of split channels, where no cut lies inside a group.
Tensor split_group_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, ChannelGroupNormAttributes a) {
  const auto& layout = *x.layout();
  require_groups(layout.global.back(), a.groups);
  if (a.groups > 0) {
    const auto each = std::max<std::int64_t>(1, layout.global.back() / a.groups);
    const int axis = layout.axis_of(x.rank() - 1);
    for (const auto cut : axis < 0 ? std::vector<std::int64_t>() : layout.axes[static_cast<std::size_t>(axis)].cuts)
      require(cut % each == 0,
              "[group_norm] the cut at channel {} is inside a group of {}, whose statistics no rank has; cut between groups, "
              "with_cuts(), or make the channels whole by redistribute(): {}",
              cut, each, x);
    a.groups = x.dim(-1) / each;  // 0 (instance norm) on a rank without channels, which has no group
  }
  return with_channels_of(
      x, group_norm(own_channels(x), block_beside("group_norm", x, gamma), block_beside("group_norm", x, beta), a));
}

HaloRoom room_for(const Tensor& x) { return HaloRoom(x.layout() ? halo_dimension(*x.layout()) : -1); }

}  // namespace

BatchNormResult batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const ChannelNormAttributes& a) {
  require_no_share("batch_norm", x);
  if (splits_channels(x, {gamma, beta})) {
    auto result = batch_norm(own_channels(x), block_beside("batch_norm", x, gamma), block_beside("batch_norm", x, beta), a);
    result.y = with_channels_of(x, result.y);
    return result;
  }
  const auto part = x.without_layout();
  const auto mine = static_cast<double>(x.shape().elements(0, x.rank() - 1));
  const auto axes = axes_of(x, a.statistics);
  const auto room = room_for(x);
  if (axes.empty()) {
    const auto [y, statistics] = local::norm(part, replicated_for(x, gamma), replicated_for(x, beta), a.epsilon, a.activation);
    return {y.with_layout(x.layout()), statistics, mine};
  }
  double count = 1;
  for (int d = 0; d + 1 < x.rank(); ++d) count *= extent_over(x, axes, d);
  const auto moments = combined(channel_moments(part), mine, count, grid_of(*x.layout()).along(axes));
  const BatchNormStatistics statistics{moments.mean, moments.m2 / std::max(1.0, count)};
  auto y = local::normalise(part, statistics, replicated_for(x, gamma), replicated_for(x, beta), a.epsilon, a.activation);
  return {y.with_layout(x.layout()), statistics, count};
}

Tensor normalise(const Tensor& x, const BatchNormStatistics& statistics, const Tensor& gamma, const Tensor& beta,
                 const ChannelNormAttributes& a) {
  require_no_share("batch_norm", x);
  if (splits_channels(x, {gamma, beta}))
    return with_channels_of(
        x, normalise(own_channels(x), statistics, block_beside("batch_norm", x, gamma), block_beside("batch_norm", x, beta), a));
  const auto room = room_for(x);
  return local::normalise(x.without_layout(), statistics, replicated_for(x, gamma), replicated_for(x, beta), a.epsilon,
                          a.activation)
      .with_layout(x.layout());
}

Tensor group_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const ChannelGroupNormAttributes& a) {
  require(x.rank() >= 2, "[group_norm] samples of channels are [N, ..., C]: {}", x);
  require_no_share("group_norm", x);
  if (splits_channels(x, {gamma, beta})) return split_group_norm(x, gamma, beta, a);
  require(a.statistics == StatisticsOver::local || a.statistics == StatisticsOver::spatial_group,
          "[group_norm] each sample has statistics of its own: over this rank's part or over the spatial group");
  const auto channels = x.dim(-1), groups = a.groups == 0 ? channels : a.groups;
  require_groups(channels, a.groups);
  const auto part = x.without_layout();
  const auto n = part.dim(0);
  const auto axes = axes_of(x, a.statistics);
  if (axes.empty() && groups == channels) {
    const auto room = room_for(x);
    return local::norm(part, replicated_for(x, gamma), replicated_for(x, beta), a.epsilon, a.activation, true)
        .first.with_layout(x.layout());
  }
  auto moments = channel_moments(part, true);
  const auto mine = static_cast<double>(ops::channel_rows(part, true).rows);
  double count = mine;
  if (!axes.empty()) {
    count = 1;
    for (int d = 1; d + 1 < x.rank(); ++d) count *= extent_over(x, axes, d);
    moments = combined(moments, mine, count, grid_of(*x.layout()).along(axes));
  }
  UseDevice device(x.device());
  if (groups != channels) {
    const auto each = channels / groups;
    const auto means = reshape(moments.mean, {n, groups, each});
    const auto mean = mpigrad::mean(means, {2}, true);
    const auto m2 = sum(reshape(moments.m2, {n, groups, each}) + square(means - mean) * count, {2}, true);
    const auto of_channels = constant(ones({1, 1, each}, mean.dtype()));
    moments = {reshape(mean * of_channels, {n, channels}), reshape(m2 * of_channels, {n, channels})};
    count *= static_cast<double>(each);
  }
  const BatchNormStatistics statistics{moments.mean, moments.m2 / std::max(1.0, count)};
  const auto shift = replicated_for(x, beta) + constant(zeros({n, channels}, statistics.mean.dtype()));
  const auto room = room_for(x);
  return local::normalise(part, statistics, replicated_for(x, gamma), shift, a.epsilon, a.activation).with_layout(x.layout());
}

namespace {

Tensor row_norm(const char* op, const Tensor& x, bool centred, const Tensor& gamma, const Tensor& beta, double epsilon) {
  require(x.rank() >= 1 && is_floating(x.dtype()), "[{}] needs floating-point rows [..., C]: {}", op, x);
  require_no_share(op, x);
  require(!x.layout() || x.layout()->axis_of(x.rank() - 1) < 0,
          "[{}] the last dimension is split over ranks: redistribute() it first, or use whole_channels(); {}", op, x);
  for (const auto& parameter : {gamma, beta})
    require(!parameter || global_shape(parameter) == Shape{x.dim(-1)}, "[{}] {} channels, but a parameter {}", op, x.dim(-1),
            parameter);
  Tensor y = cast(x.without_layout(), computed_in(x.dtype()));
  if (centred) y = y - mean(y, {-1}, true);
  y = y * pow(mean(square(y), {-1}, true) + epsilon, -0.5);
  if (gamma) y = y * replicated_for(x, gamma);
  if (beta) y = y + replicated_for(x, beta);
  return cast(y, x.dtype()).with_layout(x.layout());
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double epsilon) {
  return row_norm("layer_norm", x, true, gamma, beta, epsilon);
}
Tensor rms_norm(const Tensor& x, const Tensor& gamma, double epsilon) {
  return row_norm("rms_norm", x, false, gamma, {}, epsilon);
}

}  // namespace mpigrad
