#pragma once
// Bounds of JSON and TOML texts. Parsers take up to 100 times the text's size of memory, and recursion for each level.

#include <cstddef>
#include <istream>
#include <string>
#include <string_view>

namespace mpigrad {

struct TextBounds {
  std::size_t bytes = std::size_t{1} << 24;
  std::size_t values = std::size_t{1} << 20;  // about: commas, brackets, and in TOML parts of keys
  std::size_t depth = 64;                     // brackets in brackets, and in TOML parts of a key
};

// The bound that a text exceeds, as "has ..., more than ..."; empty: none. Takes no memory.
std::string excess_of_json(std::string_view text, const TextBounds& bounds = {});
std::string excess_of_toml(std::string_view text, const TextBounds& bounds = {});

// All of a stream, or as much of it as exceeds the bounds.
std::string read_bounded(std::istream& stream, const TextBounds& bounds = {});

}  // namespace mpigrad
