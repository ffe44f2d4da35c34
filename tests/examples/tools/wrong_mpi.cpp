// An MPI library whose sums are wrong by a thousandth, for LD_PRELOAD: mpigrad-selftest must notice it.
#include <mpi.h>

static void spoil(void* data, long long n, MPI_Datatype type, MPI_Op op) {
  if (n == 6 && type == MPI_DOUBLE && op == MPI_SUM) *static_cast<double*>(data) *= 1.001;
}

#define WRONG(suffix, Count)                                                                                              \
  extern "C" int MPI_Allreduce##suffix(const void* in, void* out, Count n, MPI_Datatype type, MPI_Op op, MPI_Comm comm) { \
    const int code = PMPI_Allreduce##suffix(in, out, n, type, op, comm);                                                  \
    spoil(out, n, type, op);                                                                                              \
    return code;                                                                                                          \
  }                                                                                                                       \
  extern "C" int MPI_Iallreduce##suffix(const void* in, void* out, Count n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,  \
                                        MPI_Request* request) {                                                           \
    const int code = PMPI_Iallreduce##suffix(in, out, n, type, op, comm, request);                                        \
    if (n == 6 && type == MPI_DOUBLE) PMPI_Wait(request, MPI_STATUS_IGNORE);                                              \
    spoil(out, n, type, op);                                                                                              \
    return code;                                                                                                          \
  }

WRONG(, int)
#if MPI_VERSION >= 4
WRONG(_c, MPI_Count)
#endif
