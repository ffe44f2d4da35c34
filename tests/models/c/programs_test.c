// The C interface: communication, functions of the program, loops, training.

#include "check.h"

#include "interface.h"

#include <stdlib.h>

// ---- communication: each call in a function of x [ranks * 2, 3], against its derivative

enum { calls = 25 };
static int communication(void* user, int inputs, const mpigrad_tensor* x, int outputs, mpigrad_tensor* y) {
  (void)inputs, (void)outputs;
  int64_t rows[64], others[64], shape[2];
  int targets[64];
  for (int r = 0; r < ranks; ++r) rows[r] = 2, others[r] = 2, targets[r] = (rank + r) % ranks;
  const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
  mpigrad_tensor a;
  mpigrad_request one, two;
  TRY(mpigrad_tensor_shape(x[0], 2, shape));
  switch (*(int*)user) {
    case 0: return mpigrad_allreduce(x[0], world, MPIGRAD_REDUCE_SUM, y);
    case 1: return mpigrad_allreduce(x[0], world, MPIGRAD_REDUCE_PROD, y);
    case 2: return mpigrad_reduce(x[0], world, ranks - 1, MPIGRAD_REDUCE_SUM, y);
    case 3: return mpigrad_bcast(x[0], world, 0, y);
    case 4: return mpigrad_gather(x[0], world, 0, 0, y);
    case 5:  // the root's x in blocks, of which that of rank 0 is larger if the ranks are several
      if (rank > 0) shape[0] = 0;
      const int64_t zero[2] = {0, 0};
      TRY(mpigrad_slice(x[0], 2, zero, shape, &a));
      if (ranks > 1) rows[0] = 3, rows[1] = 1;
      return mpigrad_scatter(a, world, ranks, rows, 0, 0, y);
    case 6: return mpigrad_allgather(x[0], world, 1, y);
    case 7: return mpigrad_reduce_scatter(x[0], world, ranks, rows, MPIGRAD_REDUCE_SUM, y);
    case 8: return mpigrad_alltoall(x[0], world, ranks, rows, 0, y);
    case 9: return mpigrad_scan(x[0], world, MPIGRAD_REDUCE_SUM, y);
    case 10: return mpigrad_exscan(x[0], world, MPIGRAD_REDUCE_SUM, y);
    case 11: return mpigrad_sendrecv(x[0], world, next, before, 3, y);
    case 12: return mpigrad_shift(x[0], world, 1, y);
    case 13:
      TRY(mpigrad_isend(x[0], world, next, 1, &one));
      TRY(mpigrad_irecv(MPIGRAD_FLOAT64, 2, shape, world, MPIGRAD_ANY_SOURCE, 1, &two));
      TRY(mpigrad_wait(two, y));
      return mpigrad_wait(one, &a);
    case 14:
      if (ranks == 1) return mpigrad_square(x[0], y);
      if (rank % 2 == 0) TRY(mpigrad_send(x[0], world, rank + 1 < ranks ? rank + 1 : MPIGRAD_PROC_NULL, 5));
      return mpigrad_recv(MPIGRAD_FLOAT64, 2, shape, world, rank % 2 == 1 ? rank - 1 : MPIGRAD_PROC_NULL, 5, y);
    case 15:
      TRY(mpigrad_iallreduce(x[0], world, MPIGRAD_REDUCE_SUM, &one));
      TRY(mpigrad_ialltoall(x[0], world, ranks, rows, others, &two));
      TRY(mpigrad_wait(one, &a));
      TRY(mpigrad_wait(two, y));
      return mpigrad_add(a, *y, y);
    case 16:
      TRY(mpigrad_ibcast(x[0], world, 0, &one));
      TRY(mpigrad_ireduce(x[0], world, 0, &two));
      TRY(mpigrad_wait(two, &a));
      TRY(mpigrad_wait(one, y));
      return mpigrad_add(a, *y, y);
    case 17:
      for (int r = 0; r < ranks; ++r) rows[r] = 2 * ranks;
      TRY(mpigrad_iallgather(x[0], world, ranks, rows, &one));
      return mpigrad_wait(one, y);
    case 18:
      for (int r = 0; r < ranks; ++r) others[r] = r % 2;
      return mpigrad_get(x[0], world, ranks, targets, others, y);
    case 19:
      others[0] = rank % 2;
      targets[0] = next;
      TRY(mpigrad_slice(x[0], 2, (const int64_t[2]){0, 0}, (const int64_t[2]){1, 3}, &a));
      others[0] = 0;
      TRY(mpigrad_put(x[0], a, world, 1, targets, others, y));
      return mpigrad_accumulate(*y, a, world, 1, targets, others, y);
    case 20: TRY(mpigrad_allreduce_invariant(x[0], world, &a)); return mpigrad_replicate(a, world, y);
    default: TRY(mpigrad_barrier(world)); return mpigrad_multiply(x[0], x[0], y);
  }
}

