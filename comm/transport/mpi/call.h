#pragma once
// Calls of MPI in this folder: error checks, element types and 64-bit counts.

#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1  // the C++ bindings that MPI removed in 2012: needless symbols and warnings
#endif
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/transport/transport.h"
#include "framework/base/error.h"

namespace mpigrad::mpi {

// Throws an Error with MPI's own text unless code is MPI_SUCCESS.
void check(int code, std::string_view call);

// MPI_ERRORS_RETURN. By the standard ABI Intel MPI 2021.19 takes that for MPI_ERRORS_ARE_FATAL, but a function that only returns
// does the same in every Intel MPI. (MPICH 5.0.2 by the standard ABI returns MPI_SUCCESS after such a function.)
MPI_Errhandler errors_return();

// True after MPI_Finalize, when no MPI function may be called any more.
bool finalized();

// One line if this program was loaded with two MPI libraries: its own calls go to another one than libmpigrad's or HDF5's were
// built for. Empty otherwise. May be called before MPI_Init, which might crash.
std::string second_library();

// MPI_Wait that yields its core between two polls. MPICH 4.0.2 never yields, whatever its setting POLLS_BEFORE_YIELD says: where
// there are more ranks than cores, the rank it waits for cannot run meanwhile (an allreduce of 64 bytes on 3 ranks and 2 cores
// took 8.3 ms instead of 0.02).
// `bytes`: all bytes that the call moves.
int wait(MPI_Request& request, MPI_Status& status, std::int64_t bytes);

// MPI_Abort, which waits for the process manager's answer; if the manager cannot be reached, this process ends by itself.
[[noreturn]] void abort_job(int code);
// Ends this process with that exit code if it is still running after that many seconds; `line`, if not empty, is printed first.
void end_process_in(int seconds, int code, std::string line = {});

MPI_Datatype type_of(DType type);
MPI_Op op_of(CombineOp op, DType type);

// MPI 4 has 64-bit variants of every call with counts; before that a count must fit an int.
#if MPI_VERSION >= 4
#define MPIGRAD_MPI(name) name##_c
using Count = MPI_Count;
using Displacement = MPI_Aint;
#else
#define MPIGRAD_MPI(name) name
using Count = int;
using Displacement = int;
#endif

template <class To = Count>
To checked(std::int64_t count, std::string_view call) {
  require(count <= static_cast<std::int64_t>(std::numeric_limits<To>::max()),
          "[{}] {} elements do not fit the counts of this MPI library (an MPI 4 library takes more)", call, count);
  return static_cast<To>(count);
}

// Counts and displacements in the form that the v-collectives take.
struct Layout {
  std::vector<Count> counts;
  std::vector<Displacement> displacements;
  Layout(std::span<const std::int64_t> elements, std::string_view call) {
    std::int64_t offset = 0;
    for (auto count : elements) {
      counts.push_back(checked<Count>(count, call));
      displacements.push_back(checked<Displacement>(offset, call));
      offset += count;
    }
  }
};

}  // namespace mpigrad::mpi
