#pragma once
// Bounds of JSON and TOML texts. Parsers need up to 100 times the size of the text in memory, and recurse for each level.

#include <cstddef>
#include <istream>
#include <string>
#include <string_view>

namespace mpigrad {

struct TextBounds {
  std::size_t bytes = std::size_t{1} << 24;
  std::size_t values = std::size_t{1} << 20;  // estimated by commas, brackets, and in TOML parts of keys
  std::size_t depth = 64;                     // nested brackets, and in TOML parts of a key
};

// The bound that a text exceeds, as "has ..., more than ..."; empty if none. Allocates no memory for the text.
std::string excess_of_json(std::string_view text, const TextBounds& bounds = {});
std::string excess_of_toml(std::string_view text, const TextBounds& bounds = {});

// Reads a whole stream, or just enough of it to exceed the bounds.
std::string read_bounded(std::istream& stream, const TextBounds& bounds = {});

}  // namespace mpigrad
