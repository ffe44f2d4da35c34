// Forward values against the ONNX test suite: every case runs in float32 and in float64 and is compared, or counts as skipped
// with its reason. The operators listed below may not be skipped.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "models/data/sources/npy.h"
#include "ops/elementwise/elementwise.h"
#include "tests/ops/conformance/onnx_case.h"
#include "tests/ops/conformance/onnx_operators.h"
#include "tests/ops/conformance/onnx_window.h"
#include "tests/support/shared_data.h"
#include "tests/support/skip.h"

namespace mpigrad::testing {
namespace {

// Operators for which every case has to run.
const std::set<std::string> required_operators = {"Conv",
                                                  "ConvTranspose",
                                                  "AveragePool",
                                                  "MaxPool",
                                                  "BatchNormalization",
                                                  "Softmax",
                                                  "LogSoftmax",
                                                  "SoftmaxCrossEntropyLoss",
                                                  "NegativeLogLikelihoodLoss",
                                                  "MatMul",
                                                  "Gemm"};

// The references are float32, so both types have this tolerance, relative to the largest expected value.
constexpr double tolerance = 1e-5;

std::string describe_difference(const Tensor& actual, const Tensor& expected) {
  // A scalar is [1] in the test suite and [] here.
  if (actual.shape() != expected.shape() && (actual.elements() != 1 || expected.elements() != 1))
    return fmt::format("shape {} instead of {}", actual.shape(), expected.shape());
  const auto a = actual.to_vector(), e = expected.to_vector();
  double scale = 0;
  for (double value : e)
    if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
  if (scale == 0) scale = 1;
  for (std::size_t i = 0; i < e.size(); ++i) {
    if (a[i] == e[i] || (std::isnan(a[i]) && std::isnan(e[i]))) continue;
    if (!(std::abs(a[i] - e[i]) <= tolerance * scale))
      return fmt::format("element {} of {} is {} instead of {}", i, expected.shape(), a[i], e[i]);
  }
  return {};
}

Tensor in_type(const Tensor& x, DType type) { return is_floating(x.dtype()) ? cast(x, type) : x; }

// Runs the nodes of a case in element type `type`; returns the differences from the expected outputs as text, or "".
std::string run_case(const OnnxCase& onnx, const std::filesystem::path& folder, DType type) {
  std::map<std::string, Tensor> values;
  for (const auto& array : onnx.inputs) values[array.name] = in_type(read_npy(folder / array.file), type);
  for (const auto& node : onnx.nodes) {
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      inputs.push_back(node.has_input(i) ? values.at(node.inputs[i]) : Tensor());
    const auto outputs = onnx_operator(node.op)(node, inputs);
    for (std::size_t i = 0; i < std::min(outputs.size(), node.outputs.size()); ++i) values[node.outputs[i]] = outputs[i];
  }
  std::size_t compared = 0;
  for (const auto& array : onnx.outputs) {
    const auto found = values.find(array.name);
    if (found == values.end()) continue;
    ++compared;
    const auto difference = describe_difference(found->second, read_npy(folder / array.file));
    if (!difference.empty()) return fmt::format("{} in {}: {}", array.name, name_of(type), difference);
  }
  return compared > 0 ? "" : "nothing was compared";
}

bool has_doubles(const OnnxCase& onnx) {
  return std::any_of(onnx.inputs.begin(), onnx.inputs.end(), [](const OnnxArray& array) { return array.dtype == "float64"; });
}

void check_case(const OnnxCase& onnx, const std::filesystem::path& folder) {
  const bool required = std::any_of(onnx.nodes.begin(), onnx.nodes.end(),
                                    [](const OnnxNode& node) { return required_operators.contains(node.op); });
  try {
    for (DType type : {DType::float32, DType::float64}) {
      if (type == DType::float32 && has_doubles(onnx)) continue;  // values that float32 cannot hold
      const auto difference = run_case(onnx, folder, type);
      if (!difference.empty()) return count_failed(onnx.name, difference);
    }
    count_passed();
  } catch (const NotOffered& reason) {
    if (required) count_failed(onnx.name, reason.what());
    else count_skipped(onnx.name, reason.what());
  } catch (const Error& error) {
    count_failed(onnx.name, error.what());
  }
}

TEST_CASE("conformance: the comparison finds what differs") {
  const Tensor expected = from_vector({2, 2}, {1, -8, 0, INFINITY});
  CHECK(describe_difference(from_vector({2, 2}, {1, -8, 0.00007, INFINITY}), expected).empty());  // 1e-5 of 8 is allowed
  CHECK_FALSE(describe_difference(from_vector({2, 2}, {1, -8, 0.00009, INFINITY}), expected).empty());
  CHECK_FALSE(describe_difference(from_vector({2, 2}, {1, -8, 0, 1e30}), expected).empty());
  CHECK_FALSE(describe_difference(from_vector({2, 2}, {1, NAN, 0, INFINITY}), expected).empty());
  CHECK_FALSE(describe_difference(from_vector({4}, {1, -8, 0, INFINITY}), expected).empty());
  CHECK(describe_difference(from_vector({}, {3}), from_vector({1}, {3})).empty());
}

TEST_CASE("conformance: ONNX operators") {
  const auto root = shared_data("conformance/onnx_npy");
  if (root.empty()) return skip_test("conformance: ONNX operators", no_shared_data);
  std::set<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator(root))
    if (entry.is_directory()) folders.insert(entry.path());
  CHECK(folders.size() >= 347);

