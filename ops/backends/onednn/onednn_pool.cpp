// Average pooling of float by oneDNN; the separated sums compute problems for which it has no optimised kernel.

#include <omp.h>

#include <algorithm>
#include <string>

#include "ops/backends/implementation.h"
#include "ops/backends/onednn/onednn.h"
#include "ops/backends/onednn/onednn_defects.h"
#include "ops/backends/onednn/primitive_cache.h"
#include "ops/kernel/problems.h"
#include "ops/pool/pool_kernels.h"
#include "ops/pool/pool_separated.h"

namespace mpigrad::cpu {

namespace {

struct PoolPlan {
  bool usable = false;
  std::string implementation = "separated";
  dnnl::primitive primitive;
  onednn::Desc x, y, scratchpad;
};

bool ordinary(const PoolProblem& p) {
  const auto sizes = {p.batch, volume(p.in), volume(p.out), volume(p.kernel), p.channels};
  if (std::ranges::count(sizes, 0) > 0 || p.dilation != Extent3{1, 1, 1}) return false;
  for (std::size_t a = 0; a < 3; ++a)
    if (p.pad_low[a] < 0 || p.pad_low[a] >= p.kernel[a] || pad_high(p, a) >= p.kernel[a]) return false;
  return true;
}

PoolPlan make_plan(const PoolProblem& p) {
  PoolPlan plan;
  if (!ordinary(p) || onednn::has_defect(p)) return plan;
  const auto descriptor = onednn::pooling(p);
  if (!descriptor || onednn::is_plain(descriptor.impl_info_str())) return plan;
  plan.usable = true;
  plan.implementation = descriptor.impl_info_str();
  plan.primitive = dnnl::pooling_forward(descriptor);
  plan.x = onednn::activation(p.batch, p.channels, p.in);
  plan.y = onednn::activation(p.batch, p.channels, p.out);
  plan.scratchpad = descriptor.scratchpad_desc();
  return plan;
}

std::shared_ptr<const PoolPlan> find_plan(const PoolProblem& p) {
  static auto& cache = *new Cache<PoolPlan>;
  CacheKey key{omp_get_max_threads(), p.batch, p.channels};
  std::size_t i = 3;
  for (const Extent3& e : {p.in, p.out, p.kernel, p.stride, p.dilation, p.pad_low})
    for (const std::int64_t extent : e) key[i++] = extent;
  return cache.find(key, [&] { return make_plan(p); });
}

// oneDNN uses one vector per pixel. With few channels and stride 1 along the width, whole rows are up to ten times as fast.
bool better_separated(const PoolProblem& p) { return p.stride[2] == 1 && p.channels < 16; }

}  // namespace

std::string implementation_of(const PoolProblem& p) { return better_separated(p) ? "separated" : find_plan(p)->implementation; }

template <>
void avg_pool_forward(const PoolProblem& p, const float* x, float* y) {
  if (better_separated(p)) return separated::avg_pool_forward(p, x, y);
  const auto plan = find_plan(p);
  if (!plan->usable) return separated::avg_pool_forward(p, x, y);
  onednn::execute("avg_pool", plan->primitive, plan->scratchpad,
                  {{DNNL_ARG_SRC, onednn::wrap(plan->x, x)}, {DNNL_ARG_DST, onednn::wrap(plan->y, y)}});
}

}  // namespace mpigrad::cpu
