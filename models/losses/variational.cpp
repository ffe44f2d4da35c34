#include "models/losses/variational.h"

#include "models/networks/conv_vae.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"
#include "ops/reduce/reduce.h"

namespace mpigrad {

Tensor vae_loss(const Tensor& result, const Tensor& target, std::int64_t latent) {
  const auto [logits, mean_of, log_variance] = vae_parts(result, latent);
  require(target.rank() == 2 && target.shape() == logits.shape(), "[vae_loss] targets are [{}, {}]: {}", logits.dim(0),
          logits.dim(1), target);
  const auto m = is_half(result.dtype()) ? cast(mean_of, DType::float32) : mean_of;
  const auto v = is_half(result.dtype()) ? cast(log_variance, DType::float32) : log_variance;
  return binary_cross_entropy_with_logits(logits, target) * static_cast<double>(logits.dim(1)) -
         0.5 * mean(1 + v - square(m) - exp(v));
}

}  // namespace mpigrad
