#pragma once
// oneDNN's primitives bound to their own memory, for floors: the time of a step that does nothing else. Included only by
// *_floor.cpp of this folder and by bfloat16/bare_product.cpp.

#include <functional>

#include "ops/backends/onednn/onednn.h"

namespace mpigrad::bench {

namespace dn = cpu::onednn;

inline float* floats(const dnnl::memory& memory) { return static_cast<float*>(memory.get_data_handle()); }

// Resident memory, filled with small numbers of both signs.
inline dnnl::memory filled(const dn::Desc& desc) {
  dnnl::memory memory(desc, dn::engine());
  float* values = floats(memory);
  const auto n = static_cast<std::int64_t>(desc.get_size() / sizeof(float));
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < n; ++i) values[i] = 0.01F * static_cast<float>(i % 17 - 8);
  return memory;
}

template <class Descriptor>
bool optimised(const Descriptor& descriptor) {
  return descriptor && !dn::is_plain(descriptor.impl_info_str());
}

// A primitive bound to its memory, including the scratchpad.
template <class Primitive, class Descriptor>
std::function<void()> bound(const Descriptor& descriptor, dn::Arguments arguments) {
  require(optimised(descriptor), "[bench] oneDNN has no optimised kernel for a layer");
  arguments.emplace(DNNL_ARG_SCRATCHPAD, dnnl::memory(descriptor.scratchpad_desc(), dn::engine()));
  return [primitive = Primitive(descriptor), arguments = std::move(arguments)] {
    primitive.execute(dn::stream(), arguments);
    dn::stream().wait();
  };
}

inline std::function<void()> reorder(const dnnl::memory& from, const dnnl::memory& to) {
  return bound<dnnl::reorder>(dn::reordering(from.get_desc(), to.get_desc()), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

// c [m, n] = op(a) op(b) for dense row-major matrices.
inline std::function<void()> sgemm(char a_op, char b_op, std::int64_t m, std::int64_t n, std::int64_t k, const dnnl::memory& a,
                                   const dnnl::memory& b, const dnnl::memory& c) {
  return [=] {
    dnnl_sgemm(a_op, b_op, m, n, k, 1.0F, floats(a), a_op == 'N' ? k : m, floats(b), b_op == 'N' ? n : k, 0.0F, floats(c), n);
  };
}

// The optimizer's streaming pass: read p, m, v, g, write p, m, v.
inline std::function<void()> optimizer_pass(std::int64_t n) {
  const dnnl::memory p = filled(dn::vector(n)), m = filled(dn::vector(n)), v = filled(dn::vector(n)), g = filled(dn::vector(n));
  return [=] {
    float *ps = floats(p), *ms = floats(m), *vs = floats(v);
    const float* gs = floats(g);
#pragma omp parallel for simd schedule(static)
    for (std::int64_t i = 0; i < n; ++i) ms[i] += gs[i], vs[i] += gs[i], ps[i] += gs[i];
  };
}

}  // namespace mpigrad::bench
