#pragma once
// Random cases of every communication operation: ranks, sub-communicators, reductions, tie rules, element types, counts that may
// be 0, roots, graphs, orders of waits, all from a seed. Each case defines the results of every rank as a serial function of the
// data of all ranks. Evaluated with numbers that carry derivatives, this function gives the values, J^T u and its derivatives,
// with which the op is compared element by element. Data are small integers, so that ties and zeros are frequent.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/check/adjoint_check.h"
#include "comm/messages/nonblocking.h"
#include "tests/ops/jet.h"
#include "tests/support/distributed.h"

namespace mpigrad::testing {

// The input of a case; equal on all ranks of the communicator, except for the communicator itself.
struct FuzzContext {
  const Communicator& comm;
  Dice& dice;
  DType dtype;

  int size() const { return comm.size(); }
  std::size_t ranks() const { return static_cast<std::size_t>(comm.size()); }
  std::size_t me() const { return static_cast<std::size_t>(comm.rank()); }
  bool one_in(int n) { return dice(1, n) == 1; }
  int below(int n) { return static_cast<int>(dice(0, n - 1)); }
  std::int64_t rows() { return dice(0, 3); }
  Rows rows_of_ranks();
  template <class T>
  void shuffle(std::vector<T>& list) {
    for (auto i = list.size(); i-- > 1;) std::swap(list[i], list[static_cast<std::size_t>(below(static_cast<int>(i) + 1))]);
  }
  void only_floating() { dtype = is_floating(dtype) ? dtype : DType::float64; }
  void no_half() { dtype = is_half(dtype) ? DType::float32 : dtype; }
};

enum class Numbers : std::uint8_t { integers, quarters_and_minus_infinity };

struct FuzzCase {
  std::string name{};
  Across in = Across::varying, out = Across::varying;
  std::vector<std::vector<Shape>> shapes{};      // shapes of the inputs of each rank
  std::function<Tensors(const Tensors&)> run{};  // the op on this rank; integer results carry no derivative
  std::function<All(const All&)> expected{};
  Numbers numbers = Numbers::integers;
  bool exact = true;  // integers stay integers, so that 16-bit types hold derivatives exactly
};

// Functions that make cases, by operation.
struct FuzzMaker {
  std::string_view name;
  FuzzCase (*make)(FuzzContext&);
};
std::span<const FuzzMaker> reduction_makers();
std::span<const FuzzMaker> block_makers();
std::span<const FuzzMaker> message_makers();
std::span<const FuzzMaker> request_makers();
std::span<const FuzzMaker> neighbor_makers();
std::span<const FuzzMaker> user_makers();
const std::vector<FuzzMaker>& all_makers();

// Runs case `seed` on the ranks of `world`; the Error of a failure says how to run it again. Collective.
void run_fuzz_case(const Communicator& world, std::uint64_t seed);

// The seed in MPIGRAD_FUZZ_SEED, or -1.
std::int64_t asked_fuzz_seed();

// ---- pieces of serial references

Jet reduced(const std::vector<Jet>& terms, ReduceOp op, Ties ties, std::size_t ranks);
// Tensor `input` of all ranks, element by element.
Row reduced_rows(const All& x, ReduceOp op, Ties ties, std::size_t input = 0);
// One tensor for every rank.
All per_rank(std::size_t ranks, const std::function<Row(std::size_t)>& f);
std::vector<std::vector<Shape>> shapes_per_rank(std::size_t ranks, const std::function<Shape(std::size_t)>& f);
std::int64_t total_of(const Rows& rows);
// Block r of a tensor whose blocks have the given rows.
Row block_of(const Row& x, const Rows& rows, std::size_t r, std::int64_t width);
Row joined(const All& x, std::size_t input = 0);

// A collective of one tensor per rank, with a blocking and a non-blocking form.
struct CollectivePiece {
  std::string name{};
  std::vector<std::vector<Shape>> shapes{};
  std::function<Tensor(const Tensor&)> run{};
  std::function<Request(const Tensor&)> start{};
  std::function<All(const All&)> expected{};
  bool exact = true;
};
CollectivePiece random_piece(FuzzContext& context, CollectiveKind kind);
// A reduction that the context's type supports; if requested, booleans sometimes replace integers.
struct ChosenReduction {
  ReduceOp op;
  Ties ties;
  std::string name;
  bool exact;
};
ChosenReduction choose_reduction(FuzzContext& context, bool average, bool booleans);

}  // namespace mpigrad::testing
