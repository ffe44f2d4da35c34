#pragma once
// The values of a network that is exported: their names in our order of dimensions and in ONNX's, and the nodes that make them.

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "framework/engine/op_observer.h"
#include "models/export/graph.h"
#include "models/nn/module.h"
#include "ops/extents.h"
#include "ops/views/views.h"

namespace mpigrad::onnx {

// Our order of the dimensions of a volume, [N, D, H, W, C], and ONNX's, [N, C, D, H, W].
inline constexpr int volume_rank = 5;
inline const std::vector<int> to_first{0, 4, 1, 2, 3};
inline const Ints transpose_to_first{0, 4, 1, 2, 3}, transpose_to_last{0, 2, 3, 4, 1};
inline std::int64_t axis_in_first(int axis) { return axis == 0 ? 0 : axis == 4 ? 1 : axis + 1; }

inline Ints ints(const Extent3& e) { return {e[0], e[1], e[2]}; }
inline Ints ints(const Triple& t) { return {t[0], t[1], t[2]}; }

// Of what depends on the input there are nodes; the rest is there, with its values. `at_` is the op whose nodes are made.
class Values {
 public:
  Values(onnx::Graph& graph, nn::Module& net, const Tensor& x, bool any_batch)
      : graph_(graph), any_batch_(any_batch), batch_(x.dim(0)) {
    const auto& parameters = net.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) names_[parameters[i].value.id()] = apart(parameters[i].name);
    for (const auto& [name, value] : net.buffers()) names_[value.id()] = apart(name);
    graph_.input("x", in_order_of_onnx(x.shape()), x.dtype(), any_batch_);
    (x.rank() == volume_rank ? values_[x.id()].first : values_[x.id()].last) = "x";
  }

  void finish(const Tensor& y) {
    require(values_.count(y.id()) != 0, "[onnx] the result does not depend on the input");
    const auto name = y.rank() == volume_rank ? first(y) : last(y);
    graph_.node("Identity", {name}, "y");
    graph_.output("y", in_order_of_onnx(y.shape()), y.dtype(), any_batch_);
  }

 protected:
  struct Value {
    std::string last, first;  // names, in our order and in ONNX's; empty: not yet
  };
  struct Op {
    const detail::OpFunctions* functions = nullptr;
    std::string_view name;
    const void* op = nullptr;
    Inputs in{};
    Outputs out{};
  };
  // From names that are made here.
  static std::string apart(const std::string& name) { return name.find('.') == std::string::npos ? name + ".value" : name; }
  Shape in_order_of_onnx(const Shape& s) const { return s.rank() == volume_rank ? Shape{s[0], s[4], s[1], s[2], s[3]} : s; }
  // Some names are those of several types.
  template <class T>
  bool is() const {
    return at_.functions == &detail::functions<T>;
  }
  template <class T>
  const T& as() const {
    return *static_cast<const T*>(at_.op);
  }
  const Tensor& in(std::size_t i) const { return at_.in[i]; }
  bool has(std::size_t i) const { return i < at_.in.size() && at_.in[i]; }
  bool known(const Tensor& x) const { return values_.count(x.id()) == 0; }
  std::string fresh(const std::string& what) { return fmt::format("{}_{}", what, ++numbers_[what]); }

  // The tensor's number alone: it is called after its parameter, where it is one.
  std::string constant(const Tensor& value) {
    const auto found = names_.find(value.id());
    // A parameter in our order of dimensions is not what it is called in ONNX's.
    auto name = found == names_.end() ? fresh("constant") : found->second + (value.rank() == volume_rank ? ".channels_last" : "");
    return add_constant(name, value);
  }
  std::string add_constant(std::string name, const Tensor& value) {
    if (!made_.insert(name).second) return name;
    UseDevice cpu(DeviceKind::cpu);
    graph_.constant(name, value.without_layout());
    return name;
  }
  std::string constant(const Ints& values) {
    auto name = fresh("shape");
    graph_.constant(name, values);
    return name;
  }
  std::string number(double value, DType type) { return add_constant(fresh("number"), full(Shape{}, value, type)); }

  std::string last(const Tensor& x) {
    if (known(x)) return constant(x);
    auto& value = values_[x.id()];
    if (value.last.empty()) {
      value.last = fresh("channels_last");
      graph_.node("Transpose", {value.first}, value.last, {{"perm", transpose_to_last}});
    }
    return value.last;
  }
  std::string first(const Tensor& x) {
    if (known(x)) {
      // Beside volumes: [C] as [C, 1, 1, 1].
      if (x.rank() == volume_rank) return constant(permute(x, to_first));
      if (x.rank() == 1) return constant(reshape(x, {x.dim(0), 1, 1, 1}));
      return constant(x);
    }
    auto& value = values_[x.id()];
    if (value.first.empty()) {
      value.first = fresh("channels_first");
      graph_.node("Transpose", {value.last}, value.first, {{"perm", transpose_to_first}});
    }
    return value.first;
  }
  bool has_first(const Tensor& x) const {
    const auto found = values_.find(x.id());
    return found != values_.end() && !found->second.first.empty();
  }

  std::string node(const std::string& op, const std::vector<std::string>& inputs, const std::vector<Attribute>& attributes = {}) {
    auto output = fresh(op);
    graph_.node(op, inputs, output, attributes);
    return output;
  }
  void set_last(const std::string& name) { values_[at_.out[0].id()].last = name; }
  void set_first(const std::string& name) { values_[at_.out[0].id()].first = name; }
  // Whether an elementwise op may be done in ONNX's order: one operand is there in it, and the others can be.
  bool in_first() const {
    bool any = false;
    for (const auto& x : at_.in) {
      if (!x) continue;
      if (known(x) ? x.rank() > 1 && x.rank() != volume_rank : x.rank() != volume_rank) return false;
      any = any || has_first(x);
    }
    return any;
  }
  void elementwise(const std::string& op, const std::vector<std::string>& more = {},
                   const std::vector<Attribute>& attributes = {}) {
    const bool by_first = in_first();
    std::vector<std::string> inputs;
    for (const auto& x : at_.in) inputs.push_back(by_first ? first(x) : last(x));
    inputs.insert(inputs.end(), more.begin(), more.end());
    const auto name = node(op, inputs, attributes);
    by_first ? set_first(name) : set_last(name);
  }

  // The batch's extent may be another one.
  Ints extents(const Shape& shape, const Shape& from) const {
    Ints result(shape.begin(), shape.end());
    if (any_batch_ && shape.rank() > 0 && from.rank() > 0 && shape[0] == batch_ && from[0] == batch_) result[0] = 0;
    return result;
  }
  onnx::Graph& graph_;
  bool any_batch_;
  std::int64_t batch_;
  Op at_{};
  std::map<std::uint64_t, Value> values_;        // that depend on the input
  std::map<std::uint64_t, std::string> names_;   // of parameters
  std::map<std::string, std::int64_t> numbers_;  // of names
  std::set<std::string> made_;                   // constants
};

}  // namespace mpigrad::onnx
