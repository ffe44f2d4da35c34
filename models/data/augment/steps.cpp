#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "models/data/augment/intensity.h"
#include "models/data/augment/recipe.h"

namespace mpigrad::augment {
namespace {

constexpr const char* axis_names[] = {"D", "H", "W"};

void require_extents(const Shape& to) {
  require(to.rank() == 3 && to.elements() > 0, "[augment] extents must be [D, H, W], at least 1 each: {}", to);
}
void require_range(const Range& range, const char* what, double least) {
  require(range.low >= least && range.low <= range.high && std::isfinite(range.high), "[augment] {} from {} to {}", what,
          range.low, range.high);
}
void require_positive(const Range& range, const char* what) {
  require_range(range, what, 0);
  require(range.low > 0, "[augment] {} must be positive, not from {}", what, range.low);
}

std::string text_of(const Range& range) {
  return range.low == range.high ? fmt::format("{:.4g}", range.low) : fmt::format("{:.4g} to {:.4g}", range.low, range.high);
}

// Edges of a box with a fraction `area` of all cells: for pictures with the aspect W / H, for volumes with the volume's own.
std::array<double, 3> edges_of(const Shape& extents, double area, double aspect) {
  const auto n = [&](int a) { return static_cast<double>(extents[a]); };
  if (extents[0] == 1) {
    const double cells = area * n(1) * n(2);
    return {1, std::sqrt(cells / aspect), std::sqrt(cells * aspect)};
  }
  const double factor = std::cbrt(area);
  return {factor * n(0), factor * n(1), factor * n(2)};
}

struct Cells {
  std::array<std::int64_t, 3> begin{}, count{};
};

// A box of whole cells at a random place; none if it does not fit.
bool place(const Shape& extents, const std::array<double, 3>& edges, Draws& draws, Cells& box) {
  for (std::size_t a = 0; a < 3; ++a) {
    const auto n = extents[static_cast<int>(a)];
    box.count[a] = std::llround(edges[a]);
    if (box.count[a] < 1 || box.count[a] > n) return false;
  }
  for (std::size_t a = 0; a < 3; ++a) box.begin[a] = draws.below(extents[static_cast<int>(a)] - box.count[a] + 1);
  return true;
}

Cells random_window(const Shape& extents, const RandomResizedCrop& o, Draws& draws) {
  Cells box;
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double area = draws.uniform(o.area.low, o.area.high), aspect = draws.log_uniform(o.aspect.low, o.aspect.high);
    if (place(extents, edges_of(extents, area, aspect), draws, box)) return box;
  }
  const auto height = static_cast<double>(extents[1]), width = static_cast<double>(extents[2]);
  const double aspect = std::clamp(width / height, o.aspect.low, o.aspect.high);
  box.count = {extents[0], extents[1], extents[2]};
  if (extents[0] == 1) {
    box.count[1] = std::clamp<std::int64_t>(std::llround(width / aspect), 1, extents[1]);
    box.count[2] = std::clamp<std::int64_t>(std::llround(height * aspect), 1, extents[2]);
  }
  for (std::size_t a = 0; a < 3; ++a) box.begin[a] = (extents[static_cast<int>(a)] - box.count[a]) / 2;
  return box;
}

Step plain(std::string text, std::function<void(Sample&, const Philox&)> apply) {
  return {std::move(text), 1, std::move(apply), {}};
}

Step changing(std::string text, const Shape& to, std::function<void(Sample&, const Philox&)> apply) {
  return {std::move(text), 1, std::move(apply), [to](const Shape&) { return to; }};
}

}  // namespace

// ---- geometry

Step resize(const Shape& to) {
  require_extents(to);
  return changing(fmt::format("resize {}", to), to,
                  [to](Sample& x, const Philox&) { x = resized(x, whole(x.extents), to, Filter::area); });
}

Step random_resized_crop(const RandomResizedCrop& options) {
  require_extents(options.to);
  require_positive(options.area, "the area of a crop");
  require(options.area.high <= 1, "[augment] the area of a crop is at most 1, not {}", options.area.high);
  require_positive(options.aspect, "the aspect of a crop");
  return changing(fmt::format("resized crop {} (area {}, aspect {})", options.to, text_of(options.area), text_of(options.aspect)),
                  options.to, [o = options](Sample& x, const Philox& random) {
                    Draws draws(random);
                    const auto cells = random_window(x.extents, o, draws);
                    Window window;
                    for (std::size_t a = 0; a < 3; ++a) {
                      window.begin[a] = static_cast<double>(cells.begin[a]);
                      window.end[a] = static_cast<double>(cells.begin[a] + cells.count[a]);
                    }
                    x = resized(x, window, o.to, Filter::linear);
                  });
}

