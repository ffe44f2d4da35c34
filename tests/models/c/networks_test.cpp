// Networks of the C interface, on ranks as threads, against the same in C++ on one rank.

#include "tests/models/c/network_cases.h"

using namespace mpigrad;
using namespace mpigrad::testing;
using namespace mpigrad::testing::interface;

TEST_CASE("C interface: networks from files of weights predict and learn as in C++, on any grid") {
  if (without_hdf5("networks of the C interface")) return;
  Folder folder;
  for (const auto& c : cases()) {
    const auto file = folder.path / "weights.h5", checkpoint = folder.path / "checkpoint.h5";
    const auto expected = compute(c, file);
    for (const auto& extents : grids)
      check_on_ranks(ranks_of(extents), c.name, [&](const Communicator& comm) {
        INFO(c.name);
        Handles h(comm, c, file, extents);
        mpigrad_tensor y;
        ok(mpigrad_network_predict(h.net, h.x, &y));
        CHECK(difference_of(tensor_of(y), block_of(expected.before, h.grid)) < 1e-11);
        mpigrad_optimizer adam;
        ok(mpigrad_network_optimizer("adam", h.net, rate, 0, 0, &adam));
        for (int i = 0; i < 2; ++i) {
          double loss = 0;
          ok(mpigrad_network_train_step(h.net, adam, c.loss.c_str(), h.x, h.target, max_norm, &loss));
          CHECK(std::abs(loss - expected.losses[static_cast<std::size_t>(i)]) < 1e-8);
        }
        ok(mpigrad_network_write(h.net, checkpoint.c_str(), adam, 2));
      });
    // The last step on other ranks, from the checkpoint, with the loss of the program for numbers.
    for (const auto& extents : {grids[0], grids[1]})
      check_on_ranks(ranks_of(extents), c.name + ", resumed", [&](const Communicator& comm) {
        Handles h(comm, c, file, extents);
        mpigrad_optimizer adam;
        ok(mpigrad_network_optimizer("adam", h.net, rate, 0, 0, &adam));
        int step = 0;
        ok(mpigrad_network_read(h.net, checkpoint.c_str(), adam, &step));
        CHECK(step == 2);
        double loss = 0;
        if (c.name == "cosmoflow") {
          mpigrad_tape tape;
          mpigrad_tensor y, t, difference, squares, mean;
          mpigrad_grid grid;
          const int samples[1] = {0};
          ok(mpigrad_tape_begin(&tape));
          ok(mpigrad_network_apply(h.net, h.x, 1, &y));
          ok(mpigrad_network_grid(h.net, &grid));
          ok(mpigrad_tensor_distribute(h.target, grid, 1, samples, &t));
          ok(mpigrad_subtract(y, t, &difference));
          ok(mpigrad_square(difference, &squares));
          ok(mpigrad_mean_all(squares, &mean));
          ok(mpigrad_optimizer_step_of_tape(adam, tape, mean, max_norm));
          ok(mpigrad_total(mean, handle_of(comm), &loss));
        } else {
          ok(mpigrad_network_train_step(h.net, adam, c.loss.c_str(), h.x, h.target, max_norm, &loss));
        }
        CHECK(std::abs(loss - expected.losses.back()) < 1e-8);
        CHECK(h.parameters_differ(expected) < 1e-6);
        const char* name = nullptr;
        ok(mpigrad_network_parameter_name(h.net, 0, &name));
        CHECK(name == expected.first_name);
      });
  }
}

TEST_CASE("C interface: a network inside a program of its own gives the gradient of one rank") {
  if (without_hdf5("networks of the C interface")) return;
  Folder folder;
  const auto all = cases();
  for (const auto& c : {all.front(), all.back()}) {
    const auto file = folder.path / "weights.h5";
    compute(c, file);
    // The sum of the squares of the results for x^2, by rank, and its gradient.
    std::vector<double> value(2);
    Tensors gradients(2);
    for (const auto& extents : {GridExtents{}, GridExtents{.sample = 2, .depth = 2}})
      check_on_ranks(ranks_of(extents), c.name, [&](const Communicator& comm) {
        INFO(c.name);
        Handles h(comm, c, file, extents);
        const mpigrad_tensor x = handle_of(block_of(c.x, h.grid).as_variable());
        mpigrad_tape tape;
        mpigrad_tensor squared, y, local, squares, sum, gradient;
        ok(mpigrad_tape_begin(&tape));
        ok(mpigrad_square(x, &squared));
        ok(mpigrad_network_apply(h.net, squared, 0, &y));
        ok(mpigrad_tensor_local(y, &local));
        ok(mpigrad_square(local, &squares));
        ok(mpigrad_sum_all(squares, &sum));
        ok(mpigrad_tape_gradient(tape, sum, 1, &x, 0, &gradient));
        CHECK(!tensor_of(local).layout());
        double total = 0;
        ok(mpigrad_total(sum, handle_of(comm), &total));
        // Rows of numbers are the same on the ranks that share a sample, and each of these ranks adds them.
        const double times = c.target.rank() == 2 ? extents.depth : 1;
        if (comm.size() == 1) {
          value[0] = total, gradients[0] = tensor_of(gradient);
        } else {
          CHECK(total == doctest::Approx(times * value[0]).epsilon(1e-10));
          CHECK(difference_of(affine(tensor_of(gradient), 1 / times, 0), block_of(gradients[0], h.grid)) < 1e-10);
        }
      });
  }
}
