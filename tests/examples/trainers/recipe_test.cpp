// Keys and recipes: types, ranges, files that include others, and a recipe that is written and read again.

#include <doctest/doctest.h>

#include <fstream>
#include <string>
#include <vector>

#include "comm/transport/transport.h"
#include "models/trainer/recipe/recipe.h"
#include "tests/support/files.h"

namespace mpigrad::trainer {
namespace {

struct Fields {
  bool flips = false;
  std::int64_t epochs = 10, width = 0;
  double rate = 1e-3, keep = -1;
  std::string shape = "cosine", folder;
  std::vector<double> milestones{};
  std::vector<std::string> freeze{};
};

void declare(Keys& keys, Fields& f) {
  keys.add("data.flips", f.flips, "flips");
  keys.add("schedule.epochs", f.epochs, whole(0, 100), "passes").with_unit("epochs").with_flag("--epochs");
  keys.add("network.width", f.width, whole(1, 64), "channels").with_default("the network's own");
  keys.add("optimizer.rate", f.rate, above(0), "rate").instead_of("--rate");
  keys.add("network.keep", f.keep, between(1e-3, 1), "kept part").with_default("the network's own");
  keys.add("schedule.shape", f.shape, one_of({"constant", "cosine"}), "course");
  keys.add("checkpoint.folder", f.folder, "a folder");
  keys.add("schedule.milestones", f.milestones, from(0), "epochs");
  keys.add("optimizer.freeze", f.freeze, "patterns");
}

std::string write(const testing::Folder& folder, const char* name, const std::string& text) {
  const auto path = (folder / name).string();
  std::ofstream(path) << text;
  return path;
}

// On one rank.
void read(const std::string& path, Keys& keys) {
  run_threads(1,
              [&](const std::shared_ptr<Transport>& transport) { (void)read_recipe(*transport, path, "mine", "train", keys); });
}

std::string refusal(const std::string& text) {
  const testing::Folder folder;
  Fields f;
  Keys keys;
  declare(keys, f);
  const auto path = write(folder, "r.toml", text);
  try {
    read(path, keys);
  } catch (const Error& error) {
    const std::string message = error.what();
    const auto at = message.find("r.toml");
    return at == std::string::npos ? message : message.substr(at);
  }
  return {};
}

TEST_CASE("recipe: values of every type, by file and by --set") {
  const testing::Folder folder;
  Fields f;
  Keys keys;
  declare(keys, f);
  const auto path = write(folder, "r.toml",
                          "program = \"mine\"\n[data]\nflips = true\n[schedule]\nepochs = 3\nmilestones = [1, 2.5]\n"
                          "[optimizer]\nrate = 1\nfreeze = [\"a.*\", \"b\"]\n[checkpoint]\nfolder = \"a \\\"b\\\"\"\n");
  read(path, keys);
  CHECK(f.flips);
  CHECK(f.epochs == 3);
  CHECK(f.milestones == std::vector<double>{1, 2.5});
  CHECK(f.rate == 1);
  CHECK(f.freeze == std::vector<std::string>{"a.*", "b"});
  CHECK(f.folder == "a \"b\"");
  CHECK(keys.given().contains("optimizer.rate"));
  CHECK_FALSE(keys.given().contains("network.keep"));
  keys.set_text("schedule.milestones=4,5"), keys.set_text("optimizer.freeze=c"), keys.set_text("optimizer.freeze=d=e,f");
  CHECK(f.milestones == std::vector<double>{4, 5});
  CHECK(f.freeze == std::vector<std::string>{"c", "d=e,f"});

  // What is written is read as the same values.
  const auto again = write(folder, "again.toml", keys.toml());
  Fields g;
  Keys others;
  declare(others, g);
  read(again, others);
  CHECK(others.toml() == keys.toml());
  CHECK(g.rate == f.rate);
  CHECK(g.keep == -1);
}

TEST_CASE("recipe: a table of names and values is a list of texts") {
  const testing::Folder folder;
  const auto freeze = [&](const std::string& text) {
    Fields f;
    Keys keys;
    declare(keys, f);
    read(write(folder, "r.toml", text), keys);
    return f.freeze;
  };
  CHECK(freeze("[optimizer]\nfreeze = { 255 = 1, -3 = \"x y\" }\n") == std::vector<std::string>{"-3=x y", "255=1"});
  CHECK(freeze("[optimizer.freeze]\na = 1\nb = 2\n") == std::vector<std::string>{"a=1", "b=2"});
  CHECK(freeze("[optimizer]\nfreeze = {}\n").empty());
  write(folder, "base.toml", "[optimizer]\nfreeze = { a = 1, b = 2 }\n");
  CHECK(freeze("include = \"base.toml\"\n[optimizer]\nfreeze = { c = 3 }\n") == std::vector<std::string>{"c=3"});
  CHECK(freeze("include = \"base.toml\"\n[optimizer]\nfreeze = {}\n").empty());
  CHECK(refusal("[optimizer]\nrate = { a = 1 }\n").starts_with("r.toml:2: there is no key 'optimizer.rate.a'"));
  CHECK(refusal("[optimizer]\nfreeze = { a = [1, 2] }\n").starts_with("r.toml:2: there is no key 'optimizer.freeze.a'"));
}

TEST_CASE("recipe: a file overrides those that it includes") {
  const testing::Folder folder;
  Fields f;
  Keys keys;
  declare(keys, f);
  write(folder, "base.toml", "[schedule]\nepochs = 3\nshape = \"constant\"\n");
  const auto path = write(folder, "r.toml", "include = \"base.toml\"\n[schedule]\nepochs = 5\n");
  read(path, keys);
  CHECK(f.epochs == 5);
  CHECK(f.shape == "constant");
}

TEST_CASE("recipe: what is wrong is said with file, line and key") {
  CHECK(refusal("[optimizer]\nrates = 1\n") == "r.toml:2: there is no key 'optimizer.rates'; did you mean 'optimizer.rate'?");
  CHECK(refusal("epochs = 1\n") == "r.toml:1: there is no key 'epochs'; did you mean 'schedule.epochs'?");
  CHECK(refusal("[xyzzyx]\nqwertz = 1\n") == "r.toml:2: there is no key 'xyzzyx.qwertz'; --keys lists them");
  CHECK(refusal("[schedule]\nepochs = \"3\"\n") == "r.toml:2: schedule.epochs is a whole number, not a text");
  CHECK(refusal("[schedule]\nepochs = 3.5\n") == "r.toml:2: schedule.epochs is a whole number, not a number");
  CHECK(refusal("[schedule]\nepochs = [3]\n") == "r.toml:2: schedule.epochs is a whole number, not a list of whole number");
  CHECK(refusal("[schedule]\nmilestones = 3\n") == "r.toml:2: schedule.milestones is a list of numbers, not a whole number");
  CHECK(refusal("[data]\nflips = 1\n") == "r.toml:2: data.flips is true or false, not a whole number");
  CHECK(refusal("[schedule]\nepochs = 101\n") == "r.toml:2: schedule.epochs: a whole number from 0 to 100 is needed, not '101'");
  CHECK(refusal("[optimizer]\nrate = nan\n") == "r.toml:2: optimizer.rate: a finite number above 0 is needed, not nan");
  CHECK(refusal("[schedule]\nshape = \"sine\"\n") == "r.toml:2: schedule.shape: 'sine' is not one of constant, cosine");
  CHECK(refusal("[optimizer]\nfreeze = [\"a\", 1]\n") == "r.toml:2: the elements of optimizer.freeze differ in type");
  CHECK(refusal("[optimizer]\nrate = 1979-05-27\n").starts_with("r.toml:2: optimizer.rate is a date"));
  CHECK(refusal("program = \"other\"\n") == "r.toml:1: the recipe is for the program 'other'; this is 'mine'");
  CHECK(refusal("command = \"predict\"\n") == "r.toml:1: the recipe is for the command 'predict'; this is 'train'");
  CHECK(refusal("[schedule]\nepochs = 1\nepochs = 2\n").starts_with("r.toml:3: "));
  CHECK(refusal("[schedule\n").starts_with("r.toml:1: "));
  CHECK(refusal("include = \"r.toml\"\n").ends_with("r.toml includes itself"));
  CHECK(refusal("include = 3\n") == "r.toml:1: include is the name of a file, or a list of names");
  CHECK(refusal("include = \"absent.toml\"\n").ends_with("absent.toml"));
  CHECK(refusal("\"data.flips\" = true\n") == "r.toml:1: the key \"data.flips\" is in quotes; keys are written without them");
  CHECK(refusal("[scedule]\n") == "r.toml:1: there is no section 'scedule'");
  CHECK(refusal("[schedule]\n").empty());
  std::string deep = "a";
  for (int i = 0; i < 5000; ++i) deep += ".a";
  CHECK(refusal(deep + " = 1\n").ends_with("tables in tables in tables"));
  CHECK(refusal("[data]\nflips = true\n").empty());
}

TEST_CASE("recipe: settings that --set cannot make") {
  Fields f;
  Keys keys;
  declare(keys, f);
  CHECK_THROWS_WITH_AS(keys.set_text("schedule.epoch=3"),
                       "--set: there is no key 'schedule.epoch'; did you mean 'schedule.epochs'?", tool::UsageError);
  CHECK_THROWS_WITH_AS(keys.set_text("schedule.epochs"),
                       "--set schedule.epochs: a whole number is needed, as schedule.epochs=VALUE", tool::UsageError);
  CHECK_THROWS_WITH_AS(keys.set_text("schedule.epochs=x"),
                       "--set schedule.epochs: a whole number from 0 to 100 is needed, not 'x'", tool::UsageError);
  keys.set_text("data.flips");
  CHECK(f.flips);
  f.freeze = {"a"}, f.milestones = {1};
  keys.set_text("optimizer.freeze="), keys.set_text("schedule.milestones=");
  CHECK(f.freeze.empty());
  CHECK(f.milestones.empty());
  CHECK_THROWS_AS(keys.add("data.flips", f.flips, "again"), Error);
}

}  // namespace
}  // namespace mpigrad::trainer
