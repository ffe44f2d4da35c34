// The effects of the losses of lesson 10 on a network that is trained with them.
//
//   build/examples/lessons/10_wrong_training --ranks 8                  generated classes; half a minute on two idle cores
//   build/examples/lessons/10_wrong_training --ranks 8 --data FOLDER    MNIST: images and labels, unpacked IDX files
//       [--steps 80] [--batch 128] [--seeds 1] [--optimizer sgd|adam] [--rate R] [--only PART-OF-A-NAME]
//
// Each loss trains the same network (784 -> 256 -> 128, and a head of 64 for the loss) from the same weights on the same pairs of
// views for the same number of steps, each rank with its part of the batch; --ranks 1 shows the results without ranks. Labels are
// used only afterwards. Printed are means over seeds, and in brackets the range from the smallest to the largest: the percentage
// of test samples, moved and turned like views, that are recognised by a vote of their 20 nearest training samples; alignment,
// the mean squared distance of two views of a sample, and uniformity, how evenly samples are spread over the sphere (Wang and
// Isola 2020; smaller is better for both); the effective number of dimensions.

#include <array>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <map>

#include "examples/lessons/wrong_losses.h"
using namespace lesson;

namespace {

constexpr std::int64_t side = 28, pixels = side * side, hidden = 256, width = 128, head = 64;

struct Options {
  std::string data, optimizer = "sgd", only;
  std::int64_t steps = 80, batch = 128, seeds = 1;
  double rate = 0;
};

struct Images {
  std::vector<float> values;  // [n, side, side], 0 ... 1
  std::vector<double> labels;
  std::int64_t count() const { return static_cast<std::int64_t>(labels.size()); }
};

// Everything after the header of an IDX file; `dimensions` of it are skipped.
std::vector<std::uint8_t> idx(const std::string& path, int dimensions) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::uint8_t> all((std::istreambuf_iterator<char>(file)), {});
  const auto head_bytes = static_cast<std::size_t>(4 + 4 * dimensions);
  require(all.size() > head_bytes && all[2] == 8 && all[3] == dimensions, "[lesson] no IDX file of bytes in {} dimensions: {}",
          dimensions, path);
  all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(head_bytes));
  return all;
}
Images mnist(const std::string& folder) {
  Images result;
  for (const auto value : idx(folder + "/mnist8k-images-idx3-ubyte", 3)) result.values.push_back(static_cast<float>(value) / 255);
  for (const auto value : idx(folder + "/mnist8k-labels-idx1-ubyte", 1)) result.labels.push_back(value);
  require(result.count() * pixels == static_cast<std::int64_t>(result.values.size()),
          "[lesson] {} images of 28 x 28 for {} labels", result.values.size() / pixels, result.count());
  return result;
}
// Ten figures, each with four strokes between its own points, which jitter from sample to sample.
Images figures(std::int64_t count) {
  Images result;
  const Philox random{.key = 11};
  for (std::int64_t n = 0; n < count; ++n) {
    const auto label = static_cast<std::uint64_t>(random.child(1).below(static_cast<std::uint64_t>(n), 10));
    std::vector<float> image(pixels, 0);
    double from[2] = {}, to[2] = {};
    for (std::uint64_t point = 0; point <= 4; ++point) {
      for (std::uint64_t axis = 0; axis < 2; ++axis) {
        from[axis] = to[axis];
        to[axis] = 5 + 18 * random.child(2).uniform(label * 100 + point * 2 + axis) +
                   2.2 * random.child(3).normal(static_cast<std::uint64_t>(n) * 100 + point * 2 + axis);
      }
      for (int i = 0; point > 0 && i <= 60; ++i) {
        const auto row = static_cast<std::int64_t>(from[0] + (to[0] - from[0]) * i / 60),
                   column = static_cast<std::int64_t>(from[1] + (to[1] - from[1]) * i / 60);
        for (const auto& [r, c] : {std::pair{row, column}, {row + 1, column}, {row, column + 1}})
          if (r >= 0 && r < side && c >= 0 && c < side) image[static_cast<std::size_t>(r * side + c)] = 1;
      }
    }
    result.values.insert(result.values.end(), image.begin(), image.end());
    result.labels.push_back(static_cast<double>(label));
  }
  return result;
}

