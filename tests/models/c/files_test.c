// The C interface: a network of the repository's file of weights, and checkpoints, on any number of ranks.

#include "check.h"

#include "interface.h"

enum { cells = 16, classes = 3 };

// The scores [1, planes, 16, 16, 3] of the planes from `first` up to `last` of a sample.
static void predict(mpigrad_network net, int first, int last, float* scores) {
  const int64_t whole[5] = {1, cells, cells, cells, 1}, low[5] = {0, first, 0, 0, 0}, high[5] = {1, last, cells, cells, 1};
  mpigrad_tensor sample, block, y;
  OK(mpigrad_tensor_uniform(MPIGRAD_FLOAT64, 5, whole, 1, 0, 2, &sample));
  OK(mpigrad_slice(sample, 5, low, high, &block));
  OK(mpigrad_network_predict(net, block, &y));
  OK(mpigrad_tensor_to_memory(y, MPIGRAD_FLOAT32, (int64_t)(last - first) * cells * cells * classes, scores));
}

void test_files(const char* folder, const char* source) {
  if (!folder || !source) return;
  char path[4096], checkpoint[4096];
  snprintf(path, sizeof path, "%s/examples/trainers/unet3d/hippocampus.h5", source);
  snprintf(checkpoint, sizeof checkpoint, "%s/c_checkpoint_%d.h5", folder, ranks);
  mpigrad_comm self;
  mpigrad_network whole, net;
  OK(mpigrad_comm_self(&self));
  OK(mpigrad_network_from_weights(path, self, 1, 1, 1, 1, &whole));
  OK(mpigrad_network_from_weights(path, world, 1, ranks, 1, 1, &net));
  // Planes in parts that are not equal.
  const int first = rank == 0 ? 0 : cells * rank / ranks - 1, last = rank + 1 == ranks ? cells : cells * (rank + 1) / ranks - 1;
  static float of_one[cells * cells * cells * classes], of_all[cells * cells * cells * classes];
  predict(whole, 0, cells, of_one);
  predict(net, first, last, of_all);
  const int plane = cells * cells * classes;
  double largest = 0, furthest = 0;
  for (int i = 0; i < (last - first) * plane; ++i) {
    largest = fmax(largest, fabs(of_all[i] - of_one[first * plane + i]));
    furthest = fmax(furthest, fabs(of_all[i] - of_all[0]));
  }
  CHECK(largest < 1e-3 && furthest > 1);
  int64_t shape[5];
  int count = 0;
  const char* name = NULL;
  mpigrad_tensor p;
  OK(mpigrad_network_input(net, 5, shape));
  CHECK(shape[0] == 1 && shape[1] == 40 && shape[2] == 56 && shape[4] == 1);
  OK(mpigrad_network_parameters(net, &count));
  OK(mpigrad_network_parameter_name(net, 0, &name));
  OK(mpigrad_network_parameter(net, 0, &p));
  CHECK(count > 30 && strstr(name, ".weight") != NULL);
  OK(mpigrad_tensor_shape(p, 5, shape));
  CHECK(shape[0] == 16 && shape[1] == 3 && shape[4] == 1);
  // Training steps; a checkpoint brings the network back to where it was.
  const int64_t volume[5] = {1, last - first, cells, cells, 1};
  mpigrad_optimizer adam;
  mpigrad_tensor x, labels;
  double loss[4];
  OK(mpigrad_tensor_uniform(MPIGRAD_FLOAT32, 5, volume, 2 + rank, 0, 1, &x));
  OK(mpigrad_tensor_full(MPIGRAD_INT64, 4, volume, 1, &labels));
  OK(mpigrad_network_optimizer("adam", net, 1e-3, 0, 0, &adam));
  OK(mpigrad_network_train_step(net, adam, "dice_cross_entropy", x, labels, 0, &loss[0]));
  OK(mpigrad_network_write(net, checkpoint, adam, 1));
  OK(mpigrad_network_train_step(net, adam, "dice_cross_entropy", x, labels, 0, &loss[1]));
  OK(mpigrad_network_train_step(net, adam, "dice_cross_entropy", x, labels, 0, &loss[2]));
  CHECK(loss[1] < loss[0] && loss[2] < loss[1]);
  int step = 0;
  OK(mpigrad_network_read(net, checkpoint, adam, &step));
  OK(mpigrad_network_train_step(net, adam, "dice_cross_entropy", x, labels, 0, &loss[3]));
  CHECK(step == 1 && fabs(loss[3] - loss[1]) < 1e-5 * loss[1]);
  // Weights of version 0.1.
  snprintf(path, sizeof path, "%s/examples/trainers/cosmoflow/pyramid64.h5", source);
  OK(mpigrad_network_from_weights(path, world, 1, 1, ranks, 1, &net));
  OK(mpigrad_network_input(net, 5, shape));
  CHECK(shape[0] == 1 && shape[1] == 64 && shape[4] == 4);
  // Tensors of the program, with one value on all ranks.
  double values[6] = {1, 2, 3, 4, 5, 6};
  const char* const names[1] = {"values"};
  const mpigrad_optimizer none = {0};
  OK(mpigrad_tensor_over(values, MPIGRAD_FLOAT64, 1, six, &x));
  OK(mpigrad_checkpoint_write(checkpoint, world, 1, names, &x, none, 5));
  values[5] = 0;
  OK(mpigrad_checkpoint_read(checkpoint, 1, names, &x, none, &step));
  CHECK(step == 5 && values[5] == 6);
  OK(mpigrad_barrier(world));
  if (rank == 0) remove(checkpoint);
}
