// CosmoFlow: cosmological parameters from volumes of matter, on any grid of ranks: a program of trainer::run
// (models/mpigrad/trainer.h).
//
//   mpiexec -n 2 build/examples/cosmoflow train --data universes --grid depth=2 --set data.flips --set data.shifts --out run
//   build/examples/cosmoflow evaluate --weights run/weights.h5 --data others --out scores
//   build/examples/cosmoflow predict --weights run/weights.h5 --data unknown --out predictions
//   build/examples/cosmoflow train --describe --size 512 --grid sample=2,depth=8
//
// Universes are HDF5 files of CosmoFlow's layout, MLPerf's TFRecord files, or files that `pack` has written from either. `train`
// shows the loss, and at the end each parameter's error on the test set, compared with predicting the mean and with a ridge
// regression on power spectra (examples/tools/universe/spectrum_regression.h); `evaluate` does the same for other universes;
// `predict` needs no known parameters.

#include "comm/process/threads.h"
#include "examples/tools/universe/spectrum_regression.h"
#include "models/evaluate/last_layer.h"
#include "models/mpigrad/trainer.h"
#include "models/networks/cosmoflow.h"
#include "models/networks/described/described.h"
#include "ops/loss/loss.h"

namespace mpigrad {
namespace {

bool is_pyramid(const trainer::Problem& problem) { return problem.get<std::string>("variant") == "pyramid"; }

std::unique_ptr<nn::Module> make_network(const trainer::Problem& problem) {
  return mpigrad::make_network({.name = "cosmoflow",
                                .extents = problem.extents,
                                .channels = problem.channels,
                                .outputs = problem.outputs,
                                .settings = problem.values,
                                .norm = problem.norm,
                                .keep = problem.keep});
}

void complete(trainer::Values& values) {
  auto& filters = std::get<std::int64_t>(values.at("filters"));
  if (filters == 0) filters = std::get<std::string>(values.at("variant")) == "mlperf" ? 32 : 16;
}

std::string check(const trainer::Problem& problem, const std::map<std::string, std::string>& set) {
  const bool batch_norm = problem.get<bool>("batch_norm"), pyramid = is_pyramid(problem);
  const auto& variant = problem.get<std::string>("variant");
  const auto value = [&](const char* key) { return set.contains(key) ? set.at(key) : std::string(); };
  if (variant != "hybrid" && batch_norm) return fmt::format("network.batch_norm: the {} variant has none", variant);
  const auto& padding = problem.get<std::string>("padding");
  if (pyramid && padding != "zeros" && padding != "circular") return "network.padding: the variant pyramid is circular";
  if (!pyramid && set.contains("network.last_layer")) return "network.last_layer is of --variant pyramid";
  if (set.contains("network.last_layer") && set.contains("network.weights"))
    return "network.last_layer: the layer begins as in the file of --weights";
  if (pyramid && (value("precision.graph") == "true" || value("precision.compute").ends_with("float16")))
    return "--variant pyramid has neither precision.graph nor 16 bits: --precision float32 or tf32";
  for (const auto* key : {"network.statistics", "network.norm_momentum"})
    if (set.contains(key) && !batch_norm) return fmt::format("{} is of network.batch_norm", key);
  return "";
}

void prepare(nn::Module& net, const data::Loader& samples, const trainer::Problem& problem) {
  if (is_pyramid(problem) && problem.get<std::string>("last_layer") == "fitted" && samples.samples() > 1)
    fit_last_layer(dynamic_cast<CosmoFlow&>(net), samples);
}

std::optional<trainer::Problem> earlier(const std::map<std::string, std::string>& notes) {
  NetworkDescription d;
  if (!describe_cosmoflow_of_version_0_1(notes, d)) return std::nullopt;
  return trainer::Problem{.extents = d.extents, .channels = d.channels, .values = d.settings};
}

const trainer::Program program{
    .name = "cosmoflow",
    .help = "CosmoFlow (Oyama et al. 2020, or the MLPerf HPC variant): parameters from volumes that are split over ranks.",
    .network = make_network,
    .loss = mse,
    .targets = trainer::TargetKind::numbers,
    .r2 = false,
    .settings = {{.name = "variant",
                  .value = "hybrid",
                  .help = "hybrid (seven convolutions, average pooling), mlperf (five, max pooling), or pyramid (statistics at "
                          "several scales, for periodic boxes; of thousands of weights, not millions)",
                  .rule = trainer::one_of({"hybrid", "mlperf", "pyramid"})},
                 {.name = "filters",
                  .value = 0,
                  .help = "filters of the first convolution; all other layers grow and shrink with it",
                  .rule = trainer::whole(1, 4096),
                  .default_text = "16, mlperf 32"},
                 {.name = "padding",
                  .value = "zeros",
                  .help = "padding of convolutions and average pools: zeros, circular for periodic boxes, replicate, reflect or "
                          "symmetric; pyramid is circular without the key",
                  .rule = trainer::one_of({"zeros", "circular", "replicate", "reflect", "symmetric"}),
                  .has_flag = false},
                 {.name = "last_layer",
                  .value = "fitted",
                  .help = "initial last layer of pyramid: fitted, by ridge regression of the training set's parameters on the "
                          "features of the untrained network, or random",
                  .rule = trainer::one_of({"fitted", "random"}),
                  .has_flag = false},
                 {.name = "batch_norm",
                  .value = false,
                  .help = "batch norm after every convolution; for the variant hybrid",
                  .has_flag = false}},
    .complete = complete,
    .kept = {.name = "test", .fraction = 0.15, .by_seed = true},
    .any_extents = true,
    .transform = data::Transform::log1p,  // also for counts in a format that does not mark them as counts
    .check = check,
    .prepare = prepare,
    .reference = universe::spectrum_reference(),
    .described = {.channels = 4, .outputs = 4},
    .earlier = earlier};

}  // namespace
}  // namespace mpigrad

int main(int argc, char** argv) {
  mpigrad::restart_with_short_waits(argv);
  return mpigrad::trainer::run(argc, argv, mpigrad::program);
}
