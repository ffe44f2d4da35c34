// Blocks and checkpoints of the C interface on ranks as threads, and misuse of them and of networks.

#include "tests/models/c/network_cases.h"

using namespace mpigrad;
using namespace mpigrad::testing;
using namespace mpigrad::testing::interface;

TEST_CASE("C interface: blocks, and checkpoints of named tensors on other numbers of ranks") {
  if (without_hdf5("checkpoints of the C interface")) return;
  Folder folder;
  const auto file = folder.path / "checkpoint.h5";
  const Tensor whole = random_normal({7, 5}, {.key = 1}, 0, 1, DType::float64);
  const char* const names[2] = {"field", "counts"};
  const int dimensions[2] = {1, 0};
  // Uneven blocks: the last rank along dimension 0 has the rest of the rows, along dimension 1 of the columns.
  const auto block = [&](int rank, int across, int down) {
    const std::int64_t first = rank % down, column = rank / down;
    const Shape begin{first, column}, end{first + 1 == down ? 7 : first + 1, column + 1 == across ? 5 : column + 1};
    return constant(slice(whole, begin, end)).as_variable();
  };
  std::vector<Tensor> trained(1);  // on one rank, after three steps
  const auto run = [&](int across, int down, int from, int to, bool reads, bool writes) {
    check_on_ranks(across * down, fmt::format("{} x {} ranks", across, down), [&](const Communicator& comm) {
      const mpigrad_comm world = handle_of(comm);
      const int extent[2] = {across, down};
      mpigrad_grid grid;
      mpigrad_tensor list[2], start;
      ok(mpigrad_grid_create(world, 2, extent, &grid));
      ok(mpigrad_tensor_distribute(handle_of(block(comm.rank(), across, down)), grid, 2, dimensions, &start));
      CHECK(tensor_of(start).layout()->global == Shape{7, 5});
      mpigrad_optimizer sgd;
      ok(mpigrad_optimizer_create("sgd", 1, &start, 0.1, 0.9, 0, &sgd));
      int step = 0;
      std::int64_t seen[3] = {comm.rank(), 2, 3};
      list[0] = handle_of(zeros_like(tensor_of(start)));
      const std::int64_t three[1] = {3};
      ok(mpigrad_tensor_over(seen, MPIGRAD_INT64, 1, three, &list[1]));
      if (reads) {
        ok(mpigrad_checkpoint_read(file.c_str(), 2, names, list, sgd, &step));
        CHECK((step == from && seen[0] == 40 && seen[2] == 42));
        CHECK(difference_of(tensor_of(list[0]), block(comm.rank(), across, down)) == 0);
      }
      for (int i = from; i < to; ++i) {
        mpigrad_tape tape;
        mpigrad_tensor p, square, mean;
        ok(mpigrad_tape_begin(&tape));
        ok(mpigrad_optimizer_parameter(sgd, 0, &p));
        ok(mpigrad_square(p, &square));
        ok(mpigrad_mean_all(square, &mean));
        ok(mpigrad_optimizer_step_of_tape(sgd, tape, mean, 0.05));
      }
      mpigrad_tensor p;
      ok(mpigrad_optimizer_parameter(sgd, 0, &p));
      if (writes) {
        list[0] = start, seen[0] = comm.rank();
        CHECK(refusal(mpigrad_checkpoint_write(file.c_str(), world, 2, names, list, sgd, to))
                  .find(comm.size() == 1 ? "no refusal" : "counts") != std::string::npos);
        seen[0] = 40, seen[1] = 41, seen[2] = 42;
        ok(mpigrad_checkpoint_write(file.c_str(), world, 2, names, list, sgd, to));
      } else if (comm.size() == 1 && !reads) {
        trained[0] = tensor_of(p) * 1.0;
      } else {
        mpigrad_tensor local;
        ok(mpigrad_tensor_local(p, &local));
        const std::int64_t rows = comm.rank() % down, columns = comm.rank() / down;
        const Shape begin{rows, columns}, end{rows + 1 == down ? 7 : rows + 1, columns + 1 == across ? 5 : columns + 1};
        CHECK(difference_of(tensor_of(local), slice(trained[0].without_layout(), begin, end)) < 1e-14);
      }
      mpigrad_destroy_all();
    });
  };
  run(1, 1, 0, 3, false, false);
  run(3, 2, 0, 1, false, true);
  run(2, 1, 1, 2, true, true);
  run(1, 4, 2, 3, true, false);
  run(1, 1, 2, 3, true, false);
}