void test_communication(void) {
  mpigrad_tensor x, y;
  double error = 0;
  const int64_t shape[2] = {2 * ranks, 3};
  OK(mpigrad_tensor_uniform(MPIGRAD_FLOAT64, 2, shape, 1 + rank, 0.5, 1, &x));
  for (int call = 0; call < calls; ++call)
    if (!CHECK(mpigrad_adjoint_check("communication", communication, &call, 1, &x, 1, world, 1, 1e-11, &error) == MPIGRAD_OK))
      printf("  in case %d\n", call);
  // Values, of which each rank knows its own.
  double values[6], got[6];
  for (int i = 0; i < 6; ++i) values[i] = 10 * rank + i;
  OK(mpigrad_tensor_over(values, MPIGRAD_FLOAT64, 1, six, &x));
  OK(mpigrad_bcast(x, world, ranks - 1, &y));
  OK(mpigrad_tensor_to_memory(y, MPIGRAD_FLOAT64, 6, got));
  CHECK(got[5] == 10 * (ranks - 1) + 5);
  OK(mpigrad_shift(x, world, 1, &y));
  OK(mpigrad_tensor_to_memory(y, MPIGRAD_FLOAT64, 6, got));
  CHECK(got[1] == 10 * ((rank + ranks - 1) % ranks) + 1);
  OK(mpigrad_exscan(x, world, MPIGRAD_REDUCE_SUM, &y));
  OK(mpigrad_tensor_to_memory(y, MPIGRAD_FLOAT64, 6, got));
  CHECK(got[0] == 5 * rank * (rank - 1));
  mpigrad_tensor one;
  OK(mpigrad_tensor_full(MPIGRAD_FLOAT64, 0, NULL, 1 + rank, &one));
  double total = 0;
  OK(mpigrad_total(one, world, &total));
  CHECK(total == ranks * (ranks + 1) / 2.0);
  mpigrad_comm part, copy;
  int of_part = 0;
  OK(mpigrad_comm_split(world, rank % 2, rank, &part));
  OK(mpigrad_comm_duplicate(part, &copy));
  OK(mpigrad_comm_size(copy, &of_part));
  CHECK(of_part == (ranks + 1 - rank % 2) / 2);
  OK(mpigrad_comm_destroy(copy));
  OK(mpigrad_comm_destroy(part));
}

// ---- neighbours and halos

static mpigrad_halo halo;
static mpigrad_topology neighbours;
static int exchange(void* user, int inputs, const mpigrad_tensor* x, int outputs, mpigrad_tensor* y) {
  (void)user, (void)inputs, (void)outputs;
  return mpigrad_halo_exchange(halo, x[0], y);
}
static int to_neighbours(void* user, int inputs, const mpigrad_tensor* x, int outputs, mpigrad_tensor* y) {
  (void)user, (void)inputs, (void)outputs;
  const int64_t rows[4] = {1, 2, 1, 1};
  TRY(mpigrad_neighbor_alltoall(x[0], neighbours, 4, rows, &y[0]));
  return mpigrad_neighbor_allgather(x[0], neighbours, &y[1]);
}

