#pragma once
// The tensors of all ranks as one long vector: inner products that count replicated parts once, and random vectors. Basis of the
// checks of adjoints (adjoint_check.h, taylor_test.h); not for users.

#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "framework/engine/jvp.h"

namespace mpigrad {

// How ranks hold a tensor that has no layout. `same`: replicated, one value stored on every rank; it counts once in inner
// products, and both its value and its cotangent must be equal on all ranks, which is checked. (For a distributed tensor the
// layout tells: parts that several ranks hold count once, and the cotangent of a partial sum is replicated.)
enum class Across : std::uint8_t { varying, same };

namespace detail {

// The vector space of a list of tensors, or of their cotangents: the cotangent of a partial sum is replicated.
class Stacked {
 public:
  enum class Role : std::uint8_t { value, cotangent };

  // Tensors without an entry in `across` vary. Collective.
  Stacked(const Communicator& comm, const Tensors& like, const std::vector<Across>& across, Role role = Role::value);

  // Uniform in [-1, 1), equal on ranks that hold the same value, and different for each `purpose`.
  Tensors random(std::uint64_t seed, std::uint64_t purpose) const;
  // Over all ranks, in double. Collective.
  double inner(const Tensors& a, const Tensors& b) const;
  double norm(const Tensors& a) const;
  double elements() const;
  // The largest relative difference between the first of the ranks that hold the same value of tensor `i` and the others; 0 if
  // they agree. Collective.
  double drift(std::size_t i, const Tensor& x) const;

 private:
  struct Place {
    std::uint64_t key = 0;  // equal on ranks that hold the same
    bool counts = true;     // whether this rank's part enters an inner product
    Communicator group;     // the ranks that hold the same, or none
  };
  static Place place(const Communicator& comm, const Tensor& x, Across across, Role role);

  Communicator comm_;
  Tensors like_;
  std::vector<Place> places_;
};

// f without the outputs that carry no derivative.
TensorFunction differentiable_outputs(const TensorFunction& f);
// The same tensors; an Error that begins with [what] if one of them is not floating-point.
const Tensors& floating_inputs(const char* what, const Tensors& x);
// x + t v, as new variables.
Tensors moved(const Tensors& x, double t, const Tensors& v);
double over_ranks(const Communicator& comm, double value, CombineOp op = CombineOp::sum);
// The machine epsilon (distance of 1 to the next number) of the coarsest type among the tensors, on any rank. Collective.
double coarsest_epsilon(const Communicator& comm, const Tensors& a, const Tensors& b);

}  // namespace detail

// ---- of this rank only

// The inner product over all elements, in double, Re sum conj(a) b of complex ones; lists of tensors are one long vector.
double inner_product(const Tensors& a, const Tensors& b);
// Uniform in [-1, 1), with the types of `like`.
Tensors random_like(const Tensors& like, std::uint64_t seed);
// Largest |a - b| over max(1, |b|) of all elements; 1e300 if shapes differ or an element is not finite on one side only.
double largest_difference(const Tensor& a, const Tensor& b);

}  // namespace mpigrad
