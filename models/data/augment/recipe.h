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
#include "models/data/augment/part.h"
#include "models/data/deform.h"

namespace mpigrad::augment {

struct Step {
  std::string text;  // for people, and for notes in checkpoints
  double probability = 1;
  std::function<void(Sample&, const Philox&)> apply{};
  // Extents of the output from those of the input; Error where the step cannot be applied. None: unchanged.
  std::function<Shape(const Shape&)> extents{};
  // The same step for windows of volumes whose cells have labels, of which each rank has a part (data::LoaderOptions). A step has
  // one of both, or it is none for windows.
  std::function<void(data::Motion&, const Philox&)> move{};  // values and labels
  std::function<void(Part&, const Philox&)> change{};        // values
  std::int64_t reach = 0;                                    // the cells around a part that `change` reads, at most
  bool elastic = false;                                      // `move` sets Motion::elastic
  bool needs_tones = false;                                  // `change` reads Part::tones
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

  // ---- windows of volumes with labels: the same numbers for every part of a window

  // Error: a step that is none for windows, two elastic displacements.
  void require_windows() const;
  bool moves() const;
  bool changes() const;
  bool needs_tones() const;
  // The motion of a window [D, H, W]: all steps that move cells, in one resampling.
  data::Motion motion(const Shape& window, const Philox& random) const;
  // The number of cells around a part that change() reads.
  std::int64_t reach(const Philox& random) const;
  // Applies the steps that change values. Cells of the part that are nearer than reach() to its ends, where these are not the
  // window's, get values that are not those of the window.
  void change(Part& x, const Philox& random) const;

 private:
  // f(step, its generator) for the steps that are drawn.
  template <class F>
  void drawn(const Philox& random, F f) const;

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

// ---- volumes, also windows of volumes with labels. Defaults: nnU-Net's (Isensee et al. 2021, supplementary note 4)

// About the window's middle, by angles of up to `degrees` around each of the axes D, H and W, or around one `axis`; never out of
// the plane of a picture. All turns, scales and elastic displacements of a recipe are one resampling.
Step random_rotation(double degrees = 30, int axis = -1);
// What is seen becomes `factor` times as large, along axes longer than 1.
Step random_scale(Range factor = {0.7, 1.4});
// data::Elastic, in cells.
Step random_elastic(double amplitude = 4, double spacing = 16);
// The options of data::Motion: interpolation of values, and of labels.
Step cubic_values();
Step labels_by_score();
// Of each channel; those of each channel are drawn for themselves. contrast() and the others are in augment/part.h.
Step random_brightness(Range factor = {0.7, 1.3});
Step random_contrast(Range factor = {0.65, 1.5});
Step random_gamma(Range exponent = {0.7, 1.5}, bool inverted = false);
// Of each channel with probability 1/2.
Step random_low_resolution(Range factor = {1, 2});
Step random_blur_of_channels(Range sigma = {0.5, 1.5});
// Rotation and scale with probability 0.2 each, noise of a deviation up to 0.1 with 0.15, blur with 0.2, brightness and contrast
// with 0.15 each, low resolution with 0.25, gamma with 0.15 inverted and 0.15 not, and flips of each axis with 0.5. Contrast and
// gamma take the range, mean and deviation of the whole volume, where nnU-Net takes those of the window.
Recipe nnunet();

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
// produce the extents `to`. Names of steps for volumes, with labels or without: rotate (degrees, axis), scale (low, high),
// elastic (amplitude, spacing), brightness, contrast (low, high), gamma (low, high, inverted), resolution (low, high), cubic,
// scores; and the recipe nnunet. For windows of volumes with labels `to` is {}; then blur (low, high) and noise (deviation) have
// nnU-Net's defaults, too. Errors: no such step or number, a number that is none or given twice, those of the steps.
Recipe parse_recipe(const std::string& text, const Shape& to);

}  // namespace mpigrad::augment
