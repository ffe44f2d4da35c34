#pragma once
// The operations of the calculator: the options that each takes, the sizes of its result, and the library's call.

#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "examples/tools/adjoint/problem.h"

namespace mpigrad::adjoint {

enum Takes : unsigned {
  takes_nothing = 0,
  takes_counts = 1,
  takes_root = 2,
  takes_reduce = 4,
  takes_average = 8,
  takes_width = 16,
  takes_by = 32,
  takes_peers = 64,
  takes_graph = 128,
  takes_target = 256,
};

// The ranks whose x a rank's y reduces: all ranks, this and the lower ranks, or only the lower ranks.
enum class Reduces : unsigned char { over_all, up_to_own, before_own };

struct Operation {
  std::string_view name;
  unsigned takes = takes_nothing;
  // True if x or y is one value, replicated on all ranks, which counts once.
  bool same_input = false, same_output = false;
  // Refuses arguments that do not fit; fills in y_sizes, rows and matrix.
  void (*shape)(Problem&) = nullptr;
  // Computes y of this rank.
  Tensor (*run)(const Tensor& x, const Communicator& comm, const Problem& problem) = nullptr;
  std::string_view adjoint;  // the adjoint of the linear form, in words
  Reduces ranks = Reduces::over_all;
};

const std::vector<Operation>& operations();
// UsageError for an unknown name; the message lists all names.
const Operation& find_operation(const std::string& name);
// A sentence about the adjoint of the requested operation, including its reduction.
std::string adjoint_sentence(const Problem& problem);

// Functions that compute sizes, in shapes.cpp.
namespace shapes {
void equal(Problem& p);
void gather(Problem& p);
void allgather(Problem& p);
void allgather_any(Problem& p);  // blocks of different sizes without --counts
void scatter(Problem& p);
void reduce_scatter(Problem& p);
void shard(Problem& p);
void alltoall(Problem& p);
void message(Problem& p);
void message_in_place(Problem& p);
void shift(Problem& p);
void halo(Problem& p);
void neighbor_allgather(Problem& p);
void neighbor_alltoall(Problem& p);
void get(Problem& p);
void put(Problem& p);
void accumulate(Problem& p);
}  // namespace shapes

}  // namespace mpigrad::adjoint