  std::map<std::string, int> met;
  for (const auto& folder : folders) {
    const auto onnx = read_onnx_case(folder / "case.txt");
    for (const auto& node : onnx.nodes) ++met[node.op];
    check_case(onnx, folder);
  }
  for (const auto& op : required_operators) CHECK_MESSAGE(met[op] > 0, op);
}

TEST_CASE("conformance: windows of convolutions and pools") {
  // in 5, kernel 3, stride 2: padding 1 in all, 3 outputs
  CHECK(resolve_window({.in = 5, .kernel = 3, .stride = 2}, "SAME_UPPER", false).out == 3);
  // the odd element: in 4, kernel 2, stride 1 needs one in all
  auto upper = resolve_window({.in = 4, .kernel = 2}, "SAME_UPPER", false);
  CHECK((upper.low == 0 && upper.high == 1 && upper.out == 4));
  auto lower = resolve_window({.in = 4, .kernel = 2}, "SAME_LOWER", false);
  CHECK((lower.low == 1 && lower.high == 0 && lower.out == 4));
  // a stride longer than the kernel needs no padding, never a negative one
  auto sparse = resolve_window({.in = 5, .kernel = 1, .stride = 3}, "SAME_LOWER", false);
  CHECK((sparse.low == 0 && sparse.high == 0 && sparse.out == 2));
  // VALID ignores the paddings, NOTSET uses them
  CHECK(resolve_window({.in = 7, .kernel = 3, .stride = 2, .low = 1, .high = 1}, "VALID", false).out == 3);
  CHECK(resolve_window({.in = 7, .kernel = 3, .stride = 2, .low = 1, .high = 1}, "NOTSET", false).out == 4);
  // dilation: the kernel of 2 reaches over 3
  CHECK(resolve_window({.in = 4, .kernel = 2, .dilation = 2}, "NOTSET", false).out == 2);
  // ceil mode adds a window that starts inside, but not one that starts in the high padding
  CHECK(resolve_window({.in = 4, .kernel = 3, .stride = 2}, "NOTSET", true).out == 2);
  CHECK(resolve_window({.in = 2, .kernel = 1, .stride = 3, .high = 1}, "NOTSET", true).out == 1);
  CHECK_THROWS_AS(resolve_window({.in = 2, .kernel = 3}, "NOTSET", false), Error);
  CHECK_THROWS_AS(resolve_window({.in = 2, .kernel = 1}, "SAME", false), Error);

  CHECK(resolve_transposed_window({.in = 3, .kernel = 3}, "NOTSET", 0, -1).out == 5);
  CHECK(resolve_transposed_window({.in = 3, .kernel = 3, .stride = 3}, "NOTSET", 1, -1).out == 10);
  auto same = resolve_transposed_window({.in = 3, .kernel = 3, .stride = 2}, "SAME_UPPER", 0, -1);
  CHECK((same.out == 6 && same.low == 0 && same.high == 1));
  auto longer = resolve_transposed_window({.in = 3, .kernel = 3, .stride = 3}, "NOTSET", 0, 10);
  CHECK((longer.out == 10 && longer.low + longer.high == -1));
}

}  // namespace
}  // namespace mpigrad::testing
