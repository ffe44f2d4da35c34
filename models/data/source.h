#pragma once
// Sources of samples. A source knows the shape and type of a sample and reads boxes of it; it does not communicate, so every rank
// has its own. To write one, define a class with four functions: size(), sample_type(), read(), read_targets().

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

// Function applied to each stored value before a network sees it.
enum class Transform : std::uint8_t {
  of_source,  // log1p for counts, unit for bytes, unit16 for pictures of 16 bits
  none,
  log1p,   // log(1 + x), for counts; Error for negative x
  unit,    // x / 255
  unit16,  // x / 65535
};
std::string_view name_of(Transform transform);

struct TargetType {
  DType type = DType::float32;  // as stored; integers are classes
  // Shape of one sample's targets: [T], or any other; {0}: no targets. With per_cell, of one cell's targets: {} or [K].
  Shape shape{0};
  bool per_cell = false;             // [D, H, W, shape...]: read in boxes, and split, flipped and shifted like the sample
  std::vector<std::string> names{};  // one for each element of a row [T], for tables; otherwise none
  bool operator==(const TargetType&) const = default;
};

struct SampleType {
  Shape extents{1, 1, 1};  // [D, H, W] of every sample, or, where extents differ, the largest along each axis
  std::int64_t channels = 1;
  std::vector<std::string> channel_names{};  // one for each channel, for pictures; else none
  DType type = DType::float32;               // as stored
  Transform transform = Transform::none;     // meaning of of_source for this source; never of_source itself
  TargetType targets{};
  bool same_extents = true;  // false: extents_of() returns them; code that batches whole samples refuses such sources
};

class Source {
 public:
  virtual ~Source() = default;

  virtual std::int64_t size() const = 0;  // number of samples
  virtual const SampleType& sample_type() const = 0;
  // Reads the box of [D, H, W] with all channels, row-major [d, h, w, C], of the stored type. Called by one thread at a time (by
  // several if in_memory()), in any order.
  virtual void read(std::int64_t sample, const Box& box, std::byte* out) const = 0;
  // Reads the targets, row-major, of their stored type: all of them, or, with per_cell, those of the cells of `box`.
  virtual void read_targets(std::int64_t sample, const Box& box, std::byte* out) const = 0;

  // [D, H, W] of one sample.
  virtual Shape extents_of(std::int64_t sample) const;
  // For messages: the file, and the place in it.
  virtual std::string name_of_sample(std::int64_t sample) const;
  // Reads the targets of every `parts`-th sample, starting at `part`, and throws the first error found, including numbers that
  // are not finite. Files are otherwise opened when first needed: a program that wants to find errors before it starts calls this
  // function, and its ranks share the work.
  virtual void check(std::int64_t part, std::int64_t parts) const;
  // True if reading only copies within memory, so that keeping read data has no use; loaders then read on the calling thread.
  virtual bool in_memory() const { return false; }
  // True if reading targets only copies within memory.
  virtual bool targets_in_memory() const { return in_memory(); }
  // The queue on which loaders read: the process's I/O thread, unless a source of this library decodes with its own threads.
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
  // A box of a sample [d, h, w, C], and all its targets, as numbers: for tables and pictures. Error: targets per cell.
  std::vector<double> values(std::int64_t sample, const Box& box) const;
  std::vector<double> targets(std::int64_t sample) const;
};
using SourcePtr = std::shared_ptr<const Source>;

// Error: `sample` is not from 0 to source.size() - 1.
void require_sample(const Source& source, std::int64_t sample);
// Error: samples that differ in their extents, which `what` does not support.
void require_same_extents(const Source& source, const std::string& what);
// The number of target elements in a box.
std::int64_t target_elements(const Source& source, const Box& box);
// For labels that were converted to float64. Error: a class of magnitude 2^53 or more, which may be a rounded other class.
void require_exact(double label, const std::string& name, const std::string& file);

}  // namespace mpigrad::data
