// Samples kept in the memory of the ranks, and samples that ranks read together: the same batches as read from files, each file
// read once, and no more memory than allowed.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "comm/distributed/redistribute.h"
#include "framework/base/job_queue.h"
#include "framework/tensor/random.h"
#include "models/data/data.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::data;
using namespace mpigrad::testing;

namespace {

struct Reads {
  std::atomic<std::int64_t> cells{0}, target_cells{0};
  std::atomic<int> failures{0};  // failures still to come
};

// uint16 volumes with a label in each cell, or int16 volumes with target numbers; optionally different extents.
class Counted : public Source {
 public:
  Counted(std::shared_ptr<Reads> reads, bool cells, bool differ) : reads_(std::move(reads)) {
    type_ = {.extents = {6, 5, 7}, .channels = 2, .type = cells ? DType::uint16 : DType::int16, .same_extents = !differ};
    if (cells) type_.targets = {.type = DType::uint8, .shape = {}, .per_cell = true};
    else type_.targets = {.type = DType::float64, .shape = {1}, .names = {"t"}};
  }
  std::int64_t size() const override { return 11; }
  const SampleType& sample_type() const override { return type_; }
  Shape extents_of(std::int64_t s) const override {
    return type_.same_extents ? type_.extents : Shape{4 + s % 3, 5 - s % 2, 7 - s % 4};
  }
  void read(std::int64_t s, const Box& box, std::byte* out) const override {
    if (reads_->failures-- > 0) fail("[test] sample {} cannot be read", s);
    reads_->failures = std::max(reads_->failures.load(), 0);
    reads_->cells += box.elements();
    auto* to = reinterpret_cast<std::uint16_t*>(out);
    const std::uint64_t below = type_.type == DType::uint16 ? 65536 : 900;
    for_cells(box, [&](std::int64_t cell) {
      for (std::uint64_t c = 0; c < 2; ++c) *to++ = static_cast<std::uint16_t>(value(s, cell, c, below));
    });
  }
  void read_targets(std::int64_t s, const Box& box, std::byte* out) const override {
    if (!type_.targets.per_cell) {
      *reinterpret_cast<double*>(out) = static_cast<double>(s);
      return;
    }
    reads_->target_cells += box.elements();
    auto* to = reinterpret_cast<std::uint8_t*>(out);
    for_cells(box, [&](std::int64_t cell) { *to++ = static_cast<std::uint8_t>(value(s, cell, 5, 4)); });
  }

 private:
  template <class F>
  static void for_cells(const Box& box, F f) {
    for (auto d = box.begin[0]; d < box.end[0]; ++d)
      for (auto h = box.begin[1]; h < box.end[1]; ++h)
        for (auto w = box.begin[2]; w < box.end[2]; ++w) f((d * 64 + h) * 64 + w);
  }
  static std::uint64_t value(std::int64_t s, std::int64_t cell, std::uint64_t c, std::uint64_t below) {
    return Philox{5, static_cast<std::uint64_t>(s)}.below(static_cast<std::uint64_t>(cell) * 8 + c, below);
  }
  std::shared_ptr<Reads> reads_;
  SampleType type_;
};

std::vector<std::vector<double>> gathered(const GridExtents& g, LoaderOptions options, bool cells, bool differ,
                                          const std::shared_ptr<Reads>& reads, Loader::InStore* stored = nullptr) {
  std::vector<std::vector<double>> result;
  run_threads(ranks_of(g), [&](std::shared_ptr<Transport> transport) {
    auto mine = options;
    mine.grid = make_grid(Communicator(transport), g);
    const Loader loader(std::make_shared<Counted>(reads, cells, differ), mine);
    for (std::int64_t e = 0; e < 3; ++e)
      for (auto [x, y] : loader.epoch(e, e == 0 ? 1 : 0)) {
        const auto all_x = gather_all(x), all_y = gather_all(y);
        if (transport->rank() == 0) result.push_back(all_x.to_vector()), result.push_back(all_y.to_vector());
      }
    if (stored && transport->rank() == 0) *stored = loader.stored();
  });
  return result;
}

constexpr std::int64_t plenty = 1 << 20, cells_of_all = 11 * 6 * 5 * 7;

}  // namespace

