#pragma once
// How many threads a rank uses, and how many may be asked for.

#include "comm/transport/transport.h"

namespace mpigrad {

// An Error for an MPIGRAD_THREADS that is no number of threads, and for more than 64 threads, of it or of OMP_NUM_THREADS, that
// are more than four for each core: OpenMP ends a program whose threads are more than the system gives.
void require_threads_that_fit();

// The threads this rank may use: the cores it may run on, each divided by the ranks of its node that may run on it too, rounded
// down, at least 1. MPIGRAD_THREADS or OMP_NUM_THREADS overrules (launch() refuses more than 64 that are more than four for each
// core). Collective. Error: an MPIGRAD_THREADS that is no number of threads.
int threads_of_rank(Transport& transport);

// Tells OpenMP, for the calling thread: omp_set_num_threads(threads_of_rank(transport)), unless OMP_NUM_THREADS did. Every rank
// thread calls it before anything else; launch does. Collective. Returns the number.
int set_threads_of_rank(Transport& transport);

}  // namespace mpigrad