Step random_crop(const Shape& to, std::int64_t padding) {
  require_extents(to);
  require(padding >= 0, "[augment] a padding must not be negative, not {} cells", padding);
  const auto padded = [padding](Shape extents) {
    for (auto& n : extents) n += n > 1 ? 2 * padding : 0;
    return extents;
  };
  auto step = plain(fmt::format("crop {} (padding {})", to, padding), [to, padded](Sample& x, const Philox& random) {
    Draws draws(random);
    const auto room = padded(x.extents);
    std::array<std::int64_t, 3> begin{};
    for (int a = 0; a < 3; ++a) begin[static_cast<std::size_t>(a)] = draws.below(room[a] - to[a] + 1);
    const auto framed = fitted(x, room, Fit::pad);
    Sample y(to, x.channels);
    for (std::int64_t d = 0; d < to[0]; ++d)
      for (std::int64_t h = 0; h < to[1]; ++h)
        std::copy_n(framed.values.data() + (((d + begin[0]) * room[1] + h + begin[1]) * room[2] + begin[2]) * x.channels,
                    to[2] * x.channels, y.values.data() + (d * to[1] + h) * to[2] * x.channels);
    x = std::move(y);
  });
  step.extents = [to, padded](const Shape& extents) {
    const auto room = padded(extents);
    for (int a = 0; a < 3; ++a) require(to[a] <= room[a], "[augment] a crop {} does not fit into {}", to, room);
    return to;
  };
  return step;
}

Step random_flip(int axis) {
  checked_dimension("augment", axis, 3);
  const auto a = axis < 0 ? axis + 3 : axis;
  Step step{fmt::format("flip {}", axis_names[a]), 0.5, [a](Sample& x, const Philox&) { x = flipped(x, a); }, {}};
  step.move = [i = static_cast<std::size_t>(a)](data::Motion& motion, const Philox&) { motion.flip[i] = !motion.flip[i]; };
  return step;
}

Step random_turn(bool mirrors) {
  return plain(mirrors ? "quarter turns and mirrors" : "quarter turns", [mirrors](Sample& x, const Philox& random) {
    Draws draws(random);
    data::Augmentation map;
    // Axes of different extents, and axes of one cell, keep their places; all permutations of the others are equally likely.
    constexpr std::array<std::array<int, 3>, 6> orders{{{0, 1, 2}, {1, 2, 0}, {2, 0, 1}, {0, 2, 1}, {2, 1, 0}, {1, 0, 2}}};
    const auto allowed = [&](const std::array<int, 3>& order) {
      for (int a = 0; a < 3; ++a) {
        const int from = order[static_cast<std::size_t>(a)];
        if (x.extents[from] != x.extents[a] || (x.extents[a] == 1 && from != a)) return false;
      }
      return true;
    };
    std::size_t order = 0;
    do order = static_cast<std::size_t>(draws.below(6));
    while (!allowed(orders[order]));
    map.axes = orders[order];
    bool odd = order >= 3;
    for (std::size_t a = 0; a < 3; ++a) {
      const bool flip = draws.half();
      if (x.extents[map.axes[a]] == 1) continue;
      map.flip[a] = flip, odd = odd != flip;
    }
    // A rotation consists of an even number of exchanges and flips.
    if (!mirrors && odd) map.flip[2] = !map.flip[2];
    x = permuted(x, map);
  });
}

Step random_warp(const RandomWarp& o) {
  require_positive(o.scale, "the scale of a warp");
  require_positive(o.stretch, "the stretch of a warp");
  require(o.rotation >= 0 && o.shear >= 0 && o.shear < 90 && o.move >= 0 && o.elastic >= 0 && o.spacing > 0,
          "[augment] a warp by up to {} degrees, shear {}, move {}, elastic {} with points {} apart", o.rotation, o.shear, o.move,
          o.elastic, o.spacing);
  std::string text = o.to.rank() > 0 ? fmt::format("warp {} (", o.to) : "warp (";
  text += fmt::format("rotation {:.4g}, shear {:.4g}, scale {}, stretch {}, move {:.4g}, elastic {:.4g} at {:.4g})", o.rotation,
                      o.shear, text_of(o.scale), text_of(o.stretch), o.move, o.elastic, o.spacing);
  Step step = plain(std::move(text), [o](Sample& x, const Philox& random) {
    Draws draws(random);
    Affine affine;
    affine.rotation = draws.uniform(-o.rotation, o.rotation), affine.shear = draws.uniform(-o.shear, o.shear);
    const double scale = draws.log_uniform(o.scale.low, o.scale.high);
    const double stretch = std::sqrt(draws.log_uniform(o.stretch.low, o.stretch.high));
    affine.scale_x = scale * stretch, affine.scale_y = scale / stretch;
    affine.move_x = draws.uniform(-o.move, o.move), affine.move_y = draws.uniform(-o.move, o.move);
    x = warped(x, affine, {.amplitude = o.elastic, .spacing = o.spacing, .random = random.child(0)},
               o.to.rank() > 0 ? o.to : x.extents);
  });
  step.extents = [to = o.to](const Shape& extents) {
    const auto result = to.rank() > 0 ? to : extents;
    require(extents[0] == 1 && result.rank() == 3 && result[0] == 1, "[augment] a warp needs pictures [1, H, W]: {} to {}",
            extents, result);
    return result;
  };
  return step;
}

