#include <nlohmann/json.hpp>

#include <charconv>
#include <cmath>
#include <map>

#include "examples/trainers/unet3d/unet3d.h"
#include "framework/base/text_bounds.h"

namespace mpigrad::unet {
namespace {

using Kind = nn::NormAttributes::Kind;
const std::map<std::string, Kind> norm_kinds{
    {"none", Kind::none}, {"batch", Kind::batch}, {"instance", Kind::instance}, {"group", Kind::group}, {"layer", Kind::layer}};

template <class T, class Read>
std::array<T, 3> three(const std::string& option, const std::string& text, Read read) {
  std::vector<T> values;
  for (std::size_t begin = 0; begin <= text.size() && values.size() < 4;) {
    const auto end = std::min(text.find(',', begin), text.size());
    T value{};
    if (!read(text.substr(begin, end - begin), value)) values.resize(4);
    else values.push_back(value);
    begin = end + 1;
  }
  if (values.size() == 1) values.resize(3, values.front());
  if (values.size() != 3)
    throw trainer::UsageError(fmt::format("{} is one number or three, D,H,W, above 0; got '{}'", option, text));
  return {values[0], values[1], values[2]};
}

}  // namespace

Shape parse_extents(const std::string& option, const std::string& text) {
  const auto extents = three<std::int64_t>(option, text, [](const std::string& part, std::int64_t& value) {
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    return error == std::errc() && end == part.data() + part.size() && value > 0 && value <= 1 << 20;
  });
  return {extents[0], extents[1], extents[2]};
}

std::array<double, 3> parse_spacing(const std::string& option, const std::string& text) {
  return three<double>(option, text, [](const std::string& part, double& value) {
    char* end = nullptr;
    value = std::strtod(part.c_str(), &end);
    return !part.empty() && *end == '\0' && std::isfinite(value) && value > 0;
  });
}

std::string to_note(const Recipe& r) {
  nlohmann::ordered_json document{{"variant", r.variant},
                                  {"filters", r.filters},
                                  {"norm", r.norm},
                                  {"norm_groups", r.norm_groups},
                                  {"statistics", r.statistics},
                                  {"classes", r.classes},
                                  {"channels", r.channels},
                                  {"window", {r.window[0], r.window[1], r.window[2]}},
                                  {"normalisation", r.normalisation}};
  if (r.spacing) document["spacing"] = *r.spacing;
  return document.dump();
}

Recipe recipe_of(const std::string& weights, const CheckpointInfo& info) {
  const auto note = info.notes.find(recipe_note);
  require(note != info.notes.end(), "[weights] {} holds no weights of this program: it does not say which network they are of",
          weights);
  Recipe r;
  const auto excess = excess_of_json(note->second);
  require(excess.empty(), "[weights] {}: the note '{}' {}", weights, recipe_note, excess);
  try {
    const auto document = nlohmann::ordered_json::parse(note->second);
    document.at("variant").get_to(r.variant), document.at("filters").get_to(r.filters);
    document.at("norm").get_to(r.norm), document.at("norm_groups").get_to(r.norm_groups);
    document.at("statistics").get_to(r.statistics);
    document.at("classes").get_to(r.classes), document.at("channels").get_to(r.channels);
    const auto window = document.at("window").get<std::array<std::int64_t, 3>>();
    r.window = {window[0], window[1], window[2]};
    document.at("normalisation").get_to(r.normalisation);
    if (document.contains("spacing")) r.spacing = document.at("spacing").get<std::array<double, 3>>();
  } catch (const nlohmann::ordered_json::exception&) {
    fail("[weights] {}: the note '{}' does not describe a network", weights, recipe_note);
  }
  const bool known = (r.variant == "mlperf" || r.variant == "lbann") && norm_kinds.contains(r.norm);
  require(known && r.classes >= 2 && r.channels >= 1 && r.window.elements() > 0,
          "[weights] {}: the note '{}' does not describe a network", weights, recipe_note);
  return r;
}

UNet3dOptions network_options(const Recipe& r, double norm_momentum, bool recompute) {
  const auto variant = r.variant == "lbann" ? UNet3dVariant::lbann : UNet3dVariant::mlperf;
  UNet3dOptions options{.variant = variant, .filters = r.filters, .classes = r.classes, .recompute = recompute};
  nn::NormAttributes norm{.kind = norm_kinds.at(r.norm), .groups = r.norm_groups, .momentum = norm_momentum};
  trainer::Options over;
  over.statistics = r.statistics;
  if (!r.statistics.empty()) norm.statistics = trainer::statistics_of(over);
  options.norm = norm;
  return options;
}

int describe(const Communicator& world, const TrainOptions& o) {
  trainer::together(world, [&] {
    if (world.rank() != 0) return;
    const auto grid = trainer::parse_grid(o.grid, 1, trainer::Channels::split);
    auto recipe = o.recipe;
    recipe.window = parse_extents("--window", o.window);
    if (recipe.classes == 0) recipe.classes = 3;
    UNet3d net(network_options(recipe, o.norm_momentum, o.recompute));
    const auto& w = recipe.window;
    trainer::print(trainer::describe(o, net, {trainer::described_batch(o, grid), w[0], w[1], w[2], recipe.channels}, grid), o,
                   {{"program", "unet3d"}, {"variant", recipe.variant}});
  });
  return 0;
}

}  // namespace mpigrad::unet
