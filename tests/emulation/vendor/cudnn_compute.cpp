// Convolutions by plain loops over the declared tensors.

#include "tests/emulation/vendor/cudnn_graph.h"

namespace mpigrad::emulation::vendor {
namespace {

// Dense copies [n, d, h, w, c] of tensors, in the type of the sums.
template <class T>
struct Dense {
  Extents extents{};
  std::vector<T> values;
  explicit Dense(const Tensor& t) : extents(t.dimensions), values(static_cast<std::size_t>(t.elements())) {}
  std::size_t place(std::int64_t n, std::int64_t c, std::int64_t d, std::int64_t h, std::int64_t w) const {
    const auto& e = extents;
    return static_cast<std::size_t>((((n * e[2] + d) * e[3] + h) * e[4] + w) * e[1] + c);
  }
};

// visit(element in memory, index in the dense copy)
template <class T, class F>
void for_each(const Tensor& t, const Dense<T>& dense, F&& visit) {
  const auto& e = t.dimensions;
  const auto& s = t.strides;
  for (std::int64_t n = 0; n < e[0]; ++n)
    for (std::int64_t d = 0; d < e[2]; ++d)
      for (std::int64_t h = 0; h < e[3]; ++h)
        for (std::int64_t w = 0; w < e[4]; ++w)
          for (std::int64_t c = 0; c < e[1]; ++c)
            visit(n * s[0] + c * s[1] + d * s[2] + h * s[3] + w * s[4], dense.place(n, c, d, h, w));
}

template <class T>
Dense<T> read(const Tensor& t, const void* memory, Engine::Rounding rounding = Engine::Rounding::exact) {
  Dense<T> dense(t);
  for_each(t, dense, [&](std::int64_t from, std::size_t to) {
    auto x = static_cast<T>(load(t.type, memory, from));
    if (rounding == Engine::Rounding::tf32) x = static_cast<T>(tf32(static_cast<float>(x)));
    // Winograd transforms lose a few digits.
    if (rounding == Engine::Rounding::winograd) x *= static_cast<T>(1 + ((to * 2654435761U >> 7) % 5 - 2.0) * 2e-5);
    dense.values[to] = x;
  });
  return dense;
}

template <class T>
void run(const ConvGraph& g, const Engine& engine, const std::vector<void*>& at) {
  const auto rounding = engine.rounding;
  const auto memory = [&](const Tensor& t) -> void* {
    for (std::size_t i = 0; i < at.size(); ++i)
      if (g.operands[i].id == t.id) return at[i];
    return nullptr;
  };
  const auto input = [&](const Tensor& t, bool is_result) { return is_result ? Dense<T>(t) : read<T>(t, memory(t), rounding); };
  auto x = input(g.x, g.direction == Direction::data), w = input(g.w, g.direction == Direction::filter),
       y = input(g.y, g.direction == Direction::forward);
  const auto add = [&](T& sum, T product) {
    sum += product;
    if (rounding == Engine::Rounding::halves) sum = rounded(g.x.type, sum);
  };
  const auto& k = g.w.dimensions;
  const auto& o = g.y.dimensions;
  const auto& in = g.x.dimensions;
  const std::int64_t to_a_group = k[0] / g.groups();
  const auto inside = [&](std::size_t a, std::int64_t out, std::int64_t tap) {
    const auto i = out * g.stride[a] + tap * g.dilation[a] - g.pre[a];
    return i < in[a + 2] ? i : -1;  // also negative
  };
  const auto tap_of = [&](std::size_t a, std::int64_t t) { return g.flips ? k[a + 2] - 1 - t : t; };
  for (std::int64_t n = 0; n < o[0]; ++n)
    for (std::int64_t od = 0; od < o[2]; ++od)
      for (std::int64_t oh = 0; oh < o[3]; ++oh)
        for (std::int64_t ow = 0; ow < o[4]; ++ow)
          for (std::int64_t kd = 0; kd < k[2]; ++kd) {
            const auto d = inside(0, od, kd);
            if (d < 0) continue;
            for (std::int64_t kh = 0; kh < k[3]; ++kh) {
              const auto h = inside(1, oh, kh);
              if (h < 0) continue;
              for (std::int64_t kw = 0; kw < k[4]; ++kw) {
                const auto v = inside(2, ow, kw);
                if (v < 0) continue;
                for (std::int64_t q = 0; q < k[0]; ++q) {
                  const auto from = x.place(n, q / to_a_group * k[1], d, h, v);
                  const auto with = w.place(q, 0, tap_of(0, kd), tap_of(1, kh), tap_of(2, kw));
                  auto& out = y.values[y.place(n, q, od, oh, ow)];
                  const auto channels = static_cast<std::size_t>(k[1]);
                  if (g.direction == Direction::forward)
                    for (std::size_t c = 0; c < channels; ++c) add(out, x.values[from + c] * w.values[with + c]);
                  else if (g.direction == Direction::data)
                    for (std::size_t c = 0; c < channels; ++c) add(x.values[from + c], out * w.values[with + c]);
                  else
                    for (std::size_t c = 0; c < channels; ++c) add(w.values[with + c], out * x.values[from + c]);
                }
              }
            }
          }

  auto& result = g.direction == Direction::forward ? y : g.direction == Direction::data ? x : w;
  const auto& own = g.direction == Direction::forward ? g.y : g.direction == Direction::data ? g.x : g.w;
  for (auto& value : result.values) value *= static_cast<T>(g.alpha);
  if (g.beta != 0)
    for_each(own, result, [&](std::int64_t from, std::size_t to) {
      result.values[to] += static_cast<T>(g.beta * load(own.type, memory(own), from));
    });
  if (own.is_virtual)
    for (auto& value : result.values) value = rounded(own.type, value);
  for (const auto& p : g.then) {
    if (p.adds) {
      const auto b = read<T>(*p.b, memory(*p.b));
      const auto& e = p.b->dimensions;
      std::size_t to = 0;
      for (std::int64_t n = 0; n < o[0]; ++n)
        for (std::int64_t d = 0; d < o[2]; ++d)
          for (std::int64_t h = 0; h < o[3]; ++h)
            for (std::int64_t v = 0; v < o[4]; ++v)
              for (std::int64_t c = 0; c < o[1]; ++c, ++to) {
                const auto from = b.place(n % e[0], c % e[1], d % e[2], h % e[3], v % e[4]);
                result.values[to] = static_cast<T>(p.alpha1) * result.values[to] + static_cast<T>(p.alpha2) * b.values[from];
              }
    } else {
      const auto lower = static_cast<T>(p.lower), upper = static_cast<T>(p.upper), slope = static_cast<T>(p.slope);
      for (auto& value : result.values) {
        value *= static_cast<T>(p.alpha1);
        if (engine.loses_nan && value != value) value = 0;
        if (value < lower) value = slope == 0 ? lower : lower + slope * (value - lower);
        else if (value > upper) value = upper;
      }
    }
    if (p.y.is_virtual)
      for (auto& value : result.values) value = rounded(p.y.type, value);
  }
  const auto& target = g.result();
  for_each(target, result,
           [&](std::int64_t to, std::size_t from) { store(target.type, memory(target), to, result.values[from]); });
}

}  // namespace

void compute(const ConvGraph& graph, const Engine& engine, const std::vector<void*>& at) {
  if (graph.compute == Element::float64) run<double>(graph, engine, at);
  else run<float>(graph, engine, at);
}

}  // namespace mpigrad::emulation::vendor
