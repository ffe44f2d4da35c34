// The C interface: values and derivatives. Runs on any number of ranks of MPI, or without MPI as one rank.

#ifdef WITH_MPI
#include <mpi.h>
#endif

#include "check.h"

#include <stdlib.h>

static mpigrad_comm world;
static int rank = 0, ranks = 1;
static const int64_t six[1] = {6}, two_three[2] = {2, 3}, four_four[2] = {4, 4};

// ---- memory

static int released = 0;
static void release(void* user) { released += *(int*)user; }

static void test_memory(void) {
  double u[4][5], back[2][3] = {{0}};
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 5; ++j) u[i][j] = 5 * i + j;
  mpigrad_tensor x, y, z;
  const int64_t shape[2] = {4, 5}, strides[2] = {5, 1}, interior[2] = {2, 3};
  OK(mpigrad_tensor_over(u, MPIGRAD_FLOAT64, 2, shape, &x));
  const void* data = NULL;
  OK(mpigrad_tensor_data(x, MPIGRAD_FLOAT64, &data));
  CHECK(data == (void*)u);
  int of_rank = 0, dtype = 0;
  int64_t extents[8] = {0}, elements = 0;
  OK(mpigrad_tensor_rank(x, &of_rank));
  OK(mpigrad_tensor_shape(x, 8, extents));
  OK(mpigrad_tensor_elements(x, &elements));
  OK(mpigrad_tensor_dtype(x, &dtype));
  CHECK(of_rank == 2 && extents[0] == 4 && extents[1] == 5 && elements == 20 && dtype == MPIGRAD_FLOAT64);
  // The program's writes arrive, and those through the tensor arrive in the program's memory.
  u[0][0] = 7;
  OK(mpigrad_affine(x, 1, 0, &y));
  OK(mpigrad_tensor_data(y, MPIGRAD_FLOAT64, &data));
  CHECK(((const double*)data)[0] == 7);
  void* place = NULL;
  OK(mpigrad_tensor_mutable_data(x, MPIGRAD_FLOAT64, &place));
  ((double*)place)[1] = 8;
  CHECK(u[0][1] == 8);
  // The interior, copied in and out.
  OK(mpigrad_tensor_from_strided(&u[1][1], MPIGRAD_FLOAT64, 2, interior, strides, &z));
  OK(mpigrad_tensor_to_memory(z, MPIGRAD_FLOAT64, 6, back));
  CHECK(back[0][0] == u[1][1] && back[1][2] == u[2][3]);
  mpigrad_tensor seven;
  OK(mpigrad_tensor_full(MPIGRAD_FLOAT64, 2, interior, 7, &seven));
  OK(mpigrad_tensor_to_strided(seven, MPIGRAD_FLOAT64, 2, interior, strides, &u[1][1]));
  CHECK(u[1][1] == 7 && u[2][3] == 7 && u[1][0] == 5 && u[2][4] == 14);
  // The memory is released with the last tensor over it.
  int one = 1;
  double memory[6] = {0};
  mpigrad_tensor kept;
  OK(mpigrad_tensor_over_released(memory, MPIGRAD_FLOAT64, 1, six, release, &one, &kept));
  mpigrad_tensor view;
  OK(mpigrad_reshape(kept, 2, two_three, &view));
  OK(mpigrad_tensor_destroy(kept));
  CHECK(released == 0);
  OK(mpigrad_tensor_destroy(view));
  CHECK(released == 1);
  REFUSED(mpigrad_tensor_over_released((char*)memory + 1, MPIGRAD_FLOAT64, 1, six, release, &one, &kept), MPIGRAD_ERROR,
          "multiple of");
  CHECK(released == 1);
  // Memory that is refused stays the program's.
  const int64_t below[1] = {-1}, huge[1] = {INT64_MAX / 2}, rest[2] = {2, -1};
  REFUSED(mpigrad_tensor_over_released(memory, MPIGRAD_FLOAT64, 1, below, release, &one, &kept), MPIGRAD_ERROR, "not negative");
  REFUSED(mpigrad_tensor_over_released(memory, MPIGRAD_FLOAT64, 1, huge, release, &one, &kept), MPIGRAD_ERROR, "larger than any");
  CHECK(released == 1);
  // An extent may be -1.
  OK(mpigrad_reshape(x, 2, rest, &view));
  OK(mpigrad_tensor_shape(view, 8, extents));
  CHECK(extents[0] == 2 && extents[1] == 10);
  const double constant[6] = {1, 2, 3, 4, 5, 6};
  OK(mpigrad_tensor_over_constant(constant, MPIGRAD_FLOAT64, 1, six, &kept));
  double value = 0;
  OK(mpigrad_sum_all(kept, &y));
  OK(mpigrad_tensor_item(y, &value));
  CHECK(value == 21);
}

