#include "models/data/sources/contents.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <optional>

#include "comm/hdf5/io_thread.h"
#include "framework/job_queue.h"
#include "models/data/data_parts.h"
#include "models/data/sources/bytes.h"
#include "models/data/volumes/volumes.h"

namespace mpigrad::data {
namespace {

constexpr std::size_t most_in_flight = 16;

// A bijection of 64-bit numbers in which every bit of the result depends on every bit of x.
constexpr std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 29)) * 0xd6e8feb86659fd93ULL;
  return x ^ (x >> 32);
}
constexpr std::uint64_t joined_hash(std::uint64_t hash, std::uint64_t next) { return mixed(hash + mixed(next) + 1); }

// Eight lanes of 64 bits, which a processor computes side by side; each step is a bijection of the lane, so that a single word
// that differs always shows.
class ContentsHash {
 public:
  explicit ContentsHash(std::uint64_t start) {
    for (auto& lane : lanes_) lane = start = mixed(start + 1);
  }
  // `bytes` is a multiple of 64 in all calls but the last.
  void add(const std::byte* from, std::size_t bytes) {
    auto lanes = lanes_;
    Words words{};
    for (; bytes >= sizeof words; from += sizeof words, bytes -= sizeof words) {
      std::memcpy(words.data(), from, sizeof words);
      for (std::size_t i = 0; i < words.size(); ++i) lanes[i] = step(lanes[i], words[i]);
    }
    lanes_ = lanes;
    if (bytes == 0) return;
    words = {};
    std::memcpy(words.data(), from, bytes);
    for (std::size_t i = 0; i < words.size(); ++i) lanes_[i] = step(lanes_[i], words[i]);
  }
  std::uint64_t value() const {
    std::uint64_t hash = 0;
    for (const auto lane : lanes_) hash = joined_hash(hash, lane);
    return hash;
  }

 private:
  using Words = std::array<std::uint64_t, 8>;
  static std::uint64_t step(std::uint64_t lane, std::uint64_t word) {
    lane = (lane ^ word) * 0x9e3779b97f4a7c15ULL;
    return lane ^ (lane >> 32);
  }
  Words lanes_{};
};

// What a network cannot take: numbers that are not finite, those beyond `most`, and negative ones where they are no counts.
struct Limits {
  double most = std::numeric_limits<double>::max();
  bool negative = true;  // are allowed
};

// Place of the first flaw of so many numbers; `count`: there is none. Bits of floating-point numbers are compared as integers:
// without the sign they have the order of the numbers, and infinities and NaN are the largest.
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
  // The largest number that is not rounded to infinity lies half a step beyond the largest of the type.
  if (computed_in(dtype) == DType::float32) return static_cast<double>(std::numeric_limits<float>::max()) * (1 + 0x1p-26);
  return std::numeric_limits<double>::max();
}

// A number that is a flaw and not a negative count.
std::string text_of_flaw(double value, DType dtype) {
  return std::isfinite(value) ? fmt::format("{}, which {} cannot hold", value, name_of(dtype)) : fmt::format("{}", value);
}

// A part of a sample, in memory or on its way there.
struct Slab {
  std::int64_t number = 0, place = 0, sample = 0;
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
    return std::max<std::int64_t>(1, o_.slab_bytes / std::max<std::int64_t>(1, plane));
  }

  std::int64_t bytes_of(const Box& box) const { return box.elements() * source_.channels() * size_of(source_.type()); }

  Slab start(std::int64_t number, std::int64_t place, std::int64_t sample, const Box& box) const {
    Slab slab;
    slab.number = number, slab.place = place, slab.sample = sample, slab.first = box.begin[0] == 0, slab.box = box;
    slab.values_bytes = bytes_of(box);
    const auto& targets = source_.target_type();
    if (targets.per_cell || slab.first) slab.targets_bytes = target_elements(source_, box) * size_of(targets.type);
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
      const auto of_values = pass(slab, source_.type(), slab.values.get(), slab.values_bytes, 1, values);
      const auto of_targets = pass(slab, source_.target_type().type, slab.targets.get(), slab.targets_bytes, 2, {.most = most_});
      contents.values += of_values.hash, contents.targets += of_targets.hash;
      contents.bytes += slab.values_bytes + slab.targets_bytes;
      if (of_values.flaw >= 0) fail_for_value(slab, of_values.flaw);
      if (of_targets.flaw >= 0) fail_for_target(slab, of_targets.flaw);
      if (o_.cells && source_.target_type().per_cell) o_.cells(slab.sample, slab.box, slab.targets.get());
    } catch (const Error& error) {
      contents.flaw_at = slab.number, contents.flaw = error.what();
    }
  }

 private:
  struct Passed {
    std::uint64_t hash = 0;
    std::int64_t flaw = -1;  // place of the first one; -1: none
  };

  // In blocks that stay in a cache for both.
  Passed pass(const Slab& slab, DType type, const std::byte* from, std::int64_t bytes, std::uint64_t kind,
              const Limits& limits) const {
    auto start = joined_hash(kind, static_cast<std::uint64_t>(slab.place));
    for (const auto extent : source_.extents_of(slab.sample)) start = joined_hash(start, static_cast<std::uint64_t>(extent));
    for (const auto more : {source_.channels(), slab.box.begin[0], bytes})
      start = joined_hash(start, static_cast<std::uint64_t>(more));
    for (const char letter : name_of(type)) start = joined_hash(start, static_cast<std::uint64_t>(letter));
    ContentsHash hash(start);
    Passed passed;
    constexpr std::int64_t block = 1 << 15;
    for (std::int64_t at = 0; at < bytes; at += block) {
      const auto size = std::min(block, bytes - at);
      hash.add(from + at, static_cast<std::size_t>(size));
      if (!o_.finite || passed.flaw >= 0) continue;
      visit_stored(type, [&](auto zero) {
        const auto* values = reinterpret_cast<const decltype(zero)*>(from + at);
        const auto count = size / static_cast<std::int64_t>(sizeof zero);
        if (const auto flaw = first_flaw(values, count, limits); flaw < count)
          passed.flaw = at / static_cast<std::int64_t>(sizeof zero) + flaw;
      });
    }
    passed.hash = hash.value();
    return passed;
  }

  [[noreturn]] void fail_for_value(const Slab& slab, std::int64_t at) const {
    const auto channels = source_.channels();
    const auto e = slab.box.extents();
    const auto cell = at / channels;
    const Shape place{slab.box.begin[0] + cell / e[2] / e[1], cell / e[2] % e[1], cell % e[2]};
    const auto value = number_at(source_.type(), slab.values.get(), at);
    const auto text = transform_ == Transform::log1p && std::isfinite(value)
                          ? fmt::format("{}: counts, which are seen as log(1 + x), are not negative", value)
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
    convert(from + at * size_of(type), type, 1, DType::float64, &value);
    return value;
  }

  const Source& source_;
  const ContentsOptions& o_;
  double most_;
  Transform transform_;
  // The source decodes whole files, and would do that again for each slab.
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
  std::int64_t number = 0;
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
      slabs.push_back(reader.start(number, static_cast<std::int64_t>(place), sample, box));
      waiting += slabs.back().values_bytes;
    }
  }
  while (!slabs.empty() && contents.flaw_at < 0) finish_one();
  return contents;
}

}  // namespace mpigrad::data
