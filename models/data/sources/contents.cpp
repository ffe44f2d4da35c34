#include "models/data/sources/contents.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>

#include "comm/hdf5/io_thread.h"
#include "framework/base/job_queue.h"
#include "framework/tensor/content_hash.h"
#include "models/data/loader/regions.h"
#include "models/data/sources/bytes.h"
#include "models/data/volumes/volumes.h"

namespace mpigrad::data {
namespace {

constexpr std::size_t most_in_flight = 16;
constexpr std::int64_t word_bytes = 8;

// Limits for numbers that a network can process: finite, of magnitude at most `most`, and not negative for counts.
struct Limits {
  double most = std::numeric_limits<double>::max();
  bool negative = true;  // negative numbers are allowed
};

// Index of the first flaw among `count` numbers; `count` if there is none. Floating-point numbers are compared as integers:
// without the sign bit, their bits have the order of the numbers, and infinities and NaN are the largest.
template <class T>
std::int64_t first_flaw(const T* values, std::int64_t count, const Limits& limits) {
  const auto find = [&](const auto& is_flaw) {
    int found = 0;
    for (std::int64_t i = 0; i < count; ++i) found |= static_cast<int>(is_flaw(values[i]));
    return found == 0 ? count : static_cast<std::int64_t>(std::find_if(values, values + count, is_flaw) - values);
  };
  if constexpr (std::is_floating_point_v<T>) {
    using Bits = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
    constexpr auto magnitude = std::numeric_limits<Bits>::max();
    const auto largest = static_cast<double>(std::numeric_limits<T>::max());
    const auto most = std::bit_cast<Bits>(static_cast<T>(std::min(limits.most, largest)));
    const auto beyond = find([=](T value) { return (std::bit_cast<Bits>(value) & magnitude) > most; });
    if (limits.negative) return beyond;
    return std::min(beyond, find([](T value) { return value < 0; }));
  } else if constexpr (std::is_signed_v<T>) {
    return limits.negative ? count : find([](T value) { return value < 0; });
  } else {
    return count;
  }
}

double most_of(DType dtype) {
  return computed_in(dtype) == DType::float32 ? greatest_float32 : std::numeric_limits<double>::max();
}

// Describes a number that is a flaw other than a negative count.
std::string text_of_flaw(double value, DType dtype) {
  return std::isfinite(value) ? fmt::format("{}, which {} cannot hold", value, name_of(dtype)) : fmt::format("{}", value);
}

// A part of a sample, in memory or being read.
struct Slab {
  std::int64_t number = 0, place = 0, sample = 0;
  // In words of eight bytes, counted over all samples: the beginning of the slab's values and targets.
  std::int64_t values_at = 0, targets_at = 0;
  bool first = false;  // of its sample
  Box box;
  std::int64_t values_bytes = 0, targets_bytes = 0;
  Room values, targets;
  std::future<void> ready{};

  Slab() = default;
  Slab(Slab&&) = default;
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  Slab& operator=(Slab&&) = delete;
  ~Slab() {
    if (ready.valid()) ready.wait();  // another thread writes into it
  }
};

class ContentsReader {
 public:
  ContentsReader(const Source& source, const ContentsOptions& options)
      : source_(source), o_(options), most_(most_of(options.dtype)),
        transform_(options.transform == Transform::of_source ? source.transform() : options.transform) {}

  std::int64_t planes_of(std::int64_t sample) const {
    const auto extents = source_.extents_of(sample);
    if (whole_) return std::max<std::int64_t>(1, extents[0]);
    const auto plane = extents[1] * extents[2] * (source_.channels() * size_of(source_.type()));
    // Eight planes are whole words for every type.
    return std::max<std::int64_t>(8, o_.slab_bytes / std::max<std::int64_t>(1, plane) / 8 * 8);
  }

  std::int64_t bytes_of(const Box& box) const { return box.elements() * source_.channels() * size_of(source_.type()); }
  std::int64_t target_bytes_of(const Box& box) const {
    return target_elements(source_, box) * size_of(source_.target_type().type);
  }

