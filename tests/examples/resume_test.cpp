// What the file `state` makes of a launcher's exit code.

#include <doctest/doctest.h>

#include <initializer_list>
#include <string>
#include <tuple>
#include <vector>

#include "examples/trainer/run.h"
#include "examples/trainer/state.h"
#include "tests/support/files.h"

namespace mpigrad::trainer {
namespace {

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
