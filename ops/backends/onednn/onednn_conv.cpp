// Convolutions of float and bfloat16 by oneDNN. Float uses Winograd's filtering where that is faster, and gathered products where
// oneDNN has no optimised kernel or a defect; in that case bfloat16 returns to the caller, which computes in float32.

#include <omp.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "framework/tensor/half_rows.h"
#include "ops/backends/blas/blas.h"
#include "ops/backends/implementation.h"
#include "ops/backends/onednn/onednn.h"
#include "ops/backends/onednn/onednn_defects.h"
#include "ops/backends/onednn/primitive_cache.h"
#include "ops/backends/patches/patches.h"
#include "ops/backends/winograd/winograd.h"
#include "ops/conv/conv_bfloat16.h"
#include "ops/conv/conv_gathered.h"
#include "ops/conv/conv_reduced.h"
#include "ops/kernel/problems.h"
#include "ops/kernel/thread_buffer.h"

namespace mpigrad::cpu {

namespace {

template <class T>
constexpr onednn::Type type_of = std::is_same_v<T, float> ? onednn::Type::f32 : onednn::Type::bf16;

// A primitive with its arguments' layouts and the reorder between our weights and its own.
struct Plan {
  bool usable = false;
  std::string implementation = "gathered";
  dnnl::primitive primitive;
  dnnl::reorder reorder;
  onednn::Desc x, own_weights, plain_weights, y, bias, scratchpad, reorder_scratchpad;
};

// Gathered products compute problems that oneDNN would refuse or is not trusted with: nothing to sum or to write, cropping on the
// left, windows wholly in padding.
bool ordinary(const ConvProblem& p) {
  const auto sizes = {p.batch, volume(p.in), volume(p.out), volume(p.kernel), p.in_channels, p.out_channels};
  if (std::ranges::count(sizes, 0) > 0) return false;
  for (std::size_t a = 0; a < 3; ++a) {
    const std::int64_t extent = window_extent(p, a);
    if (p.pad_low[a] < 0 || p.pad_low[a] >= extent || pad_high(p, a) >= extent) return false;
  }
  return true;
}

// With few outputs, reordering the weights costs more than the products, and gathered products read (write) the weights once, in
// memory order: three times faster forward and backward for 2^3 outputs, measured on CosmoFlow's last layers.
bool few_outputs(Pass pass, const ConvProblem& p) {
  const std::int64_t most = pass == Pass::forward ? 16 : pass == Pass::data ? 64 : 128;
  return p.batch * volume(p.out) <= most;
}

CacheKey key_of(Pass pass, onednn::Type type, onednn::Type of_weights, const ConvProblem& p, bool bias, scalar::Fused fused) {
  CacheKey key{static_cast<std::int64_t>(pass),
               static_cast<std::int64_t>(type),
               static_cast<std::int64_t>(of_weights),
               omp_get_max_threads(),
               bias,
               std::bit_cast<std::int64_t>(fused.factor),
               p.batch,
               p.in_channels,
               p.out_channels,
               p.groups};
  std::size_t i = 10;
  for (const Extent3& e : {p.in, p.out, p.kernel, p.stride, p.dilation, p.pad_low})
    for (const std::int64_t extent : e) key[i++] = extent;
  return key;
}

template <class Descriptor>
Plan plan_of(const ConvProblem& p, onednn::Type type, onednn::Type of_weights, const Descriptor& descriptor) {
  Plan plan;
  if (!descriptor || onednn::is_plain(descriptor.impl_info_str())) return plan;
  if (type == onednn::Type::bf16 && !onednn::is_bfloat16(descriptor.impl_info_str())) return plan;
  plan.usable = true;
  plan.implementation = descriptor.impl_info_str();
  plan.scratchpad = descriptor.scratchpad_desc();
  plan.plain_weights = onednn::weights(p, true, of_weights);
  plan.x = onednn::activation(p.batch, p.in_channels, p.in, type);
  plan.y = onednn::activation(p.batch, p.out_channels, p.out, type);
  return plan;
}

void set_reorder(Plan& plan, const onednn::Desc& from, const onednn::Desc& to) {
  if (from == to) return;
  const auto descriptor = onednn::reordering(from, to);
  plan.reorder = dnnl::reorder(descriptor);
  plan.reorder_scratchpad = descriptor.scratchpad_desc();
}

// `of_weights` is the type of the caller's weights.
Plan make_plan(Pass pass, onednn::Type type, onednn::Type of_weights, const ConvProblem& p, bool bias, scalar::Fused fused) {
  if (!ordinary(p) || few_outputs(pass, p)) return {};
  const bool wrong = type == onednn::Type::bf16
                         ? !onednn::has_bfloat16() || !onednn::right_in_bfloat16(onednn::version(), pass, p)
                         : onednn::has_defect(pass, p);
  if (wrong) return {};
  if (pass == Pass::forward) {
    const auto descriptor = onednn::convolution(p, bias, fused, type);
    Plan plan = plan_of(p, type, of_weights, descriptor);
    if (!plan.usable) return plan;
    plan.primitive = dnnl::convolution_forward(descriptor);
    plan.own_weights = descriptor.weights_desc();
    if (bias) plan.bias = onednn::vector(p.out_channels, type);
    set_reorder(plan, plan.plain_weights, plan.own_weights);
    return plan;
  }
  if (pass == Pass::data) {
    const auto descriptor = onednn::convolution_data(p, type);
    Plan plan = plan_of(p, type, of_weights, descriptor);
    if (!plan.usable) return plan;
    plan.primitive = dnnl::convolution_backward_data(descriptor);
    plan.own_weights = descriptor.weights_desc();
    set_reorder(plan, plan.plain_weights, plan.own_weights);
    return plan;
  }
  const auto descriptor = onednn::convolution_weights(p, type);
  Plan plan = plan_of(p, type, onednn::Type::f32, descriptor);
  if (!plan.usable) return plan;
  plan.primitive = dnnl::convolution_backward_weights(descriptor);
  plan.own_weights = descriptor.diff_weights_desc();
  set_reorder(plan, plan.own_weights, plan.plain_weights);
  return plan;
}

std::shared_ptr<const Plan> find_plan(Pass pass, onednn::Type type, onednn::Type of_weights, const ConvProblem& p,
                                      bool bias = false, scalar::Fused fused = {}) {
  // Never destroyed: a rank thread may still compute while the process ends.
  static auto& cache = *new Cache<Plan>;
  return cache.find(key_of(pass, type, of_weights, p, bias, fused),
                    [&] { return make_plan(pass, type, of_weights, p, bias, fused); });
}

void* own_weights_buffer(const Plan& plan) {
  thread_local ThreadBuffer buffer;
  return buffer.reserve(plan.own_weights.get_size());
}

void run_reorder(const char* op, const Plan& plan, const dnnl::memory& from, const dnnl::memory& to) {
  onednn::execute(op, plan.reorder, plan.reorder_scratchpad, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

// The weights in the primitive's own layout; in this thread's buffer if they have to be reordered.
dnnl::memory to_own_weights(const char* op, const Plan& plan, const void* w) {
  const dnnl::memory plain = onednn::wrap(plan.plain_weights, w);
  if (!plan.reorder) return plain;
  const dnnl::memory own = onednn::wrap(plan.own_weights, own_weights_buffer(plan));
  run_reorder(op, plan, plain, own);
  return own;
}

}  // namespace

std::string implementation_of(Pass pass, const ConvProblem& p) {
  const ReducedConv reduced(p);
  if (patches::suits<float>(pass, reduced.problem())) return "patches";
  if (winograd::suits(pass, reduced.problem())) return "winograd";
  return find_plan(pass, onednn::Type::f32, onednn::Type::f32, reduced.problem())->implementation;
}

std::string native_implementation_of(Pass pass, const ConvProblem& p) {
  const ReducedConv reduced(p);
  if (patches::suits<BFloat16>(pass, reduced.problem())) return {};
  const auto plan = find_plan(pass, onednn::Type::bf16, onednn::Type::f32, reduced.problem());
  return plan->usable ? plan->implementation : std::string();
}

namespace {

void relu(std::int64_t n, float* y) { apply_epilogue_parallel({.fused = {0}}, n, 1, y); }

void relu(std::int64_t n, BFloat16* y) {
#pragma omp parallel for schedule(static) if (n > 1 << 14)
  for (std::int64_t i = 0; i < n; ++i)
    if (float(y[i]) < 0) y[i] = BFloat16(0.0F);
}

// These return false without writing anything if oneDNN has no optimised kernel or is not trusted.
template <class T, class W>
bool forward(const ConvProblem& p, const T* x, const W* w, T* y, const Epilogue& e) {
  // oneDNN's ReLU turns NaN into 0, which would hide a diverged network: ReLU is applied by our own loop.
  const bool inside = !e.fused.is_relu();
  const auto plan = find_plan(Pass::forward, type_of<T>, type_of<W>, p, e.bias != nullptr, inside ? e.fused : scalar::Fused{});
  if (!plan->usable) return false;
  onednn::Arguments arguments{{DNNL_ARG_SRC, onednn::wrap(plan->x, x)},
                              {DNNL_ARG_WEIGHTS, to_own_weights("conv3d", *plan, w)},
                              {DNNL_ARG_DST, onednn::wrap(plan->y, y)}};
  if (e.bias != nullptr) arguments.emplace(DNNL_ARG_BIAS, onednn::wrap(plan->bias, e.bias));
  onednn::execute("conv3d", plan->primitive, plan->scratchpad, std::move(arguments));
  if (!inside) relu(p.batch * volume(p.out) * p.out_channels, y);
  return true;
}

template <class T, class W>
bool data(const ConvProblem& p, const T* gy, const W* w, T* gx) {
  const auto plan = find_plan(Pass::data, type_of<T>, type_of<W>, p);
  if (!plan->usable) return false;
  onednn::execute("conv_data", plan->primitive, plan->scratchpad,
                  {{DNNL_ARG_DIFF_DST, onednn::wrap(plan->y, gy)},
                   {DNNL_ARG_WEIGHTS, to_own_weights("conv_data", *plan, w)},
                   {DNNL_ARG_DIFF_SRC, onednn::wrap(plan->x, gx)}});
  return true;
}

void weight(const Plan& plan, const void* x, const void* gy, float* gw) {
  const dnnl::memory plain = onednn::wrap(plan.plain_weights, gw);
  const dnnl::memory own = plan.reorder ? onednn::wrap(plan.own_weights, own_weights_buffer(plan)) : plain;
  onednn::execute(
      "conv_weight", plan.primitive, plan.scratchpad,
      {{DNNL_ARG_SRC, onednn::wrap(plan.x, x)}, {DNNL_ARG_DIFF_DST, onednn::wrap(plan.y, gy)}, {DNNL_ARG_DIFF_WEIGHTS, own}});
  if (plan.reorder) run_reorder("conv_weight", plan, own, plain);
}

// oneDNN adds up over cells in float32, one row after the other. Over millions of cells, many of them alike (the surroundings of
// a brain), and with large terms that cancel, rounding errors reach thousandths of the gradient: 3e-3 in a first layer at 150^3.
// With parts of this many cells, added up in double, they are 6e-5.
constexpr std::int64_t cells_at_once = 1 << 16;
// Small samples differ more than cells of one volume, and smaller parts of a batch would cost 3 % of a contrastive step.
constexpr std::int64_t cells_of_samples = 1 << 17;
// With fewer planes most reads would be of the planes around them, again.
constexpr std::int64_t least_planes = 4;

// Some samples, or some planes of outputs of one sample, and their offsets in x and gy.
struct Part {
  ConvProblem p;
  std::int64_t x = 0, y = 0;
  std::shared_ptr<const Plan> plan;  // null: computed by winograd.h
};

// The outermost axis that is not flat: its planes are contiguous, because the axes before it have one element.
std::size_t outer_axis(const ConvProblem& p) {
  std::size_t a = 0;
  while (a < 2 && p.in[a] == 1 && p.out[a] == 1 && p.kernel[a] == 1) ++a;
  return a;
}

std::vector<Part> parts_of(const ConvProblem& p, onednn::Type type) {
  std::vector<Part> parts;
  const auto add = [&](const ConvProblem& part, std::int64_t x, std::int64_t y) {
    parts.push_back({.p = part, .x = x, .y = y, .plan = nullptr});
    if (type != onednn::Type::f32 || !winograd::suits(Pass::weight, part))
      parts.back().plan = find_plan(Pass::weight, type, onednn::Type::f32, part);
  };
  if (p.batch * volume(p.out) <= cells_at_once || p.in_channels == 0 || volume(p.in) == 0) {
    add(p, 0, 0);
    return parts;
  }
  const auto x_sample = volume(p.in) * p.in_channels, y_sample = volume(p.out) * p.out_channels;
  const auto samples = std::max<std::int64_t>(1, cells_of_samples / volume(p.out));
  const auto a = outer_axis(p);
  const auto planes = std::max(least_planes, cells_at_once / (volume(p.out) / p.out[a]));
  for (std::int64_t n = 0; n < p.batch; n += samples) {
    ConvProblem part = p;
    part.batch = std::min(samples, p.batch - n);
    if (volume(p.out) <= cells_at_once) {
      add(part, n * x_sample, n * y_sample);
      continue;
    }
    // Equal parts: a small last part could have fewer inputs than bfloat16 windows need to be trusted.
    const auto count = ceil_div(p.out[a], planes);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto first = i * p.out[a] / count, last = (i + 1) * p.out[a] / count;
      const auto begin = first * p.stride[a] - p.pad_low[a];
      const auto end = (last - 1) * p.stride[a] - p.pad_low[a] + (p.kernel[a] - 1) * p.dilation[a] + 1;
      const auto from = std::max<std::int64_t>(0, begin), to = std::min(p.in[a], end);
      if (from >= to) continue;  // only padding
      part.in[a] = to - from, part.out[a] = last - first, part.pad_low[a] = from - begin;
      add(part, n * x_sample + from * (x_sample / p.in[a]), n * y_sample + first * (y_sample / p.out[a]));
    }
  }
  return parts;
}

// Calls f for each part and adds up in double the gw that it writes.
template <class F>
void add_up(const std::vector<Part>& parts, std::int64_t count, float* gw, const F& f) {
  if (parts.size() == 1) return f(parts[0]);
  std::vector<double> sum(static_cast<std::size_t>(count));
  for (const auto& part : parts) {
    f(part);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(gw[i]);
  }
  for (std::size_t i = 0; i < sum.size(); ++i) gw[i] = static_cast<float>(sum[i]);
}

std::int64_t weights_of(const ConvProblem& p) { return p.out_channels * volume(p.kernel) * (p.in_channels / p.groups); }

}  // namespace

template <>
void conv_forward(const ConvProblem& asked, const float* x, const float* w, float* y, const Epilogue& e) {
  const ReducedConv reduced(asked);
  const float* kept = reduced.kept(w);
  if (patches::suits<float>(Pass::forward, reduced.problem())) return patches::conv_forward(reduced.problem(), x, kept, y, e);
  if (winograd::suits(Pass::forward, reduced.problem())) return winograd::conv_forward(reduced.problem(), x, kept, y, e);
  if (!forward(reduced.problem(), x, kept, y, e)) gathered::conv_forward(reduced.problem(), x, kept, y, e);
}

template <>
void conv_data(const ConvProblem& asked, const float* gy, const float* w, float* gx, const Epilogue& e) {
  const ReducedConv reduced(asked);
  const ConvProblem& p = reduced.problem();
  const float* kept = reduced.kept(w);
  if (patches::suits<float>(Pass::data, p)) return patches::conv_data(p, gy, kept, gx, e);
  if (winograd::suits(Pass::data, p)) return winograd::conv_data(p, gy, kept, gx, e);
  if (!data(p, gy, kept, gx)) return gathered::conv_data(p, gy, kept, gx, e);
  apply_epilogue_parallel(e, p.batch * volume(p.in), p.in_channels, gx);
}

template <>
void conv_weight(const ConvProblem& asked, const float* x, const float* gy, float* gw) {
  const ReducedConv reduced(asked);
  float* const kept = reduced.room(gw);
  if (patches::suits<float>(Pass::weight, reduced.problem())) {
    patches::conv_weight(reduced.problem(), x, gy, kept);
    return reduced.place(kept, gw);
  }
  add_up(parts_of(reduced.problem(), onednn::Type::f32), weights_of(reduced.problem()), kept, [&](const Part& part) {
    if (!part.plan) winograd::conv_weight(part.p, x + part.x, gy + part.y, kept);
    else if (part.plan->usable) weight(*part.plan, x + part.x, gy + part.y, kept);
    else gathered::conv_weight(part.p, x + part.x, gy + part.y, kept);
  });
  reduced.place(kept, gw);
}

template <class W>
bool native::conv_forward(const ConvProblem& asked, const BFloat16* x, const W* w, BFloat16* y, const Epilogue& e) {
  const ReducedConv reduced(asked);
  if (patches::suits<BFloat16>(Pass::forward, reduced.problem()))
    return patches::conv_forward(reduced.problem(), x, reduced.kept(w), y, e), true;
  return onednn::has_bfloat16() && forward(reduced.problem(), x, reduced.kept(w), y, e);
}

template <class W>
bool native::conv_data(const ConvProblem& asked, const BFloat16* gy, const W* w, BFloat16* gx) {
  const ReducedConv reduced(asked);
  if (patches::suits<BFloat16>(Pass::data, reduced.problem()))
    return patches::conv_data(reduced.problem(), gy, reduced.kept(w), gx), true;
  return onednn::has_bfloat16() && data(reduced.problem(), gy, reduced.kept(w), gx);
}

template <class W>
bool native::conv_weight(const ConvProblem& asked, const BFloat16* x, const BFloat16* gy, W* gw) {
  const ReducedConv reduced(asked);
  if (patches::suits<BFloat16>(Pass::weight, reduced.problem())) {
    W* const kept = reduced.room(gw);
    patches::conv_weight(reduced.problem(), x, gy, kept);
    return reduced.place(kept, gw), true;
  }
  if (!onednn::has_bfloat16()) return false;
  const auto parts = parts_of(reduced.problem(), onednn::Type::bf16);
  if (!std::ranges::all_of(parts, [](const Part& part) { return part.plan->usable; })) return false;
  const std::int64_t count = weights_of(reduced.problem());
  W* const kept = reduced.room(gw);
  float* sums = nullptr;
  if constexpr (std::is_same_v<W, float>) {
    sums = kept;
  } else {
    thread_local ThreadBuffer buffer;
    sums = static_cast<float*>(buffer.reserve(static_cast<std::size_t>(count) * sizeof(float)));
  }
  add_up(parts, count, sums, [&](const Part& part) { weight(*part.plan, x + part.x, gy + part.y, sums); });
  if constexpr (!std::is_same_v<W, float>) detail::convert(sums, kept, count);
  reduced.place(kept, gw);
  return true;
}

#define MPIGRAD_MAKE(W)                                                                                          \
  template bool native::conv_forward(const ConvProblem&, const BFloat16*, const W*, BFloat16*, const Epilogue&); \
  template bool native::conv_data(const ConvProblem&, const BFloat16*, const W*, BFloat16*);                     \
  template bool native::conv_weight(const ConvProblem&, const BFloat16*, const BFloat16*, W*);
MPIGRAD_MAKE(BFloat16)
MPIGRAD_MAKE(float)
#undef MPIGRAD_MAKE

}  // namespace mpigrad::cpu