  // `values_at`, `targets_at`: the beginnings for the whole sample.
  Slab start(std::int64_t number, std::int64_t place, std::int64_t sample, std::int64_t values_at, std::int64_t targets_at,
             const Box& box) const {
    Slab slab;
    slab.number = number, slab.place = place, slab.sample = sample, slab.box = box;
    slab.first = box.begin[0] == 0;
    const Box before{{0, 0, 0}, {box.begin[0], box.end[1], box.end[2]}};
    const bool cells = source_.target_type().per_cell;
    slab.values_at = values_at + bytes_of(before) / word_bytes;
    slab.targets_at = targets_at + (cells ? target_bytes_of(before) / word_bytes : 0);
    slab.values_bytes = bytes_of(box);
    if (cells || slab.first) slab.targets_bytes = target_bytes_of(box);
    slab.values = take_room(slab.values_bytes), slab.targets = take_room(slab.targets_bytes);
    const auto read = [&source = source_, sample, box, to = slab.values.get(), labels = slab.targets.get(),
                       any = slab.targets_bytes > 0] {
      source.read(sample, box, to);
      if (any) source.read_targets(sample, box, labels);
    };
    if (source_.in_memory()) {
      std::packaged_task<void()> task(read);
      slab.ready = task.get_future();
      task();
    } else {
      slab.ready = source_.queue().submit(read);
    }
    return slab;
  }

  void finish(Slab& slab, Contents& contents) const {
    try {
      slab.ready.get();
      const bool log1p = transform_ == Transform::log1p;
      const Limits values = log1p ? Limits{.negative = false} : Limits{.most = most_};
      const auto of_values = pass(source_.type(), slab.values.get(), slab.values_bytes, slab.values_at, values);
      const auto of_targets =
          pass(source_.target_type().type, slab.targets.get(), slab.targets_bytes, slab.targets_at, {.most = most_});
      contents.values += of_values.hash, contents.targets += of_targets.hash;
      if (slab.first) contents.values += content_hash(kind_of(slab)), contents.targets += content_hash(targets_of(slab));
      contents.bytes += slab.values_bytes + slab.targets_bytes;
      if (of_values.flaw >= 0) fail_for_value(slab, of_values.flaw);
      if (of_targets.flaw >= 0) fail_for_target(slab, of_targets.flaw);
      if (o_.values) o_.values(slab.sample, slab.box, slab.values.get());
      if (o_.cells && source_.target_type().per_cell) o_.cells(slab.sample, slab.box, slab.targets.get());
    } catch (const Error& error) {
      contents.flaw_at = slab.number, contents.flaw = error.what();
    }
  }

 private:
  struct Passed {
    std::uint64_t hash = 0;
    std::int64_t flaw = -1;  // index of the first flaw; -1: none
  };

  std::string kind_of(const Slab& slab) const {
    return fmt::format("{}: {} {} {}", slab.place, source_.extents_of(slab.sample), source_.channels(), name_of(source_.type()));
  }
  std::string targets_of(const Slab& slab) const {
    const auto& targets = source_.target_type();
    return fmt::format("{}: {} {} {}", slab.place, targets.shape, name_of(targets.type), targets.per_cell);
  }

  // Hashes and checks in blocks that stay in a cache for both. `at`: the index of the first word among all words.
  Passed pass(DType type, const std::byte* from, std::int64_t bytes, std::int64_t at, const Limits& limits) const {
    Passed passed;
    constexpr std::int64_t block = 1 << 15;
    for (std::int64_t begin = 0; begin < bytes; begin += block) {
      const auto size = std::min(block, bytes - begin), words = size / word_bytes, rest = size % word_bytes;
      passed.hash += content_hash(DType::int64, from + begin, words, at + begin / word_bytes);
      if (rest > 0) {
        std::int64_t last = 0;
        std::memcpy(&last, from + begin + words * word_bytes, static_cast<std::size_t>(rest));
        passed.hash += content_hash(DType::int64, &last, 1, at + begin / word_bytes + words);
      }
      if (!o_.finite || passed.flaw >= 0) continue;
      visit_stored(type, [&](auto zero) {
        const auto count = size / size_of(type);
        const auto flaw = first_flaw(reinterpret_cast<const decltype(zero)*>(from + begin), count, limits);
        if (flaw < count) passed.flaw = begin / size_of(type) + flaw;
      });
    }
    return passed;
  }

