// Tables of Kahira et al. (2021): printed digits, epochs that were measured and projected, CosmoFlow.

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "examples/studies/plan/figures/figures.h"
#include "examples/studies/plan/figures/paradl_layers.h"
#include "examples/studies/plan/figures/published.h"
#include "examples/studies/plan/layer_file.h"
#include "examples/studies/plan/planner/formulas/oracle.h"

namespace mpigrad::plan {
namespace {

using planner::OracleInput;
using planner::Strategy;
using published::unknown;
namespace paper = published::paradl;

DocumentFigure digits() {
  DocumentFigure figure{.name = "paradl-digits",
                        .title = "ParaDL: seconds of communication in an epoch of ResNet-50, every printed digit",
                        .header = {"strategy", "P", "batch", "published", "ours"}};
  plot::Series printed{.label = "data parallel, published", .dashed = true}, ours{.label = "ours"};
  for (const auto& row : paper::data_parallel) {
    OracleInput in;
    in.strategy = Strategy::data, in.ranks = row.ranks, in.batch = row.batch, in.samples = paper::samples;
    in.latency = row.latency, in.bandwidth = row.bandwidth, in.weight_bytes = paper::weight_bytes;
    const double seconds = planner::evaluate(in).communication;
    figure.rows.push_back(
        {"data", std::to_string(row.ranks), std::to_string(row.batch), cell(row.communication, 12), cell(seconds, 12)});
    printed.x.push_back(static_cast<double>(row.ranks)), printed.y.push_back(row.communication);
    ours.x.push_back(static_cast<double>(row.ranks)), ours.y.push_back(seconds);
  }
  OracleInput in;
  in.ranks = 2, in.batch = 64, in.samples = paper::samples, in.latency = 9e-6, in.bandwidth = 50e9;
  in.layers = planner::paradl_resnet50();
  for (const auto strategy : {Strategy::filter, Strategy::channel}) {
    in.strategy = strategy;
    figure.rows.push_back({planner::name_of(strategy), "2", "64", cell(paper::filter_two_ranks, 12),
                           cell(planner::evaluate(in).communication, 12)});
  }
  figure.panels = {plot::Lines{.title = "communication in an epoch",
                               .x_label = "P",
                               .y_label = "seconds",
                               .log_x = true,
                               .markers = true,
                               .series = {ours, printed}}};
  figure.notes = {"The authors' bytes of weights, latencies and bandwidths of ABCI, 1.28 million samples."};
  return figure;
}

// Seconds of an epoch: what they measured, what they projected, and our evaluation of the same formulas.
DocumentFigure epochs() {
  DocumentFigure figure{
      .name = "paradl-epochs",
      .title = "ParaDL: seconds of an epoch, measured and projected by its authors, and ours",
      .header = {"network", "P", "strategy", "measured", "projected", "ours", "ours / measured", "projected / measured"}};
  plot::Series measured{.label = "measured"}, projected{.label = "projected by the authors", .dashed = true},
      ours{.label = "ours"};
  std::map<std::pair<std::string_view, std::int64_t>, std::vector<std::pair<double, double>>> by_ranks;  // measured, ours
  double place = 0;
  for (const auto& row : paper::epochs) {
    const bool is_vgg = std::string_view(row.network) == "VGG-16";
    OracleInput in;
    in.layers = is_vgg ? planner::paradl_vgg16() : planner::paradl_resnet50();
    double flops = 0;
    for (const auto& each : in.layers) flops += each.forward_flops + each.backward_flops;
    const double rate = (is_vgg ? paper::vgg16_sample_seconds : paper::sample_seconds) / flops;
    for (const auto& each : in.layers) in.times.push_back({each.forward_flops * rate, each.backward_flops * rate, 0});
    in.strategy = *planner::strategy_named(row.strategy);
    in.samples = paper::samples, in.ranks = row.ranks, in.batch = paper::batch_of(row);
    in.latency = row.ranks <= 68 ? 30.31e-6 : 30.98e-6, in.bandwidth = 12.5e9;
    in.group_latency = 9e-6, in.group_bandwidth = 50e9;
    in.halo_latency = paper::halo_latency, in.halo_bandwidth = paper::halo_bandwidth;
    in.groups = row.ranks / 4, in.group = 4;
    const auto result = planner::evaluate(in);
    const double seconds = *result.compute + result.communication;
    figure.rows.push_back({row.network, std::to_string(row.ranks), row.strategy, cell(row.measured, 6), cell(row.projected, 6),
                           cell(seconds), cell(seconds / row.measured, 2), cell(row.projected / row.measured, 2)});
    if (in.strategy != Strategy::channel) by_ranks[{row.network, row.ranks}].emplace_back(row.measured, seconds);
    ++place;
    for (auto* series : {&measured, &projected, &ours}) series->x.push_back(place);
    measured.y.push_back(row.measured), projected.y.push_back(row.projected), ours.y.push_back(seconds);
  }
  std::size_t same = 0;
  for (auto& [_, pairs] : by_ranks) {
    std::sort(pairs.begin(), pairs.end());
    same += std::is_sorted(pairs.begin(), pairs.end(), [](const auto& a, const auto& b) { return a.second < b.second; }) ? 1 : 0;
  }
  figure.panels = {plot::Lines{.title = "an epoch",
                               .x_label = "row of the table",
                               .y_label = "seconds",
                               .log_y = true,
                               .markers = true,
                               .series = {measured, projected, ours}}};
  figure.notes = {
      "Batches and seconds of a sample are the authors': 256 samples on each node of four GPUs for ResNet-50 with data+spatial, "
      "64 with data+filter, 32 for VGG-16; 64 and 32 in all with filter and channel; 3.1195 and 8.2456 ms, in proportion to "
      "floating-point operations.",
      fmt::format("Networks and numbers of ranks for which our order of strategies is the measured one: {} of {}. Filter and "
                  "channel parallelism have one formula, so that channel parallelism does not count.",
                  same, by_ranks.size()),
      "Layers are convolutions and products only, of 224 x 224 for VGG-16, so that ours differ from the authors' projections."};
  return figure;
}

// Nodes of four GPUs, each node with one sample, which split the first two convolutions.
DocumentFigure cosmoflow(const std::string& examples) {
  const auto folder = examples + "/studies/plan/";
  const auto layers = read_layer_file(folder + "kahira_cosmoflow.toml");
  const auto times = read_times(folder + "kahira_cosmoflow_times.toml", layers);
  DocumentFigure figure{.name = "paradl-cosmoflow",
                        .title = "ParaDL: seconds of an iteration of CosmoFlow, data+spatial",
                        .header = {"extent", "P", "measured", "projected", "ours", "ours / measured"}};
  plot::Series measured{.label = "measured"}, projected{.label = "projected by the authors", .dashed = true},
      ours{.label = "ours"};
  const auto larger = planner::paradl_cosmoflow_512();
  for (const auto& row : paper::cosmoflow) {
    const bool is_larger = row.extent == 512;
    OracleInput in{.strategy = Strategy::data_spatial, .layers = is_larger ? larger.layers : layers};
    in.times = is_larger ? larger.times : times, in.samples = 1584, in.latency = 40.31e-6, in.bandwidth = 12.5e9;
    in.group_latency = 9e-6, in.group_bandwidth = 50e9, in.group = 4, in.spatial_layers = 6;
    in.halo_latency = paper::halo_latency, in.halo_bandwidth = paper::halo_bandwidth;
    in.ranks = row.ranks, in.groups = in.batch = row.ranks / 4;
    const auto result = planner::evaluate(in);
    const double seconds = (*result.compute + result.communication) / static_cast<double>(result.iterations);
    if (!is_larger) {
      for (auto* series : {&measured, &projected, &ours}) series->x.push_back(static_cast<double>(row.ranks));
      measured.y.push_back(row.measured), projected.y.push_back(row.projected), ours.y.push_back(seconds);
    }
    figure.rows.push_back({std::to_string(row.extent) + "^3", std::to_string(row.ranks), cell(row.measured), cell(row.projected),
                           cell(seconds), cell(seconds / row.measured, 2)});
  }
  figure.panels = {plot::Lines{.title = "an iteration at 256^3",
                               .x_label = "P",
                               .y_label = "seconds",
                               .markers = true,
                               .series = {measured, projected, ours}}};
  figure.notes = {
      "Layers, times and constants are those that the authors publish (kahira_cosmoflow.toml); halos and gathers go through the "
      "hosts' memory. Ours include 0.055 s of the layers after the gather, which the authors leave out, and gather the pooled "
      "result, where they gather the one before the pooling.",
      "At 512^3 the authors' own projection is a third of what they measured. It gathers the second convolution's result, ours "
      "the "
      "pooled one, an eighth of it."};
  return figure;
}

}  // namespace

std::vector<DocumentFigure> paradl_figures(const std::string& examples) { return {digits(), epochs(), cosmoflow(examples)}; }

}  // namespace mpigrad::plan
