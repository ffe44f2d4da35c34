#include "examples/studies/plan/planner/formulas/oracle.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "framework/base/error.h"

namespace mpigrad::planner {
namespace {

constexpr std::pair<Strategy, const char*> strategies[] = {
    {Strategy::serial, "serial"},           {Strategy::data, "data"},
    {Strategy::spatial, "spatial"},         {Strategy::pipeline, "pipeline"},
    {Strategy::filter, "filter"},           {Strategy::channel, "channel"},
    {Strategy::data_filter, "data+filter"}, {Strategy::data_spatial, "data+spatial"}};

bool works_in_place(const Layer& layer) {
  return layer.kind.ends_with("_norm") || layer.kind == "activation" || layer.kind == "relu" || layer.kind == "dropout";
}
bool has_window(const Layer& layer) { return layer.kind != "linear" && layer.in_extents != std::array<std::int64_t, 3>{1, 1, 1}; }

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// One evaluation of the formulas, with the values that several of them need.
class Oracle {
 public:
  explicit Oracle(const OracleInput& input) : in_(input), layers_(input.layers) {
    check();
    p_ = static_cast<double>(in_.ranks), batch_ = static_cast<double>(in_.batch), samples_ = static_cast<double>(in_.samples);
    p1_ = static_cast<double>(in_.groups), p2_ = static_cast<double>(in_.group);
    out_.iterations = ceil_divide(in_.samples, in_.batch);
    iterations_ = static_cast<double>(out_.iterations);
    for (const auto& layer : layers_) {
      if (layer.has_product()) products_.push_back(&layer);
      if (!works_in_place(layer)) own_.push_back(&layer);
      weight_bytes_ += layer.weights * in_.bytes_per_element;
    }
    weight_bytes_ = in_.weight_bytes.value_or(weight_bytes_);
    for (const auto& time : in_.times) per_sample_ += time.forward + time.backward, update_ += time.update;
  }

  OracleResult run() {
    switch (in_.strategy) {
      case Strategy::serial: serial(); break;
      case Strategy::data: data(); break;
      case Strategy::spatial: spatial(); break;
      case Strategy::pipeline: pipeline(); break;
      case Strategy::filter:
      case Strategy::channel: filter(); break;
      case Strategy::data_filter: data_filter(); break;
      case Strategy::data_spatial: data_spatial(); break;
    }
    for (const auto& term : out_.terms) out_.communication += term.seconds;
    return std::move(out_);
  }

 private:
  void check() const {
    const auto name = name_of(in_.strategy);
    require(in_.ranks >= 1 && in_.samples >= 1 && in_.batch >= 1,
            "[oracle] {} ranks, {} samples and a batch of {}: all are at least 1", in_.ranks, in_.samples, in_.batch);
    require(std::isfinite(in_.latency) && in_.latency >= 0 && std::isfinite(in_.bandwidth) && in_.bandwidth > 0 &&
                std::isfinite(in_.bytes_per_element) && in_.bytes_per_element > 0,
            "[oracle] a latency of {} s, {} bytes per second, {} bytes per element", in_.latency, in_.bandwidth,
            in_.bytes_per_element);
    require(in_.strategy != Strategy::serial || in_.ranks == 1, "[oracle] serial is on one rank, not {}", in_.ranks);
    require(!is_hybrid(in_.strategy) ||
                (in_.groups >= 1 && in_.group >= 1 && in_.ranks % in_.groups == 0 && in_.ranks / in_.groups == in_.group),
            "[oracle] {} needs groups that make up all ranks: {} x {} is not {}", name, in_.groups, in_.group, in_.ranks);
    require(in_.segments >= 1, "[oracle] a pipeline has at least one segment, got {}", in_.segments);
    const bool weights_do = in_.strategy == Strategy::serial || in_.strategy == Strategy::data;
    require(!layers_.empty() || (weights_do && in_.weight_bytes), "[oracle] {} needs the network's layers{}", name,
            weights_do ? ", or the bytes of its weights" : "");
    require(in_.times.empty() || in_.times.size() == layers_.size(), "[oracle] {} times for {} layers", in_.times.size(),
            layers_.size());
  }

