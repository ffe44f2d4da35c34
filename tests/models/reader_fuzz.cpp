// Damaged files: every reader gives an error or the right values, within a limit on memory and time.
//
//   build/tests/reader_fuzz [--inputs N] [--seed S] [--format NAME]
//
// Inputs are real small files cut off at every place near their beginning and end, at random ones else, and with bytes changed,
// moved, left out or repeated. A child process reads them one after the other and notes which; where it dies, by a signal, by a
// sanitizer or by the alarm, the input's number is printed with the stack, and another child goes on behind it. What can be told
// is compared: a file that was cut off, or any of a format with checksums, gives an error or what it gave before.

#define DOCTEST_CONFIG_IMPLEMENT  // the tests' headers name it
#include <doctest/doctest.h>
#include <execinfo.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <fstream>
#include <functional>
#include <span>

#include "framework/tensor/content_hash.h"
#include "framework/tensor/random.h"
#include "models/data/records/example.h"
#include "models/data/records/frames.h"
#include "models/data/sources/open.h"
#include "models/data/volumes/npy_pairs.h"
#include "models/data/volumes/volumes.h"
#include "models/train/checkpoint/checkpoint.h"
#include "ops/random.h"
#include "tests/support/all_tests.h"
#include "tests/support/files.h"
#include "tests/support/format_files.h"
#include "tests/support/image_files.h"

#ifdef MPIGRAD_WITH_WEIGHTS
#include "examples/weights/safetensors.h"
#endif

