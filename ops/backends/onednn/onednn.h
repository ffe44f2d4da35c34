#pragma once
// The parts of oneDNN that this library uses, equal for its 2.x and 3.x constructors. Included only by onednn_*.cpp of this
// folder and by the benchmark of bare primitives.
//
// Functions that make primitive descriptors return an empty object (operator bool) if oneDNN has no implementation or refuses the
// problem. `dilation` follows this library (1 is dense). The caller provides scratchpads: library-mode ones belong to the thread
// that created the primitive, and ranks of the `threads` transport share primitives.

#include <oneapi/dnnl/dnnl_version.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <string_view>
#include <unordered_map>
#include <utility>

#include "framework/base/error.h"
#include "ops/backends/onednn/held_signals.h"
#include "ops/kernel/problems.h"
#include "ops/kernel/thread_buffer.h"

namespace mpigrad::cpu::onednn {

using Dims = dnnl::memory::dims;
using Desc = dnnl::memory::desc;
using Type = dnnl::memory::data_type;
using Arguments = std::unordered_map<int, dnnl::memory>;

// 100 * major + minor version of the loaded library: 206 for 2.6.3. The headers may be those of another version.
inline int version() {
  const dnnl_version_t* loaded = dnnl_version();
  return 100 * loaded->major + loaded->minor;
}

inline const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

inline dnnl::stream& stream() {
  thread_local dnnl::stream in_order(engine());
  return in_order;
}

inline Dims dims(const Extent3& e) { return {e[0], e[1], e[2]}; }

// [n, c, d, h, w] for oneDNN, stored [n, d, h, w, c].
inline Desc activation(std::int64_t n, std::int64_t c, const Extent3& e, Type type = Type::f32) {
  return {Dims{n, c, e[0], e[1], e[2]}, type, dnnl::memory::format_tag::ndhwc};
}

// Weights of a convolution with oneDNN's dimensions, ([groups,] out, in, d, h, w); `plain` is our layout [K, kd, kh, kw,
// C/groups], otherwise the primitive chooses. A primitive with a plain weight tag silently falls back to its reference kernel.
inline Desc weights(const ConvProblem& p, bool plain, Type type = Type::f32) {
  const std::int64_t cg = p.in_channels / p.groups, kg = p.out_channels / p.groups;
  const std::int64_t w = cg, h = p.kernel[2] * w, d = p.kernel[1] * h, k = p.kernel[0] * d;
  Dims extents{kg, cg, p.kernel[0], p.kernel[1], p.kernel[2]}, strides{k, 1, d, h, w};
  if (p.groups > 1) {
    extents.insert(extents.begin(), p.groups);
    strides.insert(strides.begin(), kg * k);
  }
  if (plain) return {extents, type, strides};
  return {extents, type, dnnl::memory::format_tag::any};
}

inline Desc vector(std::int64_t n, Type type = Type::f32) { return {Dims{n}, type, dnnl::memory::format_tag::x}; }

template <class Problem>
Dims pad_high(const Problem& p) {
  return {kernel::pad_high(p, 0), kernel::pad_high(p, 1), kernel::pad_high(p, 2)};
}

// oneDNN's dilation counts the zeros between taps.
template <class Problem>
Dims gaps(const Problem& p) {
  return {p.dilation[0] - 1, p.dilation[1] - 1, p.dilation[2] - 1};
}

inline dnnl::primitive_attr attributes(scalar::Fused fused = {}) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (!fused.is_none()) {
    dnnl::post_ops activation;
#if DNNL_VERSION_MAJOR >= 3
    activation.append_eltwise(dnnl::algorithm::eltwise_relu, static_cast<float>(fused.factor), 0.0F);
#else
    activation.append_eltwise(1.0F, dnnl::algorithm::eltwise_relu, static_cast<float>(fused.factor), 0.0F);
#endif
    attributes.set_post_ops(activation);
  }
  return attributes;
}

// Runs `make`; if oneDNN refuses the problem, the descriptor is empty.
template <class Make>
auto or_empty(Make&& make) -> decltype(make()) {
  try {
    return make();
  } catch (const dnnl::error&) {
    return {};
  }
}

// Convolutions in bfloat16 add up in float32; weight gradients stay in float32.
inline dnnl::convolution_forward::primitive_desc convolution(const ConvProblem& p, bool bias = false, scalar::Fused fused = {},
                                                             Type type = Type::f32) {
  return or_empty([&] {
    using Forward = dnnl::convolution_forward;
    const auto kind = dnnl::prop_kind::forward_training;
    const auto direct = dnnl::algorithm::convolution_direct;
    const Desc x = activation(p.batch, p.in_channels, p.in, type), y = activation(p.batch, p.out_channels, p.out, type);
    const Desc w = weights(p, false, type), b = bias ? vector(p.out_channels, type) : Desc();
#if DNNL_VERSION_MAJOR >= 3
    return Forward::primitive_desc(engine(), kind, direct, x, w, b, y, dims(p.stride), gaps(p), dims(p.pad_low), pad_high(p),
                                   attributes(fused), true);
#else
    return Forward::primitive_desc(Forward::desc(kind, direct, x, w, b, y, dims(p.stride), gaps(p), dims(p.pad_low), pad_high(p)),
                                   attributes(fused), engine(), true);
#endif
  });
}

