#include "examples/studies/plan/planner/machine/op_times.h"

#include <algorithm>
#include <cmath>

#include "framework/base/error.h"

namespace mpigrad::planner {
namespace {

// Coordinates in which nearby ops are about as fast: logarithms of FLOPs, bytes and extents.
std::vector<double> coordinates_of(double flops, double bytes, const std::vector<TensorType>& in,
                                   const std::vector<TensorType>& out) {
  std::vector<double> coordinates{std::log1p(flops), std::log1p(bytes)};
  for (const auto* list : {&in, &out})
    for (std::size_t i = 0; i < 2; ++i) {
      const auto* type = i < list->size() && (*list)[i].shape.rank() > 0 ? &(*list)[i] : nullptr;
      // Channels and the extent before them weigh more than the number of rows.
      coordinates.push_back(
          type ? 2 * std::log(static_cast<double>(std::max<std::int64_t>(1, type->shape[type->shape.rank() - 1]))) : 0);
      coordinates.push_back(type && type->shape.rank() > 1
                                ? std::log(static_cast<double>(std::max<std::int64_t>(1, type->shape[type->shape.rank() - 2])))
                                : 0);
    }
  return coordinates;
}

TensorType parse_type(const std::string& text) {
  TensorType type;
  const auto bracket = text.find('[');
  if (bracket == std::string::npos) return type;
  for (const auto dtype : {DType::float32, DType::float64, DType::bfloat16, DType::float16, DType::int32, DType::int64,
                           DType::complex64, DType::complex128})
    if (text.substr(0, bracket) == name_of(dtype)) type.dtype = dtype;
  std::vector<std::int64_t> extents;
  for (std::size_t at = bracket + 1; at < text.size() && text[at] != ']';) {
    std::size_t used = 0;
    extents.push_back(std::stoll(text.substr(at), &used));
    at += used + (at + used < text.size() && text[at + used] == ',' ? 1 : 0);
  }
  type.shape = Shape(extents);
  return type;
}

std::vector<TensorType> parse_types(const std::string& text) {
  std::vector<TensorType> types;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find(' ', begin), text.size());
    types.push_back(parse_type(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return types;
}

std::string kind_of(std::string_view op, const std::vector<TensorType>& in) {
  return fmt::format("{} {}", op, in.empty() ? "" : name_of(in[0].dtype));
}

constexpr std::size_t neighbours = 4;

}  // namespace

bool is_product(std::string_view op) { return op.starts_with("conv") || op == "matmul" || op == "linear"; }

std::string signature(const std::vector<TensorType>& types) {
  std::string text;
  for (const auto& type : types) {
    if (!text.empty()) text += ' ';
    if (type.shape.rank() == 0) {
      text += '-';
      continue;
    }
    text += name_of(type.dtype);
    text += '[';
    for (int d = 0; d < type.shape.rank(); ++d) text += fmt::format("{}{}", d ? "," : "", type.shape[d]);
    text += ']';
  }
  return text;
}

std::map<std::string, double> reached(const Device& device, const std::vector<MeasuredOp>& ops) {
  struct Sum {
    double ideal = 0, measured = 0;
  };
  std::map<std::string, Sum> sums;
  for (const auto& op : ops) {
    const auto in = parse_types(op.in);
    const auto type = std::string(name_of(in.empty() ? DType::float32 : in[0].dtype));
    std::string kind = "memory";
    double ideal = op.bytes / device.memory_bandwidth;
    if (is_product(op.op)) {
      const auto peak = device.flops.find(type);
      if (peak == device.flops.end()) continue;
      kind = op.op.starts_with("conv") ? "conv" : "linear";
      if (type != "float32") kind += '_' + type;
      ideal = op.flops / peak->second;
    }
    sums[kind].ideal += ideal, sums[kind].measured += std::max(0.0, op.seconds - device.launch);
  }
  std::map<std::string, double> result;
  for (const auto& [kind, sum] : sums)
    if (sum.ideal > 0 && sum.measured > 0) result[kind] = std::min(1.0, sum.ideal / sum.measured);
  return result;
}

OpTimes::OpTimes(const Machine& machine, int node_ranks, bool tf32) : machine_(machine), tf32_(tf32) {
  int nearest = 0;
  for (const auto& op : machine.ops) {
    const auto apart = [&](int ranks) { return std::abs(std::log(static_cast<double>(ranks) / node_ranks)); };
    if (nearest == 0 || apart(op.ranks) < apart(nearest)) nearest = op.ranks;
  }
  for (const auto& op : machine.ops) {
    // Products of float32 were measured as float32.
    if (op.ranks != nearest || (tf32 && is_product(op.op))) continue;
    exact_[op.op + ' ' + op.in + " > " + op.out].emplace_back(op.flops, op.seconds);
    StepEvent event{
        .op = op.op, .in = parse_types(op.in), .out = parse_types(op.out), .flops = op.flops, .bytes = op.bytes, .calls = {}};
    near_[kind_of(op.op, event.in)].push_back(
        {coordinates_of(op.flops, op.bytes, event.in, event.out), std::log(std::max(op.seconds, 1e-9) / roof(event))});
  }
}

OpTimes::Needs OpTimes::needs(const StepEvent& event) const {
  const auto& device = machine_.device;
  const auto efficiency = [&](const std::string& kind, double otherwise) {
    const auto found = device.efficiency.find(kind);
    return found == device.efficiency.end() ? otherwise : found->second;
  };
  const auto dtype = event.in.empty() ? DType::float32 : event.in[0].dtype;
  const bool product = is_product(event.op);
  std::string type(name_of(dtype));
  if (product && tf32_ && dtype == DType::float32 && device.flops.contains("tf32")) type = "tf32";
  auto peak = device.flops.find(type);
  if (peak == device.flops.end()) peak = device.flops.find("float32");
  require(peak != device.flops.end(), "[planner] machine {} has no peak of float32", machine_.name);
  const auto* kind = event.op.starts_with("conv") ? "conv" : "linear";
  // Tensor cores reach a smaller fraction of a higher peak.
  const double reached =
      product ? efficiency(fmt::format("{}_{}", kind, peak->first), efficiency(kind, 0.5)) : efficiency("other", 0.5);
  // The units of lower precision serve only products.
  const double flops = product ? peak->second : device.flops.at("float32");
  return {event.flops / (flops * reached), event.bytes / (device.memory_bandwidth * efficiency("memory", 0.8))};
}

double OpTimes::roof(const Needs& needs, double share) const {
  return machine_.device.launch + std::max({share * needs.flops, share * needs.bytes, 1e-9});
}

OpCost OpTimes::of(const StepEvent& event) const {
  if (event.view) return {};
  const double base = roof(event);
  if (exact_.empty()) return {base, false, true};
  const auto exact = exact_.find(fmt::format("{} {} > {}", event.op, signature(event.in), signature(event.out)));
  if (exact != exact_.end()) {
    const auto apart = [&](const auto& one) { return std::abs(one.first - event.flops); };
    const auto& all = exact->second;
    const auto nearest =
        std::min_element(all.begin(), all.end(), [&](const auto& a, const auto& b) { return apart(a) < apart(b); });
    return {nearest->second, true, false};
  }
  const auto known = near_.find(kind_of(event.op, event.in));
  if (known == near_.end()) return {base, false, true};
  // The factor of the nearest measured ops over the roofline, weighted by distance.
  const auto here = coordinates_of(event.flops, event.bytes, event.in, event.out);
  std::vector<std::pair<double, double>> by_distance;
  for (const auto& other : known->second) {
    double distance = 0;
    for (std::size_t i = 0; i < here.size(); ++i) distance += (here[i] - other.place[i]) * (here[i] - other.place[i]);
    by_distance.emplace_back(distance, other.factor);
  }
  const auto count = std::min(neighbours, by_distance.size());
  std::partial_sort(by_distance.begin(), by_distance.begin() + static_cast<std::ptrdiff_t>(count), by_distance.end());
  double weights = 0, sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double weight = 1 / (by_distance[i].first + 1e-3);
    weights += weight, sum += weight * by_distance[i].second;
  }
  return {base * std::exp(sum / weights), false, false};
}

}  // namespace mpigrad::planner
