// Figures 6 to 10 of Gholami et al. (2018), by their Equations 4, 8 and 9.

#include <algorithm>

#include "examples/studies/plan/figures/figures.h"
#include "examples/studies/plan/figures/published.h"
#include "examples/studies/plan/networks.h"
#include "examples/studies/plan/planner/formulas/integrated.h"

namespace mpigrad::plan {
namespace {

using planner::Convolutions;
using planner::IntegratedResult;
using published::unknown;
namespace paper = published::gholami;

IntegratedResult search(const std::vector<planner::Layer>& layers, std::int64_t ranks, std::int64_t batch,
                        Convolutions convolutions, double factor = planner::printed_factor) {
  planner::IntegratedInput in;
  in.layers = layers, in.ranks = ranks, in.batch = batch, in.samples = paper::samples;
  in.latency = paper::latency, in.bandwidth = paper::bandwidth;
  in.convolutions = convolutions, in.factor = factor;
  return planner::search_grids(in);
}

std::string grid_of(std::int64_t pr, std::int64_t pc) { return fmt::format("{} x {}", pr, pc); }

// Seconds of communication in an epoch against Pr, a curve for each number of ranks.
void add(plot::Lines& lines, const std::string& label, const IntegratedResult& result) {
  plot::Series curve{.label = label};
  for (const auto& grid : result.grids)
    if (grid.possible) curve.x.push_back(static_cast<double>(grid.pr)), curve.y.push_back(grid.communication);
  lines.series.push_back(std::move(curve));
}
plot::Lines of_grids() {
  return {
      .title = "communication in an epoch", .x_label = "Pr", .y_label = "seconds", .log_x = true, .log_y = true, .markers = true};
}
void add_point(plot::Series& series, std::int64_t ranks, double value) {
  series.x.push_back(static_cast<double>(ranks)), series.y.push_back(value);
}
plot::Lines of_speedups(std::vector<plot::Series> series) {
  return {.title = "best grid over batch parallelism",
          .x_label = "P",
          .y_label = "times as fast",
          .log_x = true,
          .markers = true,
          .series = std::move(series)};
}

constexpr const char* not_in_hand = "The numbers that the paper prints in this figure are not in our hands.";

// Strong scaling with 2,048 samples in a batch: convolutions on the grid of products (Figure 6) or split by samples (7).
DocumentFigure strong(int number, Convolutions convolutions) {
  const auto alexnet = layers_named("alexnet", 0);
  auto fewer = alexnet;
  std::erase_if(fewer, [](const auto& layer) { return layer.name == "conv4"; });
  const bool seven = number == 7;
  DocumentFigure figure{.name = fmt::format("gholami-{}", number),
                        .title = seven ? "Gholami et al., Figure 7: convolutions split by samples, products on Pr x Pc"
                                       : "Gholami et al., Figure 6: all layers on one Pr x Pc grid",
                        .header = {"P", "network", "grid, published", "grid, ours", "communication speed-up, published",
                                   "communication speed-up, ours", "speed-up, published", "speed-up, ours"}};
  auto grids = of_grids();
  plot::Series ours{.label = "communication, ours"}, printed{.label = "communication, published", .dashed = true},
      total{.label = "epoch, ours"}, total_printed{.label = "epoch, published", .dashed = true};
  for (const auto& row : paper::figure_7) {
    for (const bool all : {true, false}) {
      if (!all && seven) continue;
      const auto result = search(all ? alexnet : fewer, row.ranks, paper::batch, convolutions);
      const double speedup = (row.compute + result.batch_only) / (row.compute + result.best.communication);
      figure.rows.push_back({std::to_string(row.ranks), all ? "AlexNet" : "one 13 x 13 x 384 layer",
                             seven ? grid_of(row.pr, row.pc) : "", grid_of(result.best.pr, result.best.pc),
                             cell(seven ? row.communication_speedup : unknown, 3), cell(result.speedup, 3),
                             cell(seven ? row.speedup : unknown, 2), cell(speedup, 3)});
      if (!all) continue;
      add(grids, fmt::format("P = {}", row.ranks), result);
      add_point(ours, row.ranks, result.speedup), add_point(total, row.ranks, speedup);
      if (seven) add_point(printed, row.ranks, row.communication_speedup), add_point(total_printed, row.ranks, row.speedup);
    }
  }
  std::vector<plot::Series> speedups{ours, total};
  if (seven) speedups.insert(speedups.end(), {printed, total_printed});
  figure.panels = {grids, of_speedups(std::move(speedups))};
  figure.notes = {
      "AlexNet of 60,965,224 weights, batches of 2,048 of 1.2 million images, alpha = 2 us, 1/beta = 6 GB/s of 2^30 "
      "bytes (Table 1). "
      "Seconds of computing are those that we read from Figure 7, within a few percent."};
  if (seven) figure.notes.push_back("Grids are the published ones; communication speed-ups are 5 to 8 % above the printed ones.");
  else
    figure.notes.push_back(
        "Figure 6 follows from Equation 8 only with one 13 x 13 x 384 layer in place of AlexNet's two, and 6 GiB/s: so a reader "
        "of the "
        "paper, whose numbers are not in our hands. Both are calculated here.");
  return figure;
}

// Figure 8: communication of the backward pass overlaps with its computation.
DocumentFigure overlapped() {
  const auto alexnet = layers_named("alexnet", 0);
  DocumentFigure figure{.name = "gholami-8",
                        .title = "Gholami et al., Figure 8: as Figure 7, with communication behind the backward pass",
                        .header = {"P", "grid, ours", "s of batch parallelism, ours", "s of the best grid, ours",
                                   "speed-up, published", "speed-up, ours"}};
  plot::Series ours{.label = "epoch, overlapped"}, without{.label = "epoch, Figure 7"};
  for (const auto& row : paper::figure_7) {
    // A gather forward counts once, the backward pass twice: the difference between factors 3 and 2 is the forward pass.
    const auto three = search(alexnet, row.ranks, paper::batch, Convolutions::batch, 3);
    const auto two = search(alexnet, row.ranks, paper::batch, Convolutions::batch, 2);
    const auto seconds = [&](double forward, double backward) {
      return row.compute + forward + std::max(0.0, backward - 2.0 / 3 * row.compute);
    };
    const double batch_only = seconds(0, three.batch_only);
    double best = batch_only;
    std::string grid = grid_of(1, row.ranks);
    for (std::size_t g = 0; g < three.grids.size(); ++g) {
      const double forward = three.grids[g].communication - two.grids[g].communication;
      const double time = seconds(forward, three.grids[g].communication - forward);
      if (three.grids[g].possible && time < best) best = time, grid = grid_of(three.grids[g].pr, three.grids[g].pc);
    }
    figure.rows.push_back({std::to_string(row.ranks), grid, cell(batch_only), cell(best), "", cell(batch_only / best, 3)});
    add_point(ours, row.ranks, batch_only / best);
    add_point(without, row.ranks, (row.compute + three.batch_only) / (row.compute + three.best.communication));
  }
  figure.panels = {of_speedups({ours, without})};
  figure.notes = {
      "Our reading: gathers of the forward pass are waited for; reductions of the backward pass overlap with two "
      "thirds of the computation. Grids are chosen for the shortest epoch.",
      not_in_hand};
  return figure;
}

// Figure 9: four samples for each process.
DocumentFigure weak() {
  const auto alexnet = layers_named("alexnet", 0);
  constexpr std::int64_t each = 4;
  const auto& last = paper::figure_7.back();
  const double step = last.compute / static_cast<double>((paper::samples + paper::batch - 1) / paper::batch);
  DocumentFigure figure{
      .name = "gholami-9",
      .title = "Gholami et al., Figure 9: weak scaling, the batch grows with P",
      .header = {"P", "batch", "grid, ours", "communication speed-up, ours", "speed-up, published", "speed-up, ours"}};
  auto grids = of_grids();
  plot::Series ours{.label = "communication, ours"}, total{.label = "epoch, ours"};
  for (const auto& row : paper::figure_7) {
    const auto result = search(alexnet, row.ranks, each * row.ranks, Convolutions::batch);
    const double compute = step * static_cast<double>(result.iterations);
    const double speedup = (compute + result.batch_only) / (compute + result.best.communication);
    figure.rows.push_back({std::to_string(row.ranks), std::to_string(each * row.ranks), grid_of(result.best.pr, result.best.pc),
                           cell(result.speedup, 3), "", cell(speedup, 3)});
    add(grids, fmt::format("P = {}", row.ranks), result);
    add_point(ours, row.ranks, result.speedup), add_point(total, row.ranks, speedup);
  }
  figure.panels = {grids, of_speedups({ours, total})};
  figure.notes = {
      "Four samples for each process, as with P = 512 in Figure 7, and that figure's seconds of computing for four "
      "samples. The samples of each process in the paper are not in our hands.",
      not_in_hand};
  return figure;
}

// Figure 10: more processes than samples, with images split.
DocumentFigure beyond() {
  const auto alexnet = layers_named("alexnet", 0);
  constexpr std::int64_t batch = 512;
  DocumentFigure figure{.name = "gholami-10",
                        .title = "Gholami et al., Figure 10: more processes than samples, by domain parallelism",
                        .header = {"P", "batch", "grid, ours", "s of communication, published", "s of communication, ours",
                                   "s of Equation 4, ours"}};
  auto grids = of_grids();
  plot::Series best{.label = "best grid"}, batch_only{.label = "Equation 4 (too few samples)", .dashed = true};
  for (std::int64_t ranks = batch; ranks <= 8 * batch; ranks *= 2) {
    const auto result = search(alexnet, ranks, batch, Convolutions::domain);
    figure.rows.push_back({std::to_string(ranks), std::to_string(batch), grid_of(result.best.pr, result.best.pc), "",
                           cell(result.best.communication), cell(result.batch_only)});
    add(grids, fmt::format("P = {}", ranks), result);
    add_point(best, ranks, result.best.communication), add_point(batch_only, ranks, result.batch_only);
  }
  figure.panels = {grids, plot::Lines{.title = "communication in an epoch",
                                      .x_label = "P",
                                      .y_label = "seconds",
                                      .log_x = true,
                                      .markers = true,
                                      .series = {best, batch_only}}};
  figure.notes = {
      "Batches of 512, convolutions with images split over Pr (Equation 9), of which the last layers have 13 rows: "
      "Pr is 8 at most. Batch parallelism ends at P = 512. Computing is left out: no seconds are known for a part "
      "of a sample.",
      not_in_hand};
  return figure;
}

}  // namespace

std::vector<DocumentFigure> gholami_figures() {
  return {strong(6, Convolutions::same), strong(7, Convolutions::batch), overlapped(), weak(), beyond()};
}

}  // namespace mpigrad::plan