static void test_scopes(void) {
  int64_t before = 0, after = 0;
  OK(mpigrad_live_handles(&before));
  mpigrad_scope outer, inner;
  mpigrad_tensor a, b, c;
  OK(mpigrad_scope_begin(&outer));
  OK(mpigrad_tensor_full(MPIGRAD_FLOAT64, 1, six, 1, &a));
  OK(mpigrad_scope_begin(&inner));
  OK(mpigrad_add(a, a, &b));
  OK(mpigrad_add(b, b, &c));
  OK(mpigrad_scope_end(inner, 1, &c));
  REFUSED(mpigrad_negate(b, &a), MPIGRAD_INVALID_HANDLE, "destroyed");
  OK(mpigrad_scope_end(outer, 0, NULL));
  REFUSED(mpigrad_negate(c, &a), MPIGRAD_INVALID_HANDLE, "destroyed");
  OK(mpigrad_live_handles(&after));
  CHECK(before == after);
}

static void test_gradients(void) {
  mpigrad_tape tape;
  mpigrad_tensor x, y, loss, gradient, z;
  double values[6] = {1, 2, 3, 4, 5, 6 + rank}, got[6];
  OK(mpigrad_tensor_over(values, MPIGRAD_FLOAT64, 1, six, &x));
  OK(mpigrad_tape_begin(&tape));
  OK(mpigrad_square(x, &y));
  OK(mpigrad_sum_all(y, &loss));
  OK(mpigrad_tape_gradient(tape, loss, 1, &x, 0, &gradient));
  OK(mpigrad_tape_destroy(tape));
  OK(mpigrad_tensor_to_memory(gradient, MPIGRAD_FLOAT64, 6, got));
  for (int i = 0; i < 6; ++i) CHECK(got[i] == 2 * values[i]);
  // The sum over ranks of |S x|^2, with S the sum over ranks: 2 P S x. Only rank 0 passes an objective: 2 S x.
  for (int only_first = 0; only_first < 2; ++only_first) {
    const mpigrad_tensor none = {0};
    OK(mpigrad_tape_begin(&tape));
    OK(mpigrad_allreduce(x, world, MPIGRAD_REDUCE_SUM, &y));
    OK(mpigrad_square(y, &z));
    OK(mpigrad_sum_all(z, &loss));
    OK(mpigrad_tape_gradient(tape, only_first && rank > 0 ? none : loss, 1, &x, 0, &gradient));
    OK(mpigrad_tape_destroy(tape));
    OK(mpigrad_tensor_to_memory(gradient, MPIGRAD_FLOAT64, 6, got));
    const double factor = 2.0 * (only_first ? 1 : ranks);
    CHECK(got[0] == factor * ranks);
    CHECK(got[5] == factor * (6.0 * ranks + ranks * (ranks - 1) / 2));
  }
  // A second derivative, of the gradient of sum x^3: 6 x. By one tape, and by a tape around a tape.
  for (int around = 0; around < 2; ++around) {
    mpigrad_tape outer = {0};
    mpigrad_tensor cube;
    if (around) OK(mpigrad_tape_begin(&outer));
    OK(mpigrad_tape_begin(&tape));
    OK(mpigrad_multiply(x, x, &y));
    OK(mpigrad_multiply(y, x, &cube));
    OK(mpigrad_sum_all(cube, &loss));
    OK(mpigrad_tape_gradient(tape, loss, 1, &x, !around, &gradient));
    OK(mpigrad_sum_all(gradient, &loss));
    OK(mpigrad_tape_gradient(around ? outer : tape, loss, 1, &x, 0, &z));
    OK(mpigrad_tape_destroy(tape));
    OK(mpigrad_tape_destroy(outer));
    OK(mpigrad_tensor_to_memory(z, MPIGRAD_FLOAT64, 6, got));
    for (int i = 0; i < 6; ++i) CHECK(fabs(got[i] - 6 * values[i]) < 1e-12);
  }
  // Memory that changes after it was read.
  OK(mpigrad_tape_begin(&tape));
  OK(mpigrad_square(x, &y));
  OK(mpigrad_sum_all(y, &loss));
  OK(mpigrad_tensor_note_write(x));
  REFUSED(mpigrad_tape_gradient(tape, loss, 1, &x, 0, &gradient), MPIGRAD_ERROR, "square");
  OK(mpigrad_tape_destroy(tape));
}

// ---- every function of elements, against its derivative

typedef mpigrad_status (*unary)(mpigrad_tensor, mpigrad_tensor*);
typedef mpigrad_status (*binary)(mpigrad_tensor, mpigrad_tensor, mpigrad_tensor*);
struct two_forms {
  unary of_one;
  binary of_two;
};

