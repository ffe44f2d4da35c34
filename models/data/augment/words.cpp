// Recipes from words: "crop:area=0.2,flip,noise:deviation=0.1:p=0.5".

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "framework/base/error.h"
#include "models/data/augment/recipe.h"

namespace mpigrad::augment {
namespace {

std::vector<std::string> parts_of(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// The numbers of a step, by name.
class Numbers {
 public:
  explicit Numbers(const std::string& text) {
    const auto parts = parts_of(text, ':');
    name_ = parts[0];
    for (std::size_t i = 1; i < parts.size(); ++i) {
      const auto equals = parts[i].find('=');
      const auto key = parts[i].substr(0, equals), value = equals == std::string::npos ? "" : parts[i].substr(equals + 1);
      char* end = nullptr;
      const double number = std::strtod(value.c_str(), &end);
      require(!value.empty() && *end == '\0' && number > -1e9 && number < 1e9, "[augment] '{}' is not KEY=NUMBER in '{}'",
              parts[i], text);
      require(numbers_.emplace(key, number).second, "[augment] '{}' is given twice in '{}'", key, text);
    }
  }
  const std::string& name() const { return name_; }
  double operator()(const std::string& key, double otherwise) {
    const auto found = numbers_.find(key);
    if (found == numbers_.end()) return otherwise;
    const double number = found->second;
    numbers_.erase(found);
    return number;
  }
  std::int64_t integer(const std::string& key, std::int64_t otherwise) {
    const double number = (*this)(key, static_cast<double>(otherwise));
    require(number == std::floor(number), "[augment] {} of {} is an integer, got {}", key, name_, number);
    return static_cast<std::int64_t>(number);
  }
  Range range(const Range& otherwise) {
    const double low = (*this)("low", otherwise.low);
    return {low, (*this)("high", otherwise.high)};
  }
  std::optional<double> probability() {
    if (!numbers_.contains("p")) return std::nullopt;
    const double p = (*this)("p", 1);
    require(p >= 0 && p <= 1, "[augment] p of {} is a probability, got {}", name_, p);
    return p;
  }
  void finish() const {
    if (!numbers_.empty()) fail("[augment] {} has no number '{}'", name_, numbers_.begin()->first);
  }

 private:
  std::string name_;
  std::map<std::string, double> numbers_;
};

// Within 1 - strength and 1 + strength, for factors within 1 / (1 + strength) and 1 + strength.
Range range_around(double strength) { return {1 - strength, 1 + strength}; }
Range factors(double strength) { return {1 / (1 + strength), 1 + strength}; }

using Maker = std::function<std::vector<Step>(Numbers&, const Shape& to)>;

const std::map<std::string, Maker>& makers() {
  const auto recipe = [](Recipe (*make)(const Shape&)) { return [make](Numbers&, const Shape& to) { return make(to).steps(); }; };
  const auto one = [](auto make) { return [make](Numbers& n, const Shape& to) { return std::vector<Step>{make(n, to)}; }; };
  static const std::map<std::string, Maker> all{
      {"none", [](Numbers&, const Shape& to) { return std::vector<Step>{resize(to)}; }},
      {"simclr",
       [](Numbers& n, const Shape& to) {
         return photographs(to, {n("area", 0.08), 1}).steps();
       }},
      {"handwriting", recipe(&handwriting)},
      {"volume", recipe(&volumes)},
      {"resize", one([](Numbers&, const Shape& to) { return resize(to); })},
      {"crop", one([](Numbers& n, const Shape& to) {
         return random_resized_crop({.to = to, .area = {n("area", 0.08), n("to", 1)}});
       })},
      {"cut", one([](Numbers& n, const Shape& to) { return random_crop(to, n.integer("padding", 0)); })},
      {"flip", one([](Numbers& n, const Shape&) { return random_flip(static_cast<int>(n.integer("axis", 2))); })},
      {"turn", one([](Numbers&, const Shape&) { return random_turn(false); })},
      {"mirror", one([](Numbers&, const Shape&) { return random_turn(true); })},
      {"warp", one([](Numbers& n, const Shape& to) {
         return random_warp({.to = to,
                             .rotation = n("rotation", 15),
                             .shear = n("shear", 15),
                             .scale = factors(n("scale", 0.2)),
                             .stretch = factors(n("stretch", 0.25)),
                             .move = n("move", 0.08),
                             .elastic = n("elastic", 0),
                             .spacing = n("spacing", 0.25)});
       })},
      {"colour", one([](Numbers& n, const Shape&) {
         const double s = n("strength", 1);
         return with(0.8, colour_jitter({0.8 * s, 0.8 * s, 0.8 * s, 0.2 * s}));
       })},
      {"grey", one([](Numbers&, const Shape&) { return with(0.2, to_grey()); })},
      {"blur", one([](Numbers& n, const Shape& to) {
         if (to.rank() == 0) return with(0.2, random_blur_of_channels({n("low", 0.5), n("high", 1.5)}));
         return with(0.5, random_blur({n("low", 0.1), n("high", 2)}));
       })},
      {"intensity", one([](Numbers& n, const Shape&) {
         const double s = n("strength", 0.2);
         return random_intensity({.scale = range_around(s), .shift = {-s / 2, s / 2}, .gamma = factors(s)});
       })},
      {"noise", one([](Numbers& n, const Shape& to) {
         return with(to.rank() == 0 ? 0.15 : 1, random_noise({0, n("deviation", 0.1)}));
       })},
      {"nnunet", [](Numbers&, const Shape&) { return nnunet().steps(); }},
      {"rotate", one([](Numbers& n, const Shape&) {
         const double degrees = n("degrees", 30);
         return with(0.2, random_rotation(degrees, static_cast<int>(n.integer("axis", -1))));
       })},
      {"scale", one([](Numbers& n, const Shape&) {
         return with(0.2, random_scale(n.range({0.7, 1.4})));
       })},
      {"elastic", one([](Numbers& n, const Shape&) {
         const double amplitude = n("amplitude", 4);
         return with(0.2, random_elastic(amplitude, n("spacing", 16)));
       })},
      {"cubic", one([](Numbers&, const Shape&) { return cubic_values(); })},
      {"scores", one([](Numbers&, const Shape&) { return labels_by_score(); })},
      {"brightness", one([](Numbers& n, const Shape&) {
         return with(0.15, random_brightness(n.range({0.7, 1.3})));
       })},
      {"contrast", one([](Numbers& n, const Shape&) {
         return with(0.15, random_contrast(n.range({0.65, 1.5})));
       })},
      {"gamma", one([](Numbers& n, const Shape&) {
         const auto range = n.range({0.7, 1.5});
         return with(0.15, random_gamma(range, n.integer("inverted", 0) != 0));
       })},
      {"resolution", one([](Numbers& n, const Shape&) {
         return with(0.25, random_low_resolution(n.range({1, 2})));
       })},
      {"erase", one([](Numbers& n, const Shape&) {
         return random_erase({.area = {0.02, n("area", 0.2)}});
       })},
  };
  return all;
}

}  // namespace

Recipe parse_recipe(const std::string& text, const Shape& to) {
  Recipe recipe;
  for (const auto& part : parts_of(text, ',')) {
    Numbers numbers(part);
    const auto found = makers().find(numbers.name());
    require(found != makers().end(), "[augment] there is no step '{}'", numbers.name());
    static const std::set<std::string> sized{"none", "simclr", "handwriting", "volume", "resize", "crop", "cut"};
    require(to.rank() > 0 || !sized.contains(numbers.name()), "[augment] '{}' is no step for windows of volumes with labels",
            numbers.name());
    const auto probability = numbers.probability();
    for (auto step : found->second(numbers, to)) {
      if (probability) step.probability = 1;
      recipe.add(probability ? with(*probability, std::move(step)) : std::move(step));
    }
    numbers.finish();
  }
  return recipe;
}

}  // namespace mpigrad::augment
