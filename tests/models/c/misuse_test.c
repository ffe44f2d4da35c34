// Misuse of the C interface: each case gives a status and a sentence, and nothing is changed or crashes. One rank.

#ifdef WITH_MPI
#include <mpi.h>
#endif

#include "check.h"

#include "misuse.h"

int checks_failed = 0, checks_made = 0;

double memory[4] = {1, 2, 3, 4};
mpigrad_tensor x, y, out[4];
mpigrad_comm self;
static const int64_t three[1] = {3}, negative[1] = {-1}, huge[2] = {INT64_C(1) << 40, INT64_C(1) << 40};

// ---- handles

static void test_handles(void) {
  const mpigrad_tensor null = {0}, number = {12345}, generation = {x.value + (UINT64_C(1) << 32)}, all_bits = {~UINT64_C(0)};
  mpigrad_tensor destroyed;
  mpigrad_tape tape;
  OK(mpigrad_tensor_full(MPIGRAD_FLOAT64, 1, two, 1, &destroyed));
  OK(mpigrad_tensor_destroy(destroyed));
  REFUSED(mpigrad_add(null, x, out), MPIGRAD_INVALID_HANDLE, "[mpigrad_add] the tensor a is a null handle");
  REFUSED(mpigrad_add(x, null, out), MPIGRAD_INVALID_HANDLE, "the tensor b is a null handle");
  REFUSED(mpigrad_exp(destroyed, out), MPIGRAD_INVALID_HANDLE, "[mpigrad_exp] the tensor x has been destroyed");
  REFUSED(mpigrad_exp(number, out), MPIGRAD_INVALID_HANDLE, "is a number that is no handle");
  REFUSED(mpigrad_exp(generation, out), MPIGRAD_INVALID_HANDLE, "is a number that is no handle");
  REFUSED(mpigrad_exp(all_bits, out), MPIGRAD_INVALID_HANDLE, "is a number that is no handle");
  REFUSED(mpigrad_tensor_destroy(destroyed), MPIGRAD_INVALID_HANDLE, "has been destroyed");
  OK(mpigrad_tensor_destroy(null));
  // The place of a destroyed handle is used again: the old handle stays invalid.
  for (int i = 0; i < 100; ++i) {
    mpigrad_tensor next;
    OK(mpigrad_tensor_full(MPIGRAD_FLOAT64, 1, two, 1, &next));
    CHECK(next.value != destroyed.value);
    OK(mpigrad_tensor_destroy(next));
  }
  REFUSED(mpigrad_exp(destroyed, out), MPIGRAD_INVALID_HANDLE, "has been destroyed");
  // Handles of other kinds, which C's types refuse unless the program makes them by itself.
  const mpigrad_tensor a_comm = {self.value};
  const mpigrad_tape a_tensor = {x.value};
  const mpigrad_comm no_comm = {x.value};
  const mpigrad_request no_request = {self.value};
  const mpigrad_scope no_scope = {x.value};
  REFUSED(mpigrad_exp(a_comm, out), MPIGRAD_WRONG_KIND, "x must be a tensor, but is a communicator");
  REFUSED(mpigrad_tape_stop(a_tensor), MPIGRAD_WRONG_KIND, "must be a tape, but is a tensor");
  REFUSED(mpigrad_tape_destroy(a_tensor), MPIGRAD_WRONG_KIND, "must be a tape, but is a tensor");
  REFUSED(mpigrad_allreduce(x, no_comm, MPIGRAD_REDUCE_SUM, out), MPIGRAD_WRONG_KIND, "must be a communicator, but is a tensor");
  REFUSED(mpigrad_wait(no_request, out), MPIGRAD_WRONG_KIND, "must be a request");
  REFUSED(mpigrad_scope_end(no_scope, 0, NULL), MPIGRAD_WRONG_KIND, "must be a scope");
  const mpigrad_tensor list[2] = {x, destroyed};
  REFUSED(mpigrad_concatenate(2, list, 0, out), MPIGRAD_INVALID_HANDLE, "the tensor x[1] has been destroyed");
  OK(mpigrad_tape_begin(&tape));
  OK(mpigrad_tape_destroy(tape));
  REFUSED(mpigrad_tape_gradient(tape, x, 1, &x, 0, out), MPIGRAD_INVALID_HANDLE,
          "[mpigrad_tape_gradient] the tape t has been destroyed");
}

// ---- pointers, lengths, constants