static int elementwise(void* user, int inputs, const mpigrad_tensor* x, int outputs, mpigrad_tensor* y) {
  const struct two_forms* f = user;
  if (outputs != 1) return 99;
  return inputs == 1 ? f->of_one(x[0], y) : f->of_two(x[0], x[1], y);
}

static void test_elements(void) {
  const unary ones[] = {mpigrad_negate, mpigrad_exp,      mpigrad_log,     mpigrad_log1p,     mpigrad_expm1, mpigrad_sqrt,
                        mpigrad_square, mpigrad_abs,      mpigrad_sin,     mpigrad_cos,       mpigrad_tan,   mpigrad_asin,
                        mpigrad_acos,   mpigrad_atan,     mpigrad_sinh,    mpigrad_cosh,      mpigrad_tanh,  mpigrad_erf,
                        mpigrad_relu,   mpigrad_softplus, mpigrad_sigmoid, mpigrad_reciprocal};
  const binary twos[] = {mpigrad_add,     mpigrad_subtract, mpigrad_multiply, mpigrad_divide, mpigrad_maximum,
                         mpigrad_minimum, mpigrad_pow,      mpigrad_atan2,    mpigrad_hypot};
  mpigrad_comm self;
  mpigrad_tensor x[2];
  double error = 0, value = 0;
  OK(mpigrad_comm_self(&self));
  OK(mpigrad_tensor_uniform(MPIGRAD_FLOAT64, 1, six, 1, 0.2, 0.5, &x[0]));
  OK(mpigrad_tensor_uniform(MPIGRAD_FLOAT64, 1, six, 2, 0.6, 0.8, &x[1]));
  for (size_t i = 0; i < sizeof ones / sizeof ones[0]; ++i) {
    struct two_forms f = {ones[i], NULL};
    OK(mpigrad_adjoint_check("unary", elementwise, &f, 1, x, 1, self, 0, 1e-11, &error));
  }
  for (size_t i = 0; i < sizeof twos / sizeof twos[0]; ++i) {
    struct two_forms f = {NULL, twos[i]};
    OK(mpigrad_adjoint_check("binary", elementwise, &f, 2, x, 1, self, 0, 1e-11, &error));
  }
  // Names meet their functions.
  mpigrad_tensor half, y;
  OK(mpigrad_tensor_full(MPIGRAD_FLOAT64, 0, NULL, 0.5, &half));
  const double expected[] = {-0.5,      exp(0.5), log(0.5), log1p(0.5),      expm1(0.5),          sqrt(0.5), 0.25,      0.5,
                             sin(0.5),  cos(0.5), tan(0.5), asin(0.5),       acos(0.5),           atan(0.5), sinh(0.5), cosh(0.5),
                             tanh(0.5), erf(0.5), 0.5,      log1p(exp(0.5)), 1 / (1 + exp(-0.5)), 2};
  for (size_t i = 0; i < sizeof ones / sizeof ones[0]; ++i) {
    OK(ones[i](half, &y));
    OK(mpigrad_tensor_item(y, &value));
    CHECK(fabs(value - expected[i]) < 1e-14);
  }
  mpigrad_tensor two;
  OK(mpigrad_tensor_full(MPIGRAD_FLOAT64, 0, NULL, 2, &two));
  const double of_two[] = {2.5, -1.5, 1, 0.25, 2, 0.5, 0.25, atan2(0.5, 2), hypot(0.5, 2)};
  for (size_t i = 0; i < sizeof twos / sizeof twos[0]; ++i) {
    OK(twos[i](half, two, &y));
    OK(mpigrad_tensor_item(y, &value));
    CHECK(fabs(value - of_two[i]) < 1e-14);
  }
  mpigrad_tensor less, chosen;
  OK(mpigrad_less(half, two, &less));
  OK(mpigrad_where(less, two, half, &chosen));
  OK(mpigrad_tensor_item(chosen, &value));
  CHECK(value == 2);
}

// ---- products, shapes and transforms

static int products(void* user, int inputs, const mpigrad_tensor* x, int outputs, mpigrad_tensor* y) {
  (void)user;
  if (inputs != 2 || outputs != 7) return 99;
  const int order[2] = {1, 0}, axes[1] = {1}, last[1] = {-1};
  const int64_t low[2] = {1, 0}, high[2] = {0, 2}, first[2] = {1, 1}, end[2] = {3, 4}, wide[3] = {2, 4, 4};
  mpigrad_tensor a, both[2], spectrum;
  TRY(mpigrad_matmul(x[0], x[1], 1, 0, &y[0]));
  TRY(mpigrad_permute(x[0], 2, order, &a));
  TRY(mpigrad_pad(a, 2, low, high, 0, &y[1]));
  TRY(mpigrad_slice(x[0], 2, first, end, &y[2]));
  both[0] = x[0], both[1] = x[1];
  TRY(mpigrad_concatenate(2, both, 1, &y[3]));
  TRY(mpigrad_broadcast_to(x[1], 3, wide, &a));
  TRY(mpigrad_sum(a, 1, axes, 1, &y[4]));
#ifdef WITH_FFT
  TRY(mpigrad_rfft(x[0], 1, last, &spectrum));
  TRY(mpigrad_irfft(spectrum, 1, last, 4, &a));
#else
  (void)last, (void)spectrum;
  a = x[0];
#endif
  TRY(mpigrad_softmax(a, -1, &y[5]));
  TRY(mpigrad_dot(x[0], x[1], &y[6]));
  return 0;
}

