#include <algorithm>
#include <nlohmann/json.hpp>

#include "examples/trainers/classify/classify.h"
#include "framework/base/text_bounds.h"

namespace mpigrad::classify {

std::string to_note(const Recipe& r) {
  nlohmann::ordered_json document{{"filters", r.filters},        {"full_resolution", r.full_resolution},
                                  {"classes", r.classes},        {"channels", r.channels},
                                  {"extents", r.extents},        {"label", r.label},
                                  {"class_names", r.class_names}};
  if (r.regression()) document.update({{"targets", r.targets}, {"means", r.means}, {"deviations", r.deviations}});
  return document.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Recipe recipe_of(const std::string& weights, const CheckpointInfo& info) {
  const auto& note = trainer::note_of(weights, info, recipe_note);
  Recipe r;
  const auto excess = excess_of_json(note);
  require(excess.empty(), "[weights] {}: the note '{}' {}", weights, recipe_note, excess);
  try {
    const auto document = nlohmann::ordered_json::parse(note);
    document.at("filters").get_to(r.filters), document.at("full_resolution").get_to(r.full_resolution);
    document.at("classes").get_to(r.classes), document.at("channels").get_to(r.channels);
    document.at("extents").get_to(r.extents);
    document.at("label").get_to(r.label), document.at("class_names").get_to(r.class_names);
    if (document.contains("targets"))
      document.at("targets").get_to(r.targets), document.at("means").get_to(r.means),
          document.at("deviations").get_to(r.deviations);
  } catch (const nlohmann::ordered_json::exception&) {
    fail("[weights] {}: the note '{}' does not describe a network", weights, recipe_note);
  }
  const bool named = r.class_names.empty() || static_cast<std::int64_t>(r.class_names.size()) == r.classes;
  const bool rows = r.targets.size() <= 65536 && r.means.size() == r.targets.size() && r.deviations.size() == r.targets.size() &&
                    std::all_of(r.deviations.begin(), r.deviations.end(), [](double d) { return d > 0; });
  require(r.filters >= 1 && r.filters <= 4096 && r.classes >= 2 && r.classes <= 10000 && r.channels >= 1 &&
              r.extents.size() == 3 && named && rows,
          "[weights] {}: the note '{}' does not describe a network", weights, recipe_note);
  return r;
}

NetworkOptions network_options(const Recipe& r) {
  return {.outputs = r.outputs(), .filters = r.filters, .pool_first = !r.full_resolution};
}

NetworkOptions network_options(const TrainOptions& o, const Recipe& r) {
  auto options = network_options(r);
  options.norm = {.momentum = o.norm_momentum, .statistics = trainer::statistics_of(o)};
  if (o.keep > 0) options.keep = o.keep;
  return options;
}

int describe(const Communicator& world, const TrainOptions& o) {
  trainer::together(world, [&] {
    if (world.rank() != 0) return;
    const auto grid = trainer::parse_grid(o.grid, 1, trainer::Channels::split);
    const std::int64_t size = o.size != 0 ? o.size : 128;
    Shape input{trainer::described_batch(o, grid), size, size, size, 1};
    if (!o.data.empty()) {
      const auto source = open_training(o);
      for (int d = 0; d < 3 && o.size == 0; ++d) input[d + 1] = source->extents()[d];
      input[4] = source->channels();
    }
    Network net(network_options(o, o.recipe));
    trainer::print(trainer::describe(o, net, input, grid), o, {{"program", "classify"}});
  });
  return 0;
}

}  // namespace mpigrad::classify
