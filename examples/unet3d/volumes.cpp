#include <algorithm>
#include <cstring>

#include "examples/unet3d/unet3d.h"
#include "framework/job_queue.h"
#include "framework/tensor/visit_width.h"
#include "models/data/sources/folder.h"
#include "models/data/sources/hdf5.h"
#include "models/data/volumes/npy_pairs.h"
#include "models/data/volumes/volumes.h"

namespace mpigrad::unet {

namespace fs = std::filesystem;

namespace {

const std::map<std::string, data::Normalisation> normalisations{
    {"none", data::Normalisation::none}, {"whole", data::Normalisation::whole}, {"nonzero", data::Normalisation::nonzero}};

data::SourcePtr open_stored(const fs::path& path, const fs::path& labels, const DataOptions& o, bool wants_labels,
                            const Recipe& recipe) {
  std::error_code error;
  require(fs::exists(path, error), "[data] {}: no such file or folder", path.string());
  const data::VolumesOptions options{.spacing = recipe.spacing};
  if (fs::is_directory(path / "images", error)) {
    const auto own = labels.empty() ? path / "labels" : labels;
    require(!wants_labels || fs::is_directory(own, error), "[data] {} has images/ and no labels/", path.string());
    return std::make_shared<data::VolumeFolder>(path / "images", wants_labels ? own : fs::path(), options);
  }
  bool volumes = data::is_volume(path);
  if (fs::is_directory(path, error))
    for (const auto& entry : fs::directory_iterator(path, error)) volumes = volumes || data::is_volume(entry.path());
  if (volumes) {
    require(!wants_labels || !labels.empty(), "[data] {} holds volumes without labels: a folder of images/ and labels/ is needed",
            path.string());
    return std::make_shared<data::VolumeFolder>(path, wants_labels ? labels : fs::path(), options);
  }
  require(labels.empty(), "[data] labels beside {} are for NIfTI", path.string());
  require(!recipe.spacing, "[data] {} says no spacing, which only NIfTI does: it cannot be resampled", path.string());
  if (fs::is_directory(path, error) && data::has_npy_pairs(path))
    return std::make_shared<data::NpyPairs>(path, wants_labels ? data::NpyPairsOptions{} : data::NpyPairsOptions{.label = ""});
  auto source = std::make_shared<data::ArraySource>(path, o.group,
                                                    data::ArrayNames{.volume = o.volume, .label = wants_labels ? o.label : ""});
  const auto& type = source->target_type();
  require(!wants_labels || (type.per_cell && type.shape.elements() == 1 && !is_floating(type.type)),
          "[data] {}: '{}' holds no class for each cell of '{}'", path.string(), o.label, o.volume);
  return source;
}

}  // namespace

void of_input(const Communicator& world, const std::function<void()>& f) {
  trainer::together(world, [&] {
    try {
      f();
    } catch (const trainer::UsageError&) {
      throw;
    } catch (const Error& error) {
      throw trainer::UsageError(error.what());
    }
  });
}

Volumes open(const Communicator& world, const std::string& path, const std::string& labels, const DataOptions& o,
             bool wants_labels, const Recipe& recipe) {
  Volumes result;
  of_input(world, [&] {
    result.stored = open_stored(path, labels, o, wants_labels, recipe);
    const auto found = normalisations.find(recipe.normalisation);
    require(found != normalisations.end(), "[data] no normalisation is called '{}'", recipe.normalisation);
    result.seen = data::normalised(result.stored, found->second);
  });
  of_input(world, [&] { result.stored->check(world.rank(), world.size()); });
  return result;
}

std::int64_t count_classes(const Communicator& world, const data::Source& source, std::int64_t classes) {
  double largest = 0;
  of_input(world, [&] {
    for (auto sample = static_cast<std::int64_t>(world.rank()); sample < source.size(); sample += world.size()) {
      const auto box = source.whole_of(sample);
      const auto type = source.target_type().type;
      std::vector<std::byte> labels(static_cast<std::size_t>(box.elements() * size_of(type)));
      source.queue().run([&] { source.read_targets(sample, box, labels.data()); });
      visit_stored(type, [&](auto zero) {
        const auto* begin = reinterpret_cast<const decltype(zero)*>(labels.data());
        const auto [least, most] = std::minmax_element(begin, begin + box.elements());
        const auto low = static_cast<double>(*least), high = static_cast<double>(*most);
        require(low >= 0, "[data] {}: a label is {}; classes count from 0", source.name_of_sample(sample), low);
        require(classes == 0 || high < static_cast<double>(classes), "[data] {}: a label is {}, there are {} classes",
                source.name_of_sample(sample), high, classes);
        require(high < 10000, "[data] {}: a label is {}; classes count from 0, one after the other",
                source.name_of_sample(sample), high);
        largest = std::max(largest, high);
      });
    }
  });
  world.transport().allreduce(&largest, &largest, 1, DType::float64, CombineOp::max);
  return classes > 0 ? classes : std::max<std::int64_t>(2, static_cast<std::int64_t>(largest) + 1);
}

}  // namespace mpigrad::unet
