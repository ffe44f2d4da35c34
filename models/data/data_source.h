#pragma once
// Where samples come from. A source knows one sample's shape and reads boxes of its volume on the I/O thread; it communicates
// with nobody, so every rank has one of its own.

#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/tensor/dtype.h"
#include "framework/tensor/shape.h"

namespace mpigrad::data {

// What is done to each stored value before a network sees it.
enum class Transform : std::uint8_t {
  of_source,  // log1p for counts, unit for bytes
  none,
  log1p,  // log(1 + x), for counts: an Error where x is negative
  unit,   // x / 255
};
std::string_view name_of(Transform transform);

class Source {
 public:
  virtual ~Source() = default;

  virtual std::int64_t size() const = 0;     // samples
  virtual const Shape& extents() const = 0;  // [D, H, W] of every sample
  virtual std::int64_t channels() const = 0;
  virtual DType type() const = 0;           // as stored
  virtual Transform transform() const = 0;  // what of_source means; never of_source itself
  virtual const std::vector<std::string>& target_names() const = 0;
  virtual DType target_type() const = 0;  // int64: classes, one for each name; else floating
  // Whether reading is copying within memory, so that nobody need keep what was read.
  virtual bool in_memory() const { return false; }
  // For messages: the file, and where in it.
  virtual std::string name_of_sample(std::int64_t sample) const = 0;

  // The box [begin, end) of [D, H, W] with all channels into `out`, row-major [d, h, w, C], converted to `type`. `out` must live
  // until the future is ready; the source need not.
  virtual std::future<void> read_async(std::int64_t sample, std::span<const std::int64_t> begin,
                                       std::span<const std::int64_t> end, DType type, void* out) const = 0;
  // One value for each name.
  virtual std::future<std::vector<double>> targets_async(std::int64_t sample) const = 0;
  std::vector<double> targets(std::int64_t sample) const { return targets_async(sample).get(); }

  // Opens every `parts`-th sample from `part` on, reads its targets and throws the first error found. Files are opened when first
  // needed: a program that wants to know before it starts calls this, the ranks sharing the work.
  virtual void check(std::int64_t part, std::int64_t parts) const = 0;
};
// Targets travel as float64. Error: a class that may be another one's rounding, of magnitude 2^53 or more.
void require_exact(double label, const std::string& name, const std::string& file);
using SourcePtr = std::shared_ptr<const Source>;

// CosmoFlow's files, one universe each: `full` integers [D, H, W, C] (counts of particles), `unitPar` [T] in [-1, 1]; `namePar`
// and `physPar` where there are. `path` is such a file or a folder of them (*.hdf5, *.h5; sorted by name).
// Errors: missing, no such files, not HDF5, truncated, a shape or type that is not this, or not that of the first file.
class UniverseSource : public Source {
 public:
  explicit UniverseSource(const std::filesystem::path& path, int open_files = 64);

  std::int64_t size() const override;
  const Shape& extents() const override;
  std::int64_t channels() const override;
  DType type() const override;
  Transform transform() const override { return Transform::log1p; }
  const std::vector<std::string>& target_names() const override;
  DType target_type() const override { return DType::float32; }
  std::string name_of_sample(std::int64_t sample) const override;
  std::future<void> read_async(std::int64_t sample, std::span<const std::int64_t> begin, std::span<const std::int64_t> end,
                               DType type, void* out) const override;
  std::future<std::vector<double>> targets_async(std::int64_t sample) const override;
  void check(std::int64_t part, std::int64_t parts) const override;

  // `physPar` of a sample, in the order of the names: what unitPar means. Error if the file has none.
  std::vector<double> physical(std::int64_t sample) const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

// A file itself, or the files *.hdf5 and *.h5 of a folder, sorted by name. Errors: missing, none in the folder.
std::vector<std::filesystem::path> hdf5_files(const std::filesystem::path& path);

struct ArrayNames {
  std::string volume = "volume", label = "label";
};

// One file with all samples: in `group` ("" for the root) a dataset of volumes, numbers [n, D, H, W, C], and one of labels, [n]
// or [n, T]; integers are classes. Without a name there are no labels. Or a folder of such files (what pack() writes), whose
// samples follow each other in the order of the files' names. Where there are any, texts `label_names` name the labels, and the
// attribute `transform` of the volumes says what of_source means; else bytes are `unit` and others `none`. Errors beside those of
// files: a folder in which a file of pack()'s is missing; classes beyond 2^53.
class ArraySource : public Source {
 public:
  explicit ArraySource(const std::filesystem::path& path, const std::string& group = "", const ArrayNames& names = {});

  std::int64_t size() const override;
  const Shape& extents() const override;
  std::int64_t channels() const override;
  DType type() const override;
  Transform transform() const override;
  const std::vector<std::string>& target_names() const override;
  DType target_type() const override;
  std::string name_of_sample(std::int64_t sample) const override;
  std::future<void> read_async(std::int64_t sample, std::span<const std::int64_t> begin, std::span<const std::int64_t> end,
                               DType type, void* out) const override;
  std::future<std::vector<double>> targets_async(std::int64_t sample) const override;
  void check(std::int64_t part, std::int64_t parts) const override;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace mpigrad::data
