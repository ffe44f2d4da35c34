// Prints, for each data set of data_sets.json, the plan with nnU-Net's measure of memory and the plans with the memory that the
// library predicts for a training step on one rank and on a grid of four.

#include <fmt/format.h>

#include <chrono>

#include "framework/base/joined.h"
#include "framework/optim/optimizer.h"
#include "models/losses/segmentation.h"
#include "models/networks/residual_unet3d.h"
#include "models/nn/describe.h"
#include "ops/elementwise/elementwise.h"
#include "ops/views/views.h"
#include "tests/bench/plans/data_sets.h"

using namespace mpigrad;
using namespace mpigrad::trainer;
using namespace mpigrad::trainer::segmenting;

namespace {

std::int64_t bytes_of_step(const Fingerprint& f, const Shape& w, const NetworkPlan& network, std::int64_t batch,
                           const GridExtents& grid) {
  ResidualUNet3d net({.filters = network.filters, .strides = network.strides, .kernels = network.kernels, .classes = f.classes});
  const auto loss = [](const Tensor& p, const Tensor& t) { return segmentation::dice_cross_entropy_loss(p, t); };
  return describe(net, {batch, w[0], w[1], w[2], f.channels},
                  {.grid = grid,
                   .optimizer =
                       [](Parameters& parameters) {
                         return std::make_unique<SGD>(parameters, SGDAttributes{.momentum = 0.99, .nesterov = true});
                       },
                   .objective =
                       [&](const Tensor& x) {
                         Tensor labels;
                         {
                           Untaped scope;
                           labels = constant(cast(squeeze(slice(x, 4, 0, 1), {4}), DType::int32));
                         }
                         const auto scores = net(x);
                         return deep_supervision_loss(loss, scores, net.take_coarse_scores(), labels);
                       }})
      .peak_bytes;
}

void print(const std::string& name, const std::string& memory, const Plan& plan, double seconds) {
  const std::vector<double> spacing(plan.spacing.begin(), plan.spacing.end());
  fmt::print("| {} | {} | {} | {} | {} | {} | {:.1f} |\n", name, memory, joined(spacing, " x "),
             joined(std::vector<std::int64_t>(plan.window.begin(), plan.window.end()), " x "), plan.network.strides.size(),
             plan.batch, seconds);
  std::fflush(stdout);
}

}  // namespace

int main() {
  fmt::print("| data | memory | spacing | window | levels | batch | seconds |\n|---|---|---|---|---|---|---|\n");
  for (const auto& [name, fingerprint] : testing::described_data_sets()) {
    const auto& f = fingerprint;
    const auto timed = [&](const std::string& memory, const PlanRules& rules) {
      const auto start = std::chrono::steady_clock::now();
      const auto plan = plan_of(f, rules);
      print(name, memory, plan, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    };
    timed("nnU-Net's 8 GB", testing::rules_of_nnunet(f.classes));
    for (const auto& grid : {GridExtents{}, GridExtents{.depth = 2, .height = 2}})
      timed(fmt::format("8 GiB on each of {} ranks", ranks_of(grid)),
            {.bytes = [&](const Shape& w, const NetworkPlan& network,
                          std::int64_t batch) { return bytes_of_step(f, w, network, batch, grid); },
             .most_bytes = std::int64_t{8} << 30});
  }
}
