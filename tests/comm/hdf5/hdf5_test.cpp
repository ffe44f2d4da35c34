#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <numeric>
#include <thread>

#include "comm/hdf5/hdf5_file.h"
#include "comm/hdf5/io_thread.h"
#include "framework/tensor/random.h"
#include "tests/support/files.h"
#include "tests/support/hdf5_files.h"
#include "tests/support/shared_data.h"
#include "tests/support/skip.h"

namespace mpigrad {

using namespace testing;

namespace {

namespace fs = std::filesystem;
using Block = std::vector<std::int64_t>;

fs::path write_example(const Folder& folder, const char* name = "example.h5") {
  std::vector<std::int16_t> values(4 * 5 * 6);
  std::iota(values.begin(), values.end(), std::int16_t{-10});
  Hdf5Writer writer(folder / name, false);
  writer.write("train/volume", {4, 5, 6}, DType::int16, values.data());
  const std::vector<double> reals{0.5, -1.25, 1e300};
  writer.write<double>("reals", reals);
  const double scalar = 2.5;
  writer.write("scalar", {}, DType::float64, &scalar);
  writer.write_strings("names", {"Omega_m", "h", ""});
  writer.attribute("/", "count", std::int64_t{42});
  writer.attribute("train/volume", "unit", std::string("particles"));
  writer.attribute("/", "cell", 0.25);
  writer.commit();
  return folder / name;
}

}  // namespace

TEST_CASE("hdf5: what is written is read back, in boxes and other types") {
  if (without_hdf5("hdf5 round trip")) return;
  const Folder folder;
  const Hdf5Reader reader(write_example(folder));
  CHECK(folder.files() == 1);

  const auto all = reader.datasets();
  REQUIRE(all.size() == 4);
  CHECK(all[0].name == "names");
  CHECK((all[0].kind == Hdf5Dataset::Kind::text));
  CHECK(all[2].name == "scalar");
  CHECK(all[2].shape.rank() == 0);
  CHECK(all[3].name == "train/volume");
  CHECK((all[3].shape == Shape{4, 5, 6}));
  CHECK((all[3].type == DType::int16));
  CHECK(reader.contains("reals"));
  CHECK_FALSE(reader.contains("train"));

  CHECK(reader.read<double>("reals") == std::vector<double>{0.5, -1.25, 1e300});
  CHECK(reader.read<double>("scalar") == std::vector<double>{2.5});
  CHECK(reader.read_strings("names") == std::vector<std::string>{"Omega_m", "h", ""});
  CHECK(reader.number_attribute("/", "count") == 42);
  CHECK(reader.number_attribute("/", "cell") == 0.25);
  CHECK(reader.text_attribute("train/volume", "unit") == "particles");
  CHECK(reader.has_attribute("/", "count"));
  CHECK_FALSE(reader.has_attribute("/", "absent"));

  const Block begin{1, 2, 3}, end{3, 4, 6};
  const auto expect = [&](auto zero, DType type) {
    std::vector<decltype(zero)> box(2 * 2 * 3);
    reader.read("train/volume", begin, end, type, box.data());
    std::size_t i = 0;
    for (int x = 1; x < 3; ++x)
      for (int y = 2; y < 4; ++y)
        for (int z = 3; z < 6; ++z) CHECK(box[i++] == static_cast<decltype(zero)>(x * 30 + y * 6 + z - 10));
  };
  expect(std::int16_t{}, DType::int16);
  expect(std::uint8_t{}, DType::uint8);
  expect(std::int32_t{}, DType::int32);
  expect(std::int64_t{}, DType::int64);
  expect(float{}, DType::float32);
  expect(double{}, DType::float64);
  reader.read("train/volume", Block{2, 2, 2}, Block{2, 3, 3}, DType::float32, nullptr);  // an empty box
}

TEST_CASE("hdf5: unsigned 16-bit integers are uint16") {
  if (without_hdf5("hdf5 uint16")) return;
  const Folder folder;
  const std::vector<std::uint16_t> counts{0, 1, 32767, 32768, 40000, 65535};
  Hdf5Writer writer(folder / "u.h5", false);
  writer.write<std::uint16_t>("counts", counts);
  const std::vector<std::int32_t> wide{7, 65535};
  writer.create("filled", {2}, DType::uint16);
  writer.write_box("filled", Block{0}, Block{2}, DType::int32, wide.data());
  writer.commit();
  const Hdf5Reader reader(folder / "u.h5");
  CHECK((reader.describe("counts").type == DType::uint16));
  CHECK(reader.describe("counts").stored == "uint16");
  CHECK(reader.read<std::uint16_t>("counts") == counts);
  CHECK(reader.read<std::uint16_t>("filled") == std::vector<std::uint16_t>{7, 65535});
  CHECK(reader.read<double>("counts") == std::vector<double>{0, 1, 32767, 32768, 40000, 65535});
  CHECK(reader.read<std::int32_t>("counts") == std::vector<std::int32_t>{0, 1, 32767, 32768, 40000, 65535});
  CHECK(has(error_text([&] { reader.read<std::int16_t>("counts"); }), "(uint16) holds a value that does not fit int16"));
}

TEST_CASE("hdf5: reading ahead") {
  if (without_hdf5("hdf5 reading ahead")) return;
  const Folder folder;
  const auto path = write_example(folder);
  std::array<std::vector<float>, 4> planes;
  std::vector<std::future<void>> pending;
  {
    const Hdf5Reader reader(path);
    for (std::int64_t x = 0; x < 4; ++x) {
      auto& plane = planes[static_cast<std::size_t>(x)];
      plane.resize(30);
      pending.push_back(reader.read_async("train/volume", Block{x, 0, 0}, Block{x + 1, 5, 6}, DType::float32, plane.data()));
    }
    pending.push_back(reader.read_async("absent", Block{}, Block{}, DType::float32, nullptr));
  }
  for (std::size_t x = 0; x < 4; ++x) {
    pending[x].get();
    CHECK(planes[x][7] == static_cast<float>(x * 30 + 7) - 10);
  }
  CHECK(has(error_text([&] { pending[4].get(); }), "no dataset 'absent'"));
  // A job may submit another job and wait for it.
  CHECK(io_thread().run([] { return io_thread().run([] { return 7; }); }) == 7);
  // Calls that must come from this thread, while no job runs.
  int running = 0;
  const auto late = io_thread().submit([&] { std::this_thread::sleep_for(std::chrono::milliseconds(5)), ++running; });
  CHECK(io_thread().run_here([&] { return running == 1 ? std::this_thread::get_id() : std::thread::id(); }) ==
        std::this_thread::get_id());
  CHECK(io_thread().run([] { return io_thread().run_here([] { return 7; }); }) == 7);
  CHECK(has(error_text([] { io_thread().run_here([] { fail("[test] here"); }); }), "[test] here"));
  CHECK(io_thread().run([] { return 7; }) == 7);
}

TEST_CASE("hdf5: bad files and bad requests are refused by name") {
  if (without_hdf5("hdf5 errors")) return;
  const Folder folder;
  const auto path = write_example(folder);
  const auto open_error = [](const fs::path& which) { return error_text([&] { const Hdf5Reader reader(which); }); };
  CHECK(has(open_error(folder / "absent.h5"), "absent.h5: no such file"));
  CHECK(has(open_error(folder.path), "a folder"));
  std::ofstream(folder / "text.h5") << "not a data file";
  CHECK(has(open_error(folder / "text.h5"), "text.h5: not an HDF5 file"));
  std::ofstream(folder / "empty.h5").flush();
  CHECK(has(open_error(folder / "empty.h5"), "not an HDF5 file"));
  fs::copy_file(path, folder / "short.h5");
  fs::resize_file(folder / "short.h5", fs::file_size(path) / 2);
  CHECK(has(open_error(folder / "short.h5"), "truncated file"));
  // Truncated while open: HDF5 itself would return zeros.
  fs::copy_file(path, folder / "cut.h5");
  const Hdf5Reader cut(folder / "cut.h5");
  const auto names = cut.datasets();
  const auto dataset = std::find_if(names.begin(), names.end(), [](const auto& each) {
    return each.kind == Hdf5Dataset::Kind::number && each.shape.elements() > 0;
  });
  REQUIRE(dataset != names.end());
  std::vector<double> numbers(static_cast<std::size_t>(dataset->shape.elements()));
  const std::vector<std::int64_t> begin(static_cast<std::size_t>(dataset->shape.rank()), 0);
  const std::vector<std::int64_t> end(dataset->shape.begin(), dataset->shape.end());
  const auto read_cut = [&] { cut.read(dataset->name, begin, end, DType::float64, numbers.data()); };
  CHECK(error_text(read_cut) == "");
  fs::resize_file(folder / "cut.h5", fs::file_size(path) - 8);
  CHECK(has(error_text(read_cut), "cut.h5: the file has become shorter"));

  const Hdf5Reader reader(path);
  std::array<double, 200> out{};
  const auto read_error = [&](const char* name, const Block& begin, const Block& end, DType type) {
    return error_text([&] { reader.read(name, begin, end, type, out.data()); });
  };
  const auto missing = read_error("volume", {0}, {1}, DType::float32);
  CHECK(has(missing, "example.h5: no dataset 'volume'; there are: names, reals, scalar, train/volume"));
  CHECK(has(read_error("train", {0}, {1}, DType::float32), "no dataset 'train'"));
  CHECK(has(read_error("train/volume", {0, 0}, {1, 1}, DType::float32), "has 3 dimensions, the box 2"));
  CHECK(has(read_error("train/volume", {0, 0, 0}, {4, 5, 7}, DType::float32),
            "has shape [4, 5, 6], the box is [0, 0, 0] to [4, 5, 7]"));
  CHECK(has(read_error("train/volume", {2, 0, 0}, {1, 5, 6}, DType::float32), "has shape"));
  CHECK(has(read_error("reals", {0}, {3}, DType::int32), "is float64, which int32 would round"));
  CHECK(has(read_error("reals", {0}, {3}, DType::float16), "[hdf5] elements are read and written as float32, not as float16"));
  CHECK(has(read_error("reals", {0}, {3}, DType::float32), "does not fit float32"));
  CHECK(has(read_error("names", {0}, {3}, DType::float32), "holds text"));
  CHECK(has(read_error("train/volume", {0, 0, 0}, {4, 5, 6}, DType::uint8), "holds a value that does not fit uint8"));
  CHECK(has(error_text([&] { reader.read_strings("reals"); }), "is float64, not text"));
  CHECK(has(error_text([&] { reader.number_attribute("/", "absent"); }), "no attribute 'absent' of '/'"));
  CHECK(has(error_text([&] { reader.text_attribute("/", "count"); }), "is not one text"));
}

TEST_CASE("hdf5: nothing is overwritten or left half written") {
  if (without_hdf5("hdf5 writing")) return;
  const Folder folder;
  const auto path = write_example(folder);
  CHECK(has(error_text([&] { Hdf5Writer writer(path, false); }), "exists already"));
  CHECK(has(error_text([&] { Hdf5Writer writer(folder / "absent/x.h5", false); }), "there is no folder"));
  CHECK(has(error_text([&] { Hdf5Writer writer(folder.path, true); }), "a folder is in the way"));
  {
    Hdf5Writer abandoned(path, true);
    abandoned.create("other", {3}, DType::float32);
    CHECK(folder.files() == 2);
  }
  CHECK(folder.files() == 1);
  CHECK(Hdf5Reader(path).contains("reals"));
  {
    Hdf5Writer writer(path, true);
    writer.create("other", {3}, DType::float32);
    CHECK(has(error_text([&] { writer.create("other", {3}, DType::float32); }), "dataset 'other' cannot be created"));
    CHECK(
        has(error_text([&] { writer.write_box("absent", Block{0}, Block{0}, DType::float32, nullptr); }), "no dataset 'absent'"));
    CHECK(has(error_text([&] { writer.write_box("other", Block{0}, Block{4}, DType::float32, nullptr); }), "has shape [3]"));
    writer.commit();
  }
  CHECK(Hdf5Reader(path).read<float>("other") == std::vector<float>(3, 0.0F));
  {  // another process creates the file meanwhile
    Hdf5Writer writer(folder / "race.h5", false);
    std::ofstream(folder / "race.h5") << "theirs";
    CHECK(has(error_text([&] { writer.commit(); }), "exists already"));
  }
  CHECK(fs::file_size(folder / "race.h5") == 6);
  CHECK(folder.files() == 2);
}

TEST_CASE("hdf5: a full disk is an error and leaves the old file") {
  if (without_hdf5("hdf5 full disk")) return;
  const Folder folder;
  const auto path = write_example(folder);
  // A limit on the size of files behaves like a full disk if the signal is ignored.
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{100000, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = error_text([&] {
    const std::vector<double> many(100000);
    Hdf5Writer writer(path, true);
    writer.write<double>("many", many);
    writer.commit();
  });
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  CHECK(has(message, "[hdf5] " + path.string()));
  CHECK(has(message, "File too large"));
  CHECK(Hdf5Reader(path).contains("reals"));
  CHECK(folder.files() == 1);
  CHECK(Hdf5Reader(write_example(folder, "after.h5")).contains("reals"));  // the library still works
}

TEST_CASE("hdf5: packed chunks that are read in boxes are unpacked once") {
  if (without_hdf5("hdf5: packed chunks that are read in boxes are unpacked once")) return;
  const Folder folder;
  constexpr std::int64_t n = 32, half = n / 2;
  std::vector<std::uint8_t> values;
  for (std::uint64_t i = 0; i < 2 * n * n * n; ++i) values.push_back(static_cast<std::uint8_t>(Philox{5}.below(i, 256)));
  write_packed(folder / "a.h5", "v", {2, n, n, n}, {1, n, n, n}, values);
  const auto path = folder / "a.h5";
  const auto read = [&](const Hdf5Reader& reader, std::int64_t s, std::int64_t d, std::int64_t h, std::int64_t w) {
    std::vector<std::int16_t> box(half * half * half);
    reader.read("v", Block{s, d, h, w}, Block{s + 1, d + half, h + half, w + half}, DType::int16, box.data());
    bool same = true;
    for (std::int64_t i = 0; i < half; ++i)
      for (std::int64_t j = 0; j < half; ++j)
        for (std::int64_t k = 0; k < half; ++k)
          same = same && box[static_cast<std::size_t>((i * half + j) * half + k)] ==
                             values[static_cast<std::size_t>(((s * n + d + i) * n + h + j) * n + w + k)];
    CHECK(same);
  };
  {
    const Hdf5Reader reader(path);
    const auto before = bytes_read();
    for (const std::int64_t s : {0, 1})
      for (int corner = 0; corner < 8; ++corner)
        read(reader, s, (corner >> 2) * half, (corner >> 1 & 1) * half, (corner & 1) * half);
    // Reads 2 n^3 bytes once, plus the process's other reads; without the cache each chunk would be read eight times.
    if (before >= 0) CHECK(bytes_read() - before < 4 * 2 * n * n * n);
  }
  // More files than the cache has chunks, and files that are closed while others stay open.
  std::vector<Hdf5Reader> readers;
  for (int i = 0; i < 20; ++i) readers.emplace_back(path);
  for (int round = 0; round < 2; ++round)
    for (const auto& reader : readers) read(reader, 1, 8, round, 3);
  readers.erase(readers.begin() + 3, readers.begin() + 17);
  for (const auto& reader : readers) read(reader, 0, 16, 8, 3);
}

TEST_CASE("hdf5: a file that another program has locked says what to do") {
  if (without_hdf5("hdf5: a file that another program has locked says what to do")) return;
  if (std::getenv("HDF5_USE_FILE_LOCKING") != nullptr)
    return skip_test("hdf5: a file that another program has locked says what to do", "HDF5_USE_FILE_LOCKING is set");
  const Folder folder;
  const auto path = write_example(folder);
  const int other = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(::flock(other, LOCK_EX | LOCK_NB) == 0);
  const auto text = error_text([&] { Hdf5Reader{path}; });
  CHECK(has(text, "example.h5: cannot be opened"));
  CHECK(has(text, "another program has it open, or its file system has no locks: then set HDF5_USE_FILE_LOCKING=FALSE"));
  ::close(other);
  CHECK(Hdf5Reader(path).contains("scalar"));
}

TEST_CASE("hdf5: a medical data set of another library") {
  if (without_hdf5("hdf5 medical")) return;
  const auto path = shared_data("3d/adrenalmnist3d/adrenal28.h5");
  if (path.empty()) return skip_test("hdf5 medical", no_shared_data);
  const Hdf5Reader reader(path);
  const auto volume = reader.describe("train/volume"), label = reader.describe("val/label");
  CHECK((volume.shape == Shape{1188, 28, 28, 28, 1}));
  CHECK((volume.type == DType::uint8));
  CHECK(label.shape[0] == 98);
  std::vector<float> one(28 * 28 * 28);
  reader.read("train/volume", Block{7, 0, 0, 0, 0}, Block{8, 28, 28, 28, 1}, DType::float32, one.data());
  CHECK(std::all_of(one.begin(), one.end(), [](float value) { return value == 0 || value == 255; }));
  CHECK(std::any_of(one.begin(), one.end(), [](float value) { return value == 255; }));
}

}  // namespace mpigrad
