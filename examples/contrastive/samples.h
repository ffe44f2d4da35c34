#pragma once
// Which samples there are, what they are labelled, and how views of them are made.

#include <optional>

#include "examples/contrastive/options.h"
#include "models/data/augment/recipe.h"
#include "models/data/source.h"

namespace mpigrad::contrast {

// Errors as of data::open_source.
data::SourcePtr open(const DataOptions& options);
data::SourcePtr open(const DataOptions& options, const std::string& data, const std::string& part);

// The labels called `name`, of all samples; "" the first ones. Errors: none at all, which `what` needs, or no such name, or
// targets that are no classes.
std::vector<std::int64_t> labels_of(const data::Source& source, const std::string& name, const std::string& what);
bool has_labels(const data::Source& source);
// Error: --label names labels that are not there.
void require_label(const data::Source& source, const std::string& name);
// The place of `name` among the source's labels; "" is 0. Error: no such name.
std::size_t label_index(const data::Source& source, const std::string& name);

struct Split {
  std::vector<std::int64_t> train, test;
};
// Numbers of samples. Without a test option all are for training. UsageError: a condition that is no NAME=V,V,...; Errors: labels
// that are not there, nothing left to train with.
Split split(const data::Source& source, const DataOptions& options);

// Steps of --augment for samples of `stored` extents that become `to`.
augment::Recipe parse_recipe(const std::string& text, const Shape& to);
// What there is to do without a word from the user: handwriting for pictures of one channel, simclr for others, volume.
std::string default_recipe(const data::Source& source);
// Extents of the small crops of views of `large` extents. UsageError: --small-size that is not of such samples.
Shape small_extents(const TrainOptions& options, const Shape& large);
// The sample as it is, at other extents.
augment::Recipe plain_recipe(const Shape& stored, const Shape& to);

}  // namespace mpigrad::contrast