static int convolution(void* user, int inputs, const mpigrad_tensor* x, int outputs, mpigrad_tensor* y) {
  (void)inputs, (void)outputs;
  const int64_t padding[3] = {0, 1, 1}, stride[3] = {1, 2, 1};
  return mpigrad_conv(x[0], x[1], stride, padding, NULL, *(int*)user, 1, y);
}

static void test_products(void) {
  mpigrad_comm self;
  mpigrad_tensor x[2], spectrum, back, difference, largest, re, im, z;
  double error = 0, value = 1;
  OK(mpigrad_comm_self(&self));
  OK(mpigrad_tensor_normal(MPIGRAD_FLOAT64, 2, four_four, 1, 0, 1, &x[0]));
  OK(mpigrad_tensor_normal(MPIGRAD_FLOAT64, 2, four_four, 2, 0, 1, &x[1]));
  OK(mpigrad_adjoint_check("products", products, NULL, 2, x, 7, self, 1, 1e-11, &error));
#ifdef WITH_FFT
  const int both[2] = {0, 1};
  OK(mpigrad_fft(x[0], 2, both, &spectrum));
  OK(mpigrad_ifft(spectrum, 2, both, &back));
  OK(mpigrad_real(back, &re));
  OK(mpigrad_imag(back, &im));
  OK(mpigrad_complex(re, im, &z));
  OK(mpigrad_subtract(z, x[0], &difference));
  OK(mpigrad_abs(difference, &back));
  OK(mpigrad_max_all(back, &largest));
  OK(mpigrad_tensor_item(largest, &value));
  CHECK(value < 1e-14);
#else
  (void)spectrum, (void)back, (void)difference, (void)largest, (void)re, (void)im, (void)z, (void)value;
#endif
  const int64_t image[5] = {1, 1, 6, 5, 2}, weights[5] = {3, 1, 3, 3, 2};
  OK(mpigrad_tensor_normal(MPIGRAD_FLOAT64, 5, image, 1, 0, 1, &x[0]));
  OK(mpigrad_tensor_normal(MPIGRAD_FLOAT64, 5, weights, 2, 0, 1, &x[1]));
  for (int mode = MPIGRAD_PADDING_ZEROS; mode <= MPIGRAD_PADDING_CIRCULAR; ++mode)
    OK(mpigrad_adjoint_check("conv", convolution, &mode, 2, x, 1, self, 1, 1e-11, &error));
  mpigrad_tensor y;
  OK(mpigrad_conv(x[0], x[1], NULL, NULL, NULL, MPIGRAD_PADDING_ZEROS, 1, &y));
  int64_t shape[5];
  OK(mpigrad_tensor_shape(y, 5, shape));
  CHECK(shape[2] == 4 && shape[3] == 3 && shape[4] == 3);
}

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

static void test_communication(void) {
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

static void test_halos(void) {
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

static void test_ops(void) {
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

static void test_loops(void) {
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

static void test_training(const char* folder) {
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

int main(int argc, char** argv) {
#ifdef WITH_MPI
  MPI_Init(&argc, &argv);
  OK(mpigrad_comm_from_fortran((int)MPI_Comm_c2f(MPI_COMM_WORLD), &world));
  OK(mpigrad_comm_destroy(world));
  OK(mpigrad_comm_from_mpi(MPI_COMM_WORLD, &world));
#else
  OK(mpigrad_comm_self(&world));
#endif
  OK(mpigrad_comm_rank(world, &rank));
  OK(mpigrad_comm_size(world, &ranks));
  test_memory();
  test_scopes();
  test_gradients();
  test_elements();
  test_products();
  test_communication();
  test_halos();
  test_ops();
  test_loops();
  test_training(argc > 1 ? argv[1] : NULL);
  OK(mpigrad_destroy_all());
  int64_t left = 1;
  OK(mpigrad_live_handles(&left));
  CHECK(left == 0);
#ifdef WITH_MPI
  MPI_Finalize();
#endif
  if (rank == 0 || checks_failed) printf("%d passed, %d failed, 0 skipped\n", checks_made - checks_failed, checks_failed);
  return checks_failed != 0;
}
