#include "tests/ops/conformance/onnx_case.h"

#include <fstream>
#include <sstream>

#include "framework/base/error.h"

namespace mpigrad::testing {
namespace {

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// "OP | inputs | outputs"; a list may be empty.
OnnxNode parse_node(const std::string& where, const std::string& text) {
  const auto first = text.find('|'), second = text.find('|', first == std::string::npos ? first : first + 1);
  require(second != std::string::npos, "[onnx] a node has three parts: {}", where);
  const auto op = words_of(text.substr(0, first));
  require(op.size() == 1, "[onnx] a node has one operator: {}", where);
  return {.op = op[0],
          .inputs = words_of(text.substr(first + 1, second - first - 1)),
          .outputs = words_of(text.substr(second + 1)),
          .attributes = {}};
}

template <class T, class Convert>
T only(const OnnxNode& node, const std::string& key, const T& otherwise, const Convert& convert) {
  const auto found = node.attributes.find(key);
  if (found == node.attributes.end()) return otherwise;
  require(found->second.values.size() == 1, "[onnx] {} takes one value: {}", key, node.op);
  return convert(found->second.values[0]);
}

}  // namespace

std::int64_t OnnxNode::integer(const std::string& key, std::int64_t otherwise) const {
  return only(*this, key, otherwise, [](const std::string& value) { return std::int64_t{std::stoll(value)}; });
}

double OnnxNode::real(const std::string& key, double otherwise) const {
  return only(*this, key, otherwise, [](const std::string& value) { return std::stod(value); });
}

std::string OnnxNode::text(const std::string& key, const std::string& otherwise) const {
  return only(*this, key, otherwise, [](const std::string& value) { return value; });
}

std::vector<std::int64_t> OnnxNode::integers(const std::string& key, const std::vector<std::int64_t>& otherwise) const {
  const auto found = attributes.find(key);
  if (found == attributes.end()) return otherwise;
  std::vector<std::int64_t> result;
  for (const auto& value : found->second.values) result.push_back(std::stoll(value));
  return result;
}

OnnxCase read_onnx_case(const std::filesystem::path& file) {
  std::ifstream stream(file);
  require(stream.good(), "[onnx] cannot be opened: {}", file.string());
  OnnxCase result;
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    const std::string where = fmt::format("{}:{}", file.string(), ++number);
    const auto words = words_of(line);
    if (words.empty()) continue;
    const auto& kind = words[0];
    require(words.size() >= 2, "[onnx] a line has a kind and a value: {}", where);
    if (kind == "test") {
      result.name = words[1];
    } else if (kind == "suite") {
      result.suite = words[1];
    } else if (kind == "opset") {
      result.opset = std::stoi(words[1]);
    } else if (kind == "in" || kind == "out") {
      require(words.size() >= 4, "[onnx] an array has name, file and type: {}", where);
      (kind == "in" ? result.inputs : result.outputs).push_back({.name = words[1], .file = words[2], .dtype = words[3]});
    } else if (kind == "node") {
      result.nodes.push_back(parse_node(where, line.substr(line.find("node") + 4)));
    } else if (kind == "attr") {
      require(words.size() >= 3 && !result.nodes.empty(), "[onnx] an attribute has a node, a key and a type: {}", where);
      result.nodes.back().attributes[words[1]] = {.type = words[2], .values = {words.begin() + 3, words.end()}};
    } else {
      fail("[onnx] unknown kind of line {}: {}", kind, where);
    }
  }
  require(!result.nodes.empty(), "[onnx] a case has a node: {}", file.string());
  return result;
}

}  // namespace mpigrad::testing
