#include "models/data/data_augment.h"

#include <algorithm>
#include <cmath>

#include "framework/tensor/random.h"
#include "framework/tensor/visit_width.h"
#include "models/data/narrow.h"

namespace mpigrad::data {

Augmentation draw_augmentation(std::uint64_t seed, std::int64_t epoch, std::int64_t sample, const Shape& extents,
                               const AugmentationKinds& kinds) {
  Augmentation result;
  const Philox random = Philox{seed, static_cast<std::uint64_t>(epoch)}.child(1);
  const auto counter = 8 * static_cast<std::uint64_t>(sample);  // 8 numbers for each sample
  const auto bits = random.words(counter);
  for (std::size_t a = 0; a < 3; ++a) {
    const auto n = static_cast<std::uint64_t>(extents[static_cast<int>(a)]);
    if (kinds.flips) result.flip[a] = bits[a] >> 31 != 0;
    if (kinds.shifts) result.shift[a] = static_cast<std::int64_t>(random.below(counter + 1 + a, n));
  }
  if (kinds.transpositions)
    for (std::size_t a = 2; a > 0; --a) std::swap(result.axes[a], result.axes[random.below(counter + 4 + a, a + 1)]);
  return result;
}

std::vector<Piece> pieces_of(const Box& block, const Shape& extents, const Augmentation& augmentation) {
  std::vector<Piece> pieces;
  if (block.elements() == 0) return pieces;
  Piece whole;
  whole.box = {Shape{0, 0, 0}, Shape{0, 0, 0}};
  whole.axes = augmentation.axes;
  pieces.push_back(whole);
  for (int a = 0; a < 3; ++a) {
    const auto i = static_cast<std::size_t>(a);
    const int axis = augmentation.axes[i];
    const bool flip = augmentation.flip[i];
    const auto n = extents[axis], length = block.end[a] - block.begin[a];
    const auto first = ((flip ? n - block.end[a] : block.begin[a]) + augmentation.shift[i]) % n;
    const auto before_wrap = std::min(length, n - first);
    std::vector<Piece> longer;
    for (const auto& piece : pieces) {
      const auto add = [&](std::int64_t begin, std::int64_t count, std::int64_t done) {
        Piece part = piece;
        part.box.begin[axis] = begin, part.box.end[axis] = begin + count;
        part.start[i] = flip ? length - 1 - done : done;
        part.step[i] = flip ? -1 : 1;
        longer.push_back(part);
      };
      add(first, before_wrap, 0);
      if (before_wrap < length) add(0, length - before_wrap, before_wrap);
    }
    pieces = std::move(longer);
  }
  return pieces;
}

namespace {

// Extents of a copy and its strides in elements, in the order of the output's axes.
struct Walk {
  std::array<std::int64_t, 3> count{}, in{}, out{};
  std::int64_t channels = 1;
};

// f(value) of a row of cells; Channels is their number if the compiler knows it, else 0.
template <std::int64_t Channels, class From, class To, class F>
void walk_row(const From* in, To* out, const Walk& w, F f) {
  const std::int64_t channels = Channels > 0 ? Channels : w.channels;
  for (std::int64_t i = 0; i < w.count[2]; ++i, in += w.in[2], out += w.out[2])
    for (std::int64_t c = 0; c < channels; ++c) out[c] = f(in[c]);
}

// f(value) of every element. Rows that are contiguous on both sides are a single loop.
template <class From, class To, class F>
void walk(const From* from, To* to, const Walk& w, F f) {
  const bool rows = w.in[2] == w.channels && w.out[2] == w.channels;
  constexpr std::int64_t parallel_from = 1 << 14;  // smaller pictures are done before a second thread has woken
#pragma omp parallel for collapse(2) schedule(static) if (w.count[0] * w.count[1] * w.count[2] * w.channels >= parallel_from)
  for (std::int64_t d = 0; d < w.count[0]; ++d)
    for (std::int64_t h = 0; h < w.count[1]; ++h) {
      const From* in = from + d * w.in[0] + h * w.in[1];
      To* out = to + d * w.out[0] + h * w.out[1];
      if (rows) {
        for (std::int64_t i = 0; i < w.count[2] * w.channels; ++i) out[i] = f(in[i]);
      } else if (w.channels == 1) {
        walk_row<1>(in, out, w, f);
      } else if (w.channels == 4) {
        walk_row<4>(in, out, w, f);
      } else {
        walk_row<0>(in, out, w, f);
      }
    }
}

// Counts are integers of 16 bits, most of them small: a table is 20 times as fast as log1p().
template <class To>
const std::vector<To>& log1p_table() {
  static const std::vector<To> table = [] {
    std::vector<To> values(1 << 16);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<To>(std::log1p(static_cast<double>(i)));
    return values;
  }();
  return table;
}

// The stored number that becomes 1; 0: none.
double greatest_of(Transform transform) {
  return transform == Transform::unit ? 255 : transform == Transform::unit16 ? 65535 : 0;
}

template <class From, class To>
void transform_into(const From* from, To* to, const Walk& w, Transform transform) {
  if (transform == Transform::none) {
    walk(from, to, w, [](From value) { return static_cast<To>(value); });
  } else if (const double most = greatest_of(transform); most > 0) {
    walk(from, to, w, [most](From value) { return static_cast<To>(static_cast<double>(value) / most); });
  } else if constexpr (std::is_integral_v<From>) {
    const To* table = log1p_table<To>().data();
    const auto size = static_cast<std::uint64_t>(log1p_table<To>().size());
    walk(from, to, w, [table, size](From value) {
      const auto i = static_cast<std::uint64_t>(value);
      return i < size ? table[i] : static_cast<To>(std::log1p(static_cast<double>(value)));
    });
  } else {
    walk(from, to, w, [](From value) { return static_cast<To>(std::log1p(static_cast<double>(value))); });
  }
}

}  // namespace

void copy_piece(const Piece& piece, const Stored& stored, const Shape& extents, std::int64_t channels, Transform transform,
                DType type, void* to, const std::function<std::string()>& name) {
  const auto region = stored.region.extents();
  const std::array<std::int64_t, 3> in_strides{region[1] * region[2] * channels, region[2] * channels, channels};
  const std::array<std::int64_t, 3> out_strides{extents[1] * extents[2] * channels, extents[2] * channels, channels};
  Walk w;
  w.channels = channels;
  std::int64_t in = 0, out = 0;
  for (std::size_t a = 0; a < 3; ++a) {
    const int axis = piece.axes[a];
    const auto stride = in_strides[static_cast<std::size_t>(axis)];
    w.count[a] = piece.box.end[axis] - piece.box.begin[axis];
    w.in[a] = stride, w.out[a] = piece.step[a] * out_strides[a];
    in += (piece.box.begin[axis] - stored.region.begin[axis]) * stride;
    out += piece.start[a] * out_strides[a];
  }
  if (stored.type == type && transform == Transform::none)  // labels, or values without a transform
    return visit_width(type, [&](auto zero) {
      using Bits = decltype(zero);
      walk(static_cast<const Bits*>(stored.from) + in, static_cast<Bits*>(to) + out, w, [](Bits value) { return value; });
    });
  if (transform == Transform::log1p) require_counts(piece.box, stored, channels, name);
  else if (stored.type == DType::float64 && type == DType::float32) require_float32(piece.box, stored, channels, name);
  visit_stored(stored.type, [&](auto zero) {
    using From = decltype(zero);
    const From* from = static_cast<const From*>(stored.from) + in;
    visit_floating(type, [&](auto nought) {
      using To = decltype(nought);
      transform_into(from, static_cast<To*>(to) + out, w, transform);
    });
  });
}

}  // namespace mpigrad::data
