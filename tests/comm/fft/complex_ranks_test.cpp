// Complex tensors between ranks: collectives, messages, redistribution, files; adjoints to second order.

#include "comm/check/adjoint_check.h"
#include "comm/collectives/alltoallw.h"
#include "comm/collectives/collectives.h"
#include "comm/collectives/neighbor.h"
#include "comm/collectives/reductions.h"
#include "comm/collectives/scan.h"
#include "comm/distributed/invariant.h"
#include "comm/distributed/redistribute.h"
#include "comm/hdf5/hdf5_tensor.h"
#include "comm/messages/nonblocking.h"
#include "comm/messages/point_to_point.h"
#include "ops/complex/complex.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "tests/support/distributed.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

Tensor z_of(const Shape& shape, std::uint64_t seed, const LayoutPtr& layout = {}, DType dtype = DType::complex128) {
  return global_tensor(shape, seed, layout, dtype);
}

}  // namespace

TEST_CASE("complex between ranks: values, and adjoints to second order") {
  for (const int ranks : {1, 2, 3, 4})
    check_on_ranks(ranks, "adjoints", [ranks](const Communicator& comm) {
      const auto r = static_cast<std::uint64_t>(comm.rank());
      const Rows two(static_cast<std::size_t>(ranks), 2);
      const Tensor z = z_of({2 * ranks, 3}, r + 1);
      const auto check = [&](const char* name, const TensorFunction& f, std::vector<Across> in = {},
                             std::vector<Across> out = {}) {
        const auto report = adjoint_check(f, {z}, comm, {.inputs = std::move(in), .outputs = std::move(out)});
        require(report.passed, "[test] {}: {}", name, report.message);
      };
      const auto as_numbers = [&](const char* name, const std::function<Tensor(const Tensor&)>& f) {
        check(name, [&](const Tensors& in) { return Tensors{f(in[0])}; });
        const Tensor found = view_as_real(f(z)), expected = f(view_as_real(z));
        require(found.to_vector() == expected.to_vector(), "[test] {} of complex and of real numbers differ", name);
      };
      as_numbers("allreduce", [&](const Tensor& x) { return allreduce(x, comm); });
      as_numbers("average", [&](const Tensor& x) { return allreduce(x, comm, ReduceOp::avg); });
      as_numbers("reduce", [&](const Tensor& x) { return reduce(x, comm, ranks - 1); });
      as_numbers("bcast", [&](const Tensor& x) { return bcast(x, comm, 0); });
      as_numbers("allgather", [&](const Tensor& x) { return allgather(x, comm); });
      as_numbers("gather", [&](const Tensor& x) { return gather(x, comm, 0); });
      as_numbers("reduce_scatter", [&](const Tensor& x) { return reduce_scatter(x, comm, two); });
      as_numbers("alltoall", [&](const Tensor& x) { return alltoall(x, comm, two); });
      as_numbers("shift", [&](const Tensor& x) { return shift(x, comm); });
      as_numbers("iallreduce", [&](const Tensor& x) { return wait(iallreduce(x, comm)); });
      check("square of allreduce", [&](const Tensors& in) { return Tensors{square(allreduce(in[0], comm)) * in[0]}; });
      for (const auto op : {ReduceOp::max, ReduceOp::prod, ReduceOp::min}) {
        const auto text = error_text([&] { allreduce(z, comm, op); });
        require(has(text, "complex"), "[test] {}", text);
      }
    });
}

TEST_CASE("complex between ranks: redistribution, layers' replication, sums over split dimensions") {
  for (const int ranks : {2, 4})
    check_on_ranks(ranks, "layouts", [ranks](const Communicator& comm) {
      const Shape shape{5, 6, 3};
      const auto grid = make_grid(comm, {.depth = ranks});
      const auto from = split_layout(grid, shape, {-1, 0, -1, -1}), to = split_layout(grid, shape, {-1, 1, -1, -1}),
                 all = replicated_layout(grid, shape);
      const Tensor whole = z_of(shape, 1), z = z_of(shape, 1, from);
      require_close("redistribute", redistribute(z, to), part_of(whole, to), 0);
      require_close("gather", redistribute(z, all), whole, 0);
      const auto report = adjoint_check([&](const Tensors& in) { return Tensors{redistribute(in[0], to)}; }, {z}, comm, {});
      require(report.passed, "[test] redistribute: {}", report.message);

      // A replicated real kernel, and a replicated parameter, with a split tensor.
      const Tensor kernel = global_tensor({5, 1, 1}, 2), w = z_of({1, 6, 3}, 3);
      const auto loss = [&](const Tensor& x, const Tensor& k, const Tensor& p) { return sum(square(abs(x * k * p))); };
      const auto k = constant(kernel).with_layout(replicated_layout(grid, {5, 1, 1}));
      const auto p = w.as_variable().with_layout(replicated_layout(grid, {1, 6, 3}));
      Tape one, split;
      const Tensor p_whole = w.as_variable(), z_whole = whole.as_variable();
      const auto expected = [&] {
        Tape tape;
        return tape.gradient(loss(z_whole, constant(kernel), p_whole), {z_whole, p_whole});
      }();
      Tape tape;
      const auto found = tape.gradient(loss(z, k, p), {z, p});
      require_close("gradient of the tensor", found[0], part_of(expected[0], from), 1e-12);
      require_close("gradient of the parameter", found[1], expected[1], 1e-12);
    });
}

TEST_CASE("complex between ranks: HDF5 files as of h5py") {
  if (without_hdf5("complex HDF5")) return;
  const Folder folder;
  check_on_ranks(2, "files", [&](const Communicator& comm) {
    const Shape shape{4, 3};
    const auto grid = make_grid(comm, {.depth = 2});
    const auto rows = split_layout(grid, shape, {-1, 0}), columns = split_layout(grid, shape, {-1, 1});
    for (const auto dtype : {DType::complex64, DType::complex128}) {
      const Tensor z = z_of(shape, 1, rows, dtype);
      write_hdf5(folder / "z.h5", "z", z, true);
      const Tensor back = read_hdf5(folder / "z.h5", "z", columns);
      require(back.dtype() == dtype, "[test] {} became {}", name_of(dtype), name_of(back.dtype()));
      require_close("file", back, part_of(z_of(shape, 1, {}, dtype), columns), 0);
      require(has(error_text([&] { read_hdf5(folder / "z.h5", "z", columns, DType::float64); }), "complex"),
              "[test] read as real");
    }
  });
}