namespace mpigrad::testing {
namespace {

namespace fs = std::filesystem;
using data::Source;

struct Format {
  std::string name;
  bool checksums = false;  // so that what is read from a damaged file is what was written
  bool library = false;    // read by libhdf5, whose own faults are listed and not counted
  std::function<void(const fs::path& folder)> write;
  std::string damaged;                                          // the file of the folder that is
  std::function<std::uint64_t(const fs::path& folder)> read{};  // a hash of all values; throws
  std::size_t also_whole = 0;                                   // what is cut off there is a whole file, of fewer samples
};

std::uint64_t hash_of(const Source& source) {
  std::uint64_t hash = static_cast<std::uint64_t>(source.size());
  source.check(0, 1);
  // What a damaged header claims may be large: a few samples tell as much.
  for (std::int64_t s = 0; s < std::min<std::int64_t>(source.size(), 4); ++s) {
    const auto box = source.whole_of(s);
    if (box.elements() * source.channels() > (1 << 22)) continue;
    std::vector<std::byte> values(static_cast<std::size_t>(box.elements() * source.channels() * size_of(source.type())));
    source.read(s, box, values.data());
    hash = hash * 31 + content_hash({reinterpret_cast<const char*>(values.data()), values.size()});
    const auto targets = data::target_elements(source, box) * size_of(source.target_type().type);
    values.assign(static_cast<std::size_t>(targets), std::byte{0});
    source.read_targets(s, box, values.data());
    hash = hash * 31 + content_hash({reinterpret_cast<const char*>(values.data()), values.size()});
  }
  return hash;
}

std::uint64_t hash_of(const std::vector<NamedTensor>& tensors) {
  std::uint64_t hash = tensors.size();
  for (const auto& [name, value] : tensors)
    hash = hash * 31 + content_hash(name) + content_hash(value.dtype(), value.raw(), value.elements());
  return hash;
}

std::vector<NamedTensor> some_tensors() {
  return {{"parameters/a.weight", random_normal({2, 3}, {.key = 1}, 0, 1, DType::float32)},
          {"parameters/b.bias", random_normal({5}, {.key = 2}, 0, 1, DType::float64)}};
}

std::vector<float> some_floats(int count) {
  std::vector<float> result;
  for (int i = 0; i < count; ++i) result.push_back(static_cast<float>(i) / 7);
  return result;
}

std::string raw_record(int s) {
  std::string bytes;
  for (int i = 0; i < 64; ++i) bytes.push_back(static_cast<char>(i + s)), bytes.push_back(0);
  return data::framed(data::example_record("x", bytes, "y", {1, 2, 3, static_cast<float>(s)}));
}

Bytes bytes_of(const std::string& text) {
  Bytes bytes;
  append_text(bytes, text);
  return bytes;
}

std::vector<Format> formats() {
  std::vector<Format> list;
  const auto source_of = [](std::string file) {
    return [file](const fs::path& folder) { return hash_of(*data::open_source(file.empty() ? folder : folder / file)); };
  };
  const auto add = [&](const std::string& file, bool checksums, const Bytes& bytes) {
    list.push_back({.name = file,
                    .checksums = checksums,
                    .write = [file, bytes](const fs::path& folder) { write_file(folder / file, bytes); },
                    .damaged = file,
                    .read = source_of(file)});
  };
  const auto idx = idx_file(0x08, {3, 4, 5}, Bytes3{3, 4, 5}.bytes());
  const auto npy = npy_file("'<f4'", "(2, 3, 4, 5, 1)", some_floats(120));
  const auto nifti = nifti_file({5, 4, 3}, 4, std::vector<int>(60, 300));
  Bytes cifar;
  for (int i = 0; i < 2 * 3073; ++i) cifar.push_back(static_cast<std::byte>(i % 10));
  add("t-images-idx3-ubyte", false, idx), add("a.npy", false, npy), add("v.nii", false, nifti), add("c.bin", false, cifar);
  if (data::gzip_available()) {
    add("z-images-idx3-ubyte.gz", true, data::gzip(idx)), add("a.npy.gz", true, data::gzip(npy));
    add("v.nii.gz", true, data::gzip(nifti));
  }
  if (data::zip_available()) add("s.npz", true, zip_file({{"x.npy", npy}}));
  if (data::examples_available()) {
    const auto records = bytes_of(raw_record(0) + raw_record(1));
    const auto of = [](const fs::path& file) { return hash_of(*data::open_source(file, {.extents = {2, 2, 4}})); };
    for (const bool packed : {false, true}) {
      if (packed && !data::gzip_available()) continue;
      const std::string file = packed ? "r.tfrecord.gz" : "r.tfrecord";
      add(file, true, packed ? data::gzip(records) : records);
      list.back().read = [of, file](const fs::path& folder) { return of(folder / file); };
      if (!packed) list.back().also_whole = raw_record(0).size();
    }
  }
  list.push_back({.name = "pairs of .npy",
                  .write =
                      [](const fs::path& folder) {
                        write_file(folder / "k_x.npy", npy_file("'<f4'", "(1, 3, 4, 5)", some_floats(60)));
                        write_file(folder / "k_y.npy", npy_file("'|u1'", "(1, 3, 4, 5)", std::vector<std::uint8_t>(60, 1)));
                      },
                  .damaged = "k_x.npy",
                  .read = source_of("")});
  list.push_back({.name = "table of targets",
                  .write =
                      [nifti](const fs::path& folder) {
                        fs::create_directories(folder / "images");
                        write_file(folder / "images" / "a.nii", nifti), write_file(folder / "images" / "b.nii", nifti);
                        write_file(folder / "t.csv", bytes_of("file,age,\"a, b\"\na.nii,1.5,2\nb.nii,2.5,\"3\"\n"));
                      },
                  .damaged = "t.csv",
                  .read =
                      [](const fs::path& folder) {
                        return hash_of(data::VolumeFolder(folder / "images", "", {.targets = folder / "t.csv"}));
                      }});
  if (pictures_can_be_written())
    for (const bool png : {true, false})
      list.push_back({.name = png ? "png" : "jpeg",
                      .write =
                          [png](const fs::path& folder) {
                            fs::create_directories(folder / "class");
                            std::vector<std::uint8_t> pixels;
                            for (int i = 0; i < 9 * 11 * 3; ++i) pixels.push_back(static_cast<std::uint8_t>(i * 7));
                            if (png) write_png(folder / "class" / "p.png", 9, 11, 3, pixels);
                            else write_jpeg(folder / "class" / "p.jpg", 9, 11, 3, pixels);
                          },
                      .damaged = png ? "class/p.png" : "class/p.jpg",
                      .read = source_of("")});
#ifdef MPIGRAD_WITH_WEIGHTS
  list.push_back(
      {.name = "safetensors",
       .write =
           [](const fs::path& folder) {
             weights::write_safetensors(folder / "w.safetensors", {.tensors = some_tensors()}, true);
           },
       .damaged = "w.safetensors",
       .read = [](const fs::path& folder) { return hash_of(weights::read_safetensors(folder / "w.safetensors").tensors); }});
#endif
  if (!hdf5_available()) return list;
  list.push_back({.name = "hdf5 of universes",
                  .library = true,
                  .write =
                      [](const fs::path& folder) {
                        Hdf5Writer writer(folder / "u.h5", true);
                        const std::vector<std::int16_t> counts(3 * 3 * 3 * 2, 5);
                        writer.write("full", {3, 3, 3, 2}, DType::int16, counts.data());
                        writer.write<float>("unitPar", some_floats(4));
                        writer.write_strings("namePar", {"a", "b", "c", "d"});
                        writer.commit();
                      },
                  .damaged = "u.h5",
                  .read = source_of("u.h5")});
  list.push_back(
      {.name = "hdf5 checkpoint",
       .checksums = true,
       .library = true,
       .write =
           [](const fs::path& folder) {
             write_weights(folder / "c.h5", {.info = {.step = 3, .notes = {{"a", "b"}}}, .tensors = some_tensors()}, false, true);
           },
       .damaged = "c.h5",
       .read = [](const fs::path& folder) { return hash_of(read_weights(folder / "c.h5").tensors); }});
  return list;
}

// Input `number` of a file: cut off at every place near its ends for every other of the first numbers, and at a random place for
// one of eight of the rest; else changed. `cut` tells which.
Bytes damaged(const Bytes& whole, std::uint64_t number, const Philox& random, bool& cut) {
  const auto size = whole.size();
  const std::uint64_t at_ends = std::min<std::uint64_t>(size, 768);
  const auto place_of_cut = number / 2;
  cut = number % 2 == 0 && place_of_cut < 2 * at_ends;
  if (cut) {
    const auto length = place_of_cut < at_ends ? place_of_cut : size - 1 - (place_of_cut - at_ends);
    return {whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)};
  }
  auto result = whole;
  std::uint64_t drawn = 0;
  const auto below = [&](std::uint64_t n) { return random.below(drawn++, n); };
  if (size > 0 && below(8) == 0) {
    cut = true;
    result.resize(below(size));
    return result;
  }
  for (auto changes = 1 + below(4); changes > 0 && !result.empty(); --changes) {
    const auto at = below(2) == 0 ? below(std::min<std::uint64_t>(result.size(), 512)) : below(result.size());
    const auto place = result.begin() + static_cast<std::ptrdiff_t>(at);
    const auto length = static_cast<std::ptrdiff_t>(1 + below(std::min<std::uint64_t>(result.size() - at, 16)));
    switch (below(6)) {
      case 0: *place ^= static_cast<std::byte>(1U << below(8)); break;
      case 1: *place = static_cast<std::byte>(below(256)); break;
      case 2: std::fill(place, place + length, std::byte{0xff}); break;
      case 3: std::fill(place, place + length, std::byte{0}); break;
      case 4: result.erase(place, place + length); break;
      default: {
        const Bytes again(place, place + length);
        result.insert(place, again.begin(), again.end());
      }
    }
  }
  return result;
}

// What a child tells its parent.
struct Progress {
  std::uint64_t number = 0, errors = 0, same = 0, others = 0, wrong = 0;
  std::uint64_t expected = 0;
};

void show_stack(int signal) {
  std::array<void*, 64> frames{};
  const int count = backtrace(frames.data(), static_cast<int>(frames.size()));
  backtrace_symbols_fd(frames.data(), count, STDERR_FILENO);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

constexpr unsigned alarm_seconds = 30;

void read_inputs(const Format& format, const fs::path& folder, const Bytes& whole, std::uint64_t count, std::uint64_t seed,
                 Progress& progress) {
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGALRM, SIGILL}) std::signal(signal, show_stack);
  while (progress.number < count) {
    bool cut = false;
    const auto input = damaged(whole, progress.number, Philox{seed, content_hash(format.name)}.child(progress.number), cut);
    write_file(folder / format.damaged, input);
    alarm(alarm_seconds);
    try {
      const bool same = format.read(folder) == progress.expected;
      (same ? progress.same : progress.others) += 1;
      if (!same && (cut ? input.size() != format.also_whole : format.checksums) && input != whole) {
        ++progress.wrong;
        fmt::print(stderr, "{}, input {}: other values and no error\n", format.name, progress.number);
      }
    } catch (const std::exception&) {
      ++progress.errors;
    }
    alarm(0);
    ++progress.number;
  }
}

