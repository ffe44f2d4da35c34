// The C interface: values and derivatives. Runs on any number of ranks of MPI, or without MPI as one rank. The rest is in
// programs_test.c and files_test.c.

#ifdef WITH_MPI
#include <mpi.h>
#endif

#include "check.h"

#include "interface.h"

int checks_failed = 0, checks_made = 0;
mpigrad_comm world;
int rank = 0, ranks = 1;

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

int main(int argc, char** argv) {
#ifdef WITH_MPI
  MPI_Init(&argc, &argv);
  OK(mpigrad_comm_from_fortran(INTEGER_OF(MPI_COMM_WORLD), &world));
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
  test_files(argc > 2 ? argv[1] : NULL, argc > 2 ? argv[2] : NULL);
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
