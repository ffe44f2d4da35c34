// Strong and weak scaling of CosmoFlow at 512^3 and of the U-Net at 256^3 on a machine like that of Oyama et al. (2020).

#include "examples/studies/plan/figures/figures.h"
#include "examples/studies/plan/networks.h"
#include "examples/studies/plan/scaling.h"

namespace mpigrad::plan {
namespace {

struct Curve {
  const char* scaling;
  std::int64_t batch;
  std::string label() const { return scaling == std::string("weak") ? "weak" : fmt::format("strong, {} samples", batch); }
};

DocumentFigure scaling_of(const std::string& name, const std::string& network, const std::string& title,
                          const std::string& machine, std::int64_t ranks) {
  DocumentFigure figure{.name = "oyama-" + name, .title = "Oyama et al.: strong and weak scaling of " + title};
  figure.header = scaling_header();
  figure.header.insert(figure.header.begin(), "scaling");
  plot::Lines rates{.title = "samples per second", .x_label = "GPUs", .log_x = true, .log_y = true, .markers = true};
  plot::Lines efficiencies{.title = "samples per second and GPU, relative", .x_label = "GPUs", .log_x = true, .markers = true};
  // Eight GPUs have the memory for one sample.
  for (const auto& curve : {Curve{"weak", 1}, Curve{"strong", 4}, Curve{"strong", 16}, Curve{"strong", 64}}) {
    if (8 * curve.batch * 2 > ranks) continue;
    SimulateOptions o;
    o.network = network, o.machine = machine, o.batch = curve.batch, o.steps = 2;
    o.grid = curve.batch > 1 ? fmt::format("sample={},depth=8", curve.batch) : "depth=8";
    o.scaling = curve.scaling, o.to_ranks = ranks;
    plot::Series rate{.label = curve.label()}, efficiency{.label = curve.label()};
    for (const auto& point : scaling_points(o)) {
      auto row = scaling_row(point);
      row.insert(row.begin(), curve.label());
      figure.rows.push_back(std::move(row));
      rate.x.push_back(point.ranks), rate.y.push_back(point.samples_per_second());
      efficiency.x.push_back(point.ranks), efficiency.y.push_back(point.efficiency);
    }
    rates.series.push_back(std::move(rate)), efficiencies.series.push_back(std::move(efficiency));
  }
  figure.panels = {rates, efficiencies};
  figure.notes = {
      "Published (arXiv 2007.12856, abstract): good weak and strong scaling of both networks, on up to 2K GPUs. The "
      "numbers of the paper's curves are not in our hands.",
      fmt::format("Ours: every rank simulated on {}, float32, message by message, without jitter. Weak: eight GPUs for each "
                  "sample, split in depth. Strong: a batch that stays, whose samples are split further. Speeds of operations "
                  "are assumptions of the machine file, not measurements on a V100.",
                  machine_of(machine).name)};
  return figure;
}

}  // namespace

std::vector<DocumentFigure> oyama_figures(const std::string& examples, std::int64_t ranks) {
  const auto machine = examples + "/machines/lassen.toml";
  return {scaling_of("cosmoflow", "cosmoflow", "CosmoFlow at 512^3", machine, ranks),
          scaling_of("unet3d", "unet3d-lbann", "the 3D U-Net at 256^3", machine, ranks)};
}

}  // namespace mpigrad::plan
