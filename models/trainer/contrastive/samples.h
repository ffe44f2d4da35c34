#pragma once
// The division of samples into training and test, and the recipes of their views.

#include <cstdint>
#include <string>
#include <vector>

#include "models/data/view_loader.h"
#include "models/trainer/contrastive/network.h"

namespace mpigrad::contrast {

using trainer::open, trainer::labels_of, trainer::has_labels, trainer::require_label, trainer::label_index;

struct Split {
  std::vector<std::int64_t> train, test;
};
// Numbers of samples. Without a test key all are for training. UsageError: a condition that is not NAME=V,V,...; Errors: missing
// labels, no samples for training.
Split split(const data::Source& source, const DataOptions& options);

// Parses --augment for views of these extents. UsageError: that of augment::parse_recipe.
augment::Recipe parse_recipe(const std::string& text, const Shape& to);
// The network for these options. Its views are made from the samples of a source; without data, from samples that data.size and
// data.channels describe. Default recipes: handwriting for pictures of one channel, simclr for other pictures, volume for
// volumes, unless data.augment is given. UsageError: neither a source nor data.size.
NetworkConfig config_of(const TrainOptions& options, const data::Source* source);
// Two views by the network's recipe, and small crops.
std::vector<data::View> views_of(const TrainOptions& options, const NetworkConfig& config);
// Extents of the small crops of views of extents `large`. UsageError: loss.small_size does not fit such samples.
Shape small_extents(const TrainOptions& options, const Shape& large);
// The recipe that only changes a sample's extents.
augment::Recipe plain_recipe(const Shape& stored, const Shape& to);

}  // namespace mpigrad::contrast
