// A program that mixes calls of MPI with those of the library: messages with the same tags under way at the same time, collective
// calls that are open while the library makes its own, duplicates of communicators, Cartesian communicators. tests/meson.build
// runs it with the checks between ranks switched on, which send messages of their own.

#include <mpi.h>

#include "check.h"

int checks_failed = 0, checks_made = 0;

static int rank, ranks, next, before;
static const int64_t four[1] = {4};

// The sum over ranks of |S x|^2 by `comm`, with messages to the next rank, and its gradient.
static void library_calls(mpigrad_comm comm, int round) {
  mpigrad_scope scope;
  mpigrad_tape tape;
  mpigrad_tensor x, sum, shifted, y, loss, gradient, none;
  mpigrad_request sent, received;
  double values[4], got[4];
  for (int i = 0; i < 4; ++i) values[i] = round + i + rank;
  OK(mpigrad_scope_begin(&scope));
  OK(mpigrad_tensor_over(values, MPIGRAD_FLOAT64, 1, four, &x));
  OK(mpigrad_tape_begin(&tape));
  OK(mpigrad_irecv(MPIGRAD_FLOAT64, 1, four, comm, MPIGRAD_ANY_SOURCE, 7, &received));
  OK(mpigrad_isend(x, comm, next, 7, &sent));
  OK(mpigrad_allreduce(x, comm, MPIGRAD_REDUCE_SUM, &sum));
  OK(mpigrad_wait(received, &shifted));
  OK(mpigrad_wait(sent, &none));
  OK(mpigrad_tensor_to_memory(shifted, MPIGRAD_FLOAT64, 4, got));
  CHECK(got[1] == round + 1 + before);
  OK(mpigrad_multiply(sum, shifted, &y));
  OK(mpigrad_sum_all(y, &loss));
  OK(mpigrad_tape_gradient(tape, loss, 1, &x, 0, &gradient));
  OK(mpigrad_tensor_to_memory(gradient, MPIGRAD_FLOAT64, 4, got));
  // The sum over ranks is S^2 for each element, with S the sum of x over ranks: 2 S.
  for (int i = 0; i < 4; ++i) CHECK(got[i] == 2.0 * (ranks * (round + i) + ranks * (ranks - 1) / 2));
  OK(mpigrad_scope_end(scope, 0, NULL));
}

static void test_messages(void) {
  MPI_Comm own, duplicate;
  MPI_Errhandler handler_before, handler_after;
  MPI_Comm_dup(MPI_COMM_WORLD, &own);
  MPI_Comm_get_errhandler(own, &handler_before);
  mpigrad_comm of_world, of_own, of_duplicate, copy;
  OK(mpigrad_comm_from_mpi(MPI_COMM_WORLD, &of_world));
  OK(mpigrad_comm_from_mpi(own, &of_own));
  MPI_Comm_dup(own, &duplicate);
  OK(mpigrad_comm_from_mpi(duplicate, &of_duplicate));
  MPI_Comm_free(&duplicate);  // the library has its own
  OK(mpigrad_comm_duplicate(of_own, &copy));
  const mpigrad_comm comms[4] = {of_world, of_own, of_duplicate, copy};
  for (int round = 0; round < 16; ++round) {
    const mpigrad_comm comm = comms[round % 4];
    const MPI_Comm mine = round % 2 ? own : MPI_COMM_WORLD;
    double in[4], out[4] = {round, rank, 2, 3}, all_in[2] = {rank, round}, all[2] = {0, 0};
    MPI_Request requests[3];
    MPI_Status status, both[2];
    // Open while the library communicates: a receive of anything, and a collective call.
    MPI_Irecv(in, 4, MPI_DOUBLE, MPI_ANY_SOURCE, MPI_ANY_TAG, mine, &requests[0]);
    MPI_Iallreduce(all_in, all, 2, MPI_DOUBLE, MPI_SUM, mine, &requests[1]);
    library_calls(comm, round);
    MPI_Isend(out, 4, MPI_DOUBLE, next, 7, mine, &requests[2]);
    library_calls(comms[(round + 1) % 4], -round);
    MPI_Wait(&requests[0], &status);
    MPI_Waitall(2, requests + 1, both);
    CHECK(in[0] == round && in[1] == before && status.MPI_SOURCE == before && status.MPI_TAG == 7);
    CHECK(all[0] == ranks * (ranks - 1) / 2 && all[1] == ranks * round);
  }
  MPI_Comm_get_errhandler(own, &handler_after);
  CHECK(handler_before == handler_after);
  MPI_Errhandler_free(&handler_before);
  MPI_Errhandler_free(&handler_after);
  MPI_Comm_free(&own);
  library_calls(of_own, 1);  // after the program has freed its communicator
}

