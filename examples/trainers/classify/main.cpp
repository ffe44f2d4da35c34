// Classes or numbers of volumes and pictures, on any grid of ranks: a program of trainer::run (models/mpigrad/trainer.h).
//
//   mpiexec -n 2 build/examples/classify train --data adrenal64.h5 --grid depth=2 --set data.flips --out run
//   build/examples/classify train --data scans --set data.validation_fraction=0.2 --out run
//   build/examples/classify train --data scans --set data.targets=ages.csv --set data.validation_fraction=0.2 --out run
//   build/examples/classify evaluate --weights run/weights.h5 --data others --out scores
//   build/examples/classify predict --weights run/weights.h5 --data unknown --out predictions
//
// Data are of the formats that `contrastive` reads, with a class for each sample: a folder with a folder for each class, MNIST's
// images with their file of labels, ... HDF5 has groups `train` and `val`, each with `volume` [n, D, H, W, C] and integers
// `label` [n]; `pack` writes such a file. After every epoch `train` shows loss, accuracy and area under the ROC curve of the
// validation samples.
//
// If `label` [n] or [n, T] holds floating-point numbers, or data.targets names a table (CSV), it is a regression: the loss is the
// mean squared error of targets with mean 0 and deviation 1, and `train` and `evaluate` print MSE, RMSE, MAE and R2 of each
// target.

#include <nlohmann/json.hpp>
#include <span>

#include "comm/process/threads.h"
#include "models/losses/contrastive/batch.h"
#include "models/losses/ranking.h"
#include "models/mpigrad/trainer.h"
#include "models/networks/described/described.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"
#include "ops/views/views.h"

namespace mpigrad::classify {
namespace {

bool by_pairs(const trainer::Problem& problem) { return problem.get<std::string>("loss.name") == "auc"; }

// The loss of pairs of samples of different classes on all ranks; the score of a sample is the difference of its two logits.
LossFunction loss_of(const trainer::Problem& problem) {
  if (!by_pairs(problem)) return {};
  return [margin = problem.get<double>("loss.margin")](const Tensor& logits, const Tensor& labels) {
    const auto scores = slice(logits, 1, 1, 2) - slice(logits, 1, 0, 1);
    const auto comm = logits.layout() ? contrastive::sample_group(logits) : Communicator();
    return auc_loss(scores, labels, comm, {.margin = margin});
  };
}

std::unique_ptr<nn::Module> network_of(const trainer::Problem& problem) {
  require(!by_pairs(problem) || (problem.classes && problem.outputs == 2),
          "loss.name auc compares samples of two classes; the data have {}",
          problem.classes ? fmt::format("{} classes", problem.outputs) : "numbers");
  return mpigrad::make_network({.name = "classify",
                                .extents = problem.extents,
                                .channels = problem.channels,
                                .outputs = problem.outputs,
                                .settings = problem.values,
                                .norm = problem.norm,
                                .keep = problem.keep});
}

std::string what_is_wrong(const trainer::Problem& problem, const std::map<std::string, std::string>&) {
  const auto& style = problem.get<std::string>("style");
  if (style == "plain" || problem.extents[0] == 1) return "";
  return fmt::format("network.style {} is for pictures, not for volumes of {}", style, problem.extents);
}

// Reads the notes of weights of version 0.1, whose note is called `classify`.
std::optional<trainer::Problem> earlier(const std::map<std::string, std::string>& notes) {
  const auto note = notes.find("classify");
  if (note == notes.end()) return std::nullopt;
  const auto document = nlohmann::json::parse(note->second);
  const auto extents = document.at("extents").get<std::vector<std::int64_t>>();
  trainer::Problem p{.extents = Shape(std::span(extents))};
  document.at("channels").get_to(p.channels);
  p.values = {{"filters", document.at("filters").get<std::int64_t>()},
              {"full_resolution", document.at("full_resolution").get<bool>()},
              {"style", std::string("plain")}};
  p.classes = !document.contains("targets");
  if (p.classes) {
    document.at("classes").get_to(p.outputs), document.at("class_names").get_to(p.class_names);
    p.targets = {document.at("label").get<std::string>()};
  } else {
    document.at("targets").get_to(p.targets), document.at("means").get_to(p.means),
        document.at("deviations").get_to(p.deviations);
    p.outputs = std::ssize(p.targets);
  }
  return p;
}

const trainer::Program program{
    .name = "classify",
    .help = "Predicts classes or numbers of volumes and pictures that are split over ranks.",
    .network = network_of,
    .loss = mse,
    .class_loss = cross_entropy,
    .loss_of = loss_of,
    .standardise = true,
    .settings = {{.name = "style",
                  .value = std::string("plain"),
                  .help = "plain: four convolutions for volumes and pictures; vgg, resnet, regressor: networks for pictures",
                  .rule = trainer::one_of({"plain", "vgg", "resnet", "regressor"}),
                  .has_flag = false},
                 {.name = "filters",
                  .value = 16,
                  .help = "filters of the first convolution; each further one has twice as many",
                  .rule = trainer::whole(1, 4096)},
                 {.name = "loss.name",
                  .value = std::string("cross-entropy"),
                  .help = "the loss of classes; auc: squared hinges of all pairs of samples of two classes in a batch, which "
                          "raise the area under the curve",
                  .rule = trainer::one_of({"cross-entropy", "auc"}),
                  .has_flag = false},
                 {.name = "loss.margin",
                  .value = 1.0,
                  .help = "of loss.name auc: by which the score of the second class is to be larger",
                  .rule = trainer::above(0),
                  .has_flag = false},
                 {.name = "full_resolution",
                  .value = false,
                  .help = "do not average 2^3 voxels (2^2 pixels of pictures) first, in the plain network"}},
    .any_extents = true,
    .check = what_is_wrong,
    .described = {.outputs = 2, .classes = true},
    .earlier = earlier,
    .batch = 16,
    .learning_rate = 2e-3};

}  // namespace
}  // namespace mpigrad::classify

int main(int argc, char** argv) {
  mpigrad::restart_with_short_waits(argv);
  return mpigrad::trainer::run(argc, argv, mpigrad::classify::program);
}