void test_halos(void) {
  const int py = ranks % 2 == 0 ? 2 : 1, px = ranks / py;
  const int grid[2] = {py, px}, low[2] = {1, 2}, high[2] = {2, 1};
  const int ny = 3, nx = 4, y0 = rank / px * ny, x0 = rank % px * nx, all_y = py * ny, all_x = px * nx;
  double block[3][4], got[6][7];
  for (int i = 0; i < ny; ++i)
    for (int j = 0; j < nx; ++j) block[i][j] = 100 * (y0 + i) + x0 + j;
  const int64_t shape[2] = {ny, nx};
  mpigrad_tensor x, y;
  double error = 0;
  OK(mpigrad_tensor_over(block, MPIGRAD_FLOAT64, 2, shape, &x));
  for (int mode = 0; mode < 4; ++mode) {
    const int periodic[2] = {mode & 1, mode >> 1};
    OK(mpigrad_halo_create(world, 2, grid, periodic, low, high, &halo));
    OK(mpigrad_halo_exchange(halo, x, &y));
    OK(mpigrad_tensor_to_memory(y, MPIGRAD_FLOAT64, 42, got));
    int wrong = 0;
    for (int i = 0; i < 6; ++i)
      for (int j = 0; j < 7; ++j) {
        int gy = y0 + i - 1, gx = x0 + j - 2;
        const int outside = (!periodic[0] && (gy < 0 || gy >= all_y)) || (!periodic[1] && (gx < 0 || gx >= all_x));
        gy = (gy + all_y) % all_y, gx = (gx + all_x) % all_x;
        wrong += got[i][j] != (outside ? 0 : 100 * gy + gx);
      }
    CHECK(wrong == 0);
    OK(mpigrad_adjoint_check("halo", exchange, NULL, 1, &x, 1, world, 1, 1e-11, &error));
    OK(mpigrad_halo_destroy(halo));
  }
  const int periodic[2] = {1, 1};
  const int64_t rows[1] = {5};
  OK(mpigrad_topology_cartesian(world, 2, grid, periodic, &neighbours));
  OK(mpigrad_tensor_uniform(MPIGRAD_FLOAT64, 1, rows, rank, 0, 1, &x));
  OK(mpigrad_adjoint_check("neighbours", to_neighbours, NULL, 1, &x, 2, world, 1, 1e-11, &error));
  OK(mpigrad_topology_destroy(neighbours));
  const int next[1] = {(rank + 1) % ranks};
  OK(mpigrad_topology_graph(world, 1, next, &neighbours));
  OK(mpigrad_neighbor_allgather(x, neighbours, &y));
  OK(mpigrad_topology_destroy(neighbours));
}

// ---- functions of the program: y = x^3 and z = sum x as one op

static double wrong_factor = 1;
static int infer(void* user, int inputs, const mpigrad_tensor* x, int outputs, mpigrad_type* y) {
  (void)user;
  if (inputs != 1 || outputs != 2) return 99;
  TRY(mpigrad_tensor_rank(x[0], &y[0].rank));
  TRY(mpigrad_tensor_shape(x[0], MPIGRAD_MAX_RANK, y[0].shape));
  y[0].dtype = y[1].dtype = MPIGRAD_FLOAT64;
  return 0;
}
static int cube(void* user, int inputs, const mpigrad_tensor* x, int outputs, mpigrad_tensor* y) {
  (void)inputs, (void)outputs;
  ++*(int*)user;
  const void* in;
  void* out;
  int64_t n;
  TRY(mpigrad_tensor_elements(x[0], &n));
  TRY(mpigrad_tensor_data(x[0], MPIGRAD_FLOAT64, &in));
  TRY(mpigrad_tensor_mutable_data(y[0], MPIGRAD_FLOAT64, &out));
  for (int64_t i = 0; i < n; ++i) ((double*)out)[i] = pow(((const double*)in)[i], 3);
  return mpigrad_sum_all(x[0], &y[1]);  // instead of filling it
}
static int cube_adjoint(void* user, int inputs, const mpigrad_tensor* x, int outputs, const mpigrad_tensor* ybar,
                        mpigrad_tensor* xbar) {
  (void)user, (void)inputs, (void)outputs;
  const void *in, *bar;
  void* out;
  double total;
  int64_t n;
  TRY(mpigrad_tensor_elements(x[0], &n));
  TRY(mpigrad_tensor_data(x[0], MPIGRAD_FLOAT64, &in));
  TRY(mpigrad_tensor_data(ybar[0], MPIGRAD_FLOAT64, &bar));
  TRY(mpigrad_tensor_item(ybar[1], &total));
  TRY(mpigrad_tensor_mutable_data(xbar[0], MPIGRAD_FLOAT64, &out));
  for (int64_t i = 0; i < n; ++i)
    ((double*)out)[i] += wrong_factor * 3 * pow(((const double*)in)[i], 2) * ((const double*)bar)[i] + total;
  return 0;
}
static int cube_vjp(void* user, int inputs, const mpigrad_tensor* x, int outputs, const mpigrad_tensor* ybar,
                    mpigrad_tensor* xbar) {
  (void)user, (void)inputs, (void)outputs;
  mpigrad_tensor a, b;
  TRY(mpigrad_square(x[0], &a));
  TRY(mpigrad_multiply(a, ybar[0], &b));
  TRY(mpigrad_affine(b, 3, 0, &a));
  return mpigrad_add(a, ybar[1], xbar);
}
static int call_op(void* user, int inputs, const mpigrad_tensor* x, int outputs, mpigrad_tensor* y) {
  return mpigrad_op_call(*(mpigrad_op*)user, inputs, x, outputs, y);
}

