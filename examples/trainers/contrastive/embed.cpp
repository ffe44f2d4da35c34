#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "examples/trainers/contrastive/contrastive.h"
#include "framework/base/joined.h"
#include "models/data/sources/npy.h"
#include "models/train/progress.h"
#include "models/trainer/contrastive/encode.h"
#include "models/trainer/contrastive/samples.h"
#include "models/trainer/data_check.h"
#include "models/trainer/ranks/geometry.h"
#include "models/trainer/run.h"

namespace mpigrad::contrast {
namespace {

Tensor integers(const std::vector<std::int64_t>& values) {
  Tensor result({Shape{static_cast<std::int64_t>(values.size())}, DType::int64}, DeviceKind::cpu);
  std::copy(values.begin(), values.end(), result.mutable_data<std::int64_t>());
  return result;
}

// Names of labels come from the user or from files. They must not lead to a file outside the folder or to another result's file.
std::string file_of(const std::string& label, const std::vector<std::string>& taken) {
  auto file = label + ".npy";
  if (label.empty() || label.front() == '.' || label.find('/') != std::string::npos || label.find('\0') != std::string::npos)
    throw UsageError(fmt::format("labels called '{}' cannot be written as a file of that name", label));
  if (std::find(taken.begin(), taken.end(), file) != taken.end())
    throw UsageError(fmt::format("labels called '{}' would be written over {}, another result", label, file));
  return file;
}

}  // namespace

int embed(const Communicator& world, const EmbedOptions& o) {
  const auto start = std::chrono::steady_clock::now();
  if (o.weights.empty()) throw UsageError("--weights is needed");
  const auto extents = trainer::parse_grid(o.grid, world.size());
  trainer::check_grid(extents, world.size());
  const auto loaded = load_network(o.weights, world);
  data::SourcePtr source;
  std::vector<std::int64_t> samples;
  std::vector<std::string> files{"embeddings.npy", "samples.npy"};
  trainer::of_input(world, [&] {
    source = open(o.source);
    require_fitting(loaded.config, *source);
    const auto parts = split(*source, o.source);
    samples = parts.train;
    samples.insert(samples.end(), parts.test.begin(), parts.test.end());
    std::sort(samples.begin(), samples.end());
    if (has_labels(*source))
      for (const auto& name : source->target_names()) files.push_back(file_of(name, files));
  });
  trainer::require_same_data(world, *source);
  const trainer::Outputs out(world, o.out, files, o.overwrite);
  trainer::require_same_geometry(world, o.weights, loaded.info, *source, samples);
  if (is_floating(source->type())) trainer::check_data(world, *source, samples, {});
  out.create(world);
  const auto z = encode(*loaded.net, source, samples, world,
                        {.grid = make_grid(world, extents),
                         .batch = std::max<std::int64_t>(o.batch, world.size()),
                         .workers = o.source.workers,
                         .projected = o.projected,
                         .recipe = plain_recipe(source->extents(), loaded.config.extents)})[0];
  trainer::together(world, [&] {
    require_finite_embeddings(z, *source, samples);
    if (world.rank() != 0) return;
    write_npy(out / files[0], z, true);
    write_npy(out / files[1], integers(samples), true);
    for (std::size_t t = 0; t + 2 < files.size(); ++t) {
      std::vector<std::int64_t> labels;
      for (const auto sample : samples) labels.push_back(static_cast<std::int64_t>(source->targets(sample)[t]));
      write_npy(out / files[t + 2], integers(labels), true);
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!o.json) {
      fmt::print("{} embeddings of width {} in {}\nwritten to {}: {}\n", z.dim(0), z.dim(1), format_duration(seconds), o.out,
                 joined(files, ", "));
      return;
    }
    const nlohmann::ordered_json document{
        {"program", "contrastive"}, {"command", "embed"}, {"samples", z.dim(0)}, {"width", z.dim(1)},
        {"seconds", seconds},       {"out", o.out},       {"files", files}};
    fmt::print("{}\n", tool::to_text(document));
  });
  return 0;
}

}  // namespace mpigrad::contrast
