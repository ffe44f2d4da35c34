#pragma once
// How well a variational autoencoder of contact maps reproduces maps, and what its latent variables know of folding.

#include <cstdint>
#include <span>
#include <vector>

#include "models/train/training.h"

namespace mpigrad::contacts {

// Contacts between residues at least this far apart in the chain count, except where a score says all: nearer ones are always
// in contact.
inline constexpr std::int64_t nearest_counted = 3;

// Shares among the maps predicted, from 0 to 1. A contact is predicted if its probability is above 1/2, that is, if its logit is
// positive; a map's number above 1/2 is a contact.
struct ContactScore {
  double found = 0;      // of the contacts that exist, those predicted
  double right = 0;      // of the contacts predicted, those that exist
  double all_found = 0;  // of all contacts that exist, nearer residues and the diagonal included, those predicted
  double cells = 0;      // of all cells of the padded map, those predicted right
};
// Predictions by ConvVae, whose targets are the maps. NaN for a share of nothing.
ContactScore contact_score(const Predictions& predictions, std::int64_t side);

// Means of the latent variables, [samples, latent].
std::vector<double> latent_means(const Predictions& predictions, std::int64_t latent);

// 1 - (sum of squared errors) / (sum of squares about the mean) of `kept`'s numbers, for a linear fit of numbers to latent
// variables that has seen only `training`'s. NaN if the numbers of `kept` are all equal.
double linear_r2(std::span<const double> training_latent, std::span<const double> training, std::span<const double> kept_latent,
                 std::span<const double> kept);

}  // namespace mpigrad::contacts
