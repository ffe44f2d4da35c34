#pragma once
// What a Loader is made of: batches on their way (data.cpp), which are put together for a device (assemble.cpp). Not installed.

#include <array>
#include <cstdint>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "framework/base/job_queue.h"
#include "framework/cuda/staging.h"
#include "models/data/data.h"
#include "models/data/data_augment.h"
#include "models/data/data_parts.h"
#include "models/data/narrow.h"
#include "models/data/store.h"

namespace mpigrad::data {

struct Loader::Fetch {
  struct Item {
    std::int64_t sample = 0;
    Augmentation map{};
    Shape extents{};                           // of the sample
    std::array<std::int64_t, 3> begin{};       // of the window in it
    std::optional<Deformation> deformation{};  // of one piece
    std::vector<Piece> pieces{};               // of this rank's block
    std::vector<RegionPtr> regions{};          // one for each piece
    std::vector<RegionPtr> targets{};          // likewise where each cell has some, else one
  };
  std::int64_t epoch = 0;
  std::int64_t n = 0;       // of all ranks
  std::vector<Item> items;  // this rank's
  std::shared_ptr<StoreBatch> stored;
  // Where it is put together ahead.
  Tensor x, y;
  std::future<void> assembled;
};

struct Loader::State {
  State(SourcePtr source_, LoaderOptions options_)
      : source(std::move(source_)), options(std::move(options_)),
        schedule(*source, options.samples, options.batch, options.seed, options.shuffle, options.drop_last) {}

  SourcePtr source;
  LoaderOptions options;
  Schedule schedule;
  AugmentationKinds kinds;
  Transform transform = Transform::none;
  DType target_dtype = DType::float32;
  DType assembled = DType::float32;  // of x where it is put together: options.dtype, or the stored type on the way to a GPU
  std::optional<Widening> widening;  // there, of the latter
  Shape window;                      // [D, H, W] of a batch's samples
  std::optional<ForegroundCells> foreground;
  Box block;                            // this rank's of [D, H, W]
  Box spatial;                          // that with its ghost planes: what is read and put together
  std::array<std::int64_t, 3> width{};  // of ghost planes on any rank
  std::optional<Regions> regions, targets;
  std::optional<SampleStore> store;

  struct Layouts {
    LayoutPtr x, y;
  };
  std::map<std::int64_t, Layouts> layouts;  // by the batch's N

  Shape shape(std::int64_t n) const { return {n, window[0], window[1], window[2], source->channels()}; }
  // Of n samples' targets, of the cells in a box where they are volumes. One class each is [N].
  Shape target_shape(std::int64_t n, const Shape& box) const {
    const auto& t = source->target_type();
    std::vector<std::int64_t> extents{n};
    if (t.per_cell) extents.insert(extents.end(), box.begin(), box.end());
    const bool one_class = !t.per_cell && t.shape == Shape{1} && !is_floating(target_dtype);
    if (!one_class) extents.insert(extents.end(), t.shape.begin(), t.shape.end());
    return Shape(extents);
  }
  // A rank's block with the ghost planes around it.
  Box with_ghost_planes(Box of) const {
    for (int a = 0; a < 3; ++a) {
      const auto w = width[static_cast<std::size_t>(a)];
      of.begin[a] = std::max<std::int64_t>(0, of.begin[a] - w), of.end[a] = std::min(window[a], of.end[a] + w);
    }
    return of;
  }
  const Layouts& layouts_for(std::int64_t n);
  std::shared_ptr<Fetch> start(std::int64_t epoch, const std::vector<std::int64_t>& order, std::int64_t step, bool ahead = false);
  // A sample as it is in an epoch, for any rank.
  Fetch::Item drawn(std::int64_t epoch, std::int64_t sample);
  // What a block of its window is made of.
  std::vector<Piece> pieces_for(const Fetch::Item& item, const Box& block) const;
  void read(Fetch::Item& item);
  std::vector<Fetch::Item> from_store(Fetch& fetch, std::vector<Fetch::Item> batch, bool ahead);
  Philox random_of(std::int64_t epoch, std::int64_t sample, std::uint64_t purpose) const {
    return Philox{options.seed, static_cast<std::uint64_t>(epoch)}.child(purpose).child(static_cast<std::uint64_t>(sample));
  }
  // One part of a sample's block, [d, h, w, cell elements]: the pieces of its regions, zeros where there are none, or what the
  // deformation makes of the one.
  struct Values {
    DType stored, type;
    std::int64_t channels = 1;
    Transform transform = Transform::none;
    bool nearest = false;                // of what is deformed; else interpolated
    Transform on_gpu = Transform::none;  // of values that are widened there
  };
  void assemble(const Fetch::Item& item, const std::vector<RegionPtr>& read, const Values& values, std::byte* to) const;
  // The types of this rank's part of a batch, as it is put together.
  std::pair<TensorType, TensorType> types(const Fetch& fetch) const;
  // Decodes and augments into memory of the host.
  void fill(Fetch& fetch, std::byte* x, std::byte* y);
  Batch laid_out(const Fetch& fetch, const Tensor& x, const Tensor& y);
  // The same on a GPU, of what arrived there.
  Batch arrived(const Fetch& fetch, const Tensor& x, const Tensor& y) {
    return laid_out(fetch, widening ? (*widening)(x) : x, y);
  }
  Batch finish(Fetch& fetch);
  Batch finish(Fetch& fetch, cuda::Uploads::Places& places);

  // Whether batches are put together ahead, which batch() by itself is not.
  bool assembles_ahead() const {
    return options.prefetch > 0 && options.assemble_ahead.value_or(options.device == DeviceKind::cuda) &&
           (!store || store->any_thread());
  }
  void assemble_ahead(const std::shared_ptr<Fetch>& fetch);
  // Host memory of a batch, filled.
  std::pair<Tensor, Tensor> on_host(Fetch& fetch);

  // Epochs that are asked for one after the other go on without a gap: while the last batches of one are used, the first of the
  // next are read. Not with a store, whose messages are in an order that all ranks know.
  struct Following {
    std::int64_t epoch = -1;
    std::vector<std::int64_t> order;
    std::deque<std::shared_ptr<Fetch>> fetches;
  };
  Following following;
  std::int64_t asked = -1;  // the epoch before
  // What is there of an epoch that is asked for now.
  std::deque<std::shared_ptr<Fetch>> begun(std::int64_t epoch, std::int64_t first);
  // Starts to read the next one, beside `others` batches that are being read.
  void follow(std::size_t others);

  cuda::Uploads uploads;
  std::optional<JobQueue> assembler;  // ends first
};

}  // namespace mpigrad::data
