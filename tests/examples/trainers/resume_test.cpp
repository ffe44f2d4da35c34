// Trainings that go on: differences that notes of options tell, and the file `state` beside a launcher's exit code.

#include <doctest/doctest.h>

#include <initializer_list>
#include <string>
#include <tuple>
#include <vector>

#include "models/trainer/changes.h"
#include "models/trainer/folder/state.h"
#include "models/trainer/run.h"
#include "tests/support/files.h"

namespace mpigrad::trainer {
namespace {

Options options_of(const std::string& schedule, std::int64_t epochs, double warm_up, double rate) {
  Options o;
  o.schedule = schedule, o.training.fit.epochs = epochs, o.warm_up = warm_up, o.optimizer_options.learning_rate = rate;
  return o;
}

TEST_CASE("resume: notes refuse what changes the rate at some step, and nothing else") {
  struct Run {
    Options options;
    std::int64_t steps;
  };
  std::vector<Run> runs;
  for (const auto* schedule : {"constant", "cosine", "linear", "polynomial", "step"})
    for (const std::int64_t epochs : {4, 6})
      for (const double warm_up : {0.0, 1.0})
        for (const std::int64_t steps : {3, 5}) runs.push_back({options_of(schedule, epochs, warm_up, 0.1), steps});
  runs.push_back({options_of("constant", 4, 0, 0.2), 3});
  auto milestones = options_of("step", 6, 0, 0.1);
  milestones.milestones = {2, 3};
  runs.push_back({milestones, 3});
  auto power = options_of("polynomial", 6, 0, 0.1);
  power.power = 0.5;
  runs.push_back({power, 3});
  int refused = 0;
  for (const auto& before : runs)
    for (const auto& now : runs) {
      const auto first = make_schedule(before.options, before.steps), second = make_schedule(now.options, now.steps);
      bool differs = false;
      for (std::int64_t step = 0; step < 40; ++step) differs |= first(step) != second(step);
      const auto try_it = [&](const Options& o) {
        refuse_changes(o, "file", option_notes(before.options, before.steps), option_notes(o, now.steps));
      };
      INFO(option_notes(before.options, before.steps).at("schedule"), " and ",
           option_notes(now.options, now.steps).at("schedule"));
      // Rates of two texts may happen to be the same; two rates of one text may not differ.
      if (differs) {
        CHECK_THROWS_AS(try_it(now.options), UsageError);
        ++refused;
      }
      if (&before == &now) CHECK_NOTHROW(try_it(now.options));
      auto allowed = now.options;
      allowed.allow_changes = true;
      CHECK_NOTHROW(try_it(allowed));
    }
  CHECK(refused > 500);
  // A constant rate has no length.
  CHECK_NOTHROW(refuse_changes(runs[0].options, "file", option_notes(options_of("constant", 4, 0, 0.1), 3),
                               option_notes(options_of("constant", 9, 0, 0.1), 7)));
  CHECK_NOTHROW(refuse_changes(runs[0].options, "file", {}, option_notes(options_of("cosine", 9, 0, 0.1), 7)));  // an older file
}

TEST_CASE("resume: the state in --out counts, and a launcher's exit code where there is no new one") {
  const testing::Folder folder;
  CHECK_FALSE(read_state(folder.path));
  for (const int code : {0, 2, 75, 137}) CHECK(code_of_run(code, folder.path, std::nullopt) == code);
  for (const auto& [word, of_0, of_9] : std::initializer_list<std::tuple<const char*, int, int>>{
           {finished_state, 0, 0}, {interrupted_state, 75, 75}, {failed_state, 1, 9}, {running_state, 1, 9}}) {
    INFO(word);
    const auto before = read_state(folder.path);
    write_state(folder.path, word, "because\nof this");
    const auto state = read_state(folder.path);
    REQUIRE(state);
    CHECK((state->word == word && state->why == "because of this"));
    CHECK(code_of_run(0, folder.path, before) == of_0);
    CHECK(code_of_run(9, folder.path, before) == of_9);
    CHECK(code_of_run(2, folder.path, state) == 2);  // it refused before it wrote anything
  }
  write_state(folder.path, "a word of another program");
  CHECK(code_of_run(0, folder.path, std::nullopt) == 0);
  write_state(folder.path, finished_state);
  CHECK(read_state(folder.path)->why.empty());
}

}  // namespace
}  // namespace mpigrad::trainer
