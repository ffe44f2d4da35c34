// Limits of JSON and TOML texts, which are checked before a parser allocates memory.

#include "framework/base/text_bounds.h"

#include <doctest/doctest.h>

#include <sstream>

using namespace mpigrad;

namespace {

std::string repeated(const std::string& text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) result += text;
  return result;
}

}  // namespace

TEST_CASE("text bounds: JSON") {
  const TextBounds few{.bytes = 200, .values = 10, .depth = 3};
  for (const auto* text : {"", "[[[]]]", R"({"a": [{"b": 1}], "c": [{}]})", R"(["[[[[,,,,,,,,,,,,", "\"[[[[", "\\"])", "]]]][[["})
    CHECK_MESSAGE(excess_of_json(text, few).empty(), text);
  CHECK(excess_of_json("[[[[", few) == "has brackets in brackets, more than 3 deep");
  CHECK(excess_of_json(R"({"\\": [{"a": [)", few) == "has brackets in brackets, more than 3 deep");
  CHECK(excess_of_json(R"("]]]]" [ "]" [ "]" [ "]" [)", few) == "has brackets in brackets, more than 3 deep");
  CHECK(excess_of_json("[" + repeated("1,", 9) + "1]", few).empty());
  CHECK(excess_of_json("[" + repeated("1,", 10) + "1]", few) == "has more than 10 values");
  CHECK(excess_of_json(std::string(201, ' '), few) == "has more than 200 bytes");
  for (const auto* text : {"\"", "\"\\", "\"\\\"", "'[[[[["}) CHECK_NOTHROW(static_cast<void>(excess_of_json(text, few)));
  CHECK_FALSE(excess_of_json("'[[[[[", few).empty());
  CHECK_FALSE(excess_of_json("#[[[[[", few).empty());
}

TEST_CASE("text bounds: TOML") {
  const TextBounds few{.bytes = 200, .values = 15, .depth = 3};
  for (const auto* text :
       {"a.b.c = 1.5\nd.e.f = 2", "[[a.b.c]]\nx = [[1.0, 2.0], [3.0, 4.0]]", "# [[[[[[ a.b.c.d\n", "a = '[[[[.....\\'\nb = 1",
        "a = '''\n[[[[ ' '' ....'''", "a = \"\"\"\n[[[[ \" \"\" \\\"\"\" .... \"\"\"", "\"a.b.c.d.e\".'f.g.h.i' = 1"})
    CHECK_MESSAGE(excess_of_toml(text, few).empty(), text);
  CHECK(excess_of_toml("a = [[[[", few) == "has brackets in brackets, more than 3 deep");
  CHECK(excess_of_toml("a.b.c.d = 1", few) == "has a key of more than 3 parts");
  CHECK(excess_of_toml("[a.\"b\".'c' . d]", few) == "has a key of more than 3 parts");
  CHECK(excess_of_toml("a = 'x\n[[[[", few) == "has brackets in brackets, more than 3 deep");
  // A string in triple quotes may end with two quotes of its own.
  for (const auto& quote : {std::string("\""), std::string("'")})
    for (int own = 0; own <= 2; ++own) {
      const auto begin = "x = [" + repeated(quote, 3) + "a" + repeated(quote, 3 + own);
      CHECK(excess_of_toml(begin + ", {a.b.c.d = 1}]", few) == "has a key of more than 3 parts");
      CHECK(excess_of_toml(begin + ", [[[", few) == "has brackets in brackets, more than 3 deep");
      CHECK(excess_of_toml(begin + ", " + quote + "[[[[" + quote + "]", few).empty());
    }
  CHECK(excess_of_toml(repeated("a = 1\n", 16), few) == "has more than 15 values");
  CHECK(excess_of_toml(repeated("[a.b.c]\n", 5), few).empty());
  CHECK(excess_of_toml(repeated("[a.b.c]\n", 6), few) == "has more than 15 values");
  CHECK(excess_of_toml(std::string(201, ' '), few) == "has more than 200 bytes");

  std::istringstream text(std::string(300, ' ')), short_text("a = 1");
  CHECK(read_bounded(text, few).size() == 201);
  CHECK(read_bounded(short_text, few) == "a = 1");
}
