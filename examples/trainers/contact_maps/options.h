#pragma once
// Options of the program contact_maps.

#include "examples/trainers/contact_maps/maps.h"
#include "models/networks/conv_vae.h"
#include "models/trainer/options.h"

namespace mpigrad::contacts {

struct TrainOptions : trainer::Options {
  MapNames names{};
  double validation_fraction = 0.2, mean_square = 0.9;
  std::int64_t filters = 64, hidden = 128, latent = 3;

  ConvVaeOptions network(std::int64_t side) const {
    return {.rows = side, .columns = side, .filters = {filters, filters, filters}, .hidden = hidden, .latent = latent};
  }
};

int describe(const Communicator& world, const TrainOptions& options);
int train(const Communicator& world, const TrainOptions& options);

}  // namespace mpigrad::contacts
