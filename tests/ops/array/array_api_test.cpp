// The functions of the Python array API standard 2024.12 against NumPy's values: array_api.json, which array_api.py writes.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "comm/halos/periodic.h"
#include "ops/array/creation.h"
#include "ops/array/shapes.h"
#include "ops/array/statistics.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tests/support/skip.h"

namespace mpigrad::testing {
namespace {

using Json = nlohmann::json;
using Ints = std::vector<int>;
using Tensors = std::vector<Tensor>;

DType type_named(const std::string& name) {
  for (const auto type : {DType::float64, DType::float32, DType::int64, DType::int32, DType::int16, DType::uint8, DType::boolean})
    if (name_of(type) == name) return type;
  fail("[array_api_test] no type is called {}", name);
}
double number_of(const Json& element) {
  return element.is_string() ? std::strtod(element.get<std::string>().c_str(), nullptr) : element.get<double>();
}
Shape shape_of(const Json& tensor) {
  const auto extents = tensor[1].get<std::vector<std::int64_t>>();
  return Shape(std::span<const std::int64_t>(extents));
}
DType type_of(const Json& tensor) { return type_named(tensor[0].get<std::string>()); }
std::vector<double> values_of(const Json& tensor) {
  std::vector<double> values;
  for (const auto& element : tensor[2]) values.push_back(number_of(element));
  return values;
}
Tensor tensor_of(const Json& tensor) { return from_vector(shape_of(tensor), values_of(tensor), type_of(tensor)); }

struct Case {
  Tensors x;
  Json a;       // the other arguments
  Json result;  // for functions that create tensors: the first result, for its type and shape
  Shape shape() const { return shape_of(result); }
  DType type() const { return type_of(result); }
  bool has(const char* name) const { return a.contains(name); }
  int axis() const { return a.at("axis").get<int>(); }
  Ints ints(const char* name) const { return a.at(name).get<Ints>(); }
  std::vector<std::int64_t> longs(const char* name) const { return a.at(name).get<std::vector<std::int64_t>>(); }
  std::int64_t k() const { return a.at("k").get<std::int64_t>(); }
  bool keep() const { return a.value("keepdims", false); }
  Ints axes() const {  // all axes if none is named
    if (has("axis")) return ints("axis");
    Ints all(static_cast<std::size_t>(x[0].rank()));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  Number number(const char* name) const {
    const auto& value = a.at(name);
    if (value.is_boolean()) return value.get<bool>();
    if (value.is_number_integer()) return value.get<std::int64_t>();
    return value.get<double>();
  }
};
using Function = std::function<Tensors(const Case&)>;

Tensor in_place(const Case& c, Tensor& (*f)(Tensor&, const Tensor&)) {
  Tensor x = c.x[0];
  return f(x, c.x[1]);
}

void add_elementwise(std::map<std::string, Function>& functions) {
  using Unary = Tensor (*)(const Tensor&);
  using Binary = Tensor (*)(const Tensor&, const Tensor&);
  using Comparison = Mask (*)(const Tensor&, const Tensor&);
  const std::map<std::string, Unary> unary{
      {"abs", abs}, {"acos", acos}, {"acosh", acosh}, {"asin", asin}, {"asinh", asinh}, {"atan", atan}, {"atanh", atanh},
      {"ceil", ceil}, {"cos", cos}, {"cosh", cosh}, {"exp", exp}, {"expm1", expm1}, {"floor", floor}, {"log", log},
      {"log10", log10}, {"log1p", log1p}, {"log2", log2}, {"negative", negate},
      {"positive", operator+ }, {"reciprocal", reciprocal}, {"round", round}, {"sign", sign}, {"sin", sin}, {"sinh", sinh},
       {"sqrt", sqrt}, {"square", square}, {"tan", tan}, {"tanh", tanh}, {"trunc", trunc}, {"bitwise_invert", bitwise_invert},
       {"__pos__", operator+ }, {"__neg__", operator- }, {"__invert__", operator~}, {"matrix_transpose", matrix_transpose}};
  const std::map<std::string, Binary> binary{
      {"add", add}, {"subtract", subtract}, {"multiply", multiply}, {"divide", divide}, {"maximum", maximum},
      {"minimum", minimum}, {"pow", pow}, {"remainder", remainder}, {"floor_divide", floor_divide}, {"atan2", atan2},
      {"hypot", hypot}, {"copysign", copysign}, {"nextafter", nextafter}, {"logaddexp", logaddexp}, {"bitwise_and", bitwise_and},
      {"bitwise_or", bitwise_or}, {"bitwise_xor", bitwise_xor}, {"bitwise_left_shift", bitwise_left_shift},
      {"bitwise_right_shift", bitwise_right_shift},
      {"__add__", operator+ },
       {"__sub__", operator- },
        {"__mul__", operator* },
         {"__truediv__", operator/ },
          {"__mod__", operator% },
           {"__and__", operator& },
            {"__or__", operator| },
             {"__xor__", operator^ },
              {"__floordiv__", floor_divide},
              {"__pow__", pow},
              {"__lshift__", bitwise_left_shift},
              {"__rshift__", bitwise_right_shift}};
  using Property = Mask (*)(const Tensor&);
  const std::map<std::string, Property> properties{
      {"isfinite", isfinite}, {"isinf", isinf}, {"isnan", isnan}, {"signbit", signbit}, {"logical_not", logical_not}};
  const std::map<std::string, Comparison> comparisons{
      {"logical_and", logical_and}, {"logical_or", logical_or}, {"logical_xor", logical_xor}, {"equal", equal},
      {"not_equal", not_equal}, {"less", less}, {"less_equal", less_equal}, {"greater", greater},
      {"greater_equal", greater_equal},
      {"__eq__", operator== },
       {"__ne__", operator!= }, {"__lt__", operator<}, {"__le__", operator<= }, {"__gt__", operator> }, {"__ge__", operator>= } };
  for (const auto& [name, f] : unary) functions[name] = [f = f](const Case& c) { return Tensors{f(c.x[0])}; };
  for (const auto& [name, f] : properties) functions[name] = [f = f](const Case& c) { return Tensors{f(c.x[0])}; };
  for (const auto& [name, f] : binary) functions[name] = [f = f](const Case& c) { return Tensors{f(c.x[0], c.x[1])}; };
  for (const auto& [name, f] : comparisons) functions[name] = [f = f](const Case& c) { return Tensors{f(c.x[0], c.x[1])}; };
}

#define F(...) []([[maybe_unused]] const Case& c) -> Tensors { return {__VA_ARGS__}; }

void add_reductions(std::map<std::string, Function>& functions) {
  using Reduction = Tensor (*)(const Tensor&, const Ints&, bool);
  const std::map<std::string, Reduction> reductions{{"max", max},   {"min", min},   {"sum", sum},
                                                    {"mean", mean}, {"prod", prod}, {"count_nonzero", count_nonzero}};
  functions["all"] = F(all(c.x[0], c.axes(), c.keep()));
  functions["any"] = F(any(c.x[0], c.axes(), c.keep()));
  for (const auto& [name, f] : reductions)
    functions[name] = [f = f](const Case& c) { return Tensors{f(c.x[0], c.axes(), c.keep())}; };
  functions["var"] = F(var(c.x[0], c.axes(), c.a.value("correction", 0.0), c.keep()));
  functions["std"] = F(stddev(c.x[0], c.axes(), c.a.value("correction", 0.0), c.keep()));
  functions["argmax"] = F(argmax(c.x[0], c.axis()));
  functions["argmin"] = F(argmin(c.x[0], c.axis()));
  functions["cumulative_sum"] = F(cumulative_sum(c.x[0], c.axis()));
  functions["cumulative_prod"] = F(cumulative_prod(c.x[0], c.axis()));
  functions["diff"] = F(diff(c.x[0], c.axis(), c.a.at("n").get<int>()));
  functions["clip"] = F(clamp(c.x[0], c.number("min"), c.number("max")));
  functions["where"] = F(where(c.x[0], c.x[1], c.x[2]));
}

void add_creation(std::map<std::string, Function>& functions) {
  constexpr auto f64 = DType::float64;
  functions["e"] = F(full({}, std::numbers::e, f64));
  functions["pi"] = F(full({}, std::numbers::pi, f64));
  functions["inf"] = F(full({}, std::numeric_limits<double>::infinity(), f64));
  functions["nan"] = F(full({}, std::numeric_limits<double>::quiet_NaN(), f64));
  functions["asarray"] = F(from_vector(c.shape(), values_of(c.result), c.type()));
  functions["zeros"] = F(zeros(c.shape(), c.type()));
  functions["ones"] = F(ones(c.shape(), c.type()));
  functions["empty"] = F(Tensor(TensorType{c.shape(), c.type()}));
  functions["zeros_like"] = F(zeros_like(c.x[0]));
  functions["ones_like"] = F(ones_like(c.x[0]));
  functions["empty_like"] = F(Tensor(c.x[0].type()));
  functions["full"] = F(full(c.shape(), c.number("value").value(), c.type()));
  functions["full_like"] = F(full_like(c.x[0], c.number("value")));
  functions["astype"] = F(cast(c.x[0], c.type()));
  functions["result_type"] = F(zeros({0}, result_type(c.x[0].dtype(), c.x[1].dtype()).value()));
  functions["arange"] = F(arange(c.number("start"), c.number("stop"), c.number("step"), c.type()));
  functions["linspace"] = F(linspace(c.a.at("start").get<double>(), c.a.at("stop").get<double>(), c.shape()[0], c.type(),
                                     c.a.at("endpoint").get<bool>()));
  functions["eye"] = F(eye(c.shape()[0], c.shape()[1], c.k(), c.type()));
  functions["meshgrid"] = [](const Case& c) { return meshgrid(c.x, c.a.at("indexing") == "xy" ? Indexing::xy : Indexing::ij); };
  functions["tril"] = F(tril(c.x[0], c.k()));
  functions["triu"] = F(triu(c.x[0], c.k()));
}

void add_shapes(std::map<std::string, Function>& functions) {
  functions["take"] = F(take(c.x[0], c.x[1], c.axis()));
  functions["take_along_axis"] = F(take_along_axis(c.x[0], c.x[1], c.axis()));
  functions["matmul"] = functions["__matmul__"] = F(matmul(c.x[0], c.x[1]));
  functions["vecdot"] = F(vecdot(c.x[0], c.x[1], c.axis()));
  functions["tensordot"] = [](const Case& c) -> Tensors {
    const auto& axes = c.a.at("axes");
    if (axes.is_number()) return {tensordot(c.x[0], c.x[1], axes.get<int>())};
    return {tensordot(c.x[0], c.x[1], axes[0].get<Ints>(), axes[1].get<Ints>())};
  };
  functions["broadcast_arrays"] = [](const Case& c) { return broadcast_arrays(c.x); };
  functions["broadcast_to"] = F(broadcast_to(c.x[0], c.shape()));
  functions["concat"] = F(concatenate(c.x, c.axis()));
  functions["stack"] = F(stack(c.x, c.axis()));
  functions["expand_dims"] = F(unsqueeze(c.x[0], c.axis()));
  functions["unstack"] = [](const Case& c) { return unbind(c.x[0], c.axis()); };
  functions["flip"] = F(flip(c.x[0], c.ints("axis")));
  functions["moveaxis"] = F(moveaxis(c.x[0], c.ints("source"), c.ints("destination")));
  functions["permute_dims"] = F(permute(c.x[0], c.ints("axes")));
  functions["repeat"] = F(repeat(c.x[0], c.a.at("repeats").get<std::int64_t>(), c.axis()));
  functions["reshape"] = F(reshape(c.x[0], c.longs("shape")));
  functions["roll"] = F(roll(c.x[0], c.longs("shift"), c.ints("axis")));
  functions["squeeze"] = F(squeeze(c.x[0], c.ints("axis")));
  functions["tile"] = F(tile(c.x[0], c.longs("repetitions")));
  functions["__iadd__"] = F(in_place(c, operator+=<Tensor>));
  functions["__isub__"] = F(in_place(c, operator-=<Tensor>));
  functions["__imul__"] = F(in_place(c, operator*=<Tensor>));
  functions["__itruediv__"] = F(in_place(c, operator/=<Tensor>));
  functions["__imod__"] = F(in_place(c, operator%=<Tensor>));
}

#undef F

std::map<std::string, Function> table() {
  std::map<std::string, Function> functions;
  add_elementwise(functions);
  add_reductions(functions);
  add_creation(functions);
  add_shapes(functions);
  return functions;
}

// "" or the difference: more than 8 units in the last place, any difference for integers.
std::string difference(const Tensor& y, const Json& wanted, bool signed_zeros) {
  if (y.shape() != shape_of(wanted) || y.dtype() != type_of(wanted)) return fmt::format("{} instead of {}", y, wanted.dump());
  const double tolerance = y.dtype() == DType::float64 ? 0x1p-49 : y.dtype() == DType::float32 ? 0x1p-20 : 0;
  const auto found = y.to_vector(), values = values_of(wanted);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double a = found[i], b = y.dtype() == DType::float32 ? static_cast<float>(values[i]) : values[i];
    const bool equal = (std::isnan(a) && std::isnan(b)) || a == b || std::abs(a - b) <= tolerance * std::abs(b);
    if (!equal || (signed_zeros && b == 0 && std::signbit(a) != std::signbit(b)))
      return fmt::format("element {} is {} instead of {}", i, a, b);
  }
  return "";
}

std::string run(const Function& f, const Json& entry, bool signed_zeros) {
  Case c{{}, entry["a"], entry["y"].empty() ? Json() : entry["y"][0]};
  for (const auto& operand : entry["x"]) c.x.push_back(tensor_of(operand));
  const auto y = f(c);
  if (y.size() != entry["y"].size()) return fmt::format("{} results instead of {}", y.size(), entry["y"].size());
  const bool uninitialised = entry["f"].get<std::string>().starts_with("empty");
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (uninitialised && y[i].type() == TensorType{c.shape(), c.type()}) continue;
    if (const auto why = difference(y[i], entry["y"][i], signed_zeros); !why.empty()) return why;
  }
  return "";
}

#ifndef MPIGRAD_SOURCE_ROOT
#define MPIGRAD_SOURCE_ROOT "."
#endif
Json stored() {
  const char* told = std::getenv("MPIGRAD_SOURCE_ROOT");
  std::ifstream stream(std::string(told != nullptr ? told : MPIGRAD_SOURCE_ROOT) + "/tests/ops/array/array_api.json");
  return Json::parse(stream);
}

}  // namespace