  // 2 I (p - 1)(alpha + W/p delta beta): a ring, once in every iteration.
  double ring(double ranks, double latency, double bandwidth) const {
    return 2 * iterations_ * (ranks - 1) * (latency + weight_bytes_ / ranks / bandwidth);
  }
  void term(const char* name, double seconds) { out_.terms.push_back({name, seconds}); }
  // Seconds for samples and for updates of weights.
  void compute(double samples, double updates) {
    if (in_.times.empty()) return;
    out_.compute = samples + updates, out_.update = updates;
  }
  // 2 delta sum(samples (x + y) + w): a value and its gradient each; `part` is the fraction of all weights on a rank.
  void memory(double samples, double part) {
    if (layers_.empty()) return;
    double activations = 0;
    for (const auto* layer : own_) activations += samples * (layer->inputs + layer->outputs);
    out_.memory_bytes = 2 * (in_.bytes_per_element * activations + weight_bytes_ * part);
  }
  void limit(const char* name, double value, bool also = false) { out_.limit = {name, value, p_ > value || also}; }

  void serial() {
    compute(samples_ * per_sample_, iterations_ * update_);
    memory(batch_, 1);
    limit("1", 1);
  }

  void data() {
    compute(static_cast<double>(ceil_divide(in_.samples, in_.ranks)) * per_sample_, iterations_ * update_);
    term("gradient all-reduce", ring(p_, in_.latency, in_.bandwidth));
    memory(batch_ / p_, 1);
    limit("B", batch_);
  }

  // The smallest input extents of the layers with a window.
  std::array<std::int64_t, 3> smallest_extents() const {
    std::array<std::int64_t, 3> least{};
    double volume = 0;
    for (const auto& layer : layers_) {
      if (!has_window(layer) || works_in_place(layer)) continue;
      const auto& n = layer.in_extents;
      const double own = static_cast<double>(n[0]) * static_cast<double>(n[1]) * static_cast<double>(n[2]);
      if (volume == 0 || own < volume) volume = own, least = n;
    }
    require(volume > 0, "[oracle] {} needs layers with places, of which there are none", name_of(in_.strategy));
    return least;
  }
  // sum(2 alpha + B (halo(x) + halo(dL/dy)) delta beta), in seconds per iteration and direction.
  double halos(const std::array<std::int64_t, 3>& grid) const {
    double seconds = 0;
    for (const auto& layer : layers_) {
      if (!has_window(layer)) continue;
      for (std::size_t d = 0; d < 3; ++d) {
        const auto planes = static_cast<double>((layer.kernel[d] - 1) / 2);
        if (grid[d] == 1 || planes == 0) continue;
        double in = planes * static_cast<double>(layer.in_channels), out = planes * static_cast<double>(layer.out_channels);
        for (std::size_t e = 0; e < 3; ++e) {
          if (e == d) continue;
          in *= static_cast<double>(layer.in_extents[e]) / static_cast<double>(grid[e]);
          out *= static_cast<double>(layer.out_extents[e]) / static_cast<double>(grid[e]);
        }
        seconds += 2 * in_.latency + batch_ * (in + out) * in_.bytes_per_element / in_.bandwidth;
      }
    }
    return seconds;
  }
  static bool fits(const std::array<std::int64_t, 3>& grid, const std::array<std::int64_t, 3>& extents) {
    return grid[0] <= extents[0] && grid[1] <= extents[1] && grid[2] <= extents[2];
  }
  // The best grid of those that fit, or of all if none fits.
  std::array<std::int64_t, 3> best_grid(const std::array<std::int64_t, 3>& extents) const {
    std::array<std::int64_t, 3> best{};
    double least = 0;
    std::vector<std::int64_t> divisors;
    for (std::int64_t d = 1; d <= in_.ranks; ++d)
      if (in_.ranks % d == 0) divisors.push_back(d);
    for (const bool any : {false, true}) {
      for (const auto d : divisors) {
        for (const auto h : divisors) {
          if ((in_.ranks / d) % h != 0) continue;
          const std::array<std::int64_t, 3> grid{d, h, in_.ranks / d / h};
          if (!any && !fits(grid, extents)) continue;
          const double seconds = halos(grid);
          if (best[0] == 0 || seconds < least) best = grid, least = seconds;
        }
      }
      if (best[0] > 0) break;
    }
    return best;
  }

  void spatial() {
    const auto extents = smallest_extents();
    out_.grid = in_.grid[0] > 0 ? in_.grid : best_grid(extents);
    require(out_.grid[1] > 0 && out_.grid[2] > 0 && out_.grid[0] * out_.grid[1] * out_.grid[2] == in_.ranks,
            "[oracle] a grid of {} x {} x {} is not {} ranks", out_.grid[0], out_.grid[1], out_.grid[2], in_.ranks);
    compute(samples_ / p_ * per_sample_, iterations_ * update_);
    term("gradient all-reduce", ring(p_, in_.latency, in_.bandwidth));
    term("halo", 2 * iterations_ * halos(out_.grid));
    memory(batch_ / p_, 1);
    const auto places = static_cast<double>(extents[0]) * static_cast<double>(extents[1]) * static_cast<double>(extents[2]);
    limit(extents[0] > 1 ? "min_l(D_l*H_l*W_l)" : "min_l(W_l*H_l)", places, !fits(out_.grid, extents));
  }