TEST_CASE("C interface: misuse of networks, blocks and checkpoints gives sentences on all ranks") {
  if (without_hdf5("networks of the C interface")) return;
  Folder folder;
  const auto c = cases().front();
  const auto file = folder.path / "weights.h5", other = folder.path / "other.h5";
  compute(c, file);
  {
    auto notes = c.notes;
    notes["program"] = "mine";
    auto net = c.make();
    net->build(c.input, {.dtype = DType::float64});
    on_ranks(1, [&](const Communicator& comm) { save_checkpoint(other, *net, comm, {.info = {.notes = notes}}); });
  }
  const auto contains = [](const std::string& text, const std::string& part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  check_on_ranks(2, "misuse", [&](const Communicator& comm) {
    Handles h(comm, c, file, {.depth = 2});
    const mpigrad_comm world = handle_of(comm);
    mpigrad_network net;
    mpigrad_tensor y;
    mpigrad_optimizer adam, foreign;
    double loss = 0;
    contains(refusal(mpigrad_network_from_weights(other.c_str(), world, 1, 2, 1, 1, &net)), "none is called 'mine'");
    contains(refusal(mpigrad_network_from_weights(file.c_str(), world, 1, 3, 1, 1, &net)), "3");
    contains(refusal(mpigrad_network_from_weights("/nowhere.h5", world, 1, 2, 1, 1, &net)), "/nowhere.h5");
    contains(refusal(mpigrad_network_predict(h.net, h.target, &y)), "[N, D, H, W, C]");
    contains(refusal(mpigrad_network_predict(h.net, handle_of(zeros({4, 8, 16, 16, 3})), &y)), "takes 2 channels");
    contains(refusal(mpigrad_network_predict(h.net, handle_of(zeros({4, 8, 16 + comm.rank(), 16, 2})), &y)),
             "do not fit together: rank 1");
    contains(refusal(mpigrad_network_optimizer("steepest", h.net, rate, 0, 0, &adam)), "steepest");
    ok(mpigrad_network_optimizer("adam", h.net, rate, 0, 0, &adam));
    ok(mpigrad_optimizer_create("adam", 1, &h.x, rate, 0, 0, &foreign));
    contains(refusal(mpigrad_network_train_step(h.net, adam, "l3", h.x, h.target, 0, &loss)),
             "the losses are binary_cross_entropy_with");
    contains(refusal(mpigrad_network_train_step(h.net, foreign, "mse", h.x, h.target, 0, &loss)), "of other parameters");
    contains(refusal(mpigrad_network_train_step(h.net, adam, "mse", h.x, handle_of(full({4, 3}, NAN)), 0, &loss)),
             "the loss is nan");
    contains(refusal(mpigrad_network_parameter(h.net, 99, &y)), "parameters 0 to");
    std::int64_t shape[5];
    int step = 0;
    contains(refusal(mpigrad_network_input(h.net, 4, shape)), "places for 4");
    ok(mpigrad_network_input(h.net, 5, shape));
    CHECK((shape[0] == 1 && shape[1] == 16 && shape[4] == 2));
    contains(refusal(mpigrad_network_read(h.net, file.c_str(), adam, &step)), "holds no optimizer");
    mpigrad_network destroyed = h.net;
    ok(mpigrad_network_destroy(h.net));
    contains(refusal(mpigrad_network_predict(destroyed, h.x, &y)), "the network net has been destroyed");
    // The optimizer keeps the parameters.
    ok(mpigrad_optimizer_parameter(adam, 0, &y));
    mpigrad_grid grid;
    const int two[1] = {2}, none[1] = {0}, far[1] = {5};
    contains(refusal(mpigrad_grid_create(world, 1, none, &grid)), "at least one rank along each axis");
    ok(mpigrad_grid_create(world, 1, two, &grid));
    contains(refusal(mpigrad_tensor_distribute(h.x, grid, 1, far, &y)), "dimensions 0 to 4");
    contains(refusal(mpigrad_tensor_distribute(handle_of(zeros({1 + comm.rank()})), grid, 0, none, &y)), "which is not cut");
    ok(mpigrad_tensor_distribute(h.x, grid, 1, none, &y));
    contains(refusal(mpigrad_tensor_distribute(y, grid, 1, none, &y)), "already");
    const char* const name[2] = {"a", "a"};
    const mpigrad_tensor list[2] = {h.target, h.target};
    contains(refusal(mpigrad_checkpoint_write(other.c_str(), world, 2, name, list, {0}, 0)), "a");
    contains(refusal(mpigrad_checkpoint_read(file.c_str(), 1, name, list, {0}, &step)), "has no parameters/a");
  });
}
