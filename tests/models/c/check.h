#pragma once
// Checks of the C tests: count, and print the line and the reason of what fails.

#include <math.h>
#include <mpigrad/c.h>
#include <stdio.h>
#include <string.h>

extern int checks_failed, checks_made;  // one file of the test defines them

// True if `condition` holds; else prints the line.
static inline int check_at(int line, const char* what, int condition) {
  ++checks_made;
  if (condition) return 1;
  ++checks_failed;
  printf("failed: line %d: %s; last error: %s\n", line, what, mpigrad_last_error());
  return 0;
}
#define CHECK(condition) check_at(__LINE__, #condition, (condition) ? 1 : 0)
// The call succeeds.
#define OK(call) CHECK((call) == MPIGRAD_OK)
// The call fails with this status, and the sentence contains `text`.
#define REFUSED(call, status, text)                                                          \
  do {                                                                                       \
    CHECK((call) == (status));                                                               \
    CHECK(strlen(mpigrad_last_error()) > 0 && strstr(mpigrad_last_error(), (text)) != NULL); \
  } while (0)
// Inside callbacks: fails with the status of the call.
#define TRY(call)                              \
  do {                                         \
    const mpigrad_status status_ = (call);     \
    if (status_ != MPIGRAD_OK) return status_; \
  } while (0)
// The integer of a communicator, which programs in Fortran have.
#ifdef MPI_ABI_VERSION
#define INTEGER_OF(communicator) MPI_Comm_toint(communicator)
#else
#define INTEGER_OF(communicator) ((int)MPI_Comm_c2f(communicator))
#endif
