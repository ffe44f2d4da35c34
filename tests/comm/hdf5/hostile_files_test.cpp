// Files with false claims, that decompress to more than they declare, lead elsewhere or contain terminal control codes: one error
// that names the file, before memory is allocated or other files are opened.

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <array>
#include <cstdlib>
#include <limits>

#include "comm/hdf5/hdf5_file.h"
#include "framework/base/host_memory.h"
#include "framework/base/printable.h"
#include "models/data/data.h"
#include "models/data/sources/formats.h"
#include "models/data/sources/open.h"
#include "models/train/checkpoint/checkpoint.h"
#include "tests/support/files.h"
#include "tests/support/format_files.h"
#include "tests/support/hdf5_files.h"

using namespace mpigrad;
using namespace mpigrad::data;
using namespace mpigrad::testing;
namespace fs = std::filesystem;

namespace {

std::string open_error(const fs::path& path, const OpenOptions& options = {}) {
  return error_text([&] { open_source(path, options)->check(0, 1); });
}

// Compressed data: `start`, then 64 MiB of zeros with a corrupt end, which is an error for a reader that reads so far.
Bytes bomb(const Bytes& start) {
  const auto zeros = gzip(Bytes(1 << 20));
  auto packed = gzip(start);
  for (int i = 0; i < 64; ++i) packed.insert(packed.end(), zeros.begin(), zeros.end());
  packed[packed.size() - 6] ^= std::byte{1};
  return packed;
}

constexpr auto within = Hdf5Reach::folder;

// Writes a file with the dataset x = 1, 2, 3.
void write_x(const fs::path& path) {
  Hdf5Writer writer(path, true);
  const std::vector<std::uint8_t> values{1, 2, 3};
  writer.write<std::uint8_t>("x", values);
  writer.commit();
}

// Sets an environment variable while in scope.
struct Setting {
  Setting(const char* name, const std::string& value) : name(name) { ::setenv(name, value.c_str(), 1); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;
  ~Setting() { ::unsetenv(name); }
  const char* name;
};

}  // namespace

TEST_CASE("hostile files: unpacking ends where the header says that the data end") {
  if (!gzip_available()) return skip_test("hostile files: gzip", "this build has no zlib");
  const Folder folder;
  const auto refused = [&](const char* name, const Bytes& bytes) {
    write_file(folder / name, bytes);
    return open_error(folder / name);
  };
  const Bytes3 images{2, 2, 2};
  CHECK(has(refused("t-images-idx3-ubyte.gz", bomb(idx_file(0x08, {2, 2, 2}, images.bytes()))),
            "t-images-idx3-ubyte.gz: longer than it says"));
  CHECK(has(refused("a.npy.gz", bomb(npy_file("'|u1'", "(1, 2, 2)", std::vector<std::uint8_t>(4)))),
            "a.npy.gz: longer than it says"));
  CHECK(has(refused("v.nii.gz", bomb(nifti_file({3, 2, 1}, 4, {10, 20, 30, 40, 50, 60}))), "v.nii.gz: longer than it says"));
  if (zip_available()) {
    auto longer = npy_file("'|u1'", "(1, 2, 2)", std::vector<std::uint8_t>(4));
    longer.resize(longer.size() + (1 << 20));
    CHECK(has(refused("z.npz", zip_file({{"x.npy", longer}})), "z.npz: 'x': longer than it says"));
  }
}

TEST_CASE("hostile files: what cannot be there, or has no room in memory, is refused at once and by name") {
  const Folder folder;
  const auto refused = [&](const char* name, const Bytes& bytes) {
    write_file(folder / name, bytes);
    return open_error(folder / name);
  };
  const std::string huge = "(1024, 1048576, 1048576)";  // 2^50
  CHECK(has(refused("a.npy", npy_file("'|u1'", huge, std::vector<std::uint8_t>(4))), "a.npy: truncated: 4 bytes of elements"));
  CHECK(has(refused("t-images-idx3-ubyte", idx_file(0x08, {4294967295, 1024, 1024}, {1})), "truncated: 1 bytes"));
  CHECK(has(refused("a.npy", npy_file("'|u1'", "(1024, 1125899906842624, 1)", std::vector<std::uint8_t>(4))),
            "a.npy: a file cannot have the extents "));
  if (gzip_available()) {
    CHECK(has(refused("a.npy.gz", gzip(npy_file("'|u1'", huge, std::vector<std::uint8_t>(4)))), "a.npy.gz: truncated"));
    CHECK(has(refused("t-images-idx3-ubyte.gz", gzip(idx_file(0x08, {4294967295, 1024, 1024}, {1}))), "truncated"));
  }
  // A sparse file of 4 TiB, as long as its header declares.
  write_file(folder / "holes.npy", npy_file("'|u1'", "(1, 2097152, 2097152)", std::vector<std::uint8_t>(4)));
  std::error_code error;
  fs::resize_file(folder / "holes.npy", fs::file_size(folder / "holes.npy") - 4 + (std::uintmax_t{1} << 42), error);
  if (error) count_skipped("hostile files: holes", "no sparse files here");
  else CHECK(has(open_error(folder / "holes.npy"), "holes.npy: 4398046511104 bytes (4096.0 GiB) of memory are needed, "));

  CHECK(available_host_bytes() > 0);
  CHECK(error_text([] { require_host_memory("[test] x", 1000); }).empty());
  CHECK(has(error_text([] { require_host_memory("[test] x", 1e17); }), "[test] x: 100000000000000000 bytes"));
}

TEST_CASE("hostile files: HDF5 that claims more than there is") {
  if (without_hdf5("hostile files: claims")) return;
  const Folder folder;
  const OpenOptions plain{.names = {.volume = "volume", .label = ""}};
  const std::uint64_t many = std::uint64_t{1} << 50;
  write_claim(folder / "n.h5", "volume", {many, 1, 1, 1, 1}, true);
  CHECK(has(open_error(folder / "n.h5", plain), "n.h5: 'volume', 1125899906842624 samples: "));
  write_claim(folder / "n.h5", "volume", {1 << 20, 4, 4, 4, 1}, false);
  CHECK(has(open_error(folder / "n.h5", plain), "n.h5: 'volume' claims [1048576, 4, 4, 4, 1] and was never written"));
  write_claim(folder / "n.h5", "volume", {many, many, many, 1, 1}, false);
  CHECK(has(open_error(folder / "n.h5", plain), "more than there can be, not numbers"));
  write_claim(folder / "n.h5", "volume", {0, many, many, 1, 1}, false);
  CHECK(has(open_error(folder / "n.h5", plain), "more than there can be, not numbers"));
  write_claim(folder / "n.h5", "label", {many}, true);
  CHECK(has(error_text([&] { Hdf5Reader(folder / "n.h5").read<double>("label"); }),
            "n.h5: dataset 'label', [1125899906842624]: 9007199254740992 bytes"));

  write_short_compact(folder / "c.h5", "label", 37, 293);
  CHECK(has(error_text([&] { Hdf5Reader(folder / "c.h5").read<double>("label"); }),
            "c.h5: dataset 'label' has 293 elements of 1 bytes, and only 37 bytes are stored"));

  // A dataset larger than memory can be opened and read in parts, but one sample of it cannot be read whole.
  write_claim(folder / "large.h5", "volume", {2, 65536, 65536, 65536, 1}, true);
  const auto large = open_source(folder / "large.h5", plain);
  CHECK(large->size() == 2);
  CHECK(large->values(0, {{0, 0, 0}, {1, 1, 2}}) == std::vector<double>{7, 0});
  const auto whole = error_text([&] { Loader(large, {.batch = 1}).batch(0, 0); });
  CHECK_MESSAGE(has(whole, "large.h5: 'volume' [0]: the cells "), whole);
  CHECK_MESSAGE(has(whole, "281474976710656 bytes"), whole);
}

TEST_CASE("hostile files: HDF5 leads nowhere outside its folder") {
  if (without_hdf5("hostile files: links")) return;
  const Folder folder;
  const auto inside = folder / "inside";
  fs::create_directory(inside);
  write_x(folder / "secret.h5"), write_x(inside / "beside.h5");
  write_file(folder / "secret", {std::byte{1}, std::byte{2}, std::byte{3}});
  const auto file = inside / "a.h5";
  const auto read_error = [&] {
    return error_text([&] { require(Hdf5Reader(file, within).read<std::uint8_t>("v")[2] == 3, "[test] other values"); });
  };
  for (const auto& elements : {folder / "secret", fs::path("secret")}) {
    write_external_storage(file, "v", elements.string(), 3);
    CHECK(has(read_error(), "a.h5: dataset 'v' has its elements in " + elements.string() + " (external storage)"));
  }
  write_external_link(file, "v", "../secret.h5", "x");
  CHECK(has(read_error(), "'v' cannot be opened: it is a link to ../secret.h5, which is outside this file's folder"));
  CHECK(has(error_text([&] { Hdf5Reader(file, within).contains("v"); }), "it is a link to ../secret.h5"));
  CHECK_FALSE(Hdf5Reader(file, within).has_attribute("v", "unit"));
  write_external_link(file, "v", (folder / "secret.h5").string(), "x");
  CHECK(has(read_error(), "which is outside this file's folder"));
  write_external_link(file, "v", "nowhere.h5", "x");
  CHECK(has(read_error(), "which is not in this file's folder"));
  fs::create_symlink(folder / "secret.h5", inside / "through.h5");
  write_external_link(file, "v", "through.h5", "x");
  CHECK(has(read_error(), "which is outside this file's folder"));
  write_external_link(file, "v", "beside.h5", "x");
  CHECK(read_error().empty());

  write_virtual(file, "v", {3}, "../secret.h5", "x");
  CHECK(has(read_error(), "'v' has its elements in ../secret.h5: 'x', which is outside this file's folder"));
  write_virtual(file, "v", {3}, "beside.h5", "x");
  CHECK(read_error().empty());
  // Names in a linked file are relative to that file's folder.
  fs::create_directory(inside / "deeper");
  fs::create_symlink(folder / "secret.h5", inside / "deeper/beside.h5");
  write_virtual(inside / "deeper/b.h5", "x", {3}, "beside.h5", "x");
  write_external_link(file, "v", "deeper/b.h5", "x");
  CHECK(has(read_error(), "deeper/b.h5: dataset 'v' has its elements in beside.h5: 'x', which is outside this file's folder"));
}

TEST_CASE("hostile files: the source of a virtual dataset has its elements itself") {
  if (without_hdf5("hostile files: sources")) return;
  const Folder folder;
  fs::create_directory(folder / "inside");
  const auto file = folder / "inside/a.h5";
  write_x(folder / "secret.h5"), write_x(folder / "inside/beside.h5");
  write_file(folder / "secret", {std::byte{1}, std::byte{2}, std::byte{3}});
  const auto refused = [&](const std::string& reason) {
    const auto text = error_text([&] { Hdf5Reader(file, within).read<std::uint8_t>("v"); });
    CHECK_MESSAGE(has(text, "a.h5: dataset 'v' has its elements in " + reason), text);
    CHECK(error_text([&] { Hdf5Reader(file, within).contains("v"); }) == text);
    CHECK(Hdf5Reader(file, within).datasets().size() < 2);
    const auto opened = open_error(file, {.names = {.volume = "v", .label = ""}});
    CHECK_MESSAGE(has(opened, reason), opened);
  };
  write_external_storage(file, "leak", (folder / "secret").string(), 3);
  write_virtual(file, "v", {3}, ".", "leak", true);
  refused("the same file: 'leak' has its elements in " + (folder / "secret").string());
  write_virtual(file, "v", {3}, "a.h5", "v");
  refused("a.h5: 'v', which is virtual itself");
  write_virtual(file, "v", {3}, ".", "v");
  refused("the same file: 'v', which is virtual itself");
  write_virtual(file, "w", {3}, ".", "v");
  write_virtual(file, "v", {3}, ".", "w", true);
  refused("the same file: 'w', which is virtual itself");
  write_virtual(folder / "inside/next.h5", "x", {3}, "beside.h5", "x");
  write_virtual(file, "v", {3}, "next.h5", "x");
  refused("next.h5: 'x', which is virtual itself");
  write_external_link(file, "link", "../secret.h5", "x");
  write_virtual(file, "v", {3}, ".", "link", true);
  refused("the same file: 'link', which is no dataset of that file: it is a link to ../secret.h5");
  // HDF5 reads %% as the name %, and %b in growing datasets as numbers.
  write_x(file);
  write_virtual(file, "v", {3}, ".", "x%%", true);
  refused("the same file: 'x%%', whose names are only a pattern");
  for (const auto* name : {"", "..", "deeper", "none.h5"}) {
    fs::create_directory(folder / "inside/deeper");
    write_virtual(file, "v", {3}, name, "x");
    refused(name);
  }

  write_x(file);
  write_virtual(file, "v", {3}, ".", "x", true);
  {
    // The same file can still be read under another name.
    const Hdf5Reader reader(file, within);
    CHECK(reader.read<std::uint8_t>("v") == std::vector<std::uint8_t>{1, 2, 3});
    fs::rename(file, folder / "inside/renamed.h5");
    CHECK(reader.read<std::uint8_t>("v") == std::vector<std::uint8_t>{1, 2, 3});
    CHECK(reader.contains("v"));
  }
  // Source files that are already open, and source files that are missing when they are read.
  write_virtual(file, "v", {3}, "beside.h5", "x");
  const Hdf5Reader source(folder / "inside/beside.h5"), reader(file, within);
  CHECK(reader.read<std::uint8_t>("v") == std::vector<std::uint8_t>{1, 2, 3});
  CHECK(Hdf5Reader(folder / "inside/beside.h5").contains("x"));
  fs::remove(folder / "inside/beside.h5");
  CHECK(has(error_text([&] { reader.read<std::uint8_t>("v"); }), "beside.h5: cannot be opened"));
}

TEST_CASE("hostile files: HDF5 opens what was checked, or nothing") {
  if (without_hdf5("hostile files: other files")) return;
  const Folder folder;
  const auto inside = folder / "inside", elsewhere = folder / "elsewhere";
  fs::create_directory(inside), fs::create_directory(elsewhere);
  write_x(inside / "beside.h5"), write_x(elsewhere / "beside.h5");
  const auto file = inside / "a.h5";
  const auto refused = [&] { return error_text([&] { Hdf5Reader(file, within).read<std::uint8_t>("v"); }); };
  write_external_link(file, "v", "beside.h5", "x");
  {
    const Setting setting("HDF5_EXT_PREFIX", elsewhere.string());
    CHECK(has(refused(), "'v' is found in " + (elsewhere / "beside.h5").string() + ", which is outside this file's folder"));
    CHECK(has(error_text([&] { static_cast<void>(Hdf5Reader(file, within).number_attribute("v", "unit")); }), "no attribute"));
  }
  CHECK(refused().empty());
  write_virtual(file, "v", {3}, "beside.h5", "x");
  {
    const Setting setting("HDF5_VDS_PREFIX", elsewhere.string());
    CHECK(has(refused(), "for which HDF5_VDS_PREFIX=" + elsewhere.string() + " makes HDF5 look elsewhere: unset it"));
  }
  const Setting setting("HDF5_VDS_PREFIX", "${ORIGIN}");
  CHECK(refused().empty());

  // HDF5 would wait for the pipe, and look in the working directory for a file that is not HDF5.
  REQUIRE(::mkfifo((inside / "pipe.h5").c_str(), 0600) == 0);
  write_file(inside / "text.h5", {std::byte{1}});
  CHECK(has(open_error(inside / "pipe.h5"), "pipe.h5"));
  for (const auto& [name, reason] :
       {std::pair{"pipe.h5", "which is not a regular file"}, {"text.h5", "which is not an HDF5 file"}}) {
    write_external_link(file, "v", name, "x");
    CHECK(has(refused(), reason));
    write_virtual(file, "v", {3}, name, "x");
    CHECK(has(refused(), reason));
  }
  // Links that refer to each other.
  write_external_link(file, "v", "b.h5", "v"), write_external_link(inside / "b.h5", "v", "a.h5", "v");
  CHECK(has(refused(), "a.h5: dataset 'v' cannot be opened: "));
}

TEST_CASE("hostile files: weights lead to no other file") {
  if (without_hdf5("hostile files: weights")) return;
  const Folder folder;
  const auto file = folder / "a.h5";
  write_x(folder / "beside.h5");
  write_file(folder / "secret", {std::byte{1}, std::byte{2}, std::byte{3}});
  const auto refused = [&](const std::string& reason) {
    for (const auto& text : {error_text([&] { Hdf5Reader(file).read<std::uint8_t>("v"); }),
                             error_text([&] { static_cast<void>(Hdf5Reader(file).datasets()); })}) {
      CHECK_MESSAGE(has(text, "a.h5: "), text);
      CHECK_MESSAGE(has(text, reason), text);
    }
  };
  write_external_link(file, "v", "beside.h5", "x"), refused("this file may not refer to other files");
  write_external_link(file, "v", "a.h5", "v"), refused("this file may not refer to other files");
  write_virtual(file, "v", {3}, "beside.h5", "x"), refused("is virtual, and this file must hold its elements itself");
  write_virtual(file, "v", {3}, ".", "v"), refused("is virtual");
  write_external_storage(file, "v", "secret", 3), refused("(external storage), which is not read");

  // Also for checkpoints, and if only a part of them refers to another file.
  const auto make = [&] {
    CheckpointTensors weights;
    weights.tensors.push_back({"parameters/w", ones({3})});
    write_weights(file, weights, false, true);
  };
  make();
  CHECK(read_weights(file).tensors.size() == 1);
  const auto weights_error = [&] { return error_text([&] { read_weights(file); }); };
  write_virtual(file, "parameters/v", {3}, ".", "parameters/v", true);
  CHECK(has(weights_error(), "a.h5: dataset 'parameters/v' is virtual"));
  make(), write_external_storage(file, "parameters/v", "secret", 3, true);
  CHECK(has(weights_error(), "(external storage), which is not read"));
  make(), write_external_link(file, "parameters/v", "beside.h5", "x", true);
  CHECK(has(weights_error(), "'parameters/v' is a link to another file"));
}

TEST_CASE("hostile files: groups and texts of HDF5 have an end") {
  if (without_hdf5("hostile files: groups")) return;
  const Folder folder;
  write_deep(folder / "a.h5", 64);
  CHECK(Hdf5Reader(folder / "a.h5").datasets().size() == 1);
  write_deep(folder / "a.h5", 65);
  CHECK(
      has(error_text([&] { static_cast<void>(Hdf5Reader(folder / "a.h5").datasets()); }), "groups in groups, more than 64 deep"));
  const std::string text(1 << 20, 'x');
  write_same_text(folder / "a.h5", "v", text, 3);
  CHECK(Hdf5Reader(folder / "a.h5").read_strings("v") == std::vector<std::string>(3, text));
  write_same_text(folder / "a.h5", "v", text, 100);
  CHECK(has(error_text([&] { static_cast<void>(Hdf5Reader(folder / "a.h5").read_strings("v")); }),
            "a.h5: dataset 'v' has longer texts than its file has bytes"));
  std::error_code error;
  fs::resize_file(folder / "a.h5", std::uintmax_t{1} << 40, error);
  if (error) count_skipped("hostile files: texts in holes", "no sparse files here");
  else
    CHECK(has(error_text([&] { static_cast<void>(Hdf5Reader(folder / "a.h5").read_strings("v")); }),
              "longer texts than its file has bytes"));

  // The claimed length of a text of 3 bytes.
  constexpr std::uint32_t claim = 0x70000000;
  write_same_text(folder / "b.h5", "v", "abc", 2);
  claim_text_length(folder / "b.h5", 3, claim);
  CHECK(has(error_text([&] { static_cast<void>(Hdf5Reader(folder / "b.h5").read_strings("v")); }),
            "b.h5: dataset 'v' has longer texts than its file has bytes"));
  write_claim(folder / "c.h5", "v", {1}, true), add_text_attribute(folder / "c.h5", "unit", "abc");
  CHECK(Hdf5Reader(folder / "c.h5").text_attribute("/", "unit") == "abc");
  claim_text_length(folder / "c.h5", 3, claim);
  CHECK(has(error_text([&] { static_cast<void>(Hdf5Reader(folder / "c.h5").text_attribute("/", "unit")); }),
            "c.h5: attribute 'unit' of '/' claims 1879048192 bytes of text, more than 16777216"));
}

TEST_CASE("hostile files: their text does nothing to a terminal") {
  CHECK(printable("conv1.weight, \xc3\xa9t\xc3\xa9 \xe2\x82\xac") == "conv1.weight, \xc3\xa9t\xc3\xa9 \xe2\x82\xac");
  CHECK(printable("\x1b[2J\n\r\t\x7f") == "\\x1b[2J\\x0a\\x0d\\x09\\x7f");
  CHECK(printable("\xc2\x9b"
                  "2J \xe2\x80\xae") == "\\xc2\\x9b2J \\xe2\\x80\\xae");  // C1's CSI, right-to-left override
  CHECK(printable("\xff\xc0\xaf\xe2\x82") == "\\xff\\xc0\\xaf\\xe2\\x82");
  CHECK(printable(printable("\x1b\\x")) == printable("\x1b\\x"));
  CHECK(printable("abcdef", 3) == "abc...");

  const Folder folder;
  const auto clean = [](const std::string& text) { return text == printable(text, text.size() + 1); };
  const auto npy = open_error([&] {
    write_file(folder / "a.npy", npy_file("'\x1b[31m'", "(1, 2, 2)", std::vector<std::uint8_t>(4)));
    return folder / "a.npy";
  }());
  CHECK(has(npy, "\\x1b[31m"));
  CHECK(clean(npy));
  if (without_hdf5("hostile files: names")) return;
  const std::string red = "red\x1b[31m";
  Hdf5Writer writer(folder / "a.h5", false);
  const std::vector<std::uint8_t> volume(8);
  const std::vector<std::int64_t> label{1, 0};
  writer.write("volume", {2, 1, 2, 2, 1}, DType::uint8, volume.data());
  writer.write<std::int64_t>("label", label);
  writer.write_strings("label_names", {red});
  writer.write<std::int64_t>("x" + red, label);
  writer.commit();
  CHECK(open_source(folder / "a.h5")->target_names() == std::vector<std::string>{"red\\x1b[31m"});
  const auto missing = error_text([&] { Hdf5Reader(folder / "a.h5").describe("y"); });
  CHECK(has(missing, "xred\\x1b[31m"));
  CHECK(clean(missing));
}
