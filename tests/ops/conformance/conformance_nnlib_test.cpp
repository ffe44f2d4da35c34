// Convolutions and pools of one channel in one to three dimensions, forward and gradient, against NNlib's own test values.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/engine/tape.h"
#include "ops/conv/conv.h"
#include "ops/elementwise/elementwise.h"
#include "ops/pool/pool.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tests/support/shared_data.h"
#include "tests/support/skip.h"

namespace mpigrad::testing {
namespace {

using Json = nlohmann::json;

void flatten_into(const Json& nested, std::vector<double>& values) {
  if (nested.is_number()) return values.push_back(nested.get<double>());
  for (const auto& part : nested) flatten_into(part, values);
}

// Nested lists as [D, H, W], with leading unit extents.
Tensor volume_of(const Json& nested, DType type) {
  std::vector<std::int64_t> extents;
  for (const Json* at = &nested; at->is_array(); at = &at->front()) extents.push_back(static_cast<std::int64_t>(at->size()));
  extents.insert(extents.begin(), 3 - extents.size(), 1);
  std::vector<double> values;
  flatten_into(nested, values);
  return from_vector(Shape(std::span<const std::int64_t>(extents)), values, type);
}

// One sample of one channel, [1, D, H, W, 1]; a kernel of one channel has the same shape.
Tensor sample_of(const Json& nested, DType type) { return unsqueeze(unsqueeze(volume_of(nested, type), 0), -1); }

std::array<std::int64_t, 3> triple_of(const Json& list, std::int64_t in_front) {
  std::array<std::int64_t, 3> result{in_front, in_front, in_front};
  const auto values = list.get<std::vector<std::int64_t>>();
  std::copy(values.begin(), values.end(), result.end() - static_cast<std::ptrdiff_t>(values.size()));
  return result;
}

bool close(const Tensor& actual, const Json& expected, double tolerance) {
  std::vector<double> e;
  flatten_into(expected, e);
  const auto a = actual.to_vector();
  if (a.size() != e.size()) return false;
  double scale = 1;
  for (double value : e) scale = std::max(scale, std::abs(value));
  for (std::size_t i = 0; i < e.size(); ++i)
    if (!(std::abs(a[i] - e[i]) <= tolerance * scale)) return false;
  return true;
}

// "" or the difference.
std::string run_convolution(const Json& entry, DType type, double tolerance) {
  const Tensor x = sample_of(entry["x"], type), w = sample_of(entry["w"], type);
  Tape tape;
  // A true convolution is a cross-correlation with the flipped kernel.
  const Tensor kernel = entry["kernel_is_flipped"].get<bool>() ? flip(w, {1, 2, 3}) : w;
  const auto padding = triple_of(entry["padding"], 0);
  const Tensor y = local::conv(
      x, kernel, {.stride = triple_of(entry["stride"], 1), .dilation = triple_of(entry["dilation"], 1), .padding = padding});
  const auto gradients = tape.vjp({y}, {constant(y)}, {x, w});
  if (!close(y, entry["y"], tolerance)) return "y";
  if (!close(gradients[0], entry["dx"], tolerance)) return "dx";
  if (!close(gradients[1], entry["dw"], tolerance)) return "dw";
  return {};
}

std::string run_pool(const Json& entry, DType type, double tolerance) {
  const auto op = entry["op"].get<std::string>();
  const Tensor x = sample_of(entry["x"], type);
  const auto padding = triple_of(entry["padding"], 0);
  const PoolAttributes attributes{.kernel = triple_of(entry["kernel"], 1),
                                  .stride = triple_of(entry["stride"], 1),
                                  .padding = padding,
                                  .count_include_pad = entry["count_include_pad"].get<bool>()};
  Tape tape;
  Tensor y;
  if (op.starts_with("max")) {
    y = local::max_pool(x, attributes);
  } else if (op.starts_with("mean")) {
    y = local::avg_pool(x, attributes);
  } else {  // lpnorm: (sum over the window of x^p)^(1/p), for x > 0
    const double p = entry["p"].get<double>();
    const auto& k = attributes.kernel;
    y = pow(static_cast<double>(k[0] * k[1] * k[2]) * local::avg_pool(pow(x, p), attributes), 1 / p);
  }
  const auto gradients = tape.vjp({y}, {constant(y)}, {x});
  if (!close(y, entry["y"], tolerance)) return "y";
  if (!close(gradients[0], entry["dx"], tolerance)) return "dx";
  return {};
}

TEST_CASE("conformance: NNlib convolutions and pools with gradients") {
  const auto file = shared_data("conformance/json/nnlib_conv_pool.json");
  if (file.empty()) return skip_test("conformance: NNlib convolutions and pools with gradients", no_shared_data);
  std::ifstream stream(file);
  const Json entries = Json::parse(stream);
  CHECK(entries.size() >= 39);

  for (const auto& entry : entries) {
    const auto op = entry["op"].get<std::string>(), name = "nnlib " + entry["case"].get<std::string>();
    REQUIRE_MESSAGE(entry["dy"] == "= y", name);
    std::string difference;
    for (DType type : {DType::float64, DType::float32}) {
      // The reference values of p-norms have six digits.
      const double tolerance = type == DType::float64 && !op.starts_with("lpnorm") ? 1e-12 : 1e-5;
      if (difference.empty())
        difference = op.starts_with("conv") ? run_convolution(entry, type, tolerance) : run_pool(entry, type, tolerance);
    }
    if (difference.empty()) count_passed();
    else count_failed(name, difference + " differs");
  }
}

}  // namespace
}  // namespace mpigrad::testing
