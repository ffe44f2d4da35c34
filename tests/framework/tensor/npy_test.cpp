// Tensors as .npy files: reading returns what was written; data that NumPy or one process cannot hold are refused.

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "comm/distributed/grid.h"
#include "framework/base/new_file.h"
#include "models/data/sources/npy.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/format_files.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

TEST_CASE("npy: a tensor of every type comes back") {
  const Folder folder;
  const auto path = folder / "x.npy";
  for (const auto type : {DType::float32, DType::float64, DType::int64, DType::int32, DType::int16, DType::uint8, DType::boolean,
                          DType::float16, DType::uint16})
    for (const auto& shape : {Shape{}, Shape{3}, Shape{2, 0}, Shape{2, 1, 3}}) {
      const auto x = full(shape, type == DType::boolean ? 1 : 200.5, type);
      write_npy(path, x, true);
      const auto back = read_npy(path);
      CHECK(back.type() == x.type());
      CHECK(back.to_vector() == x.to_vector());
    }
  const std::vector<double> halves{65504, -0x1p-24, 0.333251953125, -2};
  write_npy(path, from_vector({2, 2}, halves, DType::float16), true);
  CHECK(read_npy(path).to_vector() == halves);
  CHECK(folder.files() == 1);
}

TEST_CASE("npy: files of NumPy's, byte for byte, and those in other byte orders and types") {
  const Folder folder;
  const auto path = folder / "x.npy";
  write_npy(path, from_vector({2, 1}, {1, -2}, DType::int32));
  std::ifstream stream(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  CHECK(bytes.size() == 128 + 8);
  CHECK(bytes.substr(8, 2) == std::string("\x76\x00", 2));
  CHECK(bytes.substr(10).starts_with("{'descr': '<i4', 'fortran_order': False, 'shape': (2, 1, ), }"));
  CHECK(bytes[127] == '\n');

  write_file(path, npy_file("'>f2'", "(2,)", std::vector<std::uint8_t>{0x3c, 0x00, 0xc0, 0x00}));
  CHECK(fmt::format("{}", read_npy(path)) == "[ 1. -2.] float16 [2]");
  write_file(path, npy_file("'|i1'", "(2,)", std::vector<std::int8_t>{-5, 5}, 2));
  CHECK(fmt::format("{}", read_npy(path)) == "[-5  5] int16 [2]");
}

TEST_CASE("npy: what is refused") {
  const Folder folder;
  const auto path = folder / "x.npy";
  const auto refused = [&](const Tensor& x) { return error_text([&] { write_npy(path, x); }); };
  CHECK(has(refused(zeros({2}, DType::bfloat16)), "NumPy has no bfloat16"));
  CHECK(has(refused({}), "a tensor without elements: none"));
  on_ranks(2, [&](const Communicator& world) {
    const auto grid = std::make_shared<Grid>(world, std::vector<std::string>{"sample"}, std::vector{2});
    CHECK(has(refused(ones({1}).with_layout(split_layout(grid, {2}, {0}))), "this rank holds a block of the tensor"));
  });
  CHECK(!is_name_taken(path));
  write_npy(path, ones({2}));
  CHECK(has(refused(zeros({2})), "x.npy: exists already; it is replaced only when asked to overwrite"));
  CHECK(read_npy(path).to_vector() == std::vector<double>{1, 1});

  const auto unread = [&](const Bytes& bytes) {
    write_file(path, bytes);
    return error_text([&] { read_npy(path); });
  };
  CHECK(has(unread(npy_file("'<f4'", "(1, 1), 'fortran_order': True", std::vector<float>{1})), "in Fortran order"));
  CHECK(has(unread(npy_file("'<f4'", "(3,)", std::vector<float>{1})), "truncated"));
  CHECK(has(unread(npy_file("'<f4'", "(1,)", std::vector<float>{1, 2})), "longer than it says"));
  CHECK(has(error_text([&] { read_npy(folder / "missing.npy"); }), "missing.npy"));
}
