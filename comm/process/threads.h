#pragma once
// The number of threads of a rank, and the limit on it.

#include "comm/transport/transport.h"

namespace mpigrad {

// Error: an MPIGRAD_THREADS that is not a number of threads; more than 64 threads in MPIGRAD_THREADS or OMP_NUM_THREADS that are
// also more than four for each core. (OpenMP ends a program that asks for more threads than the system provides.)
void require_threads_that_fit();

// The threads this rank may use: the cores it may run on, each divided by the ranks of its node that may run on it too, rounded
// down, at least 1. MPIGRAD_THREADS or OMP_NUM_THREADS overrides this (launch() refuses more than 64 that are also more than four
// for each core). Collective. Error: an MPIGRAD_THREADS that is not a number of threads.
int threads_of_rank(Transport& transport);

// Sets the number of threads of OpenMP for the calling thread: omp_set_num_threads(threads_of_rank(transport)), unless
// OMP_NUM_THREADS has set it. Every rank thread calls it before anything else; launch() does. Collective. Returns the number.
int set_threads_of_rank(Transport& transport);

// Whether threads of OpenMP wait for each other in long loops, which take the cores from other programs: GCC's OpenMP, several
// threads, and neither OMP_WAIT_POLICY nor GOMP_SPINCOUNT set.
bool openmp_waits_long();
// For the first line of main(): where openmp_waits_long(), starts the program once more, as the same process, with
// GOMP_SPINCOUNT=3000, since OpenMP reads the variable when a program is loaded. On a machine that other programs use, a small
// network then trains several times as fast; on an idle one the same number of samples per second
// (tests/bench/results/steps.md). Does nothing if the program cannot be started again.
void restart_with_short_waits(char** argv);

}  // namespace mpigrad