// ---- values

Step colour_jitter(const ColourJitter& o) {
  require(o.brightness >= 0 && o.contrast >= 0 && o.saturation >= 0 && o.hue >= 0 && o.hue <= 0.5,
          "[augment] colour jitter of brightness {}, contrast {}, saturation {}, hue {}", o.brightness, o.contrast, o.saturation,
          o.hue);
  return plain(fmt::format("colour jitter (brightness {:.4g}, contrast {:.4g}, saturation {:.4g}, hue {:.4g})", o.brightness,
                           o.contrast, o.saturation, o.hue),
               [o](Sample& x, const Philox& random) {
                 Draws draws(random);
                 const auto factor = [&](double strength) { return draws.uniform(std::max(0.0, 1 - strength), 1 + strength); };
                 const double b = factor(o.brightness), c = factor(o.contrast), s = factor(o.saturation);
                 const double h = draws.uniform(-o.hue, o.hue);
                 std::array<int, 4> order{0, 1, 2, 3};
                 for (std::size_t i = 4; i > 1; --i)
                   std::swap(order[i - 1], order[static_cast<std::size_t>(draws.below(static_cast<std::int64_t>(i)))]);
                 for (const int what : order) {
                   if (what == 0 && o.brightness > 0) brightness(x, b);
                   if (what == 1 && o.contrast > 0) contrast(x, c);
                   if (what == 2 && o.saturation > 0) saturation(x, s);
                   if (what == 3 && o.hue > 0) hue(x, h);
                 }
               });
}

Step to_grey() {
  return plain("grey", [](Sample& x, const Philox&) { grey(x); });
}

Step random_blur(Range sigma) {
  require_range(sigma, "the width of a blur", 0);
  return plain(fmt::format("blur (sigma {})", text_of(sigma)),
               [sigma](Sample& x, const Philox& random) { blur(x, Draws(random).uniform(sigma.low, sigma.high)); });
}

Step random_intensity(const RandomIntensity& o) {
  require_range(o.scale, "the factor of an intensity", 0);
  require(o.shift.low <= o.shift.high, "[augment] the shift of an intensity from {} to {}", o.shift.low, o.shift.high);
  require_positive(o.gamma, "the exponent of an intensity");
  return plain(fmt::format("intensity (scale {}, shift {}, gamma {})", text_of(o.scale), text_of(o.shift), text_of(o.gamma)),
               [o](Sample& x, const Philox& random) {
                 Draws draws(random);
                 const double scale = draws.uniform(o.scale.low, o.scale.high);
                 linear(x, scale, draws.uniform(o.shift.low, o.shift.high));
                 gamma(x, draws.log_uniform(o.gamma.low, o.gamma.high));
               });
}

Step random_noise(Range deviation) {
  require_range(deviation, "the deviation of noise", 0);
  const auto add = [deviation](auto& x, const Philox& random) {
    noise(x, Draws(random).uniform(deviation.low, deviation.high), random.child(0));
  };
  auto step = plain(fmt::format("noise (deviation {})", text_of(deviation)), add);
  step.change = add;
  return step;
}

Step random_erase(const RandomErase& o) {
  require_positive(o.area, "the area to erase");
  require(o.area.high <= 1, "[augment] the area to erase is at most 1, not {}", o.area.high);
  require_positive(o.aspect, "the aspect of the area to erase");
  return plain(fmt::format("erase (area {}, aspect {}, value {:.4g})", text_of(o.area), text_of(o.aspect), o.value),
               [o](Sample& x, const Philox& random) {
                 Draws draws(random);
                 Cells cells;
                 for (int attempt = 0; attempt < 10; ++attempt) {
                   const double area = draws.uniform(o.area.low, o.area.high);
                   if (!place(x.extents, edges_of(x.extents, area, draws.log_uniform(o.aspect.low, o.aspect.high)), draws, cells))
                     continue;
                   Box box{Shape{0, 0, 0}, Shape{0, 0, 0}};
                   for (int a = 0; a < 3; ++a) {
                     box.begin[a] = cells.begin[static_cast<std::size_t>(a)];
                     box.end[a] = box.begin[a] + cells.count[static_cast<std::size_t>(a)];
                   }
                   return erase(x, box, o.value);
                 }
               });
}

Step normalisation(std::vector<double> mean, std::vector<double> deviation) {
  auto text = fmt::format("normalise (mean {:.4g}, deviation {:.4g})", fmt::join(mean, " "), fmt::join(deviation, " "));
  return plain(std::move(text), [mean = std::move(mean), deviation = std::move(deviation)](Sample& x, const Philox&) {
    normalise(x, mean, deviation);
  });
}

}  // namespace mpigrad::augment