TEST_CASE("store: batches are those of the files on every grid, and every cell is read once") {
  const std::vector<GridExtents> grids{{.sample = 1},
                                       {.sample = 3},
                                       {.depth = 2},
                                       {.sample = 2, .depth = 2},
                                       {.sample = 2, .height = 2, .width = 3},
                                       {.sample = 2, .depth = 3, .channel = 2}};
  for (const bool cells : {false, true})
    for (const bool moved : {false, true}) {
      const LoaderOptions plain{.batch = 4, .seed = 3, .shuffle = true, .flips = moved, .shifts = moved, .cache_bytes = 0};
      const auto expected = gathered({}, plain, cells, false, std::make_shared<Reads>());
      CHECK(*std::min_element(expected[0].begin(), expected[0].end()) >= 0);
      CHECK(*std::max_element(expected[0].begin(), expected[0].end()) > (cells ? 65000 : 850));
      for (const auto& grid : grids) {
        auto options = plain;
        options.store_bytes = plenty;
        const auto reads = std::make_shared<Reads>();
        Loader::InStore stored;
        CHECK(gathered(grid, options, cells, false, reads, &stored) == expected);
        CHECK(reads->cells == cells_of_all * grid.channel);
        CHECK(reads->target_cells == (cells ? cells_of_all * grid.channel : 0));
        CHECK(stored.samples == 11);
        CHECK(stored.room == 11);
      }
    }
}

TEST_CASE("store: windows and deformations of samples that differ in size") {
  LoaderOptions options{.batch = 3,
                        .seed = 4,
                        .shuffle = true,
                        .flips = true,
                        .crop = Crop{.extents = {4, 4, 5}, .foreground = 0},
                        .cache_bytes = 0};
  for (const bool elastic : {false, true}) {
    if (elastic) options.augment = {augment::random_elastic(1.5, 3)};
    options.store_bytes = 0;
    const auto expected = gathered({}, options, true, true, std::make_shared<Reads>());
    options.store_bytes = plenty;
    for (const auto& grid :
         {GridExtents{.sample = 2}, GridExtents{.depth = 2, .width = 2}, GridExtents{.sample = 2, .depth = 4}}) {
      const auto reads = std::make_shared<Reads>();
      CHECK(gathered(grid, options, true, true, reads) == expected);
      std::int64_t all = 0;
      const Counted source(reads, true, true);
      for (std::int64_t s = 0; s < source.size(); ++s) all += source.extents_of(s).elements();
      CHECK(reads->cells == all);
    }
  }
}

TEST_CASE("store: what does not fit is read each time, and what fits is not") {
  const LoaderOptions plain{.batch = 4, .seed = 3, .shuffle = true, .flips = true, .cache_bytes = 0};
  const auto expected = gathered({}, plain, false, false, std::make_shared<Reads>());
  auto options = plain;
  constexpr std::int64_t block = 3 * 5 * 7 * 2 * 2;  // with {depth = 2}, int16, 2 channels
  options.store_bytes = 2 * block + 1;
  const auto reads = std::make_shared<Reads>();
  Loader::InStore stored;
  CHECK(gathered({.sample = 2, .depth = 2}, options, false, false, reads, &stored) == expected);
  CHECK(stored.samples == 4);
  CHECK(stored.room == 4);
  CHECK(stored.bytes <= options.store_bytes);
  // The samples of 29 batches (the first epoch lacks one batch); the 4 stored samples are read only once.
  CHECK(reads->cells < 33 * 6 * 5 * 7);
  CHECK(reads->cells > 11 * 6 * 5 * 7);
  CHECK_THROWS_AS(Loader(std::make_shared<Counted>(reads, false, false), {.store_bytes = -1}), Error);
}

