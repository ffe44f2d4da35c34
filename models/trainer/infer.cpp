#include "models/trainer/infer.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <numeric>

#include "comm/hdf5/hdf5_file.h"
#include "models/data/loader/steps.h"
#include "models/export/onnx.h"
#include "models/trainer/ranks/geometry.h"
#include "models/trainer/samples.h"

namespace mpigrad::trainer {

void add_infer_keys(Keys& keys, InferOptions& o, bool scored, const std::string& kept) {
  o.scored = scored;
  add_weights_keys(keys, o);
  if (scored)
    keys.add("data.part", o.part, one_of({"auto", "all", kept}),
             fmt::format("all, {0} (what the training kept for it), or auto: {0} if these are the training's data, else all",
                         kept))
        .instead_of("--part");
  keys.add("data.batch", o.batch, whole(1, 1000000000), "samples at once, on all ranks together; predictions do not depend on it")
      .with_unit("samples")
      .with_flag("--batch");
  add_grid_key(keys, o);
}

void add_weights_keys(Keys& keys, Options& o) {
  keys.add("network.weights", o.weights, "weights.h5 of a training, which describes its network").with_flag("--weights");
  keys.add("network.last_weights", o.last_weights,
           "takes from a checkpoint of a training with averaged weights those of its last step instead of the averaged ones")
      .instead_of("--last-weights");
  keys.add("precision.compute", o.precision, one_of({"float32", "tf32", "bfloat16", "float16"}),
           "the type in which layers compute")
      .with_default("that of the weights")
      .with_flag("--precision");
  keys.add("precision.deterministic", o.deterministic, "the same bits in every run on as many ranks and threads of such machines")
      .instead_of("--deterministic");
  keys.add("precision.autotune", o.autotune, "times a GPU's kernels for each convolution at its first call and takes the fastest")
      .instead_of("--autotune");
  keys.add("report.onnx", o.onnx,
           "a file to which the network is written for ONNX Runtime and others, for volumes of these extents, channels second")
      .instead_of("--onnx");
}

void write_onnx(const Communicator& world, const Options& o, nn::Module& net, const Shape& input) {
  if (o.onnx.empty()) return;
  if (current_device() != DeviceKind::cpu || parse_grid(o.grid, 1, Channels::split).channel > 1)
    throw UsageError("report.onnx is for --device cpu and whole weights, without filter or channel in --grid");
  trainer::together(world, [&] {
    if (world.rank() != 0) return;
    export_onnx(o.onnx, net, input, {.overwrite = o.overwrite});
    if (!o.json) fmt::print("{}: x [N, {}, ...] -> y, ONNX opset 17\n", o.onnx, input[-1]);
  });
}

void check(const InferOptions& o) {
  check_device(o);
  if (o.weights.empty()) throw UsageError("--weights is needed");
  if (o.data.empty()) throw UsageError("--data is needed");
  if (o.out.empty()) throw UsageError("--out must not be empty");
}

std::string averages_remark(const Options& o, const CheckpointInfo& info) {
  const auto note = info.notes.find(averages_note);
  if (note == info.notes.end()) return {};
  if (!info.averages && o.last_weights)
    throw UsageError(fmt::format("[weights] {} has averaged weights only; those of the last step are in checkpoints", o.weights));
  return o.last_weights ? std::string() : fmt::format(", averaged weights ({})", note->second);
}

void take_stored_dtype(Options& o) {
  const Hdf5Reader file(o.weights);
  o.dtype = "float32";
  for (const auto& dataset : file.datasets())
    if (dataset.name.starts_with("parameters/") && dataset.type == DType::float64) o.dtype = "float64";
  if (o.dtype == "float64" && !o.precision.empty())
    throw UsageError(
        fmt::format("--precision {} goes with parameters of float32, those of {} are float64", o.precision, o.weights));
}

const std::string& note_of(const std::string& weights, const CheckpointInfo& info, const std::string& name) {
  const auto found = info.notes.find(name);
  require(found != info.notes.end(), "[weights] {} does not describe its network: it has no note '{}'; train again to write it",
          weights, name);
  return found->second;
}

data::Split split(std::int64_t samples, const Division& d) {
  if (d.folds == 0) return data::split_train_test(samples, d.fraction, d.seed);
  require(d.folds >= 2 && d.fold >= 1 && d.fold <= d.folds, "[data] there is no fold {} of {}", d.fold, d.folds);
  require(samples >= d.folds, "[data] {} samples cannot be divided into {} folds", samples, d.folds);
  std::vector<std::int64_t> order(static_cast<std::size_t>(samples));
  std::iota(order.begin(), order.end(), 0);
  data::shuffle(order, Philox{d.seed, 0}.child(4));
  data::Split result;
  for (std::int64_t i = 0; i < samples; ++i)
    (i % d.folds == d.fold - 1 ? result.test : result.train).push_back(order[static_cast<std::size_t>(i)]);
  std::sort(result.train.begin(), result.train.end());
  std::sort(result.test.begin(), result.test.end());
  return result;
}

std::string to_note(const Division& d) {
  return d.folds == 0 ? fmt::format("{}", d.fraction) : fmt::format("fold {} of {}", d.fold, d.folds);
}

namespace {

// None: the note says no division.
std::optional<Division> division_of(const std::string& note, const std::string& seed, std::int64_t samples) {
  Division result{.fraction = std::strtod(note.c_str(), nullptr), .seed = std::strtoull(seed.c_str(), nullptr, 10)};
  long long fold = 0, folds = 0;
  if (std::sscanf(note.c_str(), "fold %10lld of %10lld", &fold, &folds) == 2) {
    result.fold = fold, result.folds = folds;
    if (folds >= 2 && folds <= samples && fold >= 1 && fold <= folds) return result;
    return std::nullopt;
  }
  if (samples < 2 || !(result.fraction > 0 && result.fraction < 1)) return std::nullopt;
  return result;
}

}  // namespace

std::optional<data::Split> split_of(const Communicator& world, const std::string& weights, const CheckpointInfo& info,
                                    const data::Source& source, const SplitNotes& notes, const data::ContentsOptions& reading) {
  const auto note = [&](const char* name) {
    const auto found = info.notes.find(name);
    return found == info.notes.end() ? std::string() : found->second;
  };
  const auto division = division_of(note(notes.fraction), note(notes.seed), source.size());
  if (note(notes.samples) != std::to_string(source.size()) || !division) return std::nullopt;
  auto split = trainer::split(source.size(), *division);
  if (const auto contents = note(kept_contents_note); !contents.empty()) {
    if (!is_of_values(contents, read_data(world, source, split.test, reading))) return std::nullopt;
    return split;
  }
  if (fingerprint(source, split.test) != note(notes.kept)) return std::nullopt;
  if (world.rank() == 0)
    fmt::print(
        stderr,
        "warning: {} does not know the contents of its training's data: these are taken for them, because their number and names "
        "are the same\n",
        weights);
  check_data(world, source, split.test, reading);
  return split;
}

Part part_of(const Communicator& world, const InferOptions& o, const CheckpointInfo& info, const data::Source& source,
             const SplitNotes& notes, const data::ContentsOptions& reading) {
  Part part{.samples = all_samples(source)};
  std::optional<data::Split> split;
  if (o.scored) split = split_of(world, o.weights, info, source, notes, reading);
  if (o.scored && !split && o.part != "auto" && o.part != "all")
    throw UsageError(
        fmt::format("[data] {} is not what {} was trained on, whose {} samples are asked for", o.data, o.weights, o.part));
  if (split && o.part != "all") return {.samples = std::move(split->test), .kept = true};
  if (split) part.trained_on = static_cast<std::int64_t>(split->train.size());
  // Only the samples that the training learned from, such as its group of a file.
  if (const auto note = info.notes.find(training_contents_note);
      o.scored && !split && note != info.notes.end() && is_of_number(note->second, source.size())) {
    if (is_of_values(note->second, read_data(world, source, part.samples, reading))) part.trained_on = source.size();
    return part;
  }
  check_data(world, source, split ? split->train : part.samples, reading);
  return part;
}

int infer(const Communicator& world, InferOptions o, const Inference& inference) {
  const auto start = std::chrono::steady_clock::now();
  const bool first = world.rank() == 0;
  const auto extents = parse_grid(o.grid, world.size(), Channels::split);
  check_grid(extents, world.size());
  if (extents.stage > 1) throw UsageError("--grid: stages are for training; omit stage");
  const Outputs out(world, o.out, inference.files, o.overwrite);

  Subject subject;
  Part part;
  data::SourcePtr source;
  std::optional<data::Loader> loader;
  std::string averaged;
  CheckpointInfo info;
  of_input(world, [&] {
    info = read_checkpoint_info(o.weights);
    const auto program = info.notes.find("program");
    if (program != info.notes.end() && program->second != inference.program)
      fail("[weights] {} was written by {}, not by {}", o.weights, program->second, inference.program);
    averaged = averages_remark(o, info);
    take_stored_dtype(o);
    source = inference.open(info);
  });
  require_same_file(world, o.weights, info);
  require_same_data(world, *source);
  require_same_geometry(world, o.weights, info, *source, all_samples(*source));
  part = part_of(world, o, info, *source, inference.notes, {.dtype = dtype_of(o), .transform = inference.transform});
  of_input(world, [&] {
    subject = inference.prepare(part);
    const auto batch = std::min(o.batch, static_cast<std::int64_t>(part.samples.size()));
    loader.emplace(source, data::LoaderOptions{.grid = make_grid(world, extents),
                                               .batch = batch,
                                               .transform = inference.transform,
                                               .dtype = dtype_of(o),
                                               .samples = part.samples});
    build(*subject.net, loader->layout(), loader->shape(), o);
  });
  load_weights(o.weights, world, *subject.net, !o.last_weights);
  if (inference.measure) inference.measure(part);
  out.create(world);
  if (first && part.trained_on > 0)
    fmt::print(stderr, "warning: {} is what {} was trained on: {} of these {} volumes are no test\n", o.data, o.weights,
               part.trained_on, part.samples.size());
  if (first && !o.json)
    fmt::print("{}\n{} parameters{}, grid {}\n", subject.headline, subject.net->parameters().elements(), averaged,
               to_string(extents));
  std::fflush(stdout);

  auto one = loader->shape();
  one[0] = 1;
  write_onnx(world, o, *subject.net, one);
  const auto predictions = mpigrad::predict(*subject.net, *loader);
  trainer::together(world, [&] { require_finite_predictions(o.weights, *source, predictions); });
  const auto usage = peak_usage(world);
  trainer::together(world, [&] {
    if (!first) return;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    nlohmann::ordered_json run{{"program", inference.program},
                               {"command", o.scored ? "evaluate" : "predict"},
                               {"precision", precision_of(o)},
                               {"weights", o.weights},
                               {"averaged_weights", !averaged.empty()},
                               {"grid", to_json(extents)},
                               {"ranks", world.size()},
                               {"samples", part.samples.size()},
                               {"trained_on_samples", part.trained_on},
                               {"parameters", subject.net->parameters().elements()},
                               {"seconds", seconds}};
    add(run, usage);
    inference.report(out, predictions, std::move(run), fmt::format("{} in all; {}", format_duration(seconds), to_string(usage)));
  });
  return 0;
}

}  // namespace mpigrad::trainer