TEST_CASE("array API: every function of the standard gives NumPy's values, types and shapes") {
  const auto document = stored();
  const auto functions = table();
  std::set<std::string> signed_zeros, met;
  for (const auto& name : document["names"])
    if (name.contains("signed_zeros")) signed_zeros.insert(name["name"].get<std::string>());
  std::map<std::string, std::string> failures;  // the first failure of each function
  for (const auto& entry : document["cases"]) {
    const auto name = entry["f"].get<std::string>();
    met.insert(name);
    std::string why = "the table of this test does not have it";
    try {
      if (const auto f = functions.find(name); f != functions.end()) why = run(f->second, entry, signed_zeros.contains(name));
    } catch (const std::exception& error) {
      why = error.what();
    }
    if (!why.empty()) failures.emplace(name, why + "; " + entry.dump());
  }
  for (const auto& name : met)
    if (const auto failure = failures.find(name); failure != failures.end()) count_failed("array API: " + name, failure->second);
    else count_passed();

  int counted = 0, excused = 0;
  for (const auto& entry : document["names"]) {
    if (entry.contains("later")) continue;
    ++counted;
    excused += entry.contains("excuse") ? 1 : 0;
    INFO("no case and no excuse for ", entry["name"].get<std::string>());
    CHECK((entry.contains("excuse") || met.contains(entry["name"].get<std::string>())));
  }
  CHECK(counted > 150);
  CHECK(10 * excused <= counted);
}

TEST_CASE("array API: a wrong value, type, shape and sign of zero are found") {
  const Json wanted = Json::parse(R"(["float64",[2],[1,"-0"]])");
  CHECK(difference(from_vector({2}, {1, -0.0}, DType::float64), wanted, true).empty());
  CHECK(difference(from_vector({2}, {1, 0}, DType::float64), wanted, false).empty());
  CHECK_FALSE(difference(from_vector({2}, {1, 0}, DType::float64), wanted, true).empty());
  CHECK_FALSE(difference(from_vector({2}, {1 + 0x1p-48, -0.0}, DType::float64), wanted, true).empty());
  CHECK_FALSE(difference(from_vector({2}, {1, -0.0}, DType::float32), wanted, true).empty());
  CHECK_FALSE(difference(from_vector({2, 1}, {1, -0.0}, DType::float64), wanted, true).empty());
}

}  // namespace mpigrad::testing
