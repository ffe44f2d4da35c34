#include "models/data/window.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "framework/base/job_queue.h"
#include "framework/tensor/random.h"
#include "framework/tensor/visit_width.h"

namespace mpigrad::data {
namespace {

// Labels are read in portions of so many bytes.
constexpr std::int64_t slab_bytes = 1 << 26;

template <class T>
void pick(const T* labels, std::int64_t first, std::int64_t cells, const Philox& random,
          std::map<std::int64_t, std::pair<std::int64_t, std::vector<std::int64_t>>>& classes) {
  for (std::int64_t i = 0; i < cells; ++i) {
    const auto label = static_cast<std::int64_t>(labels[i]);
    if (label <= 0) continue;  // below 0: ignored
    // Reservoir sampling (Vitter 1985, algorithm R): each cell of the class stays with the same probability.
    auto& [seen, cells_of_class] = classes[label];
    if (cells_of_class.size() < ForegroundCells::most) {
      cells_of_class.push_back(first + i);
    } else {
      const auto place = random.below(static_cast<std::uint64_t>(first + i), static_cast<std::uint64_t>(seen + 1));
      if (place < ForegroundCells::most) cells_of_class[place] = first + i;
    }
    ++seen;
  }
}

}  // namespace

const std::vector<std::vector<std::int64_t>>& ForegroundCells::of(std::int64_t sample) {
  const auto found = found_.find(sample);
  if (found != found_.end()) return found->second;
  const auto& type = source_->target_type();
  const auto extents = source_->extents_of(sample);
  const Philox random = Philox{static_cast<std::uint64_t>(sample), 0}.child(5);
  const auto plane = extents[1] * extents[2];
  const auto planes = std::max<std::int64_t>(1, slab_bytes / (plane * size_of(type.type)));
  std::map<std::int64_t, std::pair<std::int64_t, std::vector<std::int64_t>>> classes;
  std::vector<std::byte> labels(static_cast<std::size_t>(std::min(planes, extents[0]) * plane * size_of(type.type)));
  for (std::int64_t d = 0; d < extents[0]; d += planes) {
    const Box slab{{d, 0, 0}, {std::min(d + planes, extents[0]), extents[1], extents[2]}};
    source_->queue().run([&] { source_->read_targets(sample, slab, labels.data()); });
    visit_stored(type.type, [&](auto zero) {
      pick(reinterpret_cast<const decltype(zero)*>(labels.data()), d * plane, slab.elements(), random, classes);
    });
  }
  auto& result = found_[sample];
  for (auto& [label, cells] : classes) result.push_back(std::move(cells.second));
  return result;
}

const std::vector<augment::Tones>& SampleTones::of(std::int64_t sample) {
  const auto found = found_.find(sample);
  if (found != found_.end()) return found->second;
  const auto extents = source_->extents_of(sample);
  const auto channels = source_->channels(), plane = extents[1] * extents[2],
             step = extents.elements() / augment::Tones::most + 1;
  const auto planes = std::max<std::int64_t>(1, slab_bytes / (plane * channels * static_cast<std::int64_t>(sizeof(float))));
  std::vector<augment::Tones> result(static_cast<std::size_t>(channels));
  std::vector<float> values(static_cast<std::size_t>(std::min(planes, extents[0]) * plane * channels));
  for (std::int64_t d = 0; d < extents[0]; d += planes) {
    const Box slab{{d, 0, 0}, {std::min(d + planes, extents[0]), extents[1], extents[2]}};
    read_window(*source_, sample, slab, DType::float32, values.data());
    for (std::int64_t c = 0; c < channels; ++c) {
      auto& tones = result[static_cast<std::size_t>(c)];
      if (d == 0) tones.least = tones.greatest = values[static_cast<std::size_t>(c)];
      for (std::int64_t i = 0; i < slab.elements(); ++i) {
        const float value = values[static_cast<std::size_t>(i * channels + c)];
        tones.least = std::min(tones.least, value), tones.greatest = std::max(tones.greatest, value);
        if ((d * plane + i) % step == 0) tones.some.push_back(value);
      }
    }
  }
  return found_.emplace(sample, std::move(result)).first->second;
}

std::array<std::int64_t, 3> draw_window(std::uint64_t seed, std::int64_t epoch, std::int64_t sample, const Shape& extents,
                                        const Crop& crop, ForegroundCells* foreground) {
  const Philox random = Philox{seed, static_cast<std::uint64_t>(epoch)}.child(3);
  const auto counter = 8 * static_cast<std::uint64_t>(sample);  // 8 numbers for each sample
  std::array<std::int64_t, 3> middle{};
  bool aimed = false;
  if (foreground != nullptr && random.uniform(counter) < crop.foreground) {
    const auto& classes = foreground->of(sample);
    aimed = !classes.empty();
    if (aimed) {
      const auto& cells = classes[random.below(counter + 1, classes.size())];
      auto cell = cells[random.below(counter + 2, cells.size())];
      for (int a = 2; a >= 0; --a) middle[static_cast<std::size_t>(a)] = cell % extents[a], cell /= extents[a];
    }
  }
  std::array<std::int64_t, 3> begin{};
  for (std::size_t a = 0; a < 3; ++a) {
    const auto n = extents[static_cast<int>(a)], window = crop.extents[static_cast<int>(a)];
    if (n <= window) begin[a] = centred(n, window);
    else if (aimed) begin[a] = std::clamp<std::int64_t>(middle[a] - window / 2, 0, n - window);
    else begin[a] = static_cast<std::int64_t>(random.below(counter + 3 + a, static_cast<std::uint64_t>(n - window + 1)));
  }
  return begin;
}

std::vector<Piece> pieces_in_sample(const std::vector<Piece>& pieces, const std::array<std::int64_t, 3>& begin,
                                    const Shape& extents) {
  std::vector<Piece> result;
  for (auto piece : pieces) {
    bool empty = false;
    for (std::size_t a = 0; a < 3; ++a) {
      const int axis = piece.axes[a];
      auto &from = piece.box.begin[axis], &to = piece.box.end[axis];
      from += begin[static_cast<std::size_t>(axis)], to += begin[static_cast<std::size_t>(axis)];
      const auto before = std::max<std::int64_t>(0, -from);
      from += before, piece.start[a] += before * piece.step[a];
      to = std::min(to, extents[axis]);
      empty = empty || from >= to;
    }
    if (!empty) result.push_back(piece);
  }
  return result;
}

void read_window(const Source& source, std::int64_t sample, const Box& box, DType type, void* to) {
  const auto extents = box.extents();
  std::memset(to, 0, static_cast<std::size_t>(extents.elements() * source.channels() * size_of(type)));
  Piece piece;
  piece.box = {Shape{0, 0, 0}, extents};
  for (const auto& inside : pieces_in_sample({piece}, {box.begin[0], box.begin[1], box.begin[2]}, source.extents_of(sample))) {
    std::vector<std::byte> stored(static_cast<std::size_t>(inside.box.elements() * source.channels() * size_of(source.type())));
    source.queue().run([&] { source.read(sample, inside.box, stored.data()); });
    copy_piece(inside, {inside.box, source.type(), stored.data()}, extents, source.channels(), source.transform(), type, to,
               [&] { return source.name_of_sample(sample); });
  }
}

}  // namespace mpigrad::data
