#pragma once
// How many threads may be asked for.

namespace mpigrad {

// An Error for an MPIGRAD_THREADS that is no number of threads, and for more than 64 threads, of it or of OMP_NUM_THREADS, that
// are more than four for each core: OpenMP ends a program whose threads are more than the system gives.
void require_threads_that_fit();

}  // namespace mpigrad
