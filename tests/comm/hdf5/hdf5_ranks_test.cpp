// Several ranks that write one file together.

#include <doctest/doctest.h>

#include <array>

#include "comm/hdf5/hdf5_file.h"
#include "comm/transport/forwarding.h"
#include "tests/support/files.h"

namespace mpigrad {

using namespace testing;

namespace {

using Block = std::vector<std::int64_t>;

// Ranks that are threads, but say that they are processes: rank 0 writes for all, as under MPI with serial HDF5.
class Apart final : public ForwardingTransport {
 public:
  explicit Apart(std::shared_ptr<Transport> inner) : ForwardingTransport(apart(place_of(*inner)), inner) {}

 private:
  static Place apart(Place place) { return place.in_one_process = false, place; }
  std::shared_ptr<Transport> wrap(std::shared_ptr<Transport> made) const override {
    return std::make_shared<Apart>(std::move(made));
  }
};

void write_slabs_together(int ranks, bool are_apart) {
  const Folder folder;
  run_threads(ranks, [&](std::shared_ptr<Transport> transport) {
    if (are_apart) transport = std::make_shared<Apart>(std::move(transport));
    const std::int64_t rank = transport->rank(), size = transport->size();
    const std::int64_t begin = rank * 5 / size, end = (rank + 1) * 5 / size;  // 7 ranks: some are empty
    std::vector<std::int32_t> slab;
    for (std::int64_t i = 4 * begin; i < 4 * end; ++i) slab.push_back(static_cast<std::int32_t>(i * i));
    Hdf5Writer writer(folder / "slabs.h5", false, transport);
    writer.create("slabs", {5, 4}, DType::int32);
    writer.write_box("slabs", Block{begin, 0}, Block{end, 4}, DType::int32, slab.data());
    const std::array<double, 2> root{static_cast<double>(10 + rank), 2};
    writer.write<double>("root", root);
    writer.write_strings("names", {"a", "bc"});
    writer.attribute("/", "ranks", size);
    writer.commit();
    const auto again = error_text([&] { Hdf5Writer second(folder / "slabs.h5", false, transport); });
    CHECK(has(again, "exists already"));  // on every rank
  });
  CHECK(folder.files() == 1);
  const Hdf5Reader reader(folder / "slabs.h5");
  const auto all = reader.read<std::int32_t>("slabs");
  for (std::size_t i = 0; i < 20; ++i) CHECK(all[i] == static_cast<std::int32_t>(i * i));
  CHECK(reader.read<double>("root") == std::vector<double>{10, 2});
  CHECK(reader.number_attribute("/", "ranks") == ranks);
}

}  // namespace

TEST_CASE("hdf5: the ranks of one process write one file together") {
  if (without_hdf5("hdf5 threads")) return;
  for (const int ranks : {1, 2, 3, 7}) write_slabs_together(ranks, false);
}

TEST_CASE("hdf5: threads of one process write files of their own at the same time") {
  if (without_hdf5("hdf5 files of threads")) return;
  const Folder folder;
  run_threads(4, [&](const std::shared_ptr<Transport>& transport) {
    const std::array<std::int32_t, 2> values{transport->rank(), 7};
    for (int i = 0; i < 25; ++i) {
      const auto path = folder.path / fmt::format("{}-{}.h5", values[0], i);
      Hdf5Writer writer(path, false);
      writer.write<std::int32_t>("x", values);
      writer.commit();
      const auto read = Hdf5Reader(path).read<std::int32_t>("x");
      CHECK(read == std::vector<std::int32_t>(values.begin(), values.end()));
    }
  });
  CHECK(folder.files() == 100);
}

TEST_CASE("hdf5: rank 0 writes the boxes of ranks without a parallel driver") {
  if (without_hdf5("hdf5 gathered boxes")) return;
  for (const int ranks : {2, 3, 7}) write_slabs_together(ranks, true);
  const Folder folder;
  run_threads(3, [&](const std::shared_ptr<Transport>& transport) {
    const auto apart = std::make_shared<Apart>(transport);
    Hdf5Writer writer(folder / "x.h5", false, apart);
    writer.create("x", {3}, DType::int32);
    const std::array<std::int32_t, 2> values{1, 2};
    if (transport->rank() == 1) {
      CHECK(
          has(error_text([&] { writer.write_box("x", Block{1}, Block{0}, DType::int32, values.data()); }), "no box [1] to [0]"));
      writer.write_box("x", Block{2}, Block{4}, DType::int32, values.data());
    }
    CHECK(has(error_text([&] { writer.commit(); }), "'x' has shape [3], the box is [2] to [4]"));  // on every rank
  });
  CHECK(folder.files() == 0);
}

TEST_CASE("hdf5: a failing rank leaves no file") {
  if (without_hdf5("hdf5 failing rank")) return;
  const Folder folder;
  const auto message = error_text([&] {
    run_threads(3, [&](const std::shared_ptr<Transport>& transport) {
      Hdf5Writer writer(folder / "x.h5", false, transport);
      writer.create("x", {3}, DType::int32);
      require(transport->rank() != 1, "[test] rank 1 fails");
      writer.commit();
    });
  });
  CHECK(has(message, "rank 1 fails"));
  CHECK(folder.files() == 0);
}

}  // namespace mpigrad