static void test_arguments(void) {
  int extents[8];
  REFUSED(mpigrad_exp(x, NULL), MPIGRAD_INVALID_ARGUMENT, "[mpigrad_exp] y is a null pointer");
  REFUSED(mpigrad_tensor_over(NULL, MPIGRAD_FLOAT64, 1, two, out), MPIGRAD_INVALID_ARGUMENT, "memory is a null pointer");
  REFUSED(mpigrad_tensor_over(memory, MPIGRAD_FLOAT64, 1, NULL, out), MPIGRAD_INVALID_ARGUMENT, "shape is a null pointer");
  REFUSED(mpigrad_tensor_over(memory, MPIGRAD_FLOAT64, -1, two, out), MPIGRAD_INVALID_ARGUMENT,
          "the length of shape is negative");
  REFUSED(mpigrad_tensor_over(memory, 12, 1, two, out), MPIGRAD_INVALID_ARGUMENT, "type is one of the constants 0 to 11, not 12");
  REFUSED(mpigrad_tensor_over(memory, -1, 1, two, out), MPIGRAD_INVALID_ARGUMENT, "not -1");
  REFUSED(mpigrad_tensor_over(memory, MPIGRAD_FLOAT64, 1, negative, out), MPIGRAD_ERROR, "extents are not negative");
  REFUSED(mpigrad_tensor_over((char*)memory + 1, MPIGRAD_FLOAT64, 1, two, out), MPIGRAD_ERROR, "multiple of");
  REFUSED(mpigrad_tensor_full(MPIGRAD_FLOAT64, 2, huge, 0, out), MPIGRAD_ERROR, "");
  const int64_t large[1] = {INT64_C(1) << 50};
  REFUSED(mpigrad_tensor_full(MPIGRAD_FLOAT64, 1, large, 0, out), MPIGRAD_ERROR, "out of memory");
  const int64_t nine[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  REFUSED(mpigrad_tensor_full(MPIGRAD_FLOAT64, 9, nine, 0, out), MPIGRAD_ERROR, "at most 8 dimensions");
  const void* data;
  void* place;
  REFUSED(mpigrad_tensor_data(x, MPIGRAD_FLOAT32, &data), MPIGRAD_INVALID_ARGUMENT, "elements of float32, but x is float64 [2]");
  REFUSED(mpigrad_tensor_mutable_data(x, MPIGRAD_INT64, &place), MPIGRAD_INVALID_ARGUMENT, "elements of int64");
  REFUSED(mpigrad_tensor_to_memory(x, MPIGRAD_FLOAT32, 2, memory), MPIGRAD_INVALID_ARGUMENT, "elements of float32");
  REFUSED(mpigrad_tensor_to_memory(y, MPIGRAD_FLOAT64, 2, memory), MPIGRAD_INVALID_ARGUMENT,
          "the memory has 2 elements, but x is float64 [2, 2]");
  mpigrad_tensor constant;
  OK(mpigrad_tensor_over_constant(memory, MPIGRAD_FLOAT64, 1, two, &constant));
  REFUSED(mpigrad_tensor_mutable_data(constant, MPIGRAD_FLOAT64, &place), MPIGRAD_ERROR, "read-only");
  const int64_t zero_stride[1] = {0};
  REFUSED(mpigrad_tensor_to_strided(x, MPIGRAD_FLOAT64, 1, two, zero_stride, memory), MPIGRAD_ERROR, "stride");
  REFUSED(mpigrad_tensor_to_strided(x, MPIGRAD_FLOAT64, 2, two_two, two_two, memory), MPIGRAD_INVALID_ARGUMENT,
          "the memory has the shape [2, 2], but x is float64 [2]");
  int64_t shape[1];
  REFUSED(mpigrad_tensor_shape(y, 1, shape), MPIGRAD_INVALID_ARGUMENT, "there are 2 dimensions, and places for 1");
  double value;
  REFUSED(mpigrad_tensor_item(x, &value), MPIGRAD_ERROR, "element");
  REFUSED(mpigrad_concatenate(-1, &x, 0, out), MPIGRAD_INVALID_ARGUMENT, "the length of x is negative: -1");
  REFUSED(mpigrad_concatenate(1, NULL, 0, out), MPIGRAD_INVALID_ARGUMENT, "x is a null pointer");
  REFUSED(mpigrad_allreduce(x, self, 10, out), MPIGRAD_INVALID_ARGUMENT, "op is one of the constants 0 to 9, not 10");
  REFUSED(mpigrad_weights_read(NULL, "w", out), MPIGRAD_INVALID_ARGUMENT, "path is a null pointer");
  REFUSED(mpigrad_comm_rank(self, NULL), MPIGRAD_INVALID_ARGUMENT, "rank is a null pointer");
  (void)extents;
}

// ---- operands

static void test_operands(void) {
  mpigrad_tensor of_three;
  OK(mpigrad_tensor_full(MPIGRAD_FLOAT64, 1, three, 1, &of_three));
  REFUSED(mpigrad_add(x, of_three, out), MPIGRAD_ERROR, "[add]");
  REFUSED(mpigrad_matmul(y, of_three, 0, 0, out), MPIGRAD_ERROR, "[matmul]");
  REFUSED(mpigrad_reshape(x, 1, three, out), MPIGRAD_ERROR, "[reshape]");
  REFUSED(mpigrad_conv(x, x, NULL, NULL, NULL, MPIGRAD_PADDING_ZEROS, 1, out), MPIGRAD_ERROR, "needs [N, D, H, W, C]");
  REFUSED(mpigrad_conv(x, x, NULL, NULL, NULL, 5, 1, out), MPIGRAD_INVALID_ARGUMENT, "mode is one of the constants 0 to 4");
  double places[4] = {0};
  REFUSED(mpigrad_tensor_to_strided(y, MPIGRAD_FLOAT64, 0, NULL, NULL, places), MPIGRAD_INVALID_ARGUMENT,
          "[mpigrad_tensor_to_strided]");
  REFUSED(mpigrad_tensor_to_strided(y, MPIGRAD_FLOAT32, 0, NULL, NULL, places), MPIGRAD_INVALID_ARGUMENT,
          "[mpigrad_tensor_to_strided]");
  const int axes[1] = {3};
  REFUSED(mpigrad_sum(x, 1, axes, 0, out), MPIGRAD_ERROR, "[sum]");
  REFUSED(mpigrad_fft(x, 1, axes, out), MPIGRAD_ERROR, "fft");
  REFUSED(mpigrad_bcast(x, self, 1, out), MPIGRAD_ERROR, "root");
  REFUSED(mpigrad_send(x, self, 5, 0), MPIGRAD_ERROR, "5");
  REFUSED(mpigrad_send(x, self, 0, -5), MPIGRAD_ERROR, "tag");
  REFUSED(mpigrad_scatter(x, self, 1, three, 0, 0, out), MPIGRAD_ERROR, "[scatter]");
  mpigrad_halo halo;
  const int grid[1] = {2}, one[1] = {1}, minus[1] = {-1}, wide[1] = {3};
  REFUSED(mpigrad_halo_create(self, 1, grid, one, one, one, &halo), MPIGRAD_ERROR, "");
  REFUSED(mpigrad_halo_create(self, 1, one, one, minus, one, &halo), MPIGRAD_ERROR, "[halo] widths are not negative");
  OK(mpigrad_halo_create(self, 1, one, one, wide, one, &halo));
  REFUSED(mpigrad_halo_exchange(halo, x, out), MPIGRAD_ERROR,
          "[halo] this rank has 2 elements along dimension 0, fewer than the halo of 3");
  REFUSED(mpigrad_halo_exchange(halo, y, out), MPIGRAD_ERROR, "[halo] the exchange is for tensors of 1 dimensions");
  mpigrad_optimizer optimizer;
  REFUSED(mpigrad_optimizer_create("steepest", 1, &x, 0.1, 0, 0, &optimizer), MPIGRAD_ERROR, "steepest");
  REFUSED(mpigrad_optimizer_create("sgd", 0, NULL, 0.1, 0, 0, &optimizer), MPIGRAD_ERROR, "there are no parameters");
  OK(mpigrad_optimizer_create("sgd", 1, &x, 0.1, 0, 0, &optimizer));
  REFUSED(mpigrad_optimizer_parameter(optimizer, 1, out), MPIGRAD_INVALID_ARGUMENT, "parameters 0 to 0, not 1");
  REFUSED(mpigrad_optimizer_step(optimizer, 1, &of_three, 0), MPIGRAD_ERROR, "gradient 0 is float64 [3]");
  REFUSED(mpigrad_optimizer_step(optimizer, 0, NULL, 0), MPIGRAD_ERROR, "1 parameters, but 0 gradients");
#ifdef WITH_MPI
  mpigrad_comm comm;
  REFUSED(mpigrad_comm_from_mpi(MPI_COMM_NULL, &comm), MPIGRAD_ERROR, "MPI_COMM_NULL");
#endif
}

// ---- tapes, requests and scopes

static void test_order(void) {
  mpigrad_tape tape;
  mpigrad_tensor a, loss;
  OK(mpigrad_tape_begin(&tape));
  OK(mpigrad_square(x, &a));
  REFUSED(mpigrad_tape_gradient(tape, a, 1, &x, 0, out), MPIGRAD_ERROR, "one element");
  OK(mpigrad_sum_all(a, &loss));
  OK(mpigrad_tape_gradient(tape, loss, 1, &x, 0, out));
  REFUSED(mpigrad_tape_gradient(tape, loss, 1, &x, 0, out), MPIGRAD_ERROR, "spent");
  OK(mpigrad_tape_destroy(tape));
  OK(mpigrad_tape_begin(&tape));
  REFUSED(mpigrad_tape_gradient(tape, loss, 1, &x, 0, out), MPIGRAD_ERROR, "[gradient]");
  OK(mpigrad_tape_destroy(tape));
  mpigrad_request request;
  OK(mpigrad_isend(x, self, 0, 0, &request));
  OK(mpigrad_recv(MPIGRAD_FLOAT64, 1, two, self, 0, 0, &a));
  OK(mpigrad_wait(request, &a));
  CHECK(a.value == 0);
  REFUSED(mpigrad_wait(request, &a), MPIGRAD_INVALID_HANDLE, "[mpigrad_wait] the request r has been destroyed");
  OK(mpigrad_tape_begin(&tape));
  OK(mpigrad_iallreduce(x, self, MPIGRAD_REDUCE_SUM, &request));
  OK(mpigrad_square(x, &a));
  OK(mpigrad_sum_all(a, &loss));
  REFUSED(mpigrad_tape_gradient(tape, loss, 1, &x, 0, out), MPIGRAD_ERROR, "iallreduce");
  OK(mpigrad_wait(request, &a));
  OK(mpigrad_tape_destroy(tape));
  mpigrad_scope outer, inner;
  OK(mpigrad_scope_begin(&outer));
  OK(mpigrad_scope_begin(&inner));
  REFUSED(mpigrad_scope_end(outer, 0, NULL), MPIGRAD_INVALID_ARGUMENT, "a scope that began later has not ended");
  OK(mpigrad_scope_end(inner, 0, NULL));
  REFUSED(mpigrad_scope_end(inner, 0, NULL), MPIGRAD_INVALID_HANDLE, "has been destroyed");
  OK(mpigrad_tensor_full(MPIGRAD_FLOAT64, 1, two, 1, &a));
  const mpigrad_tensor kept[2] = {a, {0}};
  REFUSED(mpigrad_scope_end(outer, 2, kept), MPIGRAD_INVALID_HANDLE, "null handle");
  OK(mpigrad_scope_end(outer, 2, (const mpigrad_tensor[2]){a, a}));
  OK(mpigrad_tensor_destroy(a));
}

// ---- functions of the program

static mpigrad_tensor escaped;
static int misuse(void* user, int inputs, const mpigrad_tensor* in, int outputs, mpigrad_tensor* result) {
  (void)inputs, (void)outputs;
  mpigrad_scope scope;
  mpigrad_tensor a;
  mpigrad_tape tape;
  switch (*(int*)user) {
    case 0: return 3;
    case 1: return mpigrad_matmul(in[0], in[0], 0, 0, &a) == MPIGRAD_OK ? 0 : 4;
    case 2: return 0;  // sets no result
    case 3: result[0].value = 77; return 0;
    case 4: return mpigrad_fail(MPIGRAD_ERROR, "the pressure is negative");
    case 5: return mpigrad_destroy_all();
    case 6: return mpigrad_scope_end(*(mpigrad_scope*)((void**)user)[1], 0, NULL);
    case 7:  // leaves a scope, a tape and handles
      TRY(mpigrad_scope_begin(&scope));
      TRY(mpigrad_tape_begin(&tape));
      TRY(mpigrad_exp(in[0], &escaped));
      result[0] = escaped;
      return 0;
    case 8: escaped = in[0]; return mpigrad_exp(in[0], result);
    case 9: result[0] = self.value ? (mpigrad_tensor){self.value} : in[0]; return 0;
    case 10: TRY(mpigrad_tensor_destroy(in[0])); return mpigrad_exp(x, result);
    default: return mpigrad_exp(in[0], result);
  }
}
static int bad_infer(void* user, int inputs, const mpigrad_tensor* in, int outputs, mpigrad_type* type) {
  (void)inputs, (void)in, (void)outputs;
  type[0].rank = *(int*)user == 0 ? 9 : 0;
  type[0].dtype = *(int*)user == 1 ? 12 : 0;
  type[0].shape[0] = 2;
  return *(int*)user == 2 ? 5 : 0;
}
static int nothing(void* user, int inputs, const mpigrad_tensor* in, int outputs, const mpigrad_tensor* bar,
                   mpigrad_tensor* result) {
  (void)user, (void)inputs, (void)in, (void)outputs, (void)bar, (void)result;
  return *(int*)user == 0 ? 0 : 6;
}

static void test_functions(void) {
  int which = 0;
  mpigrad_tensor in[1];
  const mpigrad_comm none = {0};
  OK(mpigrad_tensor_full(MPIGRAD_FLOAT64, 1, two, 1, &in[0]));
  int64_t before = 0, after = 0;
  OK(mpigrad_live_handles(&before));
  REFUSED(mpigrad_untaped(misuse, &which, 1, in, 1, out), MPIGRAD_CALLBACK_FAILED, "[mpigrad_untaped] the function returned 3");
  which = 1;
  REFUSED(mpigrad_untaped(misuse, &which, 1, &y, 1, out), MPIGRAD_CALLBACK_FAILED, "did not set output 0");
  OK(mpigrad_tensor_full(MPIGRAD_FLOAT64, 2, (const int64_t[2]){2, 3}, 1, &out[1]));
  REFUSED(mpigrad_untaped(misuse, &which, 1, &out[1], 1, out), MPIGRAD_CALLBACK_FAILED, "returned 4: [matmul]");
  OK(mpigrad_tensor_destroy(out[1]));
  which = 2;
  REFUSED(mpigrad_untaped(misuse, &which, 1, in, 1, out), MPIGRAD_CALLBACK_FAILED, "did not set output 0");
  which = 3;
  REFUSED(mpigrad_untaped(misuse, &which, 1, in, 1, out), MPIGRAD_INVALID_HANDLE, "that the function set as output 0");
  which = 4;
  REFUSED(mpigrad_untaped(misuse, &which, 1, in, 1, out), MPIGRAD_CALLBACK_FAILED, "the pressure is negative");
  which = 5;
  REFUSED(mpigrad_untaped(misuse, &which, 1, in, 1, out), MPIGRAD_CALLBACK_FAILED, "a callback runs");
  mpigrad_scope scope;
  OK(mpigrad_scope_begin(&scope));
  struct {
    int which;
    mpigrad_scope* scope;
  } with_scope = {6, &scope};
  REFUSED(mpigrad_untaped(misuse, &with_scope, 1, in, 1, out), MPIGRAD_CALLBACK_FAILED, "this callback did not begin the scope");
  OK(mpigrad_scope_end(scope, 0, NULL));
  for (which = 7; which <= 8; ++which) {
    OK(mpigrad_untaped(misuse, &which, 1, in, 1, out));
    REFUSED(mpigrad_exp(escaped, &out[1]), MPIGRAD_INVALID_HANDLE, "has been destroyed");
    OK(mpigrad_tensor_destroy(out[0]));
  }
  REFUSED(mpigrad_untaped(misuse, &which, 1, in, 1, out), MPIGRAD_WRONG_KIND, "but is a communicator");
  which = 10;
  OK(mpigrad_untaped(misuse, &which, 1, in, 1, out));
  OK(mpigrad_tensor_destroy(out[0]));
  REFUSED(mpigrad_untaped(NULL, &which, 1, in, 1, out), MPIGRAD_INVALID_ARGUMENT, "f is a null pointer");
  REFUSED(mpigrad_untaped(misuse, &which, 1, in, 0, NULL), MPIGRAD_INVALID_ARGUMENT, "at least one output, not 0");
  REFUSED(mpigrad_untaped(misuse, &which, 1, in, -1, out), MPIGRAD_INVALID_ARGUMENT, "negative: -1");
  OK(mpigrad_live_handles(&after));
  CHECK(before == after);
  which = 11;
  REFUSED(mpigrad_solve(misuse, &which, in[0], 0, 1e-10, 3, none, out), MPIGRAD_ERROR, "[solve]");
  REFUSED(mpigrad_solve(misuse, &which, in[0], 2, 1e-10, 3, none, out), MPIGRAD_INVALID_ARGUMENT, "method is one of");
  double error;
  which = 0;
  REFUSED(mpigrad_adjoint_check("fails", misuse, &which, 1, in, 1, self, 1, 1e-11, &error), MPIGRAD_CALLBACK_FAILED,
          "[fails] the function returned 3");
  REFUSED(mpigrad_taylor_test(NULL, misuse, &which, 1, in, 1, self, 1, &error), MPIGRAD_INVALID_ARGUMENT,
          "name is a null pointer");
  mpigrad_op op;
  which = 11;
  REFUSED(mpigrad_op_create("", 1, NULL, misuse, nothing, &which, 0, &op), MPIGRAD_ERROR, "no name");
  REFUSED(mpigrad_op_create("two", 2, NULL, misuse, nothing, &which, 0, &op), MPIGRAD_INVALID_ARGUMENT,
          "needs a function that infers");
  REFUSED(mpigrad_op_create("none", 0, NULL, misuse, nothing, &which, 0, &op), MPIGRAD_INVALID_ARGUMENT,
          "at least one output, not 0");
  REFUSED(mpigrad_op_create("no adjoint", 1, NULL, misuse, NULL, &which, 0, &op), MPIGRAD_INVALID_ARGUMENT,
          "adjoint is a null pointer");
  const char* const sentences[4] = {"set the rank 9, not 0 to 8", "element type is one of the constants", "for types returned 5",
                                    "must stay float32 []"};
  for (int i = 0; i < 4; ++i) {
    int as[1] = {i};
    OK(mpigrad_op_create("inferred", 1, bad_infer, misuse, nothing, i == 3 ? &which : as, 0, &op));
    CHECK(mpigrad_op_call(op, 1, in, 1, out) != MPIGRAD_OK);
    CHECK(strstr(mpigrad_last_error(), sentences[i]) != NULL || !printf("case %d\n", i));
    OK(mpigrad_op_destroy(op));
  }
  // An adjoint that fails: gradient() has the status.
  mpigrad_tape tape;
  mpigrad_tensor a, loss;
  OK(mpigrad_op_create("without adjoint", 1, NULL, misuse, nothing, &which, 0, &op));
  OK(mpigrad_tape_begin(&tape));
  OK(mpigrad_op_call(op, 1, in, 1, &a));
  REFUSED(mpigrad_op_call(op, 1, in, 2, out), MPIGRAD_INVALID_ARGUMENT, "there are 1 results, and places for 2");
  OK(mpigrad_sum_all(a, &loss));
  REFUSED(mpigrad_tape_gradient(tape, loss, 1, in, 0, out), MPIGRAD_CALLBACK_FAILED, "[without adjoint] its adjoint returned 6");
  OK(mpigrad_tape_destroy(tape));
}

int main(int argc, char** argv) {
#ifdef WITH_MPI
  MPI_Init(&argc, &argv);
#else
  (void)argc, (void)argv;
#endif
  CHECK(strlen(mpigrad_last_error()) == 0);
  REFUSED(mpigrad_comm_from_fortran(0, NULL), MPIGRAD_INVALID_ARGUMENT, "c is a null pointer");
  OK(mpigrad_comm_self(&self));
  OK(mpigrad_tensor_over(memory, MPIGRAD_FLOAT64, 1, two, &x));
  OK(mpigrad_tensor_over(memory, MPIGRAD_FLOAT64, 2, two_two, &y));
  test_handles();
  test_arguments();
  test_operands();
  test_order();
  test_functions();
  test_threads();
  for (int status = MPIGRAD_OK; status <= MPIGRAD_OUT_OF_MEMORY; ++status) CHECK(strlen(mpigrad_status_name(status)) > 0);
  CHECK(strcmp(mpigrad_status_name(99), "unknown status") == 0);
  CHECK(memory[0] == 1 && memory[3] == 4);
  OK(mpigrad_destroy_all());
  REFUSED(mpigrad_exp(x, out), MPIGRAD_INVALID_HANDLE, "has been destroyed");
#ifdef WITH_MPI
  MPI_Finalize();
  mpigrad_comm comm;
  REFUSED(mpigrad_comm_from_fortran(0, &comm), MPIGRAD_ERROR, "not yet finalised");
#endif
  printf("%d passed, %d failed, 0 skipped\n", checks_made - checks_failed, checks_failed);
  return checks_failed != 0;
}