  double work_of(std::size_t l) const {
    return in_.times.empty() ? layers_[l].forward_flops + layers_[l].backward_flops
                             : in_.times[l].forward + in_.times[l].backward;
  }
  // Ends of `count` groups of consecutive layers that minimise the largest sum of work. least[g][n]: for the first n layers in g
  // groups.
  std::vector<std::int64_t> balanced(std::size_t count) const {
    const auto n = layers_.size();
    std::vector<double> sums(n + 1, 0);
    for (std::size_t l = 0; l < n; ++l) sums[l + 1] = sums[l] + work_of(l);
    std::vector<double> least = sums;
    std::vector<std::vector<std::size_t>> cut(count + 1, std::vector<std::size_t>(n + 1, 0));
    for (std::size_t g = 2; g <= count; ++g) {
      std::vector<double> next(n + 1, 0);
      for (std::size_t end = g; end <= n; ++end) {
        std::size_t best = 0;
        for (std::size_t begin = g - 1; begin < end; ++begin) {
          const double worst = std::max(least[begin], sums[end] - sums[begin]);
          if (best == 0 || worst < next[end]) best = begin, next[end] = worst;
        }
        cut[g][end] = best;
      }
      least = std::move(next);
    }
    std::vector<std::int64_t> ends(count);
    for (std::size_t g = count, end = n; g > 0; --g) {
      ends[g - 1] = static_cast<std::int64_t>(end);
      end = cut[g][end];
    }
    return ends;
  }

  void pipeline() {
    const auto groups = static_cast<std::size_t>(std::min<std::int64_t>(in_.ranks, static_cast<std::int64_t>(layers_.size())));
    out_.group_ends = balanced(groups);
    double forward = 0, backward = 0, update = 0, message = 0, largest = 0, work = 0, all = 0;
    const auto segments = static_cast<double>(in_.segments);
    std::size_t begin = 0;
    for (std::size_t g = 0; g < groups; ++g) {
      const auto end = static_cast<std::size_t>(out_.group_ends[g]);
      LayerTime time;
      double elements = 0, own = 0;
      for (std::size_t l = begin; l < end; ++l) {
        const auto& layer = layers_[l];
        if (!in_.times.empty())
          time.forward += in_.times[l].forward, time.backward += in_.times[l].backward, time.update += in_.times[l].update;
        elements += layer.weights + (works_in_place(layer) ? 0 : batch_ * (layer.inputs + layer.outputs));
        own += work_of(l);
      }
      forward = std::max(forward, time.forward), backward = std::max(backward, time.backward);
      update = std::max(update, time.update), largest = std::max(largest, elements);
      work = std::max(work, own), all += own;
      if (g + 1 < groups)
        message =
            std::max(message, in_.latency + batch_ / segments * layers_[end - 1].outputs * in_.bytes_per_element / in_.bandwidth);
      begin = end;
    }
    if (all > 0) out_.imbalance = work * static_cast<double>(groups) / all;
    compute(samples_ * (p_ + segments - 1) / segments * (forward + backward), update);
    term("pipeline messages", 2 * iterations_ * (p_ + segments - 2) * message);
    out_.memory_bytes = 2 * in_.bytes_per_element * largest;
    limit("G", static_cast<double>(own_.size()));
  }

  // 3 I (ranks - 1) sum_{l < G}(alpha + B y/p delta beta)
  double layer_collectives(double ranks) const {
    double seconds = 0;
    for (std::size_t l = 0; l + 1 < products_.size(); ++l)
      seconds += in_.latency + batch_ * products_[l]->outputs / p_ * in_.bytes_per_element / in_.bandwidth;
    return 3 * iterations_ * (ranks - 1) * seconds;
  }
  double least_channels(bool out) const {
    require(!products_.empty(), "[oracle] {} needs convolutions or products, of which there are none", name_of(in_.strategy));
    std::int64_t least = out ? products_[0]->out_channels : products_[0]->in_channels;
    for (const auto* layer : products_) least = std::min(least, out ? layer->out_channels : layer->in_channels);
    return static_cast<double>(least);
  }

  void filter() {
    const bool filters = in_.strategy == Strategy::filter;
    compute(samples_ / p_ * per_sample_, iterations_ / p_ * update_);
    limit(filters ? "min F_l" : "min C_l", least_channels(filters));
    term("layer collectives", layer_collectives(p_));
    memory(batch_, 1 / p_);
  }