// ---- Cartesian communicators: a field of [2 py, 3 px], whose ranks are those of MPI's grid [py, px] or [px, py]

static void test_cartesian(void) {
  const int py = ranks % 2 == 0 ? 2 : 1, px = ranks / py;
  for (int reversed = 0; reversed < 2; ++reversed) {
    MPI_Comm cart;
    int dims[2] = {reversed ? px : py, reversed ? py : px}, periods[2] = {0, 0}, at[2];
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &cart);
    MPI_Cart_coords(cart, rank, 2, at);
    const int y = at[reversed], x = at[1 - reversed];
    const int grid[2] = {py, px}, none[2] = {0, 0}, one[2] = {1, 1};
    mpigrad_comm plain, ordered;
    mpigrad_halo halo;
    int number = -1;
    OK(mpigrad_comm_from_mpi(cart, &plain));
    if (px > 1 && py > 1) {
      mpigrad_topology topology;
      mpigrad_grid blocks;
      REFUSED(mpigrad_halo_create(plain, 2, grid, none, one, one, &halo), MPIGRAD_ERROR, "mpigrad_comm_from_cartesian()");
      REFUSED(mpigrad_topology_cartesian(plain, 2, grid, none, &topology), MPIGRAD_ERROR, "MPI_Cart_create");
      REFUSED(mpigrad_grid_create(plain, 2, grid, &blocks), MPIGRAD_ERROR, "MPI_Cart_create");
    }
    OK(mpigrad_comm_from_cartesian(INTEGER_OF(cart), reversed, &ordered));
    OK(mpigrad_comm_rank(ordered, &number));
    CHECK(number == y * px + x);
    double block[2][3], got[4][5];
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 3; ++j) block[i][j] = 100 * (2 * y + i) + 3 * x + j;
    const int64_t shape[2] = {2, 3};
    mpigrad_tensor u, ghosted;
    OK(mpigrad_tensor_over(block, MPIGRAD_FLOAT64, 2, shape, &u));
    OK(mpigrad_halo_create(ordered, 2, grid, none, one, one, &halo));
    OK(mpigrad_halo_exchange(halo, u, &ghosted));
    OK(mpigrad_tensor_to_memory(ghosted, MPIGRAD_FLOAT64, 20, got));
    int wrong = 0;
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 5; ++j) {
        const int gy = 2 * y + i - 1, gx = 3 * x + j - 1;
        wrong += got[i][j] != (gy < 0 || gy >= 2 * py || gx < 0 || gx >= 3 * px ? 0 : 100 * gy + gx);
      }
    CHECK(wrong == 0);
    MPI_Comm_free(&cart);
  }
  mpigrad_comm no_grid;
  REFUSED(mpigrad_comm_from_cartesian(INTEGER_OF(MPI_COMM_WORLD), 0, &no_grid), MPIGRAD_ERROR, "no Cartesian topology");
}

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
  test_messages();
  test_cartesian();
  OK(mpigrad_destroy_all());
  int sum = 0;
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  CHECK(sum == ranks * (ranks - 1) / 2);
  MPI_Finalize();
  if (rank == 0 || checks_failed) printf("%d passed, %d failed, 0 skipped\n", checks_made - checks_failed, checks_failed);
  return checks_failed != 0;
}
