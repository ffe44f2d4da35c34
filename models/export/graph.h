#pragma once
// A graph of ONNX operators under construction. Not installed.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "framework/tensor/tensor.h"

namespace mpigrad::onnx {

using Ints = std::vector<std::int64_t>;
struct Attribute {
  std::string name;
  std::variant<std::int64_t, double, Ints> value;
};

class Graph {
 public:
  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Declares the graph's input (output); the first extent is the symbol "N" if `any_batch`.
  void input(const std::string& name, const Shape& shape, DType type, bool any_batch);
  void output(const std::string& name, const Shape& shape, DType type, bool any_batch);
  void constant(const std::string& name, const Tensor& value);
  void constant(const std::string& name, const Ints& values);
  void node(const std::string& op, const std::vector<std::string>& inputs, const std::string& output,
            const std::vector<Attribute>& attributes = {});
  // Writes the file, under a temporary name until it is complete.
  void write(const std::filesystem::path& path, bool overwrite) const;

 private:
  struct Model;
  std::unique_ptr<Model> model_;
};

}  // namespace mpigrad::onnx