  void data_filter() {
    compute(static_cast<double>(ceil_divide(in_.samples, in_.groups)) / p2_ * per_sample_, iterations_ / p2_ * update_);
    const double filters = least_channels(true);
    term("layer collectives", layer_collectives(p2_));
    // W/p as printed, which equals (W/p2)/p1.
    term("gradient all-reduce", 2 * iterations_ * (p1_ - 1) * (in_.latency + weight_bytes_ / p_ / in_.bandwidth));
    memory(batch_ / p1_, 1 / p2_);
    limit("B*min F_l", batch_ * filters, p1_ > batch_ || p2_ > filters);
  }

  // The number of layers, from the first on, that a group splits along dimension d.
  std::size_t spatial_layers(std::size_t d) const {
    if (in_.spatial_layers > 0) {
      require(in_.spatial_layers <= static_cast<std::int64_t>(layers_.size()), "[oracle] {} spatial layers of {}",
              in_.spatial_layers, layers_.size());
      return static_cast<std::size_t>(in_.spatial_layers);
    }
    std::size_t count = 0;
    while (count < layers_.size() && has_window(layers_[count]) && layers_[count].in_extents[d] >= in_.group) ++count;
    return count;
  }

  void data_spatial() {
    const auto& extents = layers_[0].in_extents;
    const std::size_t d = extents[0] > 1 ? 0 : extents[1] > 1 ? 1 : 2;
    const auto split = spatial_layers(d);
    const double samples = batch_ / p1_, delta = in_.bytes_per_element;
    const double inner_latency = in_.group_latency.value_or(in_.latency);
    const double inner_bandwidth = in_.group_bandwidth.value_or(in_.bandwidth);
    const double halo_latency = in_.halo_latency.value_or(inner_latency);
    const double halo_bandwidth = in_.halo_bandwidth.value_or(inner_bandwidth);
    double shared = 0, unsplit = 0, halo = 0, split_elements = 0, elements = 0;
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      const auto& layer = layers_[l];
      if (!in_.times.empty()) (l < split ? shared : unsplit) += in_.times[l].forward + in_.times[l].backward;
      if (!works_in_place(layer)) (l < split ? split_elements : elements) += layer.inputs + layer.outputs;
      const auto planes = (layer.kernel[d] - 1) / 2;
      if (l >= split || planes == 0 || in_.group == 1) continue;
      double plane = static_cast<double>(planes * layer.in_channels);
      for (std::size_t e = 0; e < 3; ++e)
        if (e != d) plane *= static_cast<double>(layer.in_extents[e]);
      halo += 2 * 2 * (halo_latency + plane * samples * delta / (halo_bandwidth / (2 * p2_)));
    }
    const double gathered = split > 0 ? layers_[split - 1].outputs : layers_[0].inputs;
    compute(static_cast<double>(ceil_divide(in_.samples, in_.groups)) * (shared / p2_ + unsplit), 0);
    term("halo", iterations_ * halo);
    term("gather", 2 * iterations_ * (p2_ - 1) * (halo_latency + samples * gathered * delta / p2_ / (halo_bandwidth / 2)));
    term("gradient all-reduce", ring(p2_, inner_latency, inner_bandwidth) + ring(p1_, in_.latency, in_.bandwidth / (2 * p2_)));
    out_.memory_bytes = 2 * (delta * samples * (split_elements / p2_ + elements) + weight_bytes_);
    const auto places = static_cast<double>(extents[d]);
    limit(d == 0 ? "B*D_1" : d == 1 ? "B*H_1" : "B*W_1", batch_ * places, p1_ > batch_ || p2_ > places);
  }

  const OracleInput& in_;
  const std::vector<Layer>& layers_;
  OracleResult out_;
  double p_ = 1, p1_ = 1, p2_ = 1, batch_ = 1, samples_ = 1, iterations_ = 1;
  double weight_bytes_ = 0, per_sample_ = 0, update_ = 0;
  std::vector<const Layer*> products_, own_;  // convolutions and products; layers with their own x and y
};

}  // namespace

std::string name_of(Strategy strategy) {
  for (const auto& [value, name] : strategies)
    if (value == strategy) return name;
  fail("[oracle] unknown strategy");
}

std::optional<Strategy> strategy_named(const std::string& wanted) {
  for (const auto& [value, name] : strategies)
    if (name == wanted) return value;
  return std::nullopt;
}

OracleResult evaluate(const OracleInput& input) { return Oracle(input).run(); }

}  // namespace mpigrad::planner