// The data or the weight pass.
template <class Backward>
typename Backward::primitive_desc backward_convolution(const ConvProblem& p, Type type, Type of_weights) {
  return or_empty([&] {
    const auto forward = convolution(p, false, {}, type);
    if (!forward) return typename Backward::primitive_desc();
    const auto direct = dnnl::algorithm::convolution_direct;
    const Desc x = activation(p.batch, p.in_channels, p.in, type), y = activation(p.batch, p.out_channels, p.out, type);
    const Desc w = weights(p, false, of_weights);
#if DNNL_VERSION_MAJOR >= 3
    return typename Backward::primitive_desc(engine(), direct, x, w, y, dims(p.stride), gaps(p), dims(p.pad_low), pad_high(p),
                                             forward, attributes(), true);
#else
    return typename Backward::primitive_desc(
        typename Backward::desc(direct, x, w, y, dims(p.stride), gaps(p), dims(p.pad_low), pad_high(p)), attributes(), engine(),
        forward, true);
#endif
  });
}
inline dnnl::convolution_backward_data::primitive_desc convolution_data(const ConvProblem& p, Type type = Type::f32) {
  return backward_convolution<dnnl::convolution_backward_data>(p, type, type);
}
inline dnnl::convolution_backward_weights::primitive_desc convolution_weights(const ConvProblem& p, Type type = Type::f32) {
  return backward_convolution<dnnl::convolution_backward_weights>(p, type, Type::f32);
}

// Average pooling, padding included; without dilation (oneDNN 2.x has it in another primitive with plain kernels only).
inline dnnl::pooling_forward::primitive_desc pooling(const PoolProblem& p) {
  return or_empty([&] {
    using Forward = dnnl::pooling_forward;
    const auto kind = dnnl::prop_kind::forward_training;
    const auto average = dnnl::algorithm::pooling_avg_include_padding;
    const Desc x = activation(p.batch, p.channels, p.in), y = activation(p.batch, p.channels, p.out);
#if DNNL_VERSION_MAJOR >= 3
    return Forward::primitive_desc(engine(), kind, average, x, y, dims(p.stride), dims(p.kernel), gaps(p), dims(p.pad_low),
                                   pad_high(p), attributes(), true);
#else
    return Forward::primitive_desc(
        Forward::desc(kind, average, x, y, dims(p.stride), dims(p.kernel), dims(p.pad_low), pad_high(p)), attributes(), engine(),
        true);
#endif
  });
}

inline dnnl::pooling_backward::primitive_desc pooling_adjoint(const PoolProblem& p) {
  return or_empty([&] {
    using Backward = dnnl::pooling_backward;
    const auto forward = pooling(p);
    if (!forward) return Backward::primitive_desc();
    const auto average = dnnl::algorithm::pooling_avg_include_padding;
    const Desc x = activation(p.batch, p.channels, p.in), y = activation(p.batch, p.channels, p.out);
#if DNNL_VERSION_MAJOR >= 3
    return Backward::primitive_desc(engine(), average, x, y, dims(p.stride), dims(p.kernel), gaps(p), dims(p.pad_low),
                                    pad_high(p), forward, attributes(), true);
#else
    return Backward::primitive_desc(Backward::desc(average, x, y, dims(p.stride), dims(p.kernel), dims(p.pad_low), pad_high(p)),
                                    attributes(), engine(), forward, true);
#endif
  });
}

inline dnnl::reorder::primitive_desc reordering(const Desc& from, const Desc& to) {
  return {engine(), from, engine(), to, attributes()};
}

// True for an implementation that oneDNN itself calls a reference one: correct, but thousands of times slower.
inline bool is_plain(std::string_view implementation) { return implementation.find("ref") != std::string_view::npos; }

// True if oneDNN uses at least these instructions of x86. On Arm its answer has bits of x86 that mean nothing.
inline bool has([[maybe_unused]] dnnl::cpu_isa instructions) {
#ifdef __x86_64__
  static const auto all = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto needed = static_cast<unsigned>(instructions);
  return (all & needed) == needed;
#else
  return false;
#endif
}

// oneDNN also emulates bfloat16 by AVX-512, which is slower than float32.
inline bool has_bfloat16() { return has(dnnl::cpu_isa::avx512_core_bf16); }

// True for an implementation that multiplies bfloat16 by the processor's fastest instructions.
inline bool is_bfloat16(std::string_view implementation) {
  return implementation.find(has(dnnl::cpu_isa::avx512_core_amx) ? "amx" : "bf16") != std::string_view::npos;
}

inline dnnl::memory wrap(const Desc& desc, const void* data) { return {desc, engine(), const_cast<void*>(data)}; }

// Runs to completion; the scratchpad comes from this thread's buffer.
inline void execute(const char* op, const dnnl::primitive& primitive, const Desc& scratchpad, Arguments&& arguments) {
  thread_local ThreadBuffer buffer;
  try {
    if (scratchpad.get_size() > 0)
      arguments.emplace(DNNL_ARG_SCRATCHPAD, wrap(scratchpad, buffer.reserve(scratchpad.get_size())));
    const HeldSignals held;
    primitive.execute(stream(), arguments);
    stream().wait();
  } catch (const dnnl::error& e) {
    fail("[{}] oneDNN: {}", op, e.what());
  }
}

}  // namespace mpigrad::cpu::onednn
