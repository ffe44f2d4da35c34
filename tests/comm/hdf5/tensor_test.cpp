#include "comm/hdf5/hdf5_tensor.h"

#include <doctest/doctest.h>

#include "tests/comm/hdf5/tensor_cases.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"

namespace mpigrad {

using namespace testing;

TEST_CASE("hdf5: distributed tensors are written and read by one call each") {
  if (without_hdf5("hdf5 tensors")) return;
  for (const int ranks : {1, 2, 3}) {
    const Folder folder;
    check_on_ranks(ranks, "tensors", [&](const Communicator& world) { check_hdf5_tensors(world, folder.path); });
    CHECK(folder.files() == 0);
  }
}

TEST_CASE("hdf5: a tensor without a layout is one process's own") {
  if (without_hdf5("hdf5 plain tensors")) return;
  const Folder folder;
  const Tensor scalar = from_vector({}, {2.5}, DType::float64), none = zeros({0, 4});
  write_hdf5(folder / "plain.h5", {{"scalar", scalar}, {"none", none}});
  CHECK(read_hdf5(folder / "plain.h5", "scalar").item() == 2.5);
  CHECK((read_hdf5(folder / "plain.h5", "none").shape() == Shape{0, 4}));
  CHECK((read_hdf5(folder / "plain.h5", "scalar", DType::bfloat16).dtype() == DType::bfloat16));
  CHECK(has(error_text([&] { write_hdf5(folder / "none.h5", {}); }), "no tensors"));
  CHECK(has(error_text([&] { write_hdf5(folder / "none.h5", "x", Tensor()); }), "'x' has no elements"));
}

}  // namespace mpigrad
