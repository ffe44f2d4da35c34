#pragma once
// Where samples come from. A source knows what a sample is and reads boxes of it; it communicates with nobody, so every rank has
// one of its own. One of your own is a class of four functions: size(), sample_type(), read(), read_targets().

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "framework/tensor/dtype.h"
#include "framework/tensor/layout.h"

namespace mpigrad {
class JobQueue;
}

namespace mpigrad::data {

// What is done to each stored value before a network sees it.
enum class Transform : std::uint8_t {
  of_source,  // log1p for counts, unit for bytes, unit16 for pictures of 16 bits
  none,
  log1p,   // log(1 + x), for counts: an Error where x is negative
  unit,    // x / 255
  unit16,  // x / 65535
};
std::string_view name_of(Transform transform);

struct TargetType {
  DType type = DType::float32;  // as stored; integers are classes
  // Of one sample: [T], or any other; {0}: there are none. Where each cell has a target, of one cell: {} or [K].
  Shape shape{0};
  bool per_cell = false;             // [D, H, W, shape...]: read in boxes, and split, flipped and shifted as the sample is
  std::vector<std::string> names{};  // one for each element of a row [T], for tables; else none
  bool operator==(const TargetType&) const = default;
};

struct SampleType {
  Shape extents{1, 1, 1};  // [D, H, W] of every sample, or of those that differ the largest along each axis
  std::int64_t channels = 1;
  std::vector<std::string> channel_names{};  // one for each channel, for pictures; else none
  DType type = DType::float32;               // as stored
  Transform transform = Transform::none;     // what of_source means; never of_source itself
  TargetType targets{};
  bool same_extents = true;  // no: extents_of() says which; what batches whole samples refuses such sources
};

class Source {
 public:
  virtual ~Source() = default;

  virtual std::int64_t size() const = 0;  // samples
  virtual const SampleType& sample_type() const = 0;
  // The box of [D, H, W] with all channels, row-major [d, h, w, C], of the stored type. Called by one thread at a time (several,
  // where in_memory() says so), in no order.
  virtual void read(std::int64_t sample, const Box& box, std::byte* out) const = 0;
  // The targets, row-major, of their stored type: all of them, or those of the cells of `box`.
  virtual void read_targets(std::int64_t sample, const Box& box, std::byte* out) const = 0;

  // [D, H, W] of one sample.
  virtual Shape extents_of(std::int64_t sample) const;
  // For messages: the file, and where in it.
  virtual std::string name_of_sample(std::int64_t sample) const;
  // Reads the targets of every `parts`-th sample from `part` on and throws the first error found, numbers that are not finite
  // included. Files are opened when first needed: a program that wants to know before it starts calls this, the ranks sharing the
  // work.
  virtual void check(std::int64_t part, std::int64_t parts) const;
  // Whether reading is copying within memory, so that nobody need keep what was read; loaders then read where they are asked.
  virtual bool in_memory() const { return false; }
  // The same of targets.
  virtual bool targets_in_memory() const { return in_memory(); }
  // Where loaders read: the process's I/O thread, unless one of the library's decodes with threads of its own.
  virtual JobQueue& queue() const;

  const Shape& extents() const { return sample_type().extents; }
  std::int64_t channels() const { return sample_type().channels; }
  DType type() const { return sample_type().type; }
  Transform transform() const { return sample_type().transform; }
  const TargetType& target_type() const { return sample_type().targets; }
  const std::vector<std::string>& target_names() const { return target_type().names; }
  bool has_classes() const { return !is_floating(target_type().type) && target_type().shape.elements() > 0; }
  Box whole() const { return {Shape{0, 0, 0}, extents()}; }
  Box whole_of(std::int64_t sample) const { return {Shape{0, 0, 0}, extents_of(sample)}; }
  // A box of a sample [d, h, w, C], and all its targets, as numbers: for tables and pictures. Error: targets that are those of
  // cells.
  std::vector<double> values(std::int64_t sample, const Box& box) const;
  std::vector<double> targets(std::int64_t sample) const;
};
using SourcePtr = std::shared_ptr<const Source>;

void require_sample(const Source& source, std::int64_t sample);
// Error: samples that differ in their extents, which `what` cannot have.
void require_same_extents(const Source& source, const std::string& what);
// Of target_type() in a box.
std::int64_t target_elements(const Source& source, const Box& box);
// For labels that were converted to float64. Error: a class that may be another one's rounding, of magnitude 2^53 or more.
void require_exact(double label, const std::string& name, const std::string& file);

}  // namespace mpigrad::data
