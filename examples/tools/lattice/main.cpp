// Simulates images of lattices, 85 x 120 pixels, for classification or regression.
//
//   build/examples/lattice --images 5000 --out lattices.h5                   27 classes
//   build/examples/lattice --images 5000 --parameters --out parameters.h5    spacing, ratio and angle

#include <CLI/CLI.hpp>
#include <cstring>
#include <numeric>

#include "examples/tools/lattice/image.h"
#include "models/data/sources/memory.h"
#include "models/data/sources/pack.h"
#include "models/trainer/tool/command_line.h"

namespace mpigrad::lattice {
namespace {

struct Options {
  std::int64_t images = 5000;
  double validation = 0.2;
  bool parameters = false;
  std::uint64_t seed = 1;
  std::filesystem::path out;
};

// Image i depends on the seed and i only.
data::SourcePtr make(const Options& o) {
  constexpr std::size_t pixels = static_cast<std::size_t>(rows * columns);
  const auto n = static_cast<std::size_t>(o.images);
  data::Bytes values(n * pixels);
  std::vector<std::int64_t> numbers(n);
  std::vector<double> parameters(3 * n);
#pragma omp parallel for schedule(dynamic, 16)
  for (std::size_t i = 0; i < n; ++i) {
    const auto random = Philox{o.seed, 0x6c617474}.child(i);
    numbers[i] = static_cast<std::int64_t>(random.below(0, static_cast<std::uint64_t>(classes)));
    const auto s = o.parameters ? random_structure(random.child(0)) : structure_of_class(numbers[i], random.child(0));
    parameters[3 * i] = s.spacing, parameters[3 * i + 1] = s.ratio, parameters[3 * i + 2] = s.angle;
    draw(s, random.child(1), {reinterpret_cast<std::uint8_t*>(values.data()) + i * pixels, pixels});
  }
  data::Samples samples{
      .file = "lattice", .count = o.images, .extents = {1, rows, columns}, .type = DType::uint8, .values = std::move(values)};
  if (!o.parameters)
    return std::make_shared<data::MemorySource>(std::move(samples),
                                                std::vector{data::Labels{.name = "class", .values = std::move(numbers)}});
  data::Targets targets{.type = {.type = DType::float64, .shape = {3}, .names = {"spacing", "ratio", "angle"}},
                        .values = data::Bytes(parameters.size() * sizeof(double))};
  std::memcpy(targets.values.data(), parameters.data(), targets.values.size());
  return std::make_shared<data::MemorySource>(std::move(samples), std::move(targets));
}

int generate(const Options& o) {
  const auto kept = std::llround(o.validation * static_cast<double>(o.images));
  if (kept < 1 || kept >= o.images)
    throw tool::UsageError(fmt::format("of {} images {} would be kept for validation", o.images, kept));
  std::vector<std::int64_t> all(static_cast<std::size_t>(o.images));
  std::iota(all.begin(), all.end(), 0);
  const auto first = all.end() - kept;
  data::pack(*make(o), o.out, {.groups = {{"train", {all.begin(), first}}, {"val", {first, all.end()}}}});
  fmt::print("{} images of {} x {} pixels, {} of them for validation, written to {}\n", o.images, rows, columns, kept,
             o.out.string());
  return 0;
}

int run(int argc, char** argv) {
  CLI::App app("Simulates images of lattices, of 27 classes or with their parameters.", "lattice");
  Options o;
  app.add_option("--out", o.out, "HDF5 file with groups train and val, as classify reads it")->required();
  app.add_option("--images", o.images, "number of images")->check(tool::whole_number(2, 10000000))->capture_default_str();
  app.add_option("--validation-fraction", o.validation, "part of the images in the group val")
      ->check(tool::number_between(0, 1))
      ->capture_default_str();
  app.add_flag("--parameters", o.parameters, "targets are spacing (pixels), ratio b / a and angle (degrees), not classes");
  app.add_option("--seed", o.seed, "the same seed gives the same images")->check(tool::whole_number(0))->capture_default_str();
  if (const int code = tool::parse(app, argc, argv); code >= 0) return code;
  return tool::finish(app, [&] { return generate(o); });
}

}  // namespace
}  // namespace mpigrad::lattice

int main(int argc, char** argv) { return mpigrad::lattice::run(argc, argv); }
