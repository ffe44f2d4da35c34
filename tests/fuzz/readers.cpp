#include "tests/fuzz/readers.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "comm/hdf5/hdf5_file.h"
#include "framework/base/error.h"
#include "framework/tensor/content_hash.h"
#include "models/data/records/example.h"
#include "models/data/records/frames.h"
#include "models/data/sources/open.h"
#include "models/data/sources/pack.h"
#include "models/data/volumes/nifti.h"
#include "models/data/volumes/npy_pairs.h"
#include "models/data/volumes/table.h"
#include "models/data/volumes/volumes.h"
#include "models/train/checkpoint/checkpoint.h"
#include "ops/random/random.h"
#include "tests/models/data/nifti_files.h"
#include "tests/support/format_files.h"
#include "tests/support/hdf5_files.h"
#include "tests/support/image_files.h"

#ifdef MPIGRAD_WITH_WEIGHTS
#include "examples/tools/weights/npz.h"
#include "examples/tools/weights/safetensors.h"
#endif
#ifdef MPIGRAD_WITH_TOML
#include "examples/studies/plan/planner/machine/machine.h"
#endif

namespace mpigrad::testing {

namespace fs = std::filesystem;

namespace {

using data::Source;

std::uint64_t hash_of_source(const Source& source) {
  auto hash = static_cast<std::uint64_t>(source.size());
  source.check(0, 1);
  // A damaged header may claim many or large samples: a few small ones are enough.
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

std::uint64_t hash_of_opened(const fs::path& file) { return hash_of_source(*data::open_source(file)); }

std::uint64_t hash_of_tensors(const std::vector<NamedTensor>& tensors) {
  std::uint64_t hash = tensors.size();
  for (const auto& [name, value] : tensors)
    hash = hash * 31 + content_hash(name) + content_hash(value.dtype(), value.raw(), value.elements());
  return hash;
}

std::vector<NamedTensor> two_tensors() {
  return {{"parameters/a.weight", random_normal({2, 3}, {.key = 1}, 0, 1, DType::float32)},
          {"parameters/b.bias", random_normal({5}, {.key = 2}, 0, 1, DType::float64)}};
}

template <class T>
std::vector<T> counted(int count) {
  std::vector<T> result;
  for (int i = 0; i < count; ++i) result.push_back(static_cast<T>(static_cast<double>(i) / 7));
  return result;
}

Bytes bytes_of_text(const std::string& text) {
  Bytes bytes;
  append_text(bytes, text);
  return bytes;
}

Bytes bytes_of_file(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return bytes_of_text({std::istreambuf_iterator<char>(stream), {}});
}

// The bytes that `write` writes to a file of this name in `folder`.
Bytes written(const fs::path& folder, const std::string& name, const std::function<void(const fs::path&)>& write) {
  fs::create_directories(folder);
  fs::remove(folder / name);
  write(folder / name);
  return bytes_of_file(folder / name);
}

void add_arrays(std::vector<FileReader>& list) {
  const auto idx = idx_file(0x08, {3, 4, 5}, Bytes3{3, 4, 5}.bytes());
  const auto npy = npy_file("'<f4'", "(2, 3, 4, 5, 1)", counted<float>(120));
  list.push_back({.name = "idx",
                  .file = "t-images-idx3-ubyte",
                  .valid = {{idx}, {idx_file(0x0B, {1, 1, 2}, {0, 2, 1, 0})}, {idx_file(0x08, {3}, {1, 2, 0})}},
                  .read = [idx](const fs::path& file) {
                    // Reads the file as samples, or otherwise as the labels of three samples.
                    try {
                      return hash_of_opened(file);
                    } catch (const Error&) {
                      const auto samples = file.parent_path() / "three-images-idx3-ubyte";
                      if (!fs::exists(samples)) write_file(samples, idx);
                      return hash_of_source(*data::open_source(samples, {.labels = {{"kind", file}}}));
                    }
                  }});
  Bytes cifar;
  for (int i = 0; i < 2 * 3073; ++i) cifar.push_back(static_cast<std::byte>(i % 10));
  list.push_back({.name = "cifar", .file = "c.bin", .valid = {{cifar}}, .read = hash_of_opened});
  list.push_back({.name = "npy",
                  .file = "k_x.npy",
                  .valid = {{npy},
                            {npy_file("'>i2'", "(1, 3, 4, 5)", counted<std::int16_t>(60), 2)},
                            {npy_file("'<f8'", "(1, 2, 3)", counted<double>(6))}},
                  .read = [](const fs::path& file) {
                    std::uint64_t hash = hash_of_opened(file);
                    // Reads the file as the volume of a pair; its labels fit one of the valid files.
                    const auto labels = file.parent_path() / "k_y.npy";
                    if (!fs::exists(labels))
                      write_file(labels, npy_file("'|u1'", "(1, 3, 4, 5)", std::vector<std::uint8_t>(60, 1)));
                    try {
                      hash += hash_of_opened(file.parent_path());
                    } catch (const Error&) {
                      hash += 1;
                    }
                    return hash;
                  }});
  if (data::gzip_available())
    list.push_back({.name = "gzip",
                    .file = "a.npy.gz",
                    .valid = {{data::gzip(npy)}, {data::gzip(npy_file("'|u1'", "(1, 3, 4)", counted<std::uint8_t>(12)))}},
                    .read = hash_of_opened,
                    .wrap = [](const Bytes& input) { return data::gzip(input); }});
  if (data::zip_available())
    list.push_back({.name = "npz",
                    .file = "s.npz",
                    .valid = {{zip_file({{"x.npy", npy}})},
                              {zip_file({{"train_x.npy", npy},
                                         {"train_y.npy", npy_file("'<i8'", "(2,)", std::vector<std::int64_t>{1, 2})}})}},
                    .read =
                        [](const fs::path& file) {
                          auto hash = hash_of_opened(file);
#ifdef MPIGRAD_WITH_WEIGHTS
                          hash += hash_of_tensors(weights::read_npz(file).tensors);
#endif
                          return hash;
                        },
                    .wrap =
                        [](const Bytes& input) {
                          return zip_file({{"x.npy", input}});
                        }});
}

void add_volumes(std::vector<FileReader>& list) {
  const std::vector<int> ones(60, 1);
  list.push_back(
      {.name = "nifti",
       .file = "v.nii",
       .valid = {{nifti_file({5, 4, 3}, 4, ones)},
                 {nifti_file({5, 4, 3}, 2, ones)},
                 {nifti_file({5, 4, 3}, 512, ones, {.big = true})},
                 {placed_file({5, 4, 3}, std::vector<float>(60, 1.5F), {1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 3, 0}, {.version = 2})},
                 {nifti_file({5, 2, 3, 2}, 4, ones, {.slope = 0.5F, .shift = 1})}},
       .read = [](const fs::path& file) {
         auto hash = hash_of_opened(file);
         try {
           const auto labels = data::read_nifti_labels(file);
           hash +=
               content_hash({reinterpret_cast<const char*>(labels.values.data()), labels.values.size() * sizeof(std::int32_t)});
         } catch (const Error&) {
           hash += 1;
         }
         return hash;
       }});
  list.push_back({.name = "csv",
                  .file = "t.csv",
                  .valid = {{bytes_of_text("file,age,\"a, b\"\na.nii,1.5,2\nb.nii,2.5,\"3\"\n")},
                            {bytes_of_text("\xef\xbb\xbf"
                                           "file,x\r\na.nii,1e3\r\n\r\nb.nii,-2\r\n")}},
                  .read = [ones](const fs::path& file) {
                    const auto images = file.parent_path() / "images";
                    if (!fs::exists(images)) {
                      fs::create_directories(images);
                      for (const char* name : {"a.nii", "b.nii"}) write_file(images / name, nifti_file({5, 4, 3}, 4, ones));
                    }
                    return hash_of_source(data::VolumeFolder(images, "", {.targets = file}));
                  }});
}

std::string raw_record(int s) {
  std::string bytes;
  for (int i = 0; i < 64; ++i) bytes.push_back(static_cast<char>(i + s)), bytes.push_back(0);
  return data::example_record("x", bytes, "y", {1, 2, 3, static_cast<float>(s)});
}

void add_records(std::vector<FileReader>& list) {
  if (!data::examples_available()) return;
  const auto frames = [](const std::string& record) { return bytes_of_text(data::framed(record)); };
  const auto one = frames(raw_record(0));
  const auto two = bytes_of_text(data::framed(raw_record(0)) + data::framed(raw_record(1)));
  list.push_back({.name = "tfrecord",
                  .file = "r.tfrecord",
                  .valid = {{one}, {two, one.size()}},
                  .read =
                      [](const fs::path& file) {
                        return hash_of_source(*data::open_source(file, {.extents = {2, 2, 4}}));
                      },
                  .wrap =
                      [frames](const Bytes& input) {
                        return frames({reinterpret_cast<const char*>(input.data()), input.size()});
                      }});
}

// A changed PNG with right checksums of all chunks: length, name, content, checksum.
Bytes with_checksums(Bytes png) {
  constexpr std::size_t signature = 8, before = 8, behind = 4;
  for (std::size_t at = signature; at + before + behind <= png.size();) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<std::size_t>(png[at + i]);
    if (length > png.size() - at - before - behind) break;
    const auto named = png.begin() + static_cast<std::ptrdiff_t>(at + 4);
    Bytes checksum;
    append(checksum, checksum_of({named, named + static_cast<std::ptrdiff_t>(4 + length)}), true);
    std::copy(checksum.begin(), checksum.end(), named + static_cast<std::ptrdiff_t>(4 + length));
    at += before + length + behind;
  }
  return png;
}

void add_images(std::vector<FileReader>& list, const fs::path& folder) {
  if (!pictures_can_be_written()) return;
  const auto pixels = [](int channels) {
    std::vector<std::uint8_t> result;
    for (int i = 0; i < 9 * 11 * channels; ++i) result.push_back(static_cast<std::uint8_t>(i * 7));
    return result;
  };
  FileReader png{.name = "png", .file = "images/class/p.png"}, jpeg{.name = "jpeg", .file = "images/class/p.jpg"};
  for (const int channels : {1, 3}) {
    png.valid.push_back(
        {written(folder, "p.png", [&](const fs::path& path) { write_png(path, 9, 11, channels, pixels(channels)); })});
    jpeg.valid.push_back(
        {written(folder, "p.jpg", [&](const fs::path& path) { write_jpeg(path, 9, 11, channels, pixels(channels)); })});
  }
  png.valid.push_back({png_file(2, 2, 16, 0, {1, 2, 3, 4, 5, 6, 7, 8})});
  png.valid.push_back({png_file(2, 2, 8, 3, {0, 1, 1, 0}, {{"PLTE", {0, 0, 0, 255, 255, 255}}})});
  png.read = jpeg.read = [](const fs::path& file) { return hash_of_opened(file.parent_path().parent_path()); };
  png.wrap = with_checksums;
  list.push_back(png), list.push_back(jpeg);
}

#ifdef MPIGRAD_WITH_HDF5
void add_hdf5(std::vector<FileReader>& list, const fs::path& folder) {
  const auto volumes = written(folder, "u.h5", [](const fs::path& path) {
    Hdf5Writer writer(path, true);
    const std::vector<std::int16_t> counts(3 * 3 * 3 * 2, 5);
    writer.write("full", {3, 3, 3, 2}, DType::int16, counts.data());
    writer.write<float>("unitPar", counted<float>(4));
    writer.write_strings("namePar", {"a", "b", "c", "d"});
    writer.commit();
  });
  const auto packed = written(folder, "packed.h5", [&](const fs::path& path) {
    write_file(folder / "t-images-idx3-ubyte", idx_file(0x08, {3, 4, 5}, Bytes3{3, 4, 5}.bytes()));
    write_file(folder / "t-kind-idx1-ubyte", idx_file(0x08, {3}, {1, 2, 0}));
    data::pack(*data::open_source(folder / "t-images-idx3-ubyte"), path);
  });
  const auto chunks = written(folder, "chunks.h5", [](const fs::path& path) {
    write_packed(path, "volume", {2, 3, 4, 5, 1}, {1, 3, 4, 5, 1}, std::vector<std::uint8_t>(120, 3));
  });
  list.push_back(
      {.name = "hdf5_volumes", .file = "u.h5", .valid = {{volumes}, {packed}, {chunks}}, .read = [](const fs::path& file) {
         return hash_of_source(*data::open_source(file, {.targets = Hdf5Reader(file).contains("label")}));
       }});
  const auto weights_file = [&](bool half) {
    return ValidFile{written(folder, "c.h5", [half](const fs::path& path) {
      write_weights(path, {.info = {.step = 3, .notes = {{"a", "b"}}}, .tensors = two_tensors()}, half, true);
    })};
  };
  list.push_back({.name = "hdf5_weights",
                  .file = "c.h5",
                  .valid = {weights_file(false), weights_file(true)},
                  .read = [](const fs::path& file) { return hash_of_tensors(read_weights(file).tensors); }});
}
#endif

void add_texts(std::vector<FileReader>& list, [[maybe_unused]] const fs::path& folder) {
#ifdef MPIGRAD_WITH_WEIGHTS
  list.push_back(
      {.name = "safetensors",
       .file = "w.safetensors",
       .valid = {{written(folder, "w.safetensors",
                          [](const fs::path& path) {
                            weights::write_safetensors(path, {.tensors = two_tensors(), .metadata = {{"format", "pt"}}}, true);
                          })}},
       .read = [](const fs::path& file) { return hash_of_tensors(weights::read_safetensors(file).tensors); }});
#endif
#ifdef MPIGRAD_WITH_TOML
  const char* machine = R"(name = "test"
overlaps = false
[device]
name = "chip"
memory = 1000000000
memory_bandwidth = 1e11
launch = 0
[device.flops]
float32 = 1e12
[device.efficiency]
conv = 0.5
[[level]]
name = "node"
ranks = 4
latency = 1e-6
bandwidth = 1e10
[disk]
read = 2e9
[measured]
ops = [{op = "relu", in = "float32[2,8]", out = "float32[2,8] -", ranks = 2, flops = 0, bytes = 128, seconds = 1e-6}]
calls = [{call = "allreduce", ranks = 2, points = [[8, 1e-6], [1024, 3e-6]]}]
[sources]
device = "data sheet"
"device.launch" = "assumed"
"device.flops.float32" = "data sheet"
"device.efficiency" = "assumed"
"level.node" = "measured"
disk = "measured"
measured = "measured"
)";
  list.push_back({.name = "toml",
                  .file = "m.toml",
                  .every_cut_told = false,
                  .valid = {{bytes_of_text(machine)}},
                  .read = [](const fs::path& file) { return content_hash(planner::to_toml(planner::read_machine(file))); }});
#endif
  static_cast<void>(list);
}

}  // namespace

std::vector<FileReader> file_readers(const fs::path& folder) {
  std::vector<FileReader> list;
  add_arrays(list), add_volumes(list), add_records(list), add_images(list, folder), add_texts(list, folder);
#ifdef MPIGRAD_WITH_HDF5
  add_hdf5(list, folder);
#endif
  return list;
}

ReadFile read_bytes(const FileReader& reader, const fs::path& folder, const Bytes& bytes) {
  const auto file = folder / reader.file;
  fs::create_directories(file.parent_path());
  write_file(file, bytes);
  try {
    return {.hash = reader.read(file)};
  } catch (const Error& error) {
    return {.error = error.what()};
  }
}

}  // namespace mpigrad::testing
