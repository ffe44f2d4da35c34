// 3D U-Net: a class for every cell of a volume, from files to files, on any grid of ranks.
//
//   mpiexec -n 2 build/examples/unet3d train --data hippocampus --window 40,56,40 --grid depth=2 --out run
//   build/examples/unet3d evaluate --weights run/weights.h5 --data hippocampus --out scores
//   build/examples/unet3d check hippocampus
//   build/examples/unet3d predict --weights run/weights.h5 --images scans --out segmentations
//
// `train` shows the loss and the Dice of whole validation volumes after each epoch, `evaluate` prints a table and draws outlines,
// `predict` writes files of its images' format (models/data/volumes/volume_formats.h) and geometry. The commands come from the
// library: models/trainer/segmentation/segmentation.h.

#include "comm/process/threads.h"
#include "models/mpigrad/trainer.h"
#include "models/networks/described/described.h"
#include "models/networks/residual_unet3d.h"
#include "models/networks/unet3d.h"

namespace mpigrad {
namespace {

using trainer::Problem;
using trainer::Setting;
using trainer::Values;
using Filters = std::vector<std::int64_t>;

UNet3dVariant variant_of(const std::string& name) { return name == "lbann" ? UNet3dVariant::lbann : UNet3dVariant::mlperf; }

// Sets norm and filters, if not given, to those of the variant; the weights remember them.
void complete(Values& values) {
  const auto& variant = std::get<std::string>(values.at("variant"));
  auto& norm = std::get<std::string>(values.at("norm"));
  auto& filters = std::get<Filters>(values.at("filters"));
  if (variant == "resenc") {
    require(norm.empty() || norm == "instance", "network.variant resenc has instance norm, not {}", norm);
    norm = "instance";
    filters = dynamic_cast<const ResidualUNet3d&>(*make_network({.name = "unet3d", .outputs = 2, .settings = values}))
                  .options()
                  .filters;
    return;
  }
  for (const char* name : {"strides", "kernels"})
    require(std::get<std::string>(values.at(name)).empty(), "network.{} is of network.variant resenc, not of {}", name, variant);
  require(std::get<Filters>(values.at("blocks")).empty(), "network.blocks is of network.variant resenc, not of {}", variant);
  if (norm.empty()) norm = variant == "lbann" ? "batch" : "instance";
  require(filters.empty() || filters.size() >= 3, "--filters are at least three numbers");
  filters = UNet3d({.variant = variant_of(variant), .filters = filters}).options().filters;
}

void set_plan(Values& values, const trainer::NetworkPlan& plan) {
  const auto text = [](const std::vector<Triple>& triples) {
    std::string result;
    for (const auto& t : triples) result += fmt::format("{}{}x{}x{}", result.empty() ? "" : " ", t[0], t[1], t[2]);
    return result;
  };
  values["variant"] = std::string("resenc"), values["filters"] = plan.filters;
  values["strides"] = text(plan.strides), values["kernels"] = text(plan.kernels);
}

std::unique_ptr<nn::Module> network(const Problem& problem) {
  return make_network({.name = "unet3d",
                       .extents = problem.extents,
                       .channels = problem.channels,
                       .outputs = problem.outputs,
                       .settings = problem.values});
}

std::vector<Setting> settings() {
  return {
      {.name = "variant",
       .value = "mlperf",
       .help = "mlperf (strided convolutions), lbann (max pooling) or resenc (nnU-Net's residual encoder)",
       .rule = trainer::one_of({"mlperf", "lbann", "resenc"}),
       .has_flag = false},
      {.name = "filters",
       .value = Filters{},
       .help = "filters of the levels from the finest on; their number is the depth",
       .rule = trainer::whole(1, 1 << 16),
       .default_text = "32,64,128,256,320,320, for lbann 32,64,128,256,512"},
      {.name = "strides",
       .value = "",
       .help = "of resenc: the stride with which each level begins, DxHxW, such as \"1x1x1 1x2x2 2x2x2\"",
       .default_text = "2 along every axis",
       .has_flag = false},
      {.name = "kernels",
       .value = "",
       .help = "of resenc: the kernel of each level, DxHxW, such as \"1x3x3 3x3x3 3x3x3\"",
       .default_text = "3 along every axis",
       .has_flag = false},
      {.name = "blocks",
       .value = Filters{},
       .help = "of resenc: the residual blocks of each level",
       .rule = trainer::whole(1, 1000),
       .default_text = "1,3,4,6,6,...",
       .has_flag = false},
      {.name = "deep_supervision",
       .value = true,
       .help = "of resenc: the loss is of the scores of several levels, with weights 1, 1/2, 1/4, ...",
       .has_flag = false},
      {.name = "padding",
       .value = "zeros",
       .help = "padding of the convolutions: zeros, circular for periodic boxes, replicate, reflect or symmetric",
       .rule = trainer::one_of({"zeros", "circular", "replicate", "reflect", "symmetric"}),
       .has_flag = false},
      {.name = "norm",
       .value = "",
       .help = "normalisation after each convolution",
       .rule = trainer::one_of({"instance", "batch", "group", "layer", "none"}),
       .default_text = "instance, for lbann batch",
       .has_flag = false},
      {.name = "groups",
       .value = 8,
       .help = "groups of channels of the norm `group`",
       .rule = trainer::whole(1, 1 << 16),
       .has_flag = false},
      {.name = "statistics",
       .value = "",
       .help = "ranks that share statistics: all, spatial (those of the same samples), batch (the same part of all samples) or "
               "local",
       .rule = trainer::one_of({"all", "spatial", "batch", "local"}),
       .default_text = "all for batch norm, else spatial",
       .has_flag = false},
      {.name = "norm_momentum",
       .value = 0.9,
       .help = "momentum of the running statistics of batch norm",
       .rule = trainer::between(0, 0.99999),
       .has_flag = false},
      {.name = "recompute",
       .value = false,
       .help = "keeps only the ends of each block of convolutions, to save memory",
       .has_flag = false}};
}

}  // namespace
}  // namespace mpigrad

int main(int argc, char** argv) {
  mpigrad::restart_with_short_waits(argv);
  return mpigrad::trainer::run_segmentation(
      argc, argv,
      {.name = "unet3d",
       .help =
           "3D U-Net: a class for every cell of a volume (MLPerf Training's variant, LBANN's, or nnU-Net's residual encoder), on "
           "volumes split over ranks.",
       .network = mpigrad::network,
       .settings = mpigrad::settings(),
       .complete = mpigrad::complete,
       .planned = mpigrad::set_plan,
       // As in weights of earlier versions.
       .note_names = {{"groups", "norm_groups"}, {"norm_momentum", ""}, {"recompute", ""}},
       .summaries = {{"train", {"variant", "filters", "norm"}},
                     {"describe", {"variant"}},
                     {"evaluate", {"variant", "filters"}},
                     {"predict", {"variant", "filters"}}}});
}