// A view: moved by up to 3 pixels, turned and sheared a little, dimmed, with one blank square and noise. A function of `random`
// only.
void augment(const float* image, const Philox& random, float* view) {
  const auto between = [&](std::uint64_t i, double low, double high) { return low + (high - low) * random.uniform(i); };
  const double angle = between(0, -0.3, 0.3), shear = between(1, -0.25, 0.25), scale = between(2, 0.85, 1.2);
  const double down = between(3, -3, 3), right = between(4, -3, 3), light = between(5, 0.6, 1.2);
  const double hole_row = between(6, -4, 28), hole_column = between(7, -4, 28);
  const double cosine = std::cos(angle) / scale, sine = std::sin(angle) / scale, middle = (side - 1) / 2.0;
  for (std::int64_t r = 0; r < side; ++r)
    for (std::int64_t c = 0; c < side; ++c) {
      const double y = static_cast<double>(r) - middle - down, x = static_cast<double>(c) - middle - right;
      const double row = cosine * y - sine * x + middle, column = sine * y + (cosine + shear) * x + middle;
      const double r0 = std::floor(row), c0 = std::floor(column);
      double value = 0;
      for (const double dr : {0.0, 1.0})
        for (const double dc : {0.0, 1.0}) {
          const double rr = r0 + dr, cc = c0 + dc;
          if (rr < 0 || cc < 0 || rr >= side || cc >= side) continue;
          value += (1 - std::abs(row - rr)) * (1 - std::abs(column - cc)) *
                   double(image[static_cast<std::size_t>(rr) * side + static_cast<std::size_t>(cc)]);
        }
      const bool blank = static_cast<double>(r) > hole_row && static_cast<double>(r) < hole_row + 7 &&
                         static_cast<double>(c) > hole_column && static_cast<double>(c) < hole_column + 7;
      const auto at = static_cast<std::size_t>(r * side + c);
      view[at] = static_cast<float>((blank ? 0 : value * light) + 0.1 * random.normal(100 + at));
    }
}

struct Net {
  Parameters parameters;
  explicit Net(std::uint64_t seed) {
    const std::int64_t widths[] = {pixels, hidden, width, head};
    for (std::uint64_t layer = 0; layer < 3; ++layer) {
      const auto in = widths[layer], out = widths[layer + 1];
      parameters.add(fmt::format("w{}", layer),
                     random_normal({out, in}, {.key = seed, .stream = layer}, 0, std::sqrt(2.0 / double(in))), true);
      parameters.add(fmt::format("b{}", layer), zeros({out}), false);
    }
    parameters.pack();
  }
  Tensor layer(const Tensor& x, std::size_t i, Activation f, const Communicator& comm) const {
    return linear(x, replicate(parameters[2 * i].value, comm), replicate(parameters[2 * i + 1].value, comm), f);
  }
  Tensor features(const Tensor& x, const Communicator& comm) const {
    return layer(layer(x, 0, Activation::relu, comm), 1, Activation::relu, comm);
  }
  Tensor operator()(const Tensor& x, const Communicator& comm) const {
    return layer(features(x, comm), 2, Activation::none, comm);
  }
};

struct Scores {
  double neighbours = 0, alignment = 0, uniformity = 0, dimensions = 0;
  bool diverged = false;
};

// This rank's rows [begin, end) of a list of samples, unchanged or as views.
Tensor batch_of(const Images& images, std::span<const std::int64_t> samples, const Communicator& comm, const Philox* random) {
  const auto cuts = balanced_cuts(static_cast<std::int64_t>(samples.size()), comm.size());
  const auto begin = cuts[static_cast<std::size_t>(comm.rank())], end = cuts[static_cast<std::size_t>(comm.rank()) + 1];
  Tensor x({Shape{end - begin, pixels}, DType::float32});
  auto* out = x.mutable_data<float>();
  for (auto i = begin; i < end; ++i, out += pixels) {
    const float* image = images.values.data() + samples[static_cast<std::size_t>(i)] * pixels;
    if (random) augment(image, random->child(static_cast<std::uint64_t>(i)), out);
    else std::copy(image, image + pixels, out);
  }
  return constant(x);
}

// This rank's pairs of views by seed and step, for a hundred steps: all losses train on the same views, because making views
// takes as long as using them.
using Views = std::map<std::pair<std::uint64_t, std::int64_t>, std::array<Tensor, 2>>;

Scores train(const wrong::Loss& loss, const Images& images, const Options& o, std::uint64_t seed, Views& views,
             const Communicator& comm) {
  const auto test = std::min<std::int64_t>(1000, images.count() / 5), training = images.count() - test;
  Net net(seed);
  std::unique_ptr<Optimizer> optimizer;
  if (o.optimizer == "adam")
    optimizer = std::make_unique<Adam>(net.parameters, AdamAttributes{.learning_rate = o.rate > 0 ? o.rate : 1e-3});
  else
    optimizer =
        std::make_unique<SGD>(net.parameters, SGDAttributes{.learning_rate = o.rate > 0 ? o.rate : loss.rate, .momentum = 0.9});
  for (std::int64_t step = 0; step < o.steps; ++step) {
    const Philox random{.key = seed, .stream = static_cast<std::uint64_t>(step)};
    std::vector<std::int64_t> samples;
    for (std::int64_t i = 0; i < o.batch; ++i)
      samples.push_back(
          static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(training))));
    const auto one = random.child(1), other = random.child(2);
    const std::pair key{seed, step};
    std::array<Tensor, 2> fresh;
    auto& [x, y] = views.contains(key) || views.size() < 100 ? views[key] : fresh;
    if (!x) x = batch_of(images, samples, comm, &one), y = batch_of(images, samples, comm, &other);
    Tape tape(net.parameters);
    const auto share = loss.share(net(x, comm), net(y, comm), comm);
    optimizer->step(tape.gradient(share));
  }
  const Untaped scope;
  std::vector<std::int64_t> bank(static_cast<std::size_t>(training)), queries(static_cast<std::size_t>(test));
  for (std::size_t i = 0; i < bank.size(); ++i) bank[i] = static_cast<std::int64_t>(i);
  for (std::size_t i = 0; i < queries.size(); ++i) queries[i] = training + static_cast<std::int64_t>(i);
  const auto labels = from_vector({images.count()}, images.labels, DType::int64);
  const auto embedded = [&](const std::vector<std::int64_t>& samples, std::int64_t first) {
    const auto z = net.features(batch_of(images, samples, comm, nullptr), comm);
    return contrastive::Labelled{z, my_rows(slice(labels, 0, first, first + static_cast<std::int64_t>(samples.size())), comm)};
  };
  const Philox random{.key = 77};
  const auto one = random.child(1), other = random.child(2);
  const auto view = batch_of(images, queries, comm, &one);
  const auto a = net(view, comm), b = net(batch_of(images, queries, comm, &other), comm);
  if (!std::isfinite(total(sum(a), comm))) return {.diverged = true};
  const contrastive::Labelled moved{net.features(view, comm), my_rows(slice(labels, 0, training, images.count()), comm)};
  return {.neighbours = 100 * contrastive::neighbour_accuracy(moved, embedded(bank, 0), comm),
          .alignment = contrastive::alignment(a, b, comm),
          .uniformity = contrastive::uniformity(a, comm),
          .dimensions = contrastive::collapse(moved.embeddings, comm).effective_rank};
}