void test_ops(void) {
  mpigrad_op by_hand, in_ops;
  mpigrad_tensor x;
  double error = 0, rate = 0;
  int runs = 0;
  OK(mpigrad_tensor_uniform(MPIGRAD_FLOAT64, 1, six, 1 + rank, 0.5, 1, &x));
  OK(mpigrad_op_create("cube by hand", 2, infer, cube, cube_adjoint, &runs, 0, &by_hand));
  OK(mpigrad_op_create_differentiable("cube in ops", 2, infer, cube, cube_vjp, &runs, 0, &in_ops));
  OK(mpigrad_adjoint_check("cube by hand", call_op, &by_hand, 1, &x, 2, world, 0, 1e-11, &error));
  OK(mpigrad_adjoint_check("cube in ops", call_op, &in_ops, 1, &x, 2, world, 1, 1e-11, &error));
  OK(mpigrad_taylor_test("cube by hand", call_op, &by_hand, 1, &x, 2, world, 0, &rate));
  CHECK(rate > 1.9 && rate < 2.1);
  OK(mpigrad_taylor_test("cube in ops", call_op, &in_ops, 1, &x, 2, world, 1, &rate));
  CHECK(runs > 50);
  wrong_factor = 1.01;
  REFUSED(mpigrad_adjoint_check("wrong", call_op, &by_hand, 1, &x, 2, world, 0, 1e-11, &error), MPIGRAD_CHECK_FAILED,
          "[adjoint] wrong on");
  REFUSED(mpigrad_taylor_test("wrong", call_op, &by_hand, 1, &x, 2, world, 0, &rate), MPIGRAD_CHECK_FAILED, "R1 falls as");
  wrong_factor = 1;
  REFUSED(mpigrad_adjoint_check("second", call_op, &by_hand, 1, &x, 2, world, 1, 1e-11, &error), MPIGRAD_ERROR, "hand-written");
  OK(mpigrad_op_destroy(by_hand));
  OK(mpigrad_op_destroy(in_ops));
}

// ---- loops and equations

static int decay(void* user, int64_t step, int tensors, const mpigrad_tensor* state, mpigrad_tensor* next) {
  ++*(int*)user;
  if (tensors != 2) return 99;
  mpigrad_tensor a;
  TRY(mpigrad_multiply(state[0], state[1], &a));
  TRY(mpigrad_affine(a, 1, (double)step, &next[0]));
  next[1] = state[1];
  return 0;
}
static int laplace(void* user, int inputs, const mpigrad_tensor* x, int outputs, mpigrad_tensor* y) {
  (void)inputs, (void)outputs;
  return mpigrad_matmul(*(mpigrad_tensor*)user, x[0], 0, 0, y);
}
static int no_recording(void* user, int inputs, const mpigrad_tensor* x, int outputs, mpigrad_tensor* y) {
  (void)user, (void)inputs, (void)outputs;
  return mpigrad_square(x[0], y);
}

