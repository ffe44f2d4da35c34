#pragma once
// Recipes: lists of random steps, each with a probability, that make one view of a sample. The result of a step depends only on
// the sample and a generator keyed by seed, epoch, global sample index, view and the step's place in the list: the same on every
// rank, grid and thread.
//
//   Recipe recipe{random_resized_crop({.to = {1, 32, 32}}), random_flip(2), with(0.8, colour_jitter({}))};
//   recipe.text();   // "resized crop [1, 32, 32] ..., 0.5: flip W, 0.8: colour jitter ..."

#include <functional>
#include <initializer_list>
#include <string>

#include "models/data/augment/geometry.h"

namespace mpigrad::augment {

struct Step {
  std::string text;  // for people, and for notes in checkpoints
  double probability = 1;
  std::function<void(Sample&, const Philox&)> apply{};
  // Extents of the output from those of the input; Error where the step cannot be applied. None: unchanged.
  std::function<Shape(const Shape&)> extents{};
};

class Recipe {
 public:
  Recipe() = default;  // leaves samples as they are
  Recipe(std::initializer_list<Step> steps) : steps_(steps) {}
  Recipe& add(Step step);

  const std::vector<Step>& steps() const { return steps_; }
  Shape extents(Shape input) const;
  void apply(Sample& x, const Philox& random) const;
  std::string text() const;

 private:
  std::vector<Step> steps_;
};

struct Range {
  double low = 1, high = 1;
};

// The step with its own probability multiplied by `probability`. Error: a number outside [0, 1].
Step with(double probability, Step step);

// ---- geometry

// The whole sample resized to other extents with Filter::area; not random.
Step resize(const Shape& to);

// Szegedy et al. 2015, as in SimCLR: a window with a random fraction `area` of the cells (for volumes, of the volume) and, for
// pictures, of random aspect ratio (log-uniform), at a random place, resized bilinearly. If ten windows do not fit, the largest
// centred window that keeps the aspect inside the range. Volumes keep their own aspect.
struct RandomResizedCrop {
  Shape to{};
  Range area{0.08, 1}, aspect{3.0 / 4, 4.0 / 3};
};
Step random_resized_crop(const RandomResizedCrop& options);
// `to` cells at a random place, not resized; the sample is first padded with `padding` zero cells on each side, along axes longer
// than 1.
Step random_crop(const Shape& to, std::int64_t padding = 0);
// Probability 1/2. Axes 0, 1, 2 are D, H, W.
Step random_flip(int axis);
// One of the rotations by multiples of 90 degrees (4 of a square, 24 of a cube), all equally likely; with `mirrors` also the
// reflections (8, 48). Axes of different extents are not exchanged.
Step random_turn(bool mirrors = false);

// An affine and an elastic map in one resampling; see warped(). Parameters are uniform in their ranges, scales log-uniform.
struct RandomWarp {
  Shape to{};             // none: the input's extents
  double rotation = 0;    // maximum in degrees, in both directions
  double shear = 0;       // maximum in degrees, in both directions
  Range scale{};          // of both axes
  Range stretch{};        // scale_x / scale_y
  double move = 0;        // maximum, as a fraction of the extent, along each axis
  double elastic = 0;     // Elastic::amplitude
  double spacing = 0.25;  // Elastic::spacing
};
Step random_warp(const RandomWarp& options);

// ---- values

// Brightness, contrast and saturation by factors within 1 -+ strength, hue by up to `hue` turns, in a random order (torchvision).
// The defaults are SimCLR's at strength 1.
struct ColourJitter {
  double brightness = 0.8, contrast = 0.8, saturation = 0.8, hue = 0.2;
};
Step colour_jitter(const ColourJitter& options);
Step to_grey();
Step random_blur(Range sigma = {0.1, 2});
// x <- scale x + shift, then max(x, 0)^gamma (log-uniform) unless that is 1.
struct RandomIntensity {
  Range scale{0.8, 1.2}, shift{-0.1, 0.1}, gamma{0.8, 1.25};
};
Step random_intensity(const RandomIntensity& options);
Step random_noise(Range deviation);
// Sets a box with a random fraction `area` of the cells to `value`: Zhong et al. 2020 for pictures (aspect log-uniform), DeVries
// and Taylor 2017 for volumes.
struct RandomErase {
  Range area{0.02, 0.33}, aspect{0.3, 3.3};
  double value = 0;
};
Step random_erase(const RandomErase& options);
Step normalisation(std::vector<double> mean, std::vector<double> deviation);

// SimCLR's recipe (Chen et al. 2020, appendix A) at `to`; blur from 64 pixels on, with sigma up to 2 at 224 pixels.
Recipe photographs(const Shape& to, Range area = {0.08, 1});
// Affine and elastic maps for letters and digits, ink near 1 on 0: no flips, no crops.
Recipe handwriting(const Shape& to);
// Crop, turns with mirrors, intensity, noise and cut-out for volumes in [0, 1].
Recipe volumes(const Shape& to);

// Steps separated by commas, each NAME or NAME:KEY=NUMBER:...: "crop:area=0.2,flip,noise:deviation=0.1:p=0.5". Names of recipes:
// simclr (area: photographs), handwriting, volume, none; of steps: resize, crop (area, to), cut (padding), flip (axis), turn,
// mirror (a turn with reflections), warp (rotation, shear, scale, stretch, move, elastic, spacing), colour (strength), grey, blur
// (low, high), intensity (strength), noise (deviation), erase (area). p is the probability of each. Steps that change extents
// produce the extents `to`. Errors: no such step or number, a number that is none or given twice, those of the steps.
Recipe parse_recipe(const std::string& text, const Shape& to);

}  // namespace mpigrad::augment
