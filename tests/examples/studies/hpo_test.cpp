// Searches of hyper-parameters: spaces, strategies, the file of results, places.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "examples/studies/hpo/command.h"
#include "examples/studies/hpo/results.h"
#include "examples/studies/hpo/search.h"
#include "examples/studies/hpo/space.h"
#include "examples/studies/hpo/strategy.h"
#include "examples/tools/elastic/command.h"
#include "tests/support/files.h"

using namespace mpigrad;
using namespace mpigrad::hpo;

namespace {

const std::string head = "program = [\"train\"]\nmetric = \"loss\"\n";

// What a space's refusal says; empty: it is taken.
std::string refusal(const std::string& text, const Settings& settings = {}) {
  try {
    parse_space(text, "s.toml", settings);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}
bool refused(const std::string& text, const std::string& how, const Settings& settings = {}) {
  const auto said = refusal(text, settings);
  INFO(said);
  return said.find(how) != std::string::npos;
}

std::vector<std::pair<int, int>> pairs(const Bracket& bracket) {
  std::vector<std::pair<int, int>> result;
  for (const auto& rung : bracket.rungs) result.emplace_back(rung.trials, rung.resource);
  return result;
}
using Pairs = std::vector<std::pair<int, int>>;

}  // namespace

TEST_CASE("hpo: a space has its parameters in the order of its file") {
  const auto space = parse_space(
      "program = ['train', '--data={data}/x']\nmetric = 'accuracy'\ngoal = 'max'\ntake = 'best'\n[variables]\ndata = 'here'\n"
      "[resource]\noption = 'epochs'\nmost = 9\n[parameters]\nz = ['a', 'b']\nrate = {from = 1e-4, to = 1e-1, scale = 'log'}\n"
      "a = [true, false]\nm = [1, 2.5]\n",
      "s.toml", {{"data", "there"}});
  CHECK(space.program == std::vector<std::string>{"train", "--data=there/x"});
  CHECK((!space.minimize && space.best_row && space.resource == "epochs" && space.most == 9));
  std::vector<std::string> names;
  for (const auto& p : space.parameters) names.push_back(p.name);
  CHECK(names == std::vector<std::string>{"z", "rate", "a", "m"});
  CHECK((space.parameters[1].is_range() && space.parameters[1].log && space.parameters[2].flag && space.parameters[3].numeric));
  CHECK(space.parameters[3].values == std::vector<std::string>{"1", "2.5"});
  CHECK(command_of(space, {"b", "0.01", "true", "-3"}, 9, "o") == std::vector<std::string>{"train", "--data=there/x", "--z", "b",
                                                                                           "--rate", "0.01", "--a", "--m=-3",
                                                                                           "--epochs", "9", "--out", "o"});
  CHECK(shell_text({"a b", "c", "it's", ""}) == "'a b' c 'it'\\''s' ''");
}

TEST_CASE("hpo: an integer that no double holds is read as the nearest one") {
  const auto range = parse_space(head + "[parameters]\na = {from = 1, to = 9007199254740993}\n", "s.toml").parameters.at(0);
  CHECK((range.from == 1 && range.to == 9007199254740992.0));
  CHECK(refused(head + "[parameters]\na = {from = 1, to = 9007199254740993, integer = true}\n",
                "s.toml:4: to of the range a is 9007199254740992, which is not a whole number of magnitude 1e15 or less"));
}

TEST_CASE("hpo: what is wrong in a space is told with its line") {
  CHECK(refused("program = [\n", "s.toml:1: no TOML"));
  CHECK(refused(head + "metrik = 'x'\n[parameters]\na = [1]\n", "s.toml:3: the file has no key \"metrik\""));
  CHECK(
      refused("program = 'train'\nmetric = 'loss'\n[parameters]\na = [1]\n", "s.toml:1: program of the file is of type string"));
  CHECK(refused("program = []\nmetric = 'loss'\n[parameters]\na = [1]\n", "s.toml:1: program of the file is empty"));
  CHECK(refused("program = ['x']\n[parameters]\na = [1]\n", "the file lacks \"metric\""));
  CHECK(refused(head, "the file lacks \"parameters\""));
  CHECK(refused(head + "[parameters]\n", "s.toml:3: [parameters] is empty"));
  CHECK(refused(head + "[parameters]\na = []\n", "s.toml:4: a of [parameters] is empty"));
  CHECK(refused(head + "[parameters]\na = 1\n", "s.toml:4: a of [parameters] is of type integer"));
  CHECK(refused(head + "[parameters]\na = [1, 'b']\n", "s.toml:4: a holds string among numbers"));
  CHECK(refused(head + "[parameters]\na = [1,\n nan]\n", "s.toml:5: a holds a number that is not finite"));
  CHECK(refused(head + "[parameters]\na = [1, 2, 1]\n", "s.toml:4: a holds 1 twice"));
  CHECK(refused(head + "[parameters]\na = [1]\na = [2]\n", "s.toml:5: no TOML"));
  CHECK(refused(head + "[parameters]\n--a = [1]\n", "s.toml:4: \"--a\" is no option without its dashes"));
  CHECK(
      refused(head + "[parameters]\na = {from = 2, to = 2}\n", "s.toml:4: from of the range a is 2, which is not below to = 2"));
  CHECK(
      refused(head + "[parameters]\na = {from = 0, to = 2, scale = 'log'}\n", "s.toml:4: from of the range a is 0, where a log"));
  CHECK(refused(head + "[parameters]\na = {from = 0, to = 2, scala = 'log'}\n", "s.toml:4: the range a has no key \"scala\""));
  CHECK(refused(head + "[parameters]\na = {from = 0.5, to = 2, integer = true}\n", "is 0.5, which is not a whole number"));
  CHECK(refused(head + "[parameters]\na = {from = 0, to = 2, points = 1}\n", "points of the range a is 1"));
  CHECK(refused(head + "[parameters]\na = {from = 0, to = inf}\n", "to of the range a is not finite"));
  CHECK(refused(head + "goal = 'least'\n[parameters]\na = [1]\n", "s.toml:3: goal of the file is \"least\""));
  CHECK(refused(head + "[resource]\noption = 'a'\nmost = 3\n[parameters]\na = [1]\n",
                "names a, which is one of [parameters], too"));
  CHECK(refused(head + "[resource]\noption = 'e'\nmost = 0\n[parameters]\na = [1]\n", "s.toml:5: most of [resource] is 0"));
  CHECK(refused(head + "[parameters]\nout = [1]\n", "vary --out"));
  CHECK(refused("program = ['x', '--a=2']\nmetric = 'l'\n[parameters]\na = [1]\n", "s.toml:1: program of the file gives --a"));
  CHECK(refused("program = ['x', '{d}']\nmetric = 'l'\n[parameters]\na = [1]\n", "has {d}, which [variables] does not name"));
  CHECK(refused(head + "[variables]\nd = 'x'\n[parameters]\na = [1]\n", "has \"d\", which program does not use"));
  const std::string data = "program = ['x', '{d}']\nmetric = 'l'\n[variables]\nd = ''\n[parameters]\na = [1]\n";
  CHECK(refused(data, "--set d=VALUE"));
  CHECK(refusal(data, {{"d", "y"}}).empty());
  CHECK(refused(data, "--set e: [variables] of s.toml does not name it", {{"e", "y"}}));
  CHECK_THROWS_AS(read_space("/no/such/space.toml"), Error);
}

TEST_CASE("hpo: hyperband's brackets are those of its paper") {
  // Table 1 of Li et al., JMLR 2018: R = 81, eta = 3.
  const auto brackets = hyperband(81, 3);
  REQUIRE(brackets.size() == 5);
  CHECK(pairs(brackets[0]) == Pairs{{81, 1}, {27, 3}, {9, 9}, {3, 27}, {1, 81}});
  CHECK(pairs(brackets[1]) == Pairs{{34, 3}, {11, 9}, {3, 27}, {1, 81}});
  CHECK(pairs(brackets[2]) == Pairs{{15, 9}, {5, 27}, {1, 81}});
  CHECK(pairs(brackets[3]) == Pairs{{8, 27}, {2, 81}});
  CHECK(pairs(brackets[4]) == Pairs{{5, 81}});
  CHECK(pairs(hyperband(1, 3)[0]) == Pairs{{1, 1}});
  CHECK(pairs(hyperband(100, 4)[0]) == Pairs{{64, 2}, {16, 6}, {4, 25}, {1, 100}});
  CHECK(pairs(halving(10, 81, 3)) == Pairs{{10, 9}, {3, 27}, {1, 81}});
  CHECK(pairs(halving(1000, 9, 3)) == Pairs{{1000, 1}, {333, 3}, {111, 9}});
  CHECK(pairs(halving(1, 9, 3)) == Pairs{{1, 9}});
  CHECK(trials_of_halving(100, 3) == 81);
}

TEST_CASE("hpo: a grid has every point, draws are each once and the same for any number") {
  auto space = parse_space(head + "[parameters]\na = ['x', 'y']\nb = {from = 0.001, to = 0.1, scale = 'log', points = 3}\n", "s");
  CHECK(grid(space) ==
        std::vector<Setting>{{"x", "0.001"}, {"x", "0.01"}, {"x", "0.1"}, {"y", "0.001"}, {"y", "0.01"}, {"y", "0.1"}});
  const auto twenty = draws(space, 7, 20), five = draws(space, 7, 5);
  CHECK(std::equal(five.begin(), five.end(), twenty.begin()));
  CHECK(draws(space, 8, 5) != five);
  CHECK(std::set<Setting>(twenty.begin(), twenty.end()).size() == 20);
  int low = 0;
  const auto many = draws(space, 1, 400);
  for (const auto& setting : many) {
    const double value = std::strtod(setting[1].c_str(), nullptr);
    CHECK((value >= 0.001 && value <= 0.1));
    low += value < 0.01 ? 1 : 0;
  }
  CHECK(std::abs(low - 200) < 60);  // half of them in each decade
  space.parameters[1].points = 0;
  CHECK_THROWS_AS(grid(space), Error);
  const auto whole = parse_space(head + "[parameters]\nn = {from = 1, to = 3, integer = true, points = 9}\n", "s");
  CHECK(grid(whole) == std::vector<Setting>{{"1"}, {"2"}, {"3"}});
  auto three = draws(whole, 1, 3);
  std::sort(three.begin(), three.end());
  CHECK(three == grid(whole));
  CHECK_THROWS_AS(draws(whole, 1, 4), Error);
}

TEST_CASE("hpo: halving keeps the best, and those that failed are not among them") {
  CHECK(best_of({3.0, 1.0, std::nullopt, 1.0, 2.0}, true, 3) == std::vector<std::size_t>{1, 3, 4});
  CHECK(best_of({3.0, 1.0, std::nullopt, 1.0, 2.0}, false, 2) == std::vector<std::size_t>{0, 4});
  CHECK(best_of({std::nullopt, 1.0}, true, 2) == std::vector<std::size_t>{1});

  Plan plan{.settings = std::vector<Setting>(9), .brackets = {halving(9, 9, 3)}};
  Schedule schedule(plan, true);
  std::vector<Task> first;
  while (const auto task = schedule.next()) first.push_back(*task);
  REQUIRE(first.size() == 9);
  CHECK((first[8].trial == 9 && first[8].resource == 1 && first[8].rung == 0));
  for (int trial = 9; trial > 1; --trial) schedule.record(trial, 0, trial == 5 ? std::nullopt : std::optional(10.0 - trial));
  CHECK_FALSE(schedule.next());  // the rung waits for the first
  schedule.record(1, 0, 0.5);
  std::set<int> second;
  while (const auto task = schedule.next()) {
    CHECK((task->rung == 1 && task->resource == 3));
    second.insert(task->trial);
  }
  CHECK(second == std::set<int>{1, 8, 9});
  // As a search that goes on knows it: from results in any order.
  Schedule again(plan, true);
  again.record(8, 1, 4.0), again.record(1, 1, 3.0), again.record(9, 1, std::nullopt);
  for (int trial = 1; trial <= 9; ++trial)
    again.record(trial, 0, trial == 5 ? std::nullopt : std::optional(trial == 1 ? 0.5 : 10.0 - trial));
  const auto last = again.next();
  REQUIRE(last);
  CHECK((last->trial == 1 && last->rung == 2 && last->resource == 9));
  CHECK_FALSE(again.next());
}

TEST_CASE("hpo: results survive a line that was cut off") {
  const mpigrad::testing::Folder folder;
  const auto path = folder / "results.csv";
  const std::vector<std::string> parameters{"a", "b"};
  {
    Results results(path, parameters);
    results.append({.task = {.trial = 1, .resource = 3}, .status = done, .value = 0.5, .seconds = 1, .at = 2}, {"x", "1"});
    results.append({.task = {.trial = 2}, .status = crashed, .reason = "exit, with \"this\"\nand that", .at = 3}, {"y,z", "2"});
  }
  std::ofstream(path, std::ios::app) << "3,0,0,3,x,3,do";
  {
    Results results(path, parameters);
    REQUIRE(results.all().size() == 2);
    CHECK((results.all()[0].task.resource == 3 && results.all()[0].value == 0.5 && results.all()[0].at == 2));
    CHECK((results.all()[1].reason == "exit, with \"this\" and that" && !results.all()[1].value));
    results.append({.task = {.trial = 2}, .status = done, .value = -1}, {"y,z", "2"});
    CHECK((results.all().size() == 2 && results.all()[1].value == -1.0));
  }
  {
    Results results(path, parameters);
    CHECK((results.all().size() == 2 && results.all()[1].status == done));
    results.forget_failed();
    CHECK(results.all().size() == 2);
  }
  CHECK_THROWS_AS(Results(path, {"a"}), Error);
  std::ofstream(path, std::ios::app) << "3,0,0,3,x,3,done,much,1,1,\n";
  CHECK_THROWS_AS(Results(path, parameters), Error);
}

TEST_CASE("hpo: a trial's metric, and what it said last") {
  const mpigrad::testing::Folder folder;
  auto space = parse_space(head + "[parameters]\na = [1]\n", "s");
  const auto metric = [&](const std::string& text) {
    std::ofstream(folder / "metrics.csv") << text;
    return read_metric(folder / "metrics.csv", space);
  };
  CHECK(metric("epoch,loss\n1,0.25\n2,0.5\n") == 0.5);
  space.best_row = true;
  CHECK(metric("epoch,loss\n1,nan\n2,0.25\n3,0.5\n4,inf\n") == 0.25);
  CHECK(std::isnan(metric("epoch,loss\n1,nan\n")));
  space.minimize = false;
  CHECK(metric("epoch, loss\r\n1,0.25\r\n3,0.5\r\n4,0.3\r\n") == 0.5);
  CHECK_THROWS_AS(metric("epoch,lost\n1,2\n"), Error);
  CHECK_THROWS_AS(metric("epoch,loss\n"), Error);
  CHECK_THROWS_AS(metric("epoch,loss\n1,much\n"), Error);
  CHECK_THROWS_AS(read_metric(folder / "none.csv", space), Error);
  std::ofstream(folder / "output.txt") << "first\nepoch 1\repoch 2 \n\n";
  CHECK(elastic::last_line(folder / "output.txt") == "epoch 2");
  CHECK(elastic::last_line(folder / "none.txt").empty());
  CHECK(tells_of_divergence("[fit] the loss is -nan in epoch 1"));
  CHECK(tells_of_divergence("loss: Inf"));
  CHECK(tells_of_divergence("a value is not finite"));
  CHECK_FALSE(tells_of_divergence("information of nanette"));
}

TEST_CASE("hpo: trials have places on hosts") {
  const std::vector<std::string> names{"127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"};  // hosts that there are
  const Places many(
      {.hosts = {names[0], names[1]}, .cores = 4, .ranks = 2, .threads = 1, .launcher = "env {ranks} {hosts} {nodes} {slot}"});
  CHECK(many.slots() == 4);
  CHECK(many.launcher(0) == std::vector<std::string>{"env", "2", names[0], "1", "0"});
  CHECK(many.launcher(3) == std::vector<std::string>{"env", "2", names[1], "1", "3"});
  const Places wide({.hosts = names, .cores = 4, .ranks = 4, .threads = 2, .launcher = "env {hosts} {ranks_per_host}"});
  CHECK(wide.slots() == 2);
  CHECK(wide.launcher(1) == std::vector<std::string>{"env", names[2] + "," + names[3], "2"});
  CHECK_THROWS_AS(Places({.hosts = {names[0]}, .cores = 2, .ranks = 3}), Error);
  CHECK_THROWS_AS(Places({.hosts = {names[0], names[0]}, .cores = 2}), Error);
  CHECK_THROWS_AS(Places({.hosts = {names[0]}, .cores = 2, .slots = 3, .launcher = "env"}), Error);
  CHECK_THROWS_AS(Places({.cores = 2, .threads = 3}), Error);
  CHECK_THROWS_AS(Places({.cores = 2, .launcher = "/no/such/launcher"}), Error);
}