  [[noreturn]] void fail_for_value(const Slab& slab, std::int64_t at) const {
    const auto channels = source_.channels();
    const auto e = slab.box.extents();
    const auto cell = at / channels;
    const Shape place{slab.box.begin[0] + cell / e[2] / e[1], cell / e[2] % e[1], cell % e[2]};
    const auto value = number_at(source_.type(), slab.values.get(), at);
    const auto text = transform_ == Transform::log1p && std::isfinite(value)
                          ? fmt::format("{}: counts, which become log(1 + x), must not be negative", value)
                          : text_of_flaw(value, o_.dtype);
    fail("[data] {}: the value at {} [z, y, x]{} is {}", source_.name_of_sample(slab.sample), place,
         channels > 1 ? fmt::format(" of channel {}", at % channels) : "", text);
  }

  [[noreturn]] void fail_for_target(const Slab& slab, std::int64_t at) const {
    const auto& type = source_.target_type();
    const auto t = static_cast<std::size_t>(at);
    fail("[data] {}: the target '{}' is {}", source_.name_of_sample(slab.sample),
         t < type.names.size() ? type.names[t] : std::to_string(t),
         text_of_flaw(number_at(type.type, slab.targets.get(), at), o_.dtype));
  }

  static double number_at(DType type, const std::byte* from, std::int64_t at) {
    double value = 0;
    data::convert(from + at * size_of(type), type, 1, DType::float64, &value);
    return value;
  }

  const Source& source_;
  const ContentsOptions& o_;
  double most_;
  Transform transform_;
  // True if the source decodes whole files, which it would repeat for each slab.
  bool whole_ = &source_.queue() != &io_thread() || dynamic_cast<const VolumeFolder*>(&source_) != nullptr;
};

}  // namespace

Contents read_contents(const Source& source, const std::vector<std::int64_t>& samples, std::int64_t part, std::int64_t parts,
                       const ContentsOptions& options) {
  const ContentsReader reader(source, options);
  const bool whole = static_cast<std::int64_t>(samples.size()) >= parts;
  Contents contents;
  std::deque<Slab> slabs;
  std::int64_t waiting = 0;
  const auto finish_one = [&] {
    if (contents.flaw_at < 0) reader.finish(slabs.front(), contents);
    waiting -= slabs.front().values_bytes;
    slabs.pop_front();
  };
  std::int64_t number = 0, values_at = 0, targets_at = 0;
  for (std::size_t place = 0; place < samples.size(); ++place) {
    const auto sample = samples[place];
    const auto extents = source.extents_of(sample);
    const auto planes = reader.planes_of(sample);
    for (std::int64_t d = 0; d < extents[0]; d += planes, ++number) {
      if ((whole ? static_cast<std::int64_t>(place) : number) % parts != part) continue;
      const Box box{{d, 0, 0}, {std::min(d + planes, extents[0]), extents[1], extents[2]}};
      while (!slabs.empty() && (slabs.size() == most_in_flight || waiting + reader.bytes_of(box) > 2 * options.slab_bytes))
        finish_one();
      if (contents.flaw_at >= 0) return contents;
      slabs.push_back(reader.start(number, static_cast<std::int64_t>(place), sample, values_at, targets_at, box));
      waiting += slabs.back().values_bytes;
    }
    const auto box = source.whole_of(sample);
    values_at += (reader.bytes_of(box) + word_bytes - 1) / word_bytes;
    targets_at += (reader.target_bytes_of(box) + word_bytes - 1) / word_bytes;
  }
  while (!slabs.empty() && contents.flaw_at < 0) finish_one();
  return contents;
}

}  // namespace mpigrad::data
