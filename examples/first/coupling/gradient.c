// The gradient of a function of all ranks' data, in C: J = sum over ranks of |S x|^2 / 2, where S is the sum over ranks. The
// gradient on every rank is P S x for P ranks.
//
//   mpiexec -n 2 build/examples/gradient_in_c

#include <mpi.h>
#include <mpigrad/c.h>
#include <stdio.h>

// Ends the program with the reason if a call fails.
static void must(mpigrad_status status) {
  if (status == MPIGRAD_OK) return;
  fprintf(stderr, "%s\n", mpigrad_last_error());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const double values[3] = {1, 2, 3 + rank};
  const int64_t shape[1] = {3};
  mpigrad_comm world;
  mpigrad_tape tape;
  mpigrad_tensor x, sum, squares, objective, gradient;
  must(mpigrad_comm_from_mpi(MPI_COMM_WORLD, &world));
  must(mpigrad_tensor_over_constant(values, MPIGRAD_FLOAT64, 1, shape, &x));
  must(mpigrad_tape_begin(&tape));
  must(mpigrad_allreduce(x, world, MPIGRAD_REDUCE_SUM, &sum));
  must(mpigrad_dot(sum, sum, &squares));
  must(mpigrad_affine(squares, 0.5, 0, &objective));
  must(mpigrad_tape_gradient(tape, objective, 1, &x, 0, &gradient));
  double found[3];
  must(mpigrad_tensor_to_memory(gradient, MPIGRAD_FLOAT64, 3, found));
  printf("rank %d: gradient %g %g %g\n", rank, found[0], found[1], found[2]);
  must(mpigrad_destroy_all());
  MPI_Finalize();
  return 0;
}
