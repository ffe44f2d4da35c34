// Writes any data as HDF5 that thousands of ranks can read: a few large files instead of a million small ones.
//
//   build/examples/pack --data photographs --stored 224,224 --samples-per-file 10000 --out shards
//   build/examples/pack --data scans --validation-fraction 0.2 --out scans.h5
//   build/examples/pack --data scans --targets ages.csv --validation-fraction 0.2 --out scans.h5
//
// The second and third files have groups `train` and `val`, as `classify train` expects; the third one has numbers as targets.

#include "models/data/sources/pack.h"

#include "comm/launch.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <chrono>
#include <filesystem>

#include "models/data/data.h"
#include "models/train/progress.h"
#include "models/trainer/folder/folder_lock.h"
#include "models/trainer/recipe/flags.h"
#include "models/trainer/run.h"
#include "models/trainer/samples.h"

namespace mpigrad::pack {
namespace {

struct Options {
  trainer::SampleOptions source{};
  std::string out;
  std::int64_t samples_per_file = 0;
  double validation_fraction = 0;
  std::uint64_t split_seed = 1;
  bool json = false, quiet = false;
};

void add_options(CLI::App& app, Options& o) {
  app.add_option("--validation-fraction", o.validation_fraction,
                 "fraction of the samples, drawn at random, for a group `val`; the others form a group `train`")
      ->check(tool::number_between(0.001, 0.999))
      ->group("Groups");
  app.add_option("--split-seed", o.split_seed, "seed of the random choice for --validation-fraction")
      ->check(tool::whole_number(0))
      ->capture_default_str()
      ->group("Groups");
  app.add_option("--out", o.out, "the HDF5 file, or with --samples-per-file the folder, to write; does not exist yet")
      ->group("Files");
  app.add_option("--samples-per-file", o.samples_per_file, "0: all in one file")
      ->check(tool::whole_number(0, 1000000000))
      ->group("Files");
  app.add_flag("--quiet", o.quiet, "no progress")->group("Output");
  app.add_flag("--json", o.json, "print one JSON document and nothing else")->group("Output");
}

void check(const Options& o, const std::set<std::string>& given) {
  if (o.out.empty()) throw trainer::UsageError("--out is needed");
  if (o.validation_fraction > 0 && o.samples_per_file > 0)
    throw trainer::UsageError(
        "--validation-fraction makes groups in one file, --samples-per-file several files: use only one of the two");
  if (o.validation_fraction == 0 && given.contains("--split-seed"))
    throw trainer::UsageError("--split-seed needs --validation-fraction");
}

std::vector<data::PackGroup> groups_of(const Options& o, const data::Source& source) {
  if (o.validation_fraction == 0) return {};
  require(source.size() >= 2, "[pack] {} holds one sample; two groups need one each", o.source.data);
  auto split = data::split_train_test(source.size(), o.validation_fraction, o.split_seed);
  return {{"train", std::move(split.train)}, {"val", std::move(split.test)}};
}

void pack(const Options& o) {
  const auto start = std::chrono::steady_clock::now();
  auto source = trainer::open(o.source);
  if (!o.source.targets.empty())
    source = trainer::chosen(source, trainer::all_samples(*source), trainer::target_rows(*source, o.source));
  std::int64_t before = 0;
  const auto show = [&](std::int64_t done) {
    if (done > before && !o.quiet && !o.json) fmt::print(stderr, "{} of {} samples\n", done, source->size());
    before = done;
  };
  const data::PackOptions options{.samples_per_file = o.samples_per_file, .groups = groups_of(o, *source), .progress = show};
  const auto out = std::filesystem::absolute(o.out);
  const tool::FolderLock lock(out.parent_path(), {.of = out.filename()});
  data::pack(*source, o.out, options);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!o.json) {
    std::string parts;
    for (const auto& group : options.groups)
      parts += fmt::format("{}{} in {}", parts.empty() ? " (" : ", ", group.samples.size(), group.name);
    if (!parts.empty()) parts += ")";
    return fmt::print("{} samples of {} written to {}{} in {}\n", source->size(), source->extents(), o.out, parts,
                      format_duration(seconds));
  }
  const bool named = trainer::has_labels(*source) || !o.source.targets.empty();
  nlohmann::ordered_json document{{"program", "pack"},
                                  {"samples", source->size()},
                                  {"extents", std::vector<std::int64_t>(source->extents().begin(), source->extents().end())},
                                  {"channels", source->channels()},
                                  {"labels", named ? source->target_names() : std::vector<std::string>()},
                                  {"seconds", seconds},
                                  {"out", o.out}};
  for (const auto& group : options.groups) document["groups"][group.name] = group.samples.size();
  fmt::print("{}\n", tool::to_text(document));
}

int run(const std::shared_ptr<Transport>& transport, int argc, char** argv) {
  const Communicator world(transport);
  CLI::App app("Writes any data as HDF5 that thousands of ranks can read.", "pack");
  Options o;
  trainer::Keys keys;
  trainer::KeyFlags flags(keys);
  trainer::add_sample_keys(keys, o.source);
  trainer::add_target_key(keys, o.source);
  trainer::add_worker_key(keys, o.source);
  flags.add_to(app, true);
  add_options(app, o);
  if (const int code = tool::parse(app, argc, argv, *transport); code >= 0) return code;
  return tool::finish(app, *transport, [&] {
    flags.apply();
    check(o, tool::given_options(app));
    // One rank writes: HDF5's parallel driver would gain nothing if one process decodes.
    trainer::together(world, [&] {
      if (world.rank() == 0) pack(o);
    });
    return 0;
  });
}

}  // namespace
}  // namespace mpigrad::pack

int main(int argc, char** argv) {
  return mpigrad::launch(argc, argv, [&](const std::shared_ptr<mpigrad::Transport>& transport) {
    return mpigrad::pack::run(transport, argc, argv);
  });
}
