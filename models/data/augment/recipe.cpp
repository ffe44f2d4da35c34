#include "models/data/augment/recipe.h"

#include <algorithm>

namespace mpigrad::augment {

Recipe& Recipe::add(Step step) {
  steps_.push_back(std::move(step));
  return *this;
}

Shape Recipe::extents(Shape input) const {
  for (const auto& step : steps_)
    if (step.extents) {
      const auto output = step.extents(input);
      // Steps are skipped at random, so only a step that is always applied may change the extents.
      require(output == input || step.probability >= 1, "[augment] '{}' changes {} to {} with a probability of only {}",
              step.text, input, output, step.probability);
      input = output;
    }
  return input;
}

template <class F>
void Recipe::drawn(const Philox& random, F f) const {
  for (std::size_t k = 0; k < steps_.size(); ++k) {
    const auto& step = steps_[k];
    const auto own = random.child(k);
    if (step.probability < 1 && own.uniform(0) >= step.probability) continue;
    f(step, own.child(0));
  }
}

void Recipe::apply(Sample& x, const Philox& random) const {
  drawn(random, [&](const Step& step, const Philox& own) { step.apply(x, own); });
}

void Recipe::require_windows() const {
  for (const auto& step : steps_)
    require(step.move || step.change, "[augment] '{}' is no step for windows of volumes with labels", step.text);
  require(std::count_if(steps_.begin(), steps_.end(), [](const Step& step) { return step.elastic; }) <= 1,
          "[augment] a recipe has one elastic displacement: {}", text());
}

bool Recipe::moves() const {
  return std::any_of(steps_.begin(), steps_.end(), [](const Step& step) { return step.move != nullptr; });
}
bool Recipe::changes() const {
  return std::any_of(steps_.begin(), steps_.end(), [](const Step& step) { return step.change != nullptr; });
}
bool Recipe::needs_tones() const {
  return std::any_of(steps_.begin(), steps_.end(), [](const Step& step) { return step.needs_tones; });
}

data::Motion Recipe::motion(const Shape& window, const Philox& random) const {
  data::Motion motion{.window = window};
  drawn(random, [&](const Step& step, const Philox& own) {
    if (step.move) step.move(motion, own);
  });
  return motion;
}

std::int64_t Recipe::reach(const Philox& random) const {
  std::int64_t reach = 0;
  drawn(random, [&](const Step& step, const Philox&) { reach += step.reach; });
  return reach;
}

void Recipe::change(Part& x, const Philox& random) const {
  drawn(random, [&](const Step& step, const Philox& own) {
    if (step.change) step.change(x, own);
  });
}

std::string Recipe::text() const {
  std::string result;
  for (const auto& step : steps_) {
    if (!result.empty()) result += ", ";
    if (step.probability < 1) result += fmt::format("{}: ", step.probability);
    result += step.text;
  }
  return result.empty() ? "nothing" : result;
}

Step with(double probability, Step step) {
  require(probability >= 0 && probability <= 1, "[augment] a probability must be from 0 to 1, not {}", probability);
  step.probability *= probability;
  return step;
}

Recipe photographs(const Shape& to, Range area) {
  Recipe recipe{random_resized_crop({.to = to, .area = area}), random_flip(2), with(0.8, colour_jitter({})),
                with(0.2, to_grey())};
  const auto edge = static_cast<double>(to[1]);
  if (to[1] >= 64) recipe.add(with(0.5, random_blur({0.1 * edge / 224, 2 * edge / 224})));
  return recipe;
}

Recipe handwriting(const Shape& to) {
  return {random_warp({.to = to,
                       .rotation = 15,
                       .shear = 15,
                       .scale = {0.8, 1.2},
                       .stretch = {0.8, 1.25},
                       .move = 0.08,
                       .elastic = 0.03,
                       .spacing = 0.2})};
}

Recipe volumes(const Shape& to) {
  return {random_resized_crop({.to = to, .area = {0.4, 1}}), random_turn(true), with(0.8, random_intensity({})),
          with(0.5, random_noise({0, 0.1})), with(0.5, random_erase({.area = {0.02, 0.2}}))};
}

}  // namespace mpigrad::augment
