#include <algorithm>
#include <cmath>
#include <numbers>

#include "models/data/sources/hdf5.h"
#include "models/data/volumes/npy_pairs.h"
#include "models/data/volumes/orientation.h"
#include "models/data/volumes/volume_formats.h"
#include "models/data/volumes/volumes.h"
#include "models/trainer/segmentation/dataset.h"
#include "models/trainer/segmentation/parts.h"

namespace mpigrad::trainer::segmenting {

namespace fs = std::filesystem;

namespace {

const std::map<std::string, data::Normalisation> normalisations{{"none", data::Normalisation::none},
                                                                {"whole", data::Normalisation::whole},
                                                                {"nonzero", data::Normalisation::nonzero},
                                                                {"ct", data::Normalisation::whole}};

// From texts of four numbers for each channel.
std::vector<data::IntensityScale> scales_of(const std::vector<double>& numbers, std::int64_t channels) {
  require(static_cast<std::int64_t>(numbers.size()) == 4 * channels,
          "[data] data.intensities of normalisation ct are four numbers for each of {} channels, got {}", channels,
          numbers.size());
  std::vector<data::IntensityScale> scales;
  for (std::size_t i = 0; i < numbers.size(); i += 4)
    scales.push_back({numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3]});
  return scales;
}

data::SourcePtr open_stored(const fs::path& path, const DataOptions& o, bool wants_labels, const Trained& trained) {
  std::error_code error;
  require(fs::exists(path, error), "[data] {}: no such file or folder", path.string());
  const data::VolumesOptions options{.orientation = trained.orientation,
                                     .spacing = trained.spacing,
                                     .cubic = trained.interpolation == "cubic",
                                     .least_spacing = trained.least_spacing,
                                     .most_spacing = trained.most_spacing,
                                     .labels = data::label_rules(trained.label_map, trained.ignored),
                                     .channel_files = trained.channel_files,
                                     .cache = o.cache};
  if (const auto folders = data_folders(path, wants_labels))
    return std::make_shared<data::VolumeFolder>(folders->images, folders->labels, options);
  bool volumes = data::is_volume(path);
  if (fs::is_directory(path, error))
    for (const auto& entry : fs::directory_iterator(path, error)) volumes = volumes || data::is_volume(entry.path());
  if (volumes) {
    require(!wants_labels, "[data] {} holds volumes without labels: a folder of images/ and labels/ is needed", path.string());
    return std::make_shared<data::VolumeFolder>(path, fs::path(), options);
  }
  require(o.cache.empty(), "[data] windows are read from {} itself: data.cache is for volumes in {}", path.string(),
          data::volume_format_names());
  const auto with_rules = [&](data::SourcePtr source) {
    return wants_labels ? data::relabelled(std::move(source), options.labels) : source;
  };
  require(!trained.spacing, "[data] {} says no spacing, which only {} does: it cannot be resampled", path.string(),
          data::volume_format_names());
  if (fs::is_directory(path, error) && data::has_npy_pairs(path))
    return with_rules(
        std::make_shared<data::NpyPairs>(path, wants_labels ? data::NpyPairsOptions{} : data::NpyPairsOptions{.label = ""}));
  auto source = std::make_shared<data::ArraySource>(path, o.group,
                                                    data::ArrayNames{.volume = o.volume, .label = wants_labels ? o.label : ""});
  const auto& type = source->target_type();
  require(!wants_labels || (type.per_cell && type.shape.elements() == 1 && !is_floating(type.type)),
          "[data] {}: '{}' holds no class for each cell of '{}'", path.string(), o.label, o.volume);
  return with_rules(source);
}

}  // namespace

Volumes open(const Communicator& world, const std::string& path, const DataOptions& o, bool wants_labels,
             const Trained& trained) {
  Volumes result;
  of_input(world, [&] {
    result.stored = open_stored(path, o, wants_labels, trained);
    const auto found = normalisations.find(trained.normalisation);
    require(found != normalisations.end(), "[data] no normalisation is called '{}'", trained.normalisation);
    std::vector<data::IntensityScale> scales;
    if (trained.normalisation == "ct") scales = scales_of(trained.intensities, result.stored->channels());
    result.seen = data::normalised(result.stored, found->second, scales);
  });
  return result;
}

Shape stored_extents(const Volumes& volumes, std::int64_t sample) {
  const auto* folder = dynamic_cast<const data::VolumeFolder*>(volumes.stored.get());
  return folder == nullptr ? volumes.stored->extents_of(sample) : folder->header(sample).extents;
}

void warn_of_reading(const Communicator& world, const Volumes& volumes, const std::vector<std::int64_t>& samples,
                     const TrainOptions& o) {
  if (world.rank() != 0 || o.store > 0 || !o.source.cache.empty() ||
      dynamic_cast<const data::VolumeFolder*>(volumes.stored.get()) == nullptr)
    return;
  std::int64_t bytes = 0;
  for (const auto sample : samples) bytes += volumes.seen->extents_of(sample).elements() * 4 * (volumes.seen->channels() + 1);
  if (bytes <= data::volumes_in_memory) return;
  const double gib = static_cast<double>(bytes) / double{1 << 30} / world.size();
  fmt::print(stderr,
             "warning: the volumes for training need {}, of which {} stay in the memory of a process: most windows read a whole "
             "volume again. data.store={:.1f} keeps all of them in the memory of the ranks, data.cache=FOLDER in files\n",
             readable_bytes(bytes), readable_bytes(data::volumes_in_memory), std::ceil(10 * gib + 0.5) / 10);
}

void warn_of_geometry(const Communicator& world, const Volumes& volumes, const Trained& trained, bool of_training) {
  const auto* folder = dynamic_cast<const data::VolumeFolder*>(volumes.stored.get());
  if (world.rank() != 0 || folder == nullptr) return;
  struct Found {
    std::int64_t count = 0;
    std::string first;
    void add(const std::string& text) {
      if (count++ == 0) first = text;
    }
  };
  Found resampled, sheared, unplaced, apart;
  const auto text = [](const std::array<double, 3>& mm) { return fmt::format("{:.4g} x {:.4g} x {:.4g}", mm[0], mm[1], mm[2]); };
  for (std::int64_t i = 0; i < folder->size(); ++i) {
    const auto header = folder->turned_header(i);
    const auto name = folder->name_of_sample(i);
    if (!trained.spacing && folder->extents_of(i) != header.extents)
      resampled.add(fmt::format("{}, {} mm [z, y, x] to {}", name, text(header.spacing), text(folder->spacing_of(i))));
    if (const auto difference = data::spacing_difference(header); !difference.empty())
      apart.add(fmt::format("{} says {}", name, difference));
    if (trained.orientation.empty()) continue;
    constexpr double most_shear = 0.01;
    if (const double shear = data::shear_of(header); header.placed && shear > most_shear)
      sheared.add(
          fmt::format("{}, {:.1f} degrees from a right angle", name, std::asin(std::min(1.0, shear)) * 180 / std::numbers::pi));
    if (of_training && data::orientation_of(header).empty()) unplaced.add(name);
  }
  const auto say = [&](const Found& found, const char* what) {
    if (found.count > 0)
      fmt::print(stderr, "warning: {} of {} volumes {} ({})\n", found.count, folder->size(), what, found.first);
  };
  say(resampled, "are resampled to the spacings of the training's volumes");
  say(apart, "have a spacing that is not that of their affine map: the spacing is taken");
  say(sheared, "have axes that are not at right angles: their nearest axes are taken");
  say(unplaced, "do not say their orientation: they are taken as stored");
}

}  // namespace mpigrad::trainer::segmenting
