// Problems of programs as notes of weights, and the targets that their samples have.

#include <doctest/doctest.h>

#include "framework/base/joined.h"
#include "models/data/sources/memory.h"
#include "models/data/view_loader.h"
#include "models/trainer/contrastive/samples.h"
#include "models/trainer/contrastive/training.h"
#include "models/trainer/program/program.h"
#include "ops/loss/loss.h"
#include "ops/random/random.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::trainer;
using namespace mpigrad::trainer::program;
using mpigrad::testing::error_text;
using mpigrad::testing::has;

namespace {

Program numbers() {
  return {.name = "numbers",
          .network = {},
          .loss = mse,
          .settings = {{.name = "width", .value = 4, .rule = whole(1, 64)},
                       {.name = "kind", .value = "flat", .rule = one_of({"flat", "deep"})}}};
}

Problem read(const Program& program, std::map<std::string, std::string> notes) {
  CheckpointInfo info;
  info.notes = std::move(notes);
  return problem_of(program, "w.h5", info);
}

const std::string start = R"({"extents":[4,4,4],"channels":2,"outputs":1,"classes":false,"targets":["mass"],"settings":)";

// Four samples with the numbers a = 1, 2, 5, 6 and b = 10.
data::SourcePtr samples() {
  return data::from_tensors(zeros({4, 2, 2, 2, 1}), from_vector({4, 2}, {1, 10, 2, 10, 5, 10, 6, 10}),
                            {.target_names = {"a", "b"}});
}

}  // namespace

TEST_CASE("program: weights know the problem, settings of their time, and nothing that a command line would refuse") {
  const auto program = numbers();
  const auto p = read(program, {{problem_note, start + R"({"width":8}})"}});
  CHECK((p.extents == Shape{4, 4, 4} && p.channels == 2 && p.targets == std::vector<std::string>{"mass"}));
  CHECK(p.get<std::int64_t>("width") == 8);
  CHECK(p.get<std::string>("kind") == "flat");
  CHECK(to_note(read(program, {{problem_note, to_note(p)}})) == to_note(p));
  for (const auto* settings : {R"({"width":65}})", R"({"width":"8"}})", R"({"widths":8}})", R"({"kind":"round"}})", "3}"}) {
    CAPTURE(settings);
    CHECK(has(error_text([&] {
                read(program, {{problem_note, start + settings}});
              }),
              "[weights] w.h5: its notes do not describe"));
  }
  CHECK(has(error_text([&] { read(program, {}); }), "train again"));
}

TEST_CASE("program: notes of an earlier version, whose targets have a note of their own") {
  auto program = numbers();
  program.earlier = [](const std::map<std::string, std::string>& notes) -> std::optional<Problem> {
    if (!notes.contains("kind")) return std::nullopt;
    return Problem{.extents = {4, 4, 4}, .values = {{"kind", notes.at("kind")}}};
  };
  const std::string means = R"({"names":["a","b"],"means":[1,2],"offset":[0,0],"scale":[3,4]})";
  const auto p = read(program, {{"kind", "deep"}, {means_note, means}});
  CHECK((p.outputs == 2 && p.targets == std::vector<std::string>{"a", "b"} && p.get<std::string>("kind") == "deep"));
  CHECK(has(error_text([&] { read(program, {{"kind", "round"}, {means_note, means}}); }), "'round' is not one of"));
}

TEST_CASE("program: numbers are learned as they are stored, or standardised by the training's samples, in the problem's order") {
  auto program = numbers();
  Problem p;
  CHECK(learned_targets(program, *samples(), {}, p).as_stored);
  CHECK((!p.classes && p.outputs == 2));
  program.standardise = true;
  const auto targets = learned_targets(program, *samples(), {}, p);
  standardise(p, targets.rows, {0, 2});
  CHECK(p.means == std::vector<double>{3, 10});
  CHECK(p.deviations == std::vector<double>{2, 1});
  const auto kept = learned(p, samples(), targets, {3});
  auto row = kept.source->targets(kept.samples.front());
  CHECK(row == std::vector<double>{1.5, 0});
  restore_units(p, row);
  CHECK(row == std::vector<double>{6, 10});
  std::swap(p.targets[0], p.targets[1]), p.means = {10, 2}, p.deviations = {1, 1};
  CHECK(targets_like(p, *samples(), {}).rows.values == std::vector<double>{10, 1, 10, 2, 10, 5, 10, 6});
  p.targets[0] = "c";
  CHECK(has(error_text([&] { targets_like(p, *samples(), {}); }), "there is no target 'c', but a, b"));
}

TEST_CASE("program: a metric in the place of a usual one") {
  auto program = numbers();
  Problem p{.targets = {"a"}};
  CHECK(value_names(program, p) == std::vector<std::string>{"validation_loss", "r2"});
  program.metrics = {{"r2", [](const Predictions&) { return 7.0; }}, {"other", [](const Predictions&) { return 8.0; }}};
  CHECK(value_names(program, p) == std::vector<std::string>{"validation_loss", "r2", "other"});
  p.classes = true, program.kept.name = "test";
  CHECK(value_names(program, p) == std::vector<std::string>{"test_loss", "r2", "other", "accuracy", "auc"});
}

TEST_CASE("program: epochs of a contrastive training call the hook after each step of the optimizer") {
  contrast::TrainOptions o;
  o.network = {.width = 4, .blocks = {2}, .head_hidden = 8, .head_out = 6};
  o.batch = 4;
  const auto source = data::from_tensors(random_uniform({8, 1, 16, 16, 1}, {.key = 1}), zeros({8, 1}), {});
  testing::check_on_ranks(2, "hooks", [&](const Communicator& world) {
    const auto grid = make_grid(world, {.sample = world.size()});
    const nn::BatchNormAttributes norm;
    const auto config = contrast::config_of(o, source.get());
    const data::ViewLoader loader(source, {.grid = grid, .batch = o.batch, .views = contrast::views_of(o, config), .workers = 0});
    contrast::Network net(config, norm);
    build(net, loader.layout(0), loader.shape(0), o);
    contrast::Objective objective(o, config, net, norm, loader.layout(0), 0);
    contrast::ViewTraining training(o, net, objective, loader, world);
    Adam adam(net, AdamAttributes{});
    Progress progress(6, loader.steps(), {.quiet = true});
    std::vector<std::int64_t> told;
    training.run(5,
                 {.learning_rate = schedule::Constant{.rate = 1e-3},
                  .progress = &progress,
                  .after_step =
                      [&](std::int64_t epoch, std::int64_t steps) {
                        told.insert(told.end(), {epoch, steps});
                      }},
                 adam);
    require(told == std::vector<std::int64_t>{5, 1, 5, 2}, "[test] {}", joined(told, " "));
  });
}