template <class Number>
void read(Number& value, std::string_view name, std::string_view text) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require(error == std::errc() && end == text.data() + text.size() && value >= 0,
          "[lesson] {}: a number that is not negative is needed, got '{}'", name, text);
}
Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--data") o.data = value;
    else if (name == "--optimizer") o.optimizer = value;
    else if (name == "--only") o.only = value;
    else if (name == "--steps") read(o.steps, name, value);
    else if (name == "--batch") read(o.batch, name, value);
    else if (name == "--seeds") read(o.seeds, name, value);
    else if (name == "--rate") read(o.rate, name, value);
    else fail("[lesson] there is no option {}; the head of the source lists them", name);
  }
  require(o.batch >= 2 && o.seeds >= 1, "[lesson] --batch is 2 or more, --seeds 1 or more, got {} and {}", o.batch, o.seeds);
  require(o.optimizer == "sgd" || o.optimizer == "adam", "[lesson] --optimizer is sgd or adam, not {}", o.optimizer);
  return o;
}

// "mean (spread)" of one of the scores
std::string text(const std::vector<Scores>& runs, double Scores::*score, int digits) {
  double mean = 0, low = 1e300, high = -1e300;
  for (const auto& run : runs)
    if (run.diverged) return "diverged";
  for (const auto& run : runs)
    mean += run.*score / double(runs.size()), low = std::min(low, run.*score), high = std::max(high, run.*score);
  return fmt::format("{:.{}f} ({:.{}f})", mean, digits, high - low, digits);
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  try {
    std::vector<char*> rest(argv, argv + argc + 1);  // arguments that launch does not use
    int count = argc;
    take_launch_options(count, rest.data());
    o = parse(count, rest.data());
  } catch (const Error& error) {
    fmt::print(stderr, "10_wrong_training: {}\n", error.what());
    return 2;
  }
  return run(argc, argv, [&](Session& session) {
    const auto images = o.data.empty() ? figures(2000) : mnist(o.data);
    say(session, "{} on {} ranks, {} steps of {} samples, {} seeds, {}\n", o.data.empty() ? "made-up figures" : "MNIST",
        session.ranks(), o.steps, o.batch, o.seeds, o.optimizer);
    say(session, "| loss | nearest neighbours, % | alignment | uniformity | dimensions |\n|---|--:|--:|--:|--:|");
    Views views;
    const auto row = [&](const std::string& name, const wrong::Loss& loss, const Options& how) {
      std::vector<Scores> runs;
      for (std::int64_t seed = 1; seed <= how.seeds; ++seed)
        runs.push_back(train(loss, images, how, static_cast<std::uint64_t>(seed), views, session.world()));
      say(session, "| {} | {} | {} | {} | {} |", name, text(runs, &Scores::neighbours, 1), text(runs, &Scores::alignment, 3),
          text(runs, &Scores::uniformity, 3), text(runs, &Scores::dimensions, 1));
      std::fflush(stdout);
    };
    // Always prints the rows for comparison: the untrained network, and the right gradient of the same loss.
    const auto losses = wrong::losses();
    Options untrained = o;
    untrained.steps = 0;
    row("untrained", losses.front(), untrained);
    const wrong::Loss* exact = nullptr;
    for (const auto& loss : losses) {
      if (std::string_view(loss.name).ends_with(", exact")) exact = &loss;
      if (std::string_view(loss.name).find(o.only) == std::string_view::npos) continue;
      if (exact && exact != &loss) row(std::string(exact->name), *exact, o);
      row(std::string(loss.name), loss, o);
      exact = nullptr;
    }
  });
}
