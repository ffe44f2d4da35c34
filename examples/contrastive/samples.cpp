#include "examples/contrastive/samples.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "framework/joined.h"
#include "models/data/data.h"
#include "models/data/sources/open.h"

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

// Which samples meet all conditions; those of one name are one condition.
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

data::SourcePtr open(const DataOptions& o, const std::string& path, const std::string& part) {
  data::OpenOptions options{
      .group = part, .extents = parse_extents("--stored", o.stored), .channels = o.channels, .threads = std::max(1, o.workers)};
  options.names = {.volume = o.volume, .label = o.label_dataset};
  if (options.extents.rank() == 0) options.extents = {};
  for (const auto& text : o.labels) {
    const auto equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      throw UsageError(fmt::format("--labels is NAME=FILE, such as kind=kinds.npy; got '{}'", text));
    if (!options.labels.emplace(text.substr(0, equals), text.substr(equals + 1)).second)
      throw UsageError(fmt::format("--labels: '{}' is given twice", text.substr(0, equals)));
  }
  return data::open_source(path, options);
}

data::SourcePtr open(const DataOptions& o) {
  if (o.data.empty()) throw UsageError("--data is needed");
  return open(o, o.data, o.part);
}

void require_label(const data::Source& source, const std::string& name) {
  if (name.empty()) return;
  require(has_labels(source), "[contrastive] --label {}: the samples of {} have no labels", name, source.name_of_sample(0));
  label_index(source, name);
}

bool has_labels(const data::Source& source) { return source.has_classes() && !source.target_names().empty(); }

std::size_t label_index(const data::Source& source, const std::string& name) {
  const auto& names = source.target_names();
  if (name.empty()) return 0;
  const auto found = std::find(names.begin(), names.end(), name);
  require(found != names.end(), "[contrastive] there are no labels '{}', but {}", name, joined(names, ", "));
  return static_cast<std::size_t>(found - names.begin());
}

std::vector<std::int64_t> labels_of(const data::Source& source, const std::string& name, const std::string& what) {
  require(has_labels(source), "[contrastive] {} needs labels, and the samples of {} have none; --labels NAME=FILE gives them",
          what, source.name_of_sample(0));
  const auto place = label_index(source, name);
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < source.size(); ++i) result.push_back(static_cast<std::int64_t>(source.targets(i)[place]));
  return result;
}

Split split(const data::Source& source, const DataOptions& o) {
  const auto considered = meeting(source, "--where", o.where), for_test = meeting(source, "--test-where", o.test_where);
  Split result;
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < source.size(); ++i)
    if (considered[static_cast<std::size_t>(i)]) {
      const bool test = !o.test_where.empty() && for_test[static_cast<std::size_t>(i)];
      (test ? result.test : all).push_back(i);
    }
  require(!all.empty(), "[contrastive] no sample is left to train with");
  require(o.test_where.empty() || !result.test.empty(), "[contrastive] no sample is as --test-where says");
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

std::string default_recipe(const data::Source& source) {
  if (source.extents()[0] > 1) return "volume";
  return source.channels() == 1 ? "handwriting" : "simclr";
}

Shape small_extents(const TrainOptions& o, const Shape& large) {
  auto to = parse_extents("--small-size", o.small_size);
  if (to.rank() != 3) to = {(large[0] + 1) / 2, (large[1] + 1) / 2, (large[2] + 1) / 2};
  if ((to[0] == 1) != (large[0] == 1)) throw UsageError(fmt::format("--small-size {} is not of samples of {}", to, large));
  return to;
}

augment::Recipe plain_recipe(const Shape& stored, const Shape& to) {
  if (stored == to) return {};
  return {augment::resize(to)};
}

}  // namespace mpigrad::contrast
