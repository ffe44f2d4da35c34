#include "ops/reduce.h"

#include <algorithm>

#include "framework/cuda/graph.h"
#include "ops/activation.h"
#include "ops/broadcast.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/plan.h"
#include "ops/cuda/running.h"
#include "ops/cuda/tensors.h"
#include "ops/cuda/window_kernels.h"
#include "ops/loss.h"
#include "ops/norm.h"
#include "ops/random.h"
#include "ops/running.h"
#include "ops/softmax.h"

namespace mpigrad::ops {
namespace {

struct Rows {
  std::int64_t count, length;
};
Rows rows_of(const Tensor& x) { return {x.shape().elements(0, x.rank() - 1), x.dim(-1)}; }

// f(first, count) for groups of channels, as many as a launch has room for at a time.
template <class F>
void for_groups(std::int64_t groups, const F& f) {
  constexpr std::int64_t most = 65535;
  for (std::int64_t first = 0; first < groups; first += most) f(first, std::min(most, groups - first));
}

// What there is per channel of T.
template <class T>
using PerChannel = std::conditional_t<is_half(dtype_of<T>()), float, T>;

}  // namespace

void Sum::run(Cuda, Inputs in, Outputs out) const {
  const auto reduction = cuda::reduction_of(in[0].shape(), axes);
  Tensor partial;
  if (reduction.chunks > 1) partial = scratch(reduction.chunks * reduction.outputs, DType::float64);
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::sum(reduction, read<T>(in[0]), partial ? written<double>(partial) : nullptr, written<T>(out[0]),
              cuda::compute_stream());
  });
}

void BroadcastTo::run(Cuda, Inputs in, Outputs out) const {
  cuda::copy_strided(out[0].raw(), in[0].raw(), size_of(in[0].dtype()),
                     walk_of(shape, shape.strides(), broadcast_strides(in[0].shape(), shape)), cuda::compute_stream());
}

void Extremum::run(Cuda, Inputs in, Outputs out) const {
  require(in[0].dtype() != DType::boolean, "[max/min] of booleans; cast to uint8 first: {}", in[0]);
  const auto reduction = cuda::reduction_of(in[0].shape(), axes);
  Tensor partial;
  if (reduction.chunks > 1) partial = scratch(reduction.chunks * reduction.outputs, DType::float64);  // at least as wide
  visit_any_arithmetic(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, bool>)
      cuda::extremum(reduction, largest, read<T>(in[0]), partial ? partial.raw() : nullptr, written<T>(out[0]),
                     cuda::compute_stream());
  });
}

void ArgMax::run(Cuda, Inputs in, Outputs out) const {
  const auto& shape = in[0].shape();
  visit_any_arithmetic(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::argmax(shape.elements(0, axis), shape[axis], shape.elements(axis + 1, shape.rank()), read<T>(in[0]),
                 written<std::int64_t>(out[0]), cuda::compute_stream());
  });
}

void Softmax::run(Cuda, Inputs in, Outputs out) const {
  const auto rows = rows_of(in[0]);
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::softmax(rows.count, rows.length, read<T>(in[0]), written<T>(out[0]), false, cuda::compute_stream());
  });
}
void LogSoftmax::run(Cuda, Inputs in, Outputs out) const {
  const auto rows = rows_of(in[0]);
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::softmax(rows.count, rows.length, read<T>(in[0]), written<T>(out[0]), true, cuda::compute_stream());
  });
}

void ChannelMoments::run(Cuda, Inputs in, Outputs out) const {
  const auto at = channel_rows(in[0], per_sample);
  Tensor work = scratch(cuda::channel_scratch(at.groups, at.rows, at.channels), DType::float64);
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    using S = PerChannel<T>;
    for_groups(at.groups, [&](std::int64_t first, std::int64_t count) {
      const auto x = first * at.rows * at.channels, c = first * at.channels;
      cuda::channel_moments(count, at.rows, at.channels, read<T>(in[0]) + x, written<double>(work), written<S>(out[0]) + c,
                            written<S>(out[1]) + c, cuda::compute_stream());
    });
  });
}
void ChannelAffine::run(Cuda, Inputs in, Outputs out) const {
  const auto at = channel_rows(in[0], in[1].rank() == 2);
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    using S = PerChannel<T>;
    for_groups(at.groups, [&](std::int64_t first, std::int64_t count) {
      const auto x = first * at.rows * at.channels, c = first * at.channels;
      cuda::channel_affine(count, at.rows, at.channels, read<T>(in[0]) + x, read<S>(in[1]) + c, read<S>(in[2]) + c,
                           read<S>(in[3]) + c, slope, written<T>(out[0]) + x, cuda::compute_stream());
    });
  });
}
void ChannelDots::run(Cuda, Inputs in, Outputs out) const {
  const auto at = channel_rows(in[0], in[2].rank() == 2);
  Tensor work = scratch(cuda::channel_scratch(at.groups, at.rows, at.channels), DType::float64);
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    using S = PerChannel<T>;
    for_groups(at.groups, [&](std::int64_t first, std::int64_t count) {
      const auto x = first * at.rows * at.channels, c = first * at.channels;
      cuda::channel_dots(count, at.rows, at.channels, read<T>(in[0]) + x, read<T>(in[1]) + x, read<S>(in[2]) + c,
                         written<double>(work), written<S>(out[0]) + c, written<S>(out[1]) + c, cuda::compute_stream());
    });
  });
}

