// What studies of learning speed-up learn: data that are functions of seeds and numbers, and that can be learned.

#include <doctest/doctest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "examples/studies/scaling/tasks/task.h"
#include "framework/engine/tape.h"
#include "framework/optim/optimizer.h"
#include "models/data/data.h"
#include "models/trainer/tool/together.h"
#include "ops/views/views.h"
#include "tests/support/files.h"
#include "tests/support/image_files.h"

using namespace mpigrad;
using namespace mpigrad::testing;
using scaling::make_task;
using scaling::Task;
using scaling::TaskOptions;

namespace {

std::vector<double> values_of(const data::Source& source, std::int64_t sample) { return source.values(sample, source.whole()); }

// Of the test samples, the mean.
double error_of(nn::Module& net, const Task& task) {
  Untaped untaped;
  const nn::EvaluationMode mode(net);
  double sum = 0;
  for (const auto& [x, y] : data::Loader(task.test, {.batch = 64}).epoch(0)) sum += task.error(net(x), y);
  return sum / static_cast<double>(task.test->size());
}

// Steps of a fraction of a millisecond are faster by one thread, and by far where other programs run.
struct OneThread {
  OneThread() { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before); }
  int before = omp_get_max_threads();
};

struct Errors {
  double before = 0, after = 0;
};
// By one worker.
Errors learn(const Task& task, std::int64_t steps, double learning_rate, std::int64_t batch) {
  const OneThread one_thread;
  const data::Loader loader(task.training, {.batch = batch, .seed = 1, .shuffle = true, .drop_last = true});
  const auto net = task.make();
  net->build(loader.shape(), {.seed = 2});
  SGD sgd(*net, {.learning_rate = learning_rate, .momentum = task.momentum});
  Errors result{.before = error_of(*net, task)};
  for (std::int64_t epoch = 0, step = 0; step < steps; ++epoch)
    for (const auto& [x, y] : loader.epoch(epoch)) {
      Tape tape(*net);
      sgd.step(tape.gradient(task.loss((*net)(x), y)));
      if (++step == steps) break;
    }
  result.after = error_of(*net, task);
  return result;
}

