#pragma once
// The loss of variational autoencoders.

#include "framework/tensor/tensor.h"

namespace mpigrad {

// The loss of ConvVae (models/networks/conv_vae.h), as in the public code yngtodd/molecules. result: [N, cells + 2 latent];
// target: [N, cells], in [0, 1]. With mean m and logarithm of the variance v of each latent variable:
//
//   L = cells * mean over samples and cells of the binary cross-entropy - 1/2 mean over samples and latents of (1 + v - m^2 -
//   e^v)
//
// The first mean times `cells` is the sum over the cells of a map. The second is a mean, not a sum, over the latent variables, so
// it is 1 / latent of the divergence from the standard normal distribution. The means divide by the number of samples on all
// ranks; for distributed tensors the result is this rank's share.
Tensor vae_loss(const Tensor& result, const Tensor& target, std::int64_t latent = 3);

}  // namespace mpigrad
