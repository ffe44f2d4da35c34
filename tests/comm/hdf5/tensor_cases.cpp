#include "tests/comm/hdf5/tensor_cases.h"

#include <functional>

#include "comm/distributed/redistribute.h"
#include "comm/hdf5/hdf5_tensor.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/views/views.h"
#include "tests/support/errors.h"

namespace mpigrad::testing {
namespace {

void require_equal(const char* what, const Tensor& a, const Tensor& b) {
  require(a.type() == b.type() && a.to_vector() == b.to_vector(), "[hdf5_tensors] {}: {} and {} differ", what, a, b);
}

}  // namespace

void check_hdf5_tensors(const Communicator& world, const std::filesystem::path& folder) {
  const int ranks = world.size();
  const auto grid = make_grid(world, {.depth = ranks}), other = make_grid(world, {.height = ranks});
  const Shape shape{2, 5, 3};
  const std::vector<int> planes{-1, 1}, columns{-1, -1, 2};
  const Philox random{.key = 7};

  // Blocks of every type, read with the same split, with another split, and whole.
  const auto path = folder / "tensors.h5";
  for (const auto type : {DType::float32, DType::float64, DType::int64, DType::int32, DType::int16, DType::uint8, DType::uint16,
                          DType::boolean, DType::bfloat16, DType::float16}) {
    const Tensor whole =
        cast(reshape(arange(30, DType::float64), shape) * 0.25, type).with_layout(replicated_layout(grid, shape));
    const Tensor blocks = redistribute(whole, split_layout(grid, shape, planes));
    write_hdf5(path, {{"group/blocks", blocks}, {"whole", whole}}, true);
    require_equal("blocks", read_hdf5(path, "group/blocks", blocks.layout(), type), blocks);
    const Tensor turned = read_hdf5(path, "group/blocks", other, columns, type);
    require_equal("other blocks", gather_all(turned), whole.without_layout());
    require_equal("the whole", read_hdf5(path, "whole", grid, {}, type), whole);
    const auto found = read_hdf5(path, "whole").dtype();  // on each rank
    require(found == (type == DType::boolean ? DType::uint8 : computed_in(type)), "[hdf5_tensors] {} are read as {}",
            name_of(type), name_of(found));
  }

  // All ranks refuse with the same message.
  const Tensor x = random_normal(shape, random, 0, 1, DType::float32, split_layout(grid, shape, planes));
  const auto refuses = [&](const char* words, const std::function<void()>& f) {
    const auto text = error_text(f);
    require(has(text, words), "[hdf5_tensors] rank {}: '{}' instead of '{}'", world.rank(), text, words);
  };
  refuses("exists already", [&] { write_hdf5(path, "x", x); });
  refuses("two tensors are called 'x'", [&] { write_hdf5(folder / "new.h5", {{"x", x}, {"x", x}}); });
  refuses("'x' and 'y' are not on the same grid", [&] {
    write_hdf5(folder / "new.h5", {{"x", x}, {"y", x.with_layout(nullptr)}});
  });
  Layout sum = *replicated_layout(grid, shape);
  sum.axes[1].placement = Placement::partial;
  const auto shared = std::make_shared<Layout>(sum);
  refuses("'x' holds partial sums; redistribute()",
          [&] { write_hdf5(folder / "new.h5", "x", random_normal(shape, random).with_layout(shared)); });
  refuses("absent.h5: no such file", [&] { read_hdf5(folder / "absent.h5", "whole", grid, {}); });
  refuses("no dataset 'x'; there are: group/blocks, whole", [&] { read_hdf5(path, "x", x.layout()); });
  refuses("'whole' is [2, 5, 3], the layout is of [5, 3]", [&] { read_hdf5(path, "whole", replicated_layout(grid, {5, 3})); });
  refuses("without partial sums", [&] { read_hdf5(path, "whole", shared); });
  refuses("is float16, which int32 would round", [&] { read_hdf5(path, "whole", grid, {}, DType::int32); });
  world.transport().barrier();
  require(!std::filesystem::exists(folder / "new.h5"), "[hdf5_tensors] a refused file is there");
  world.transport().barrier();
  if (world.rank() == 0) std::filesystem::remove(path);
  world.transport().barrier();  // other tests look into the folder
}

}  // namespace mpigrad::testing
