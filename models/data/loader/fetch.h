#pragma once
// A batch in preparation: planned by a Schedule, read by a Reader, assembled by an Assembler, delivered by an Uploader. Not
// installed.

#include <array>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "framework/tensor/tensor.h"
#include "models/data/augment/part.h"
#include "models/data/data_augment.h"
#include "models/data/deform.h"
#include "models/data/loader/regions.h"
#include "models/data/loader/store.h"

namespace mpigrad::data {

struct Fetch {
  struct Item {
    std::int64_t sample = 0;
    Augmentation map{};
    Shape extents{};                                     // of the sample
    std::array<std::int64_t, 3> begin{};                 // of the window in the sample
    std::optional<Deformation> deformation{};            // with one piece
    std::int64_t reach = 0;                              // the cells around a block that changes of its values read
    const std::vector<augment::Tones>* tones = nullptr;  // of the sample, where changes of values need them
    std::vector<Piece> pieces{};                         // of this rank's block
    std::vector<RegionPtr> regions{};                    // one for each piece
    std::vector<RegionPtr> targets{};                    // one for each piece if targets are per cell, else one
  };
  std::int64_t epoch = 0;
  std::int64_t n = 0;       // samples of all ranks
  std::vector<Item> items;  // this rank's; until a store has read them, those of all ranks
  std::shared_ptr<StoreBatch> stored;
  // Of a batch that is assembled ahead.
  Tensor x, y;
  std::future<void> assembled;
};
using FetchPtr = std::shared_ptr<Fetch>;

}  // namespace mpigrad::data
