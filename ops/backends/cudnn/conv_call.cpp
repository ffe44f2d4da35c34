#include "ops/backends/cudnn/conv_call.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>

#include "framework/base/error.h"

namespace mpigrad::cuda {

std::string_view name_of(Pass pass) { return pass == Pass::forward ? "conv" : pass == Pass::data ? "conv_data" : "conv_weight"; }

ConvProblem problem_of(const ConvCall& c) {
  return {.batch = c.batch,
          .in = c.in,
          .out = c.out,
          .kernel = c.kernel,
          .stride = c.stride,
          .dilation = c.dilation,
          .pad_low = c.pad_low,
          .in_channels = c.in_channels,
          .out_channels = c.out_channels,
          .groups = c.groups};
}

std::string to_string(const ConvCall& c) {
  return fmt::format(
      "{} {}{}{}{} batch {} in {} out {} kernel {} stride {} dilation {} padding {} and {} channels {} -> {} groups {}{}{}{}",
      name_of(c.pass), name_of(c.type), c.tf32 ? " (TF32)" : "", c.flat ? " 2D" : " 3D",
      c.order == Order::channels_first ? " channels first" : "", c.batch, c.in, c.out, c.kernel, c.stride, c.dilation, c.pad_low,
      c.pad_high, c.in_channels, c.out_channels, c.groups, c.bias ? " + bias" : "",
      c.fused.is_none() ? std::string() : fmt::format(" slope {}", c.fused.factor),
      c.alignment == 16 ? std::string() : fmt::format(" aligned to {}", c.alignment));
}

std::size_t CallHash::operator()(const ConvCall& c) const {
  std::uint64_t h = 0x9e3779b97f4a7c15;
  const auto add = [&](std::int64_t k) { h = (h ^ static_cast<std::uint64_t>(k)) * 0xff51afd7ed558ccd, h ^= h >> 32; };
  add((static_cast<std::int64_t>(c.pass) << 8) | static_cast<std::int64_t>(c.type));
  add((c.tf32 ? 1 : 0) | (c.deterministic ? 2 : 0) | (c.flat ? 4 : 0) | (c.bias ? 8 : 0) | (static_cast<int>(c.order) << 4));
  add(std::bit_cast<std::int64_t>(c.fused.factor));
  for (const auto k : {c.batch, c.in_channels, c.out_channels, c.groups, c.alignment}) add(k);
  for (const auto* e : {&c.in, &c.out, &c.kernel, &c.stride, &c.dilation, &c.pad_low, &c.pad_high})
    for (const auto k : *e) add(k);
  return static_cast<std::size_t>(h);
}

namespace {

std::int64_t rounded_up(std::int64_t n, std::int64_t multiple) { return ceil_div(n, multiple) * multiple; }

// Padding that the library supports: less than one window extent on either side, nothing cropped. On the right any amount that
// gives the same number of outputs is equivalent; equal padding on both sides has the most kernels.
bool set_padding(const ConvProblem& p, std::size_t a, ConvCall& c) {
  const std::int64_t reach = window_extent(p, a), least = pad_high(p, a), most = least + p.stride[a] - 1;
  if (p.pad_low[a] < 0 || p.pad_low[a] >= reach || most < 0 || least >= reach) return false;
  c.pad_low[a] = p.pad_low[a];
  c.pad_high[a] = least <= p.pad_low[a] && p.pad_low[a] <= most ? p.pad_low[a] : std::max<std::int64_t>(least, 0);
  return true;
}

}  // namespace

ConvForm form_of(const ConvProblem& p, Pass pass, DType type, const Treatment& t) {
  ConvForm form;
  ConvCall& c = form.call;
  c.pass = pass, c.type = type, c.order = t.order;
  c.batch = p.batch, c.in_channels = p.in_channels, c.out_channels = p.out_channels, c.groups = p.groups;
  c.in = p.in, c.out = p.out, c.kernel = p.kernel, c.stride = p.stride, c.dilation = p.dilation;
  for (std::size_t a = 0; a < 3; ++a) {
    if (p.kernel[a] == 1) c.dilation[a] = 1;
    if (!t.padded && set_padding(p, a, c)) continue;
    c.in[a] = (p.out[a] - 1) * p.stride[a] + p.dilation[a] * (p.kernel[a] - 1) + 1;
    form.offset[a] = -p.pad_low[a];
  }
  if (p.groups == 1) {
    c.in_channels = rounded_up(c.in_channels, t.multiple);
    c.out_channels = rounded_up(c.out_channels, t.multiple);
  }
  const bool first = t.order == Order::channels_first, more_in = c.in_channels != p.in_channels;
  form.moves_image = first || more_in || c.in != p.in || form.offset != Extent3{};
  form.moves_outputs = (first && p.out_channels > 1) || c.out_channels != p.out_channels;
  form.moves_weights = (first && p.in_channels > p.groups) || more_in || c.out_channels != p.out_channels;
  form.image = c.in;
  // Independent planes become images of their own.
  const bool planes = c.kernel[0] == 1 && c.stride[0] == 1 && c.in[0] == c.out[0] && c.pad_low[0] == 0 && c.pad_high[0] == 0;
  if (t.flat && planes && (c.in[0] == 1 || !first)) {
    c.batch *= c.in[0];
    c.in[0] = c.out[0] = 1;
    c.flat = true;
  }
  return form;
}

std::vector<ConvForm> forms_of(const ConvProblem& p, Pass pass, DType type, bool tf32) {
  std::vector<ConvForm> forms;
  const auto add = [&](const Treatment& t) {
    auto form = form_of(p, pass, type, t);
    form.call.tf32 = tf32 && type == DType::float32;
    if (std::find(forms.begin(), forms.end(), form) == forms.end()) forms.push_back(form);
  };
  // Tensor cores load 16 bytes at a time. cuDNN pads channels by itself, but rarely from so few.
  const std::int64_t whole = is_half(type) ? 8 : tf32 && type == DType::float32 ? 4 : 1;
  const bool few = std::min(p.in_channels, p.out_channels) <= whole / 4;
  const std::int64_t multiples[] = {few ? whole : 1, few ? 1 : whole};
  for (const auto order : {Order::channels_last, Order::channels_first})
    for (const bool padded : {false, true})
      for (const bool flat : {true, false})
        for (const auto multiple : multiples)
          add({.padded = padded, .flat = flat, .order = order, .multiple = order == Order::channels_last ? multiple : 1});
  return forms;
}

namespace {

// The inputs in depth that outputs [o.begin, o.end) need, within the image.
Range inputs_of(const ConvProblem& p, Range o) {
  const std::int64_t reach = p.dilation[0] * (p.kernel[0] - 1) + 1;
  const std::int64_t begin = std::clamp<std::int64_t>(o.begin * p.stride[0] - p.pad_low[0], 0, p.in[0]);
  return {begin, std::clamp((o.end - 1) * p.stride[0] - p.pad_low[0] + reach, begin, p.in[0])};
}

// The outputs in depth that inputs [i.begin, i.end) contribute to.
Range outputs_of(const ConvProblem& p, Range i) {
  const std::int64_t span = p.dilation[0] * (p.kernel[0] - 1);
  const std::int64_t begin = std::clamp<std::int64_t>(ceil_div(i.begin + p.pad_low[0] - span, p.stride[0]), 0, p.out[0]);
  return {begin, std::clamp<std::int64_t>(floor_div(i.end - 1 + p.pad_low[0], p.stride[0]) + 1, begin, p.out[0])};
}

Slab cut(const ConvProblem& p, Range n, Range o, Range i) {
  Slab slab{n, o, i, p};
  slab.problem.batch = n.end - n.begin;
  slab.problem.in[0] = i.end - i.begin;
  slab.problem.out[0] = o.end - o.begin;
  // Output o' + o.begin reads input i' + i.begin:  o' stride + t dilation - pad_low' = i'
  slab.problem.pad_low[0] = p.pad_low[0] + i.begin - o.begin * p.stride[0];
  return slab;
}

// Elements of the larger tensor, padding included and channels rounded up to a multiple of 8.
double elements(const ConvProblem& p) {
  const auto channels = [&](std::int64_t n) { return p.groups == 1 ? rounded_up(n, 8) : n; };
  Extent3 in = p.in;
  for (std::size_t a = 0; a < 3; ++a)
    in[a] = std::max(in[a], (p.out[a] - 1) * p.stride[a] + p.dilation[a] * (p.kernel[a] - 1) + 1);
  const auto size = [](const Extent3& e) {
    return static_cast<double>(e[0]) * static_cast<double>(e[1]) * static_cast<double>(e[2]);
  };
  return static_cast<double>(p.batch) * std::max(size(in) * static_cast<double>(channels(p.in_channels)),
                                                 size(p.out) * static_cast<double>(channels(p.out_channels)));
}

}  // namespace

std::vector<Slab> slabs_of(const ConvProblem& p, Pass pass, std::int64_t limit) {
  const Range samples{0, p.batch}, all_out{0, p.out[0]}, all_in{0, p.in[0]};
  const double most = static_cast<double>(limit), total = elements(p);
  if (total <= most) return {cut(p, samples, all_out, all_in)};
  std::vector<Slab> slabs;
  const double sample = total / static_cast<double>(p.batch);
  if (sample <= most) {
    const std::int64_t parts = ceil_div(p.batch, static_cast<std::int64_t>(most / sample));
    for (std::int64_t part = 0; part < parts; ++part)
      slabs.push_back(cut(p, {p.batch * part / parts, p.batch * (part + 1) / parts}, all_out, all_in));
    return slabs;
  }
  const bool by_inputs = pass == Pass::data;
  const std::int64_t depth = by_inputs ? p.in[0] : p.out[0];
  std::int64_t parts = std::min(depth, static_cast<std::int64_t>(sample / most) + 1);
  while (true) {  // cuts one sample until the largest slab is small enough
    slabs.clear();
    double largest = 0;
    for (std::int64_t part = 0; part < parts; ++part) {
      const Range own{depth * part / parts, depth * (part + 1) / parts};
      slabs.push_back(by_inputs ? cut(p, {0, 1}, outputs_of(p, own), own) : cut(p, {0, 1}, own, inputs_of(p, own)));
      largest = std::max(largest, elements(slabs.back().problem));
    }
    if (largest <= most) break;
    require(parts < depth,
            "[{}] one plane of {} x {} with {} -> {} channels and its window is more than the {} elements of a call",
            name_of(pass), p.in[1], p.in[2], p.in_channels, p.out_channels, limit);
    ++parts;
  }
  const auto of_one = slabs;
  for (std::int64_t n = 1; n < p.batch; ++n)
    for (auto slab : of_one) {
      slab.n = {n, n + 1};
      slabs.push_back(slab);
    }
  return slabs;
}

}  // namespace mpigrad::cuda