std::string usage_error(const std::function<void()>& body) {
  try {
    body();
  } catch (const tool::UsageError& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("scaling tasks: samples are functions of the seed and their number") {
  for (const char* name : {"lattice", "lattice-27", "folding", "contrastive"}) {
    CAPTURE(name);
    const TaskOptions small{.seed = 3, .training = 40, .test = 20};
    const auto task = make_task(name, small), again = make_task(name, small);
    CHECK(task.name == name);
    CHECK(task.training->size() == 40);
    CHECK(task.test->size() == 20);
    // More of them begin with the same; another seed makes others.
    const auto more = make_task(name, {.seed = 3, .training = 50, .test = 20});
    const auto other = make_task(name, {.seed = 4, .training = 40, .test = 20});
    std::set<std::vector<double>> training, test;
    for (std::int64_t i = 0; i < 40; ++i) {
      const auto values = values_of(*task.training, i);
      CHECK(values == values_of(*again.training, i));
      CHECK(values == values_of(*more.training, i));
      CHECK(values != values_of(*other.training, i));
      CHECK(task.training->targets(i) == more.training->targets(i));
      for (const double x : values) REQUIRE(std::isfinite(x));
      training.insert(values);
    }
    for (std::int64_t i = 0; i < 20; ++i) test.insert(values_of(*task.test, i));
    CHECK(training.size() == 40);
    CHECK(test.size() == 20);
    for (const auto& values : test) CHECK(!training.contains(values));
  }
}

TEST_CASE("scaling tasks: classes of crystals are equally frequent") {
  const auto task = make_task("lattice", {});
  std::vector<double> counts(4);
  for (std::int64_t i = 0; i < task.training->size(); ++i) counts.at(static_cast<std::size_t>(task.training->targets(i)[0])) += 1;
  // Four standard deviations.
  const double n = static_cast<double>(task.training->size());
  for (const double count : counts) CHECK(std::abs(count - n / 4) < 4 * std::sqrt(n * 3 / 16));
}

TEST_CASE("scaling tasks: contact maps are symmetric, and their own targets") {
  const auto task = make_task("folding", {.training = 50, .test = 1});
  for (std::int64_t sample = 0; sample < 50; ++sample) {
    const auto map = values_of(*task.training, sample);
    REQUIRE(map.size() == 24 * 24);
    CHECK(task.training->targets(sample) == map);
    double apart = 0;
    for (std::size_t i = 0; i < 24; ++i) {
      CHECK(map[i * 24 + i] > 0.99);
      if (i > 0) CHECK(map[i * 24 + i - 1] > 0.9);  // a bond is half as long as a contact
      for (std::size_t j = 0; j < 24; ++j) {
        REQUIRE(map[i * 24 + j] == map[j * 24 + i]);
        REQUIRE((map[i * 24 + j] >= 0 && map[i * 24 + j] <= 1));
        if (i > j + 6) apart += map[i * 24 + j];
      }
    }
    CHECK(apart > 2);  // it is folded
  }
}

TEST_CASE("scaling tasks: maps of simulated chains of 21 residues are padded, symmetric, and their own targets") {
  const auto task = make_task("contact-maps", {.training = 20, .test = 1}),
             more = make_task("contact-maps", {.training = 260, .test = 1});
  for (std::int64_t sample = 0; sample < 20; ++sample) {
    const auto map = values_of(*task.training, sample);
    REQUIRE(map.size() == 22 * 22);
    CHECK(task.training->targets(sample) == map);
    CHECK(values_of(*more.training, sample) == map);
    for (std::size_t i = 0; i < 22; ++i)
      for (std::size_t j = 0; j < 22; ++j) {
        REQUIRE(map[i * 22 + j] == map[j * 22 + i]);
        if (i == 21) CHECK(map[i * 22 + j] == 0);
        else if (j < 21 && (j > i ? j - i : i - j) < 3) CHECK(map[i * 22 + j] == 1);
      }
  }
}

TEST_CASE("scaling tasks: a short training lowers the error") {
  SUBCASE("lattice") {
    const auto errors = learn(make_task("lattice", {.training = 2000, .test = 200}), 1400, 0.05, 4);
    CAPTURE(errors.after);
    CHECK(errors.before > 0.6);
    CHECK(errors.after < 0.3);
  }
  SUBCASE("lattice-norm") {
    const auto errors = learn(make_task("lattice-norm", {.training = 2000, .test = 200}), 350, 0.1, 8);
    CAPTURE(errors.after);
    CHECK(errors.before > 0.6);
    CHECK(errors.after < 0.3);
  }
  SUBCASE("folding") {
    const auto errors = learn(make_task("folding", {.training = 2000, .test = 200}), 400, 0.02, 4);
    CAPTURE(errors.after);
    CHECK(errors.before > 0.15);
    CHECK(errors.after < 0.3 * errors.before);
  }
  SUBCASE("contrastive") {
    const auto errors = learn(make_task("contrastive", {.training = 2000, .test = 208}), 700, 0.05, 4);
    CAPTURE(errors.after);
    CHECK(errors.before > 0.6);
    CHECK(errors.after < 0.75 * errors.before);
  }
}

TEST_CASE("scaling tasks: a loss within batches is no mean over samples, and says so") {
  const auto contrastive = make_task("contrastive", {.training = 8, .test = 1}),
             lattice = make_task("lattice", {.training = 8, .test = 1});
  CHECK(!contrastive.separable);
  CHECK(lattice.separable);
  for (const auto* task : {&contrastive, &lattice}) {
    CAPTURE(task->name);
    const auto batch = data::Loader(task->training, {.batch = 8}).batch(0, 0);
    const auto net = task->make();
    net->build(batch.x.shape(), {.seed = 5});
    const auto loss = [&](const Tensor& y, const Tensor& t) { return task->loss(y, t).item(); };
    const auto prediction = (*net)(batch.x);
    const double halves =
        (loss(slice(prediction, 0, 0, 4), slice(batch.y, 0, 0, 4)) + loss(slice(prediction, 0, 4, 8), slice(batch.y, 0, 4, 8))) /
        2;
    CHECK((std::abs(halves - loss(prediction, batch.y)) < 1e-4) == task->separable);
  }
}

TEST_CASE("scaling tasks: errors of contrastive predictions count neighbours of sixteen") {
  const auto task = make_task("contrastive", {.training = 1, .test = 1});
  // 32 samples whose views are unit vectors e_i and e_(i mod 16): within its sixteen each finds its own.
  std::vector<double> rows(32 * 32);
  for (std::size_t i = 0; i < 32; ++i) rows[i * 32 + i % 16] = rows[i * 32 + 16 + i % 16] = 1;
  CHECK(task.error(from_vector({32, 32}, rows), {}) == 0);
  // Two of them have each other's second view; one has two equally near.
  std::swap_ranges(rows.begin() + 16, rows.begin() + 32, rows.begin() + 48);
  CHECK(task.error(from_vector({32, 32}, rows), {}) == 2);
  std::copy(rows.begin() + 4 * 32 + 16, rows.begin() + 5 * 32, rows.begin() + 5 * 32 + 16);
  CHECK(task.error(from_vector({32, 32}, rows), {}) == 4);
}

TEST_CASE("scaling tasks: images of folders") {
  CHECK(has(usage_error([] { make_task("images", {}); }), "needs a folder"));
  CHECK(has(usage_error([] { make_task("images", {.training = 5, .folder = "x"}); }), "takes all images"));
  const Folder folder;
  CHECK(!error_text([&] { make_task("images", {.folder = folder.path.string()}); }).empty());
  CHECK(!error_text([&] { make_task("images", {.folder = (folder / "absent").string()}); }).empty());
  if (!pictures_can_be_written()) return skip_test("scaling tasks: images of folders", "this build cannot write pictures");
  const auto picture = [](int side, int channels, std::uint8_t value) {
    return std::vector<std::uint8_t>(static_cast<std::size_t>(side * side * channels), value);
  };
  for (const char* name : {"ants", "bees"}) std::filesystem::create_directory(folder / name);
  for (int i = 0; i < 10; ++i) {
    const auto file = fmt::format("{}.png", i);
    write_png(folder / "ants" / file, 16, 16, 3, picture(16, 3, 40));
    const int side = i == 0 ? 20 : 16, channels = i == 1 ? 1 : 3;
    write_png(folder / "bees" / file, side, side, channels, picture(side, channels, 200));
  }
  const auto task = make_task("images", {.folder = folder.path.string()});
  CHECK(task.training->size() == 16);
  CHECK(task.test->size() == 4);
  CHECK(task.training->extents() == Shape{1, 16, 16});
  CHECK(task.training->channels() == 3);
  for (const auto& source : {task.training, task.test})
    for (std::int64_t i = 0; i < source->size(); ++i) CHECK(values_of(*source, i)[0] == (source->targets(i)[0] == 0 ? 40 : 200));
  const auto net = task.make();
  net->build(Shape{2, 1, 16, 16, 3}, {.device = DeviceKind::dry});
  CHECK(net->parameters().size() == 161);
  // One class is none to tell apart.
  std::filesystem::remove_all(folder / "bees");
  CHECK(has(error_text([&] { make_task("images", {.folder = folder.path.string()}); }), "two classes"));
}

TEST_CASE("scaling tasks: names, and options that a task cannot have") {
  for (const auto& [name, sentence] : scaling::task_names()) CHECK(!sentence.empty());
  const auto unknown = usage_error([] { make_task("lattices", {}); });
  CHECK(has(unknown, "lattices"));
  CHECK(has(unknown, "lattice-norm"));
  CHECK(has(usage_error([] { make_task("folding", {.folder = "pictures"}); }), "folder"));
  CHECK(has(usage_error([] { make_task("lattice", {.training = -1}); }), "-1 training samples"));
  for (const char* name : {"lattice", "lattice-27", "lattice-norm", "folding", "contact-maps", "contrastive"}) {
    CAPTURE(name);
    const auto task = make_task(name, {.training = 1, .test = 1});
    CHECK(task.name == name);
    CHECK(task.goal > 0);
    CHECK(task.every > 0);
    CHECK(task.budget > 0);
    CHECK(std::is_sorted(task.learning_rates.begin(), task.learning_rates.end()));
    CHECK(task.learning_rates.size() >= 4);
  }
}