TEST_CASE("store: what could not be read is asked for again, and one that is dropped half way leaves nobody waiting") {
  const auto reads = std::make_shared<Reads>();
  reads->failures = 1;
  const Loader loader(std::make_shared<Counted>(reads, false, false), {.batch = 2, .prefetch = false, .store_bytes = plenty});
  CHECK(has(error_text([&] { loader.batch(0, 0); }), "cannot be read"));
  CHECK(loader.batch(0, 0).x.dim(0) == 2);
  check_on_ranks(4, "dropped epochs", [&](const Communicator& world) {
    const Loader split(
        std::make_shared<Counted>(std::make_shared<Reads>(), false, false),
        {.grid = make_grid(world, {.sample = 2, .depth = 2}), .batch = 2, .shuffle = true, .flips = true, .store_bytes = plenty});
    for (std::int64_t e = 0; e < 4; ++e)
      for (const auto& batch : split.epoch(e))
        if (batch.x.dim(0) > 0) break;
    CHECK(gather_all(split.batch(5, 2).x).to_vector().size() == 2 * 6 * 5 * 7 * 2);
  });
}

TEST_CASE("store: a sample that one rank cannot read ends all of them, with its name, and nobody waits for ever") {
  for (const bool ahead : {false, true}) {
    const auto reads = std::make_shared<Reads>();
    const auto error = error_text([&] {
      on_ranks(4, [&](const Communicator& world) {
        // One rank's reads of the first samples fail; with flips the other ranks need its blocks.
        const auto mine = world.rank() == 1 ? reads : std::make_shared<Reads>();
        if (world.rank() == 1) mine->failures = 3;
        const Loader loader(std::make_shared<Counted>(mine, false, false), {.grid = make_grid(world, {.sample = 2, .depth = 2}),
                                                                            .batch = 4,
                                                                            .flips = true,
                                                                            .assemble_ahead = ahead,
                                                                            .store_bytes = plenty});
        for (std::int64_t e = 0; e < 2; ++e)
          for (const auto& batch : loader.epoch(e)) CHECK(batch.x.dim(0) > 0);
      });
    });
    CHECK(!error.empty());
    CHECK((has(error, "cannot be read") || has(error, "could not read a sample")));
  }
}

TEST_CASE("collective reading: batches are those of independent reading, and every cell is read once in each epoch") {
  const std::vector<GridExtents> grids{{.sample = 1},
                                       {.sample = 2, .depth = 2},
                                       {.depth = 5},
                                       {.sample = 2, .height = 2, .width = 3},
                                       {.depth = 2, .width = 2, .channel = 2}};
  constexpr std::int64_t read_samples = 7 + 11 + 11;  // the first epoch begins with its second batch
  for (const bool cells : {false, true})
    for (const bool moved : {false, true}) {
      const LoaderOptions plain{.batch = 4, .seed = 3, .shuffle = true, .flips = moved, .shifts = moved, .cache_bytes = 0};
      const auto expected = gathered({}, plain, cells, false, std::make_shared<Reads>());
      int turn = 0;
      for (const auto& grid : grids)
        for (const std::int64_t piece : {1, 300, 1 << 20}) {  // all ranks, some, or one
          auto options = plain;
          options.collective = true, options.piece_bytes = piece;
          options.prefetch = turn % 3, options.assemble_ahead = turn % 2 == 0, ++turn;
          const auto reads = std::make_shared<Reads>();
          Loader::InStore stored;
          CHECK(gathered(grid, options, cells, false, reads, &stored) == expected);
          CHECK(reads->cells == read_samples * 6 * 5 * 7 * grid.channel);
          CHECK(reads->target_cells == (cells ? read_samples * 6 * 5 * 7 * grid.channel : 0));
          CHECK(stored.samples == 0);
          CHECK(stored.bytes == 0);
        }
    }
}

