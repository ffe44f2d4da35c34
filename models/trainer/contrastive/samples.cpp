#include "models/trainer/contrastive/samples.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "framework/base/joined.h"
#include "models/data/data.h"

namespace mpigrad::contrast {
namespace {

// NAME=V,V,...
struct Condition {
  std::string name;
  std::set<std::int64_t> values;
};

Condition parse_condition(const std::string& option, const std::string& text) {
  Condition result;
  const auto equals = text.find('=');
  const auto broken = [&] { throw UsageError(fmt::format("{} is NAME=V,V,..., such as label=0,1; got '{}'", option, text)); };
  if (equals == std::string::npos || equals + 1 == text.size()) broken();
  result.name = text.substr(0, equals);
  for (std::size_t begin = equals + 1; begin <= text.size();) {
    const auto end = std::min(text.find(',', begin), text.size());
    std::int64_t value = 0;
    const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + end, value);
    if (error != std::errc{} || stop != text.data() + end) broken();
    result.values.insert(value);
    begin = end + 1;
  }
  return result;
}

// True for samples that meet all conditions; conditions of the same name are combined.
std::vector<bool> meeting(const data::Source& source, const std::string& option, const std::vector<std::string>& texts) {
  std::vector<bool> result(static_cast<std::size_t>(source.size()), true);
  std::map<std::string, std::set<std::int64_t>> conditions;
  for (const auto& text : texts) {
    auto condition = parse_condition(option, text);
    conditions[condition.name].merge(condition.values);
  }
  for (const auto& [name, values] : conditions) {
    const auto labels = labels_of(source, name, option);
    for (std::size_t i = 0; i < labels.size(); ++i) result[i] = result[i] && values.contains(labels[i]);
  }
  return result;
}

}  // namespace

Split split(const data::Source& source, const DataOptions& o) {
  const auto considered = meeting(source, "data.where", o.where), for_test = meeting(source, "data.test_where", o.test_where);
  Split result;
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < source.size(); ++i)
    if (considered[static_cast<std::size_t>(i)]) {
      const bool test = !o.test_where.empty() && for_test[static_cast<std::size_t>(i)];
      (test ? result.test : all).push_back(i);
    }
  require(!all.empty(), "[contrastive] no sample is left to train with");
  require(o.test_where.empty() || !result.test.empty(), "[contrastive] no sample is as data.test_where says");
  if (o.test_fraction > 0) {
    require(all.size() >= 2, "[contrastive] one sample cannot be split");
    const auto drawn = data::split_train_test(static_cast<std::int64_t>(all.size()), o.test_fraction, o.split_seed);
    for (const auto i : drawn.train) result.train.push_back(all[static_cast<std::size_t>(i)]);
    for (const auto i : drawn.test) result.test.push_back(all[static_cast<std::size_t>(i)]);
    std::sort(result.test.begin(), result.test.end());
  } else {
    result.train = std::move(all);
  }
  return result;
}

augment::Recipe parse_recipe(const std::string& text, const Shape& to) {
  try {
    return augment::parse_recipe(text, to);
  } catch (const Error& error) {
    throw UsageError(fmt::format("--augment {}: {}", text, error.what()));
  }
}

NetworkConfig config_of(const TrainOptions& o, const data::Source* source) {
  NetworkConfig config{.options = o.network,
                       .loss = o.loss,
                       .dtype = std::string(name_of(trainer::dtype_of(o))),
                       .precision = trainer::precision_of(o),
                       .augment = o.augment};
  const auto size = parse_extents("data.size", o.source.size);
  if (source == nullptr && size.rank() != 3) throw UsageError("--describe needs --data, or data.size for views that are made up");
  config.extents = size.rank() == 3 ? size : source->extents();
  config.channels = source != nullptr ? source->channels() : o.source.channels > 0 ? o.source.channels : 1;
  const auto& stored = source != nullptr ? source->extents() : size;
  if (config.augment.empty()) config.augment = stored[0] > 1 ? "volume" : config.channels == 1 ? "handwriting" : "simclr";
  return config;
}

Shape small_extents(const TrainOptions& o, const Shape& large) {
  auto to = parse_extents("loss.small_size", o.small_size);
  if (to.rank() != 3) to = {(large[0] + 1) / 2, (large[1] + 1) / 2, (large[2] + 1) / 2};
  if ((to[0] == 1) != (large[0] == 1)) throw UsageError(fmt::format("loss.small_size {} is not of samples of {}", to, large));
  return to;
}

namespace {

// Crops of 1/20 to 1/7 of the area or volume, as in SwAV (Caron et al. 2020); for pictures with the other steps of the recipe for
// photographs, for volumes with the symmetries of the cube.
augment::Recipe small_recipe(const TrainOptions& o, const std::string& recipe, const Shape& large) {
  const auto to = small_extents(o, large);
  if (recipe == "simclr") return augment::photographs(to, {0.05, 0.14});
  augment::Recipe result{augment::random_resized_crop({.to = to, .area = {0.05, 0.14}})};
  if (recipe == "volume") result.add(augment::random_turn(true));
  return result;
}

}  // namespace

std::vector<data::View> views_of(const TrainOptions& o, const NetworkConfig& config) {
  std::vector<data::View> views{{parse_recipe(config.augment, config.extents), 2}};
  if (o.small_crops > 0) views.push_back({small_recipe(o, config.augment, config.extents), o.small_crops});
  return views;
}

augment::Recipe plain_recipe(const Shape& stored, const Shape& to) {
  if (stored == to) return {};
  return {augment::resize(to)};
}

}  // namespace mpigrad::contrast
