#include "tests/bench/bfloat16/bare_product.h"

#include "tests/bench/bare_primitives.h"

namespace mpigrad::bench {

std::function<void()> bare_bfloat16_product(std::int64_t n) {
  using Tag = dnnl::memory::format_tag;
  const auto matrix = [n](Tag tag, dn::Type type = dn::Type::bf16) { return dn::Desc({n, n}, type, tag); };
  const auto descriptor = dn::or_empty([&] {
    using Product = dnnl::matmul;
    const dn::Desc a = matrix(Tag::ab), b = matrix(Tag::any), c = matrix(Tag::ab);
#if DNNL_VERSION_MAJOR >= 3
    return Product::primitive_desc(dn::engine(), a, b, c, dn::attributes(), true);
#else
    return Product::primitive_desc(Product::desc(a, b, c), dn::attributes(), dn::engine(), true);
#endif
  });
  if (!optimised(descriptor)) return {};
  const auto rounded = [&](const dn::Desc& desc) {
    const dnnl::memory memory(desc, dn::engine());
    reorder(filled(matrix(Tag::ab, dn::Type::f32)), memory)();
    return memory;
  };
  return bound<dnnl::matmul>(descriptor, {{DNNL_ARG_SRC, rounded(descriptor.src_desc())},
                                          {DNNL_ARG_WEIGHTS, rounded(descriptor.weights_desc())},
                                          {DNNL_ARG_DST, dnnl::memory(descriptor.dst_desc(), dn::engine())}});
}

}  // namespace mpigrad::bench