void test_loops(void) {
  mpigrad_tensor state[2], last[2], gradient[2], loss;
  double values[2][2], value = 0;
  int runs = 0;
  for (int snapshots = 0; snapshots <= 2; snapshots += 2) {
    mpigrad_tape tape;
    OK(mpigrad_tensor_full(MPIGRAD_FLOAT64, 0, NULL, 2, &state[0]));
    OK(mpigrad_tensor_full(MPIGRAD_FLOAT64, 0, NULL, 0.5, &state[1]));
    OK(mpigrad_tape_begin(&tape));
    runs = 0;
    OK(mpigrad_time_steps(decay, &runs, 2, state, 7, snapshots, last));
    OK(mpigrad_square(last[0], &loss));
    OK(mpigrad_tape_gradient(tape, loss, 2, state, 0, gradient));
    OK(mpigrad_tape_destroy(tape));
    CHECK(runs == (snapshots == 0 ? 13 : 18));
    for (int i = 0; i < 2; ++i) OK(mpigrad_tensor_item(gradient[i], &values[snapshots / 2][i]));
  }
  CHECK(values[0][0] == values[1][0] && values[0][1] == values[1][1] && values[0][0] != 0);
  // A = [[2, -1], [-1, 2]]: A^-1 [1, 0] = [2/3, 1/3]; the gradient of the sum of x with respect to b is A^-1 [1, 1] = [1, 1].
  const double elements[4] = {2, -1, -1, 2}, right[2] = {1, 0};
  double found[2];
  const int64_t two_two[2] = {2, 2}, two[1] = {2};
  const mpigrad_comm none = {0};
  mpigrad_tensor matrix, b, x, db;
  mpigrad_tape tape;
  OK(mpigrad_tensor_over_constant(elements, MPIGRAD_FLOAT64, 2, two_two, &matrix));
  OK(mpigrad_tensor_over_constant(right, MPIGRAD_FLOAT64, 1, two, &b));
  for (int method = 0; method < 2; ++method) {
    OK(mpigrad_tape_begin(&tape));
    OK(mpigrad_solve(laplace, &matrix, b, method, 1e-12, 100, none, &x));
    OK(mpigrad_sum_all(x, &loss));
    OK(mpigrad_tape_gradient(tape, loss, 1, &b, 0, &db));
    OK(mpigrad_tape_destroy(tape));
    OK(mpigrad_tensor_to_memory(x, MPIGRAD_FLOAT64, 2, found));
    CHECK(fabs(found[0] - 2.0 / 3) < 1e-10 && fabs(found[1] - 1.0 / 3) < 1e-10);
    OK(mpigrad_tensor_to_memory(db, MPIGRAD_FLOAT64, 2, found));
    CHECK(fabs(found[0] - 1) < 1e-10 && fabs(found[1] - 1) < 1e-10);
  }
  OK(mpigrad_tape_begin(&tape));
  OK(mpigrad_untaped(no_recording, NULL, 1, &b, 1, &x));
  OK(mpigrad_multiply(x, b, &db));
  OK(mpigrad_sum_all(db, &loss));
  OK(mpigrad_tape_gradient(tape, loss, 1, &b, 0, &db));
  OK(mpigrad_tensor_to_memory(db, MPIGRAD_FLOAT64, 2, found));
  CHECK(found[0] == 1 && found[1] == 0);  // x counts as a constant: b^2, not 3 b^2
  OK(mpigrad_tape_destroy(tape));
  (void)value;
}

// ---- optimizers and files

void test_training(const char* folder) {
  mpigrad_tensor start, p, replicated, y, loss, gradient;
  mpigrad_optimizer optimizer;
  double value = 0;
  const char* names[3] = {"sgd", "adam", "rmsprop"};
  for (int i = 0; i < 3; ++i) {
    OK(mpigrad_tensor_full(MPIGRAD_FLOAT64, 1, six, 1, &start));
    OK(mpigrad_optimizer_create(names[i], 1, &start, 0.05, 0, 0, &optimizer));
    for (int step = 0; step < 60; ++step) {
      mpigrad_scope scope;
      mpigrad_tape tape;
      OK(mpigrad_scope_begin(&scope));
      OK(mpigrad_optimizer_parameter(optimizer, 0, &p));
      OK(mpigrad_tape_begin(&tape));
      OK(mpigrad_replicate(p, world, &replicated));
      OK(mpigrad_affine(replicated, 1, -0.5, &y));
      OK(mpigrad_square(y, &p));
      OK(mpigrad_sum_all(p, &loss));
      OK(mpigrad_optimizer_parameter(optimizer, 0, &p));
      OK(mpigrad_tape_gradient(tape, loss, 1, &p, 0, &gradient));
      OK(mpigrad_optimizer_step(optimizer, 1, &gradient, 1.0));
      OK(mpigrad_scope_end(scope, 0, NULL));
    }
    OK(mpigrad_optimizer_set_learning_rate(optimizer, 0.01));
    OK(mpigrad_optimizer_parameter(optimizer, 0, &p));
    OK(mpigrad_mean_all(p, &y));
    OK(mpigrad_tensor_item(y, &value));
    CHECK(fabs(value - 0.5) < 0.05);
    OK(mpigrad_optimizer_destroy(optimizer));
  }
  if (!folder || rank > 0) return;
  char path[4096];
  const char* const name[2] = {"p", "q"};
  snprintf(path, sizeof path, "%s/weights.h5", folder);
  mpigrad_tensor list[2], read;
  list[0] = p, list[1] = start;
  OK(mpigrad_weights_write(path, 2, name, list));
  OK(mpigrad_weights_write(path, 2, name, list));
  OK(mpigrad_weights_read(path, "q", &read));
  OK(mpigrad_mean_all(read, &y));
  OK(mpigrad_tensor_item(y, &value));
  CHECK(value == 1);
  REFUSED(mpigrad_weights_read(path, "r", &read), MPIGRAD_ERROR, "has no tensor r");
  REFUSED(mpigrad_weights_read("/nowhere/weights.h5", "q", &read), MPIGRAD_ERROR, "/nowhere/weights.h5");
}
