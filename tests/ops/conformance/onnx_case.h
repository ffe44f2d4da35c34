#pragma once
// One operator case of the ONNX test suite: a folder with the arrays and a `case.txt` of lines
//
//   test NAME | suite NAME | opset N
//   in NAME FILE DTYPE AxBxC    out NAME FILE DTYPE AxBxC
//   node OP | inputs | outputs  ('-' is an omitted input)
//   attr KEY int|ints|float|string VALUES   of the node before it

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace mpigrad::testing {

struct OnnxAttribute {
  std::string type;                 // int, ints, float, floats or string
  std::vector<std::string> values;  // as written
};

struct OnnxNode {
  std::string op;
  std::vector<std::string> inputs, outputs;
  std::map<std::string, OnnxAttribute> attributes;

  bool has(const std::string& key) const { return attributes.contains(key); }
  bool has_input(std::size_t i) const { return i < inputs.size() && inputs[i] != "-"; }
  std::int64_t integer(const std::string& key, std::int64_t otherwise) const;
  double real(const std::string& key, double otherwise) const;
  std::string text(const std::string& key, const std::string& otherwise) const;
  std::vector<std::int64_t> integers(const std::string& key, const std::vector<std::int64_t>& otherwise) const;
};

struct OnnxArray {
  std::string name, file, dtype;
};

struct OnnxCase {
  std::string name, suite;
  int opset = 0;
  std::vector<OnnxArray> inputs, outputs;
  std::vector<OnnxNode> nodes;
};

// Throws an Error that names file and line.
OnnxCase read_onnx_case(const std::filesystem::path& file);

}  // namespace mpigrad::testing
