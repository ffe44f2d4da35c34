// Files that claim what they do not hold, unpack to more than they say, lead elsewhere or speak to the terminal: one error that
// names the file, before any memory is asked for or anything else is opened.

#include <doctest/doctest.h>

#include <array>
#include <limits>

#include "comm/hdf5/hdf5_file.h"
#include "framework/tensor/host_memory.h"
#include "framework/tensor/printable.h"
#include "models/data/data.h"
#include "models/data/sources/formats.h"
#include "models/data/sources/open.h"
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

// `start`, packed, and 64 MiB of zeros that are corrupt at their end: who reads that far says so.
Bytes bomb(const Bytes& start) {
  const auto zeros = gzip(Bytes(1 << 20));
  auto packed = gzip(start);
  for (int i = 0; i < 64; ++i) packed.insert(packed.end(), zeros.begin(), zeros.end());
  packed[packed.size() - 6] ^= std::byte{1};
  return packed;
}

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
  const std::string huge = "(1125899906842624, 1024, 1024)";  // 2^70
  CHECK(has(refused("a.npy", npy_file("'|u1'", huge, std::vector<std::uint8_t>(4))), "a.npy: truncated: 4 bytes of elements"));
  CHECK(has(refused("t-images-idx3-ubyte", idx_file(0x08, {4294967295, 4294967295, 4294967295}, {1})), "truncated: 1 bytes"));
  if (gzip_available()) {
    CHECK(has(refused("a.npy.gz", gzip(npy_file("'|u1'", huge, std::vector<std::uint8_t>(4)))), "a.npy.gz: truncated"));
    CHECK(has(refused("t-images-idx3-ubyte.gz", gzip(idx_file(0x08, {4294967295, 4294967295, 1}, {1}))), "truncated"));
  }
  // 4 TiB of holes: as long as it says.
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
  write_claim(folder / "n.h5", "label", {many}, true);
  CHECK(has(error_text([&] { Hdf5Reader(folder / "n.h5").read<double>("label"); }),
            "n.h5: dataset 'label', [1125899906842624]: 9007199254740992 bytes"));

  // A set that is large beyond all memory is read where it is asked for; a sample of it as a whole is not.
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
  const auto own = [](const fs::path& path) {
    Hdf5Writer writer(path, true);
    const std::vector<std::uint8_t> values{1, 2, 3};
    writer.write<std::uint8_t>("x", values);
    writer.commit();
  };
  own(folder / "secret.h5"), own(inside / "beside.h5");
  write_file(folder / "secret", {std::byte{1}, std::byte{2}, std::byte{3}});
  const auto file = inside / "a.h5";
  const auto read_error = [&] {
    return error_text([&] { require(Hdf5Reader(file).read<std::uint8_t>("v")[2] == 3, "[test] other values"); });
  };
  for (const auto& elements : {folder / "secret", fs::path("secret")}) {
    write_external_storage(file, "v", elements.string(), 3);
    CHECK(has(read_error(), "a.h5: dataset 'v' has its elements in " + elements.string() + " (external storage)"));
  }
  write_external_link(file, "v", "../secret.h5", "x");
  CHECK(has(read_error(), "'v' cannot be opened: it is a link to ../secret.h5, which is outside this file's folder"));
  CHECK_FALSE(Hdf5Reader(file).contains("v"));
  CHECK_FALSE(Hdf5Reader(file).has_attribute("v", "unit"));
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
  CHECK(has(read_error(), "'v' has its elements in ../secret.h5, which is outside this file's folder"));
  write_virtual(file, "v", {3}, "beside.h5", "x");
  CHECK(read_error().empty());
  write_virtual(inside / "next.h5", "x", {3}, "../secret.h5", "x");  // and by a detour
  write_virtual(file, "v", {3}, "next.h5", "x");
  CHECK(has(read_error(), "next.h5: dataset 'x' has its elements in ../secret.h5"));
  // Names in a file that a link led to are of that file's folder.
  fs::create_directory(inside / "deeper");
  fs::create_symlink(folder / "secret.h5", inside / "deeper/beside.h5");
  write_virtual(inside / "deeper/b.h5", "x", {3}, "beside.h5", "x");
  write_external_link(file, "v", "deeper/b.h5", "x");
  CHECK(has(read_error(), "deeper/b.h5: dataset 'v' has its elements in beside.h5, which is outside this file's folder"));
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