void NormAdjoint::run(Cuda, Inputs in, Outputs out) const {
  const auto at = channel_rows(in[0], in[2].rank() == 2);
  Tensor work = scratch(cuda::norm_scratch(at.groups, at.rows, at.channels), DType::float64);
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    using S = PerChannel<T>;
    for_groups(at.groups, [&](std::int64_t first, std::int64_t count) {
      const auto x = first * at.rows * at.channels, c = first * at.channels;
      const cuda::NormOfChannels<S> norm{static_cast<S>(slope), read<S>(in[2]) + c, read<S>(in[3]) + c, read<S>(in[4]) + c,
                                         read<S>(in[5]) + c};
      cuda::norm_adjoint(count, at.rows, at.channels, read<T>(in[0]) + x, read<T>(in[1]) + x, norm, written<double>(work),
                         written<T>(out[0]) + x, written<S>(out[1]) + c, written<S>(out[2]) + c, cuda::compute_stream());
    });
  });
}

void RunningAverages::run(Cuda, Inputs in, Outputs) const {
  visit_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    Tensor to_mean = in[4], to_variance = in[5];
    cuda::running_averages<T>(
        in[0].elements(),
        {read<T>(in[0]), read<T>(in[1]), read<T>(in[2]), read<T>(in[3]), written<T>(to_mean), written<T>(to_variance)},
        {momentum, correction}, cuda::compute_stream());
  });
}

void BiasActivation::run(Cuda, Inputs in, Outputs out) const {
  const auto rows = rows_of(in[0]);
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::bias_activation(rows.count, rows.length, read<T>(in[0]), read<T>(in[1]), slope, written<T>(out[0]),
                          cuda::compute_stream());
  });
}
void BiasActivationAdjoint::run(Cuda, Inputs in, Outputs out) const {
  const auto rows = rows_of(in[0]);
  Tensor work = scratch(cuda::channel_scratch(1, rows.count, rows.length), DType::float64);
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::bias_activation_adjoint(rows.count, rows.length, read<T>(in[0]), read<T>(in[1]), slope, written<double>(work),
                                  written<T>(out[0]), written<T>(out[1]), cuda::compute_stream());
  });
}

void LabelMask::run(Cuda, Inputs in, Outputs out) const {
  visit_any_integral(in[0].dtype(), [&](auto zero) {
    using I = decltype(zero);
    cuda::label_mask(in[0].elements(), classes, ignored.has_value(), ignored.value_or(0), read<I>(in[0]), written<bool>(out[0]),
                     cuda::fault_record(), cuda::compute_stream());
  });
}

void random_on_gpu(const RandomNumbers& numbers, const Box& box, const Shape& global, Tensor& y) {
  const auto strides = global.strides();
  const auto* live = cuda::live_scalars();
  require(numbers.step || !cuda::capturing(), "[graph] random numbers would be the same in every repetition of a captured step");
  cuda::RandomProblem problem{.kind = static_cast<int>(numbers.kind),
                              .random = numbers.step && !live ? numbers.random.child(*numbers.step) : numbers.random,
                              .a = numbers.a,
                              .b = numbers.b,
                              .limit = numbers.limit,
                              .place = StridedWalk<1>(walk_of(y.shape(), strides).collapsed()),
                              .first = 0,
                              .live = live};
  for (int d = 0; d < global.rank(); ++d) problem.first += box.begin[d] * strides[static_cast<std::size_t>(d)];
  visit_any_floating(y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::random(problem, y.elements(), written<T>(y), cuda::compute_stream());
  });
}

}  // namespace mpigrad::ops