// f in a process of its own: its status.
int in_child(const std::function<void()>& f) {
  std::fflush(nullptr);
  const auto child = fork();
  if (child == 0) {
    try {
      f();
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}\n", error.what());
      _exit(3);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

#if defined(__SANITIZE_ADDRESS__)
constexpr bool address_sanitizer = true;
#else
constexpr bool address_sanitizer = false;
#endif

// Whether all of a format's inputs were read as they should be.
bool read_format(const Format& format, std::uint64_t count, std::uint64_t seed, std::uint64_t& done) {
  const Folder folder;
  auto* progress =
      static_cast<Progress*>(mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (progress == MAP_FAILED) return false;
  *progress = {};
  const int made = in_child([&] {
    format.write(folder.path);
    progress->expected = format.read(folder.path);
  });
  if (made != 0) {
    fmt::print("{}: the file itself could not be read\n", format.name);
    return false;
  }
  std::ifstream stream(folder.path / format.damaged, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const auto whole = bytes_of(text);
  std::uint64_t crashes = 0;
  while (progress->number < count) {
    const int status = in_child([&] {
      if (!address_sanitizer) {
        const rlimit limit{std::uint64_t{3} << 30, std::uint64_t{3} << 30};
        setrlimit(RLIMIT_AS, &limit);
      }
      read_inputs(format, folder.path, whole, count, seed, *progress);
    });
    if (progress->number >= count) break;
    ++crashes;
    fmt::print("{}, input {} of seed {}: the reader ended with {} {}\n", format.name, progress->number, seed,
               WIFSIGNALED(status) ? "signal" : "status", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    ++progress->number;
    if (crashes >= 20) break;
  }
  done += progress->number;
  fmt::print("{:<24} {:>7} inputs: {} errors, {} unchanged, {} other values, {} wrong, {} crashes{}\n", format.name,
             progress->number, progress->errors, progress->same, progress->others, progress->wrong, crashes,
             format.library && crashes > 0 ? " (in libhdf5? see the stacks)" : "");
  const bool good = progress->wrong == 0 && crashes == 0;
  munmap(progress, sizeof(Progress));
  return good;
}

}  // namespace
}  // namespace mpigrad::testing

int main(int argc, char** argv) {
  using namespace mpigrad::testing;
  const bool all = all_tests();
  std::uint64_t inputs = all ? 110000 : 12000, seed = 1;
  std::string only;
  const std::span arguments(argv, static_cast<std::size_t>(argc));
  for (std::size_t i = 1; i + 1 < arguments.size(); i += 2) {
    const std::string name = arguments[i], value = arguments[i + 1];
    if (name == "--inputs") inputs = std::stoull(value);
    else if (name == "--seed") seed = std::stoull(value);
    else if (name == "--format") only = value;
  }
  std::vector<Format> list;
  // HDF5's thread must not be there when children are made.
  for (auto& format : formats())
    if (only.empty() || format.name == only) list.push_back(std::move(format));
  int passed = 0, failed = 0;
  std::uint64_t done = 0;
  for (const auto& format : list) {
    if (read_format(format, (inputs + list.size() - 1) / list.size(), seed, done)) {
      ++passed;
    } else {
      ++failed;
      fmt::print("failed: reader_fuzz --format '{}' --seed {}\n", format.name, seed);
    }
  }
  fmt::print("{} inputs\n{} passed, {} failed, 0 skipped\n", done, passed, failed);
  return failed > 0 ? 1 : 0;
}