TEST_CASE("collective reading: windows of samples that differ in size, and what does not fit in a store") {
  LoaderOptions options{.batch = 3,
                        .seed = 4,
                        .shuffle = true,
                        .flips = true,
                        .crop = Crop{.extents = {4, 4, 5}},
                        .prefetch = 0,
                        .cache_bytes = 0,
                        .piece_bytes = 100};
  const auto independent = std::make_shared<Reads>();
  const auto expected = gathered({}, options, true, true, independent);
  options.collective = true;
  const GridExtents grid{.sample = 2, .depth = 2, .width = 2};
  const auto together = std::make_shared<Reads>();
  CHECK(gathered(grid, options, true, true, together) == expected);
  CHECK(together->cells == independent->cells);  // only the windows
  options.store_bytes = 100;
  const auto reads = std::make_shared<Reads>();
  Loader::InStore stored;
  CHECK(gathered(grid, options, true, true, reads, &stored) == expected);
  CHECK(stored.samples > 0);
  CHECK(stored.samples < 11);
  CHECK_THROWS_AS(Loader(std::make_shared<Counted>(reads, false, false), {.collective = true, .piece_bytes = 0}), Error);
}

TEST_CASE("collective reading: a piece that one rank cannot read ends all ranks with the reason") {
  for (const bool ahead : {false, true}) {
    std::atomic<int> told{0};
    const auto error = error_text([&] {
      on_ranks(4, [&](const Communicator& world) {
        const auto mine = std::make_shared<Reads>();
        if (world.rank() == 2) mine->failures = 3;
        // All four ranks share the samples, and with flips each needs the data that rank 2 reads.
        const Loader loader(std::make_shared<Counted>(mine, false, false), {.grid = make_grid(world, {.depth = 2, .width = 2}),
                                                                            .batch = 2,
                                                                            .flips = true,
                                                                            .assemble_ahead = ahead,
                                                                            .collective = true,
                                                                            .piece_bytes = 1});
        const auto mine_says = error_text([&] {
          for (const auto& batch : loader.epoch(0)) CHECK(batch.x.dim(0) == 0);
        });
        if (has(mine_says, "cannot be read")) ++told;
        fail("{}", mine_says);
      });
    });
    CHECK(told >= 1);
    // For the first or the second sample, depending on the order of their jobs.
    CHECK_MESSAGE((has(error, "[test] sample ") && has(error, "cannot be read")), error);
  }
}

TEST_CASE("data: epochs that follow each other are read without a gap, others not ahead, and all have their batches") {
  const auto reads = std::make_shared<Reads>();
  const auto source = std::make_shared<Counted>(reads, false, false);
  for (const bool assemble_ahead : {false, true}) {
    const Loader loader(source, {.batch = 2,
                                 .seed = 3,
                                 .shuffle = true,
                                 .drop_last = true,
                                 .prefetch = 2,
                                 .assemble_ahead = assemble_ahead,
                                 .cache_bytes = 0});
    // The number of samples read in an epoch from step `first` on (ten for a whole epoch) and ahead for the next one.
    const auto read_by = [&](std::int64_t epoch, std::int64_t first = 0) {
      source->queue().run([] {});  // all submitted reads have finished
      const auto before = reads->cells.load();
      std::vector<std::vector<double>> targets, expected;
      for (const auto& batch : loader.epoch(epoch, first)) targets.push_back(batch.y.to_vector());
      source->queue().run([] {});
      const auto samples = (reads->cells - before) / (6 * 5 * 7);
      for (auto step = first; step < loader.steps(); ++step) {
        const auto of = loader.samples_of(epoch, step);
        expected.emplace_back(of.begin(), of.end());
      }
      CHECK(targets == expected);
      return samples;
    };
    CHECK(read_by(0) == 10);
    CHECK(read_by(1) == 10 + 4);
    CHECK(read_by(2) == 10);  // four were read before, four are read for the next epoch
    CHECK(read_by(2) == 10);  // those four are not used
    CHECK(read_by(2) == 10);
    CHECK(read_by(3, 4) == 2 + 4);
    CHECK(read_by(4, 1) == 8 + 4);
    CHECK(read_by(7) == 10);
    // An epoch that is stopped halfway leaves no data that another epoch would take.
    for (const auto& batch : loader.epoch(8))
      if (batch.x.dim(0) > 0) break;
    CHECK(read_by(9) == 10 + 4);
    CHECK(read_by(10) == 10);
  }
}
