// Misuse of the C interface by several threads, and threads with handles of their own.

#define _POSIX_C_SOURCE 200809L
#include <pthread.h>

#include "check.h"

#include "misuse.h"

static mpigrad_tape tape_of_main;
static void* in_thread(void* user) {
  (void)user;
  mpigrad_tensor mine;
  int of = 0;
  CHECK(strlen(mpigrad_last_error()) == 0);
  REFUSED(mpigrad_exp(x, out), MPIGRAD_WRONG_THREAD, "[mpigrad_exp] the tensor x belongs to another thread");
  REFUSED(mpigrad_tape_stop(tape_of_main), MPIGRAD_WRONG_THREAD, "the tape t belongs to another thread");
  REFUSED(mpigrad_tape_destroy(tape_of_main), MPIGRAD_WRONG_THREAD, "belongs to another thread");
  REFUSED(mpigrad_comm_rank(self, &of), MPIGRAD_WRONG_THREAD, "the communicator c belongs to another thread");
  for (int i = 0; i < 200; ++i) {
    OK(mpigrad_tensor_full(MPIGRAD_FLOAT64, 1, two, i, &mine));
    mpigrad_scope scope;
    mpigrad_tensor b;
    OK(mpigrad_scope_begin(&scope));
    OK(mpigrad_exp(mine, &b));
    OK(mpigrad_scope_end(scope, 0, NULL));
  }
  OK(mpigrad_destroy_all());
  return NULL;
}

// Threads with handles of their own, at the same time: the gradient of the sum of exp(x) is exp(x). Returns how many calls fail.
static void* works(void* user) {
  int* wrong = user;
  for (int i = 0; i < 100; ++i) {
    const double value = 0.01 * i;
    mpigrad_scope scope;
    mpigrad_tape tape;
    mpigrad_tensor a, b, loss, gradient;
    double found = 0;
    *wrong += mpigrad_scope_begin(&scope) != MPIGRAD_OK;
    *wrong += mpigrad_tensor_full(MPIGRAD_FLOAT64, 1, two, value, &a) != MPIGRAD_OK;
    *wrong += mpigrad_tape_begin(&tape) != MPIGRAD_OK;
    *wrong += mpigrad_exp(a, &b) != MPIGRAD_OK;
    *wrong += mpigrad_mean_all(b, &loss) != MPIGRAD_OK;
    *wrong += mpigrad_tape_gradient(tape, loss, 1, &a, 0, &gradient) != MPIGRAD_OK;
    *wrong += mpigrad_sum_all(gradient, &loss) != MPIGRAD_OK;
    *wrong += mpigrad_tensor_item(loss, &found) != MPIGRAD_OK || fabs(found - exp(value)) > 1e-14;
    *wrong += mpigrad_exp(x, &b) != MPIGRAD_WRONG_THREAD;
    *wrong += mpigrad_scope_end(scope, 0, NULL) != MPIGRAD_OK;
  }
  *wrong += mpigrad_destroy_all() != MPIGRAD_OK;
  return NULL;
}

void test_threads(void) {
  pthread_t threads[2];
  int wrong[2] = {0, 0}, failed[4];
  for (int i = 0; i < 2; ++i) failed[i] = pthread_create(&threads[i], NULL, works, &wrong[i]);
  for (int i = 0; i < 2; ++i) failed[2 + i] = pthread_join(threads[i], NULL);
  for (int i = 0; i < 4; ++i) CHECK(failed[i] == 0);
  CHECK(wrong[0] == 0 && wrong[1] == 0);
  // One after the other, as the counts of checks are not of several threads.
  OK(mpigrad_tape_begin(&tape_of_main));
  for (int i = 0; i < 2; ++i) {
    failed[0] = pthread_create(&threads[i], NULL, in_thread, NULL);
    failed[1] = pthread_join(threads[i], NULL);
    CHECK(failed[0] == 0 && failed[1] == 0);
  }
  OK(mpigrad_tape_destroy(tape_of_main));
}
