#pragma once
// What ops mean on distributed tensors: rules shared by the ops of one kind. Each returns the layout of the result or refuses,
// naming the op, the operands and the redistribution that would make it legal.

#include <span>
#include <string_view>

#include "framework/engine/op.h"

namespace mpigrad {

enum class Elementwise : std::uint8_t { nonlinear, linear, product, quotient };

// Operands have equal layouts, up to broadcasting; linear functions keep partial sums, a product keeps one.
LayoutPtr elementwise_layout(std::string_view op, Inputs in, Elementwise kind);
// A reduction over `axes` of the one input. Sums over a split dimension are partial; other reductions refuse there.
LayoutPtr reduction_layout(std::string_view op, const Tensor& x, std::span<const int> axes, bool keep, bool is_sum);
// Dimension i of the result is dimension order[i] of the input.
LayoutPtr permutation_layout(const Tensor& x, std::span<const int> order);
// Reshaping must keep every split dimension, with as many elements between them in row-major order. `from`, where it is known,
// tells which dimension of x each one is; otherwise shapes must tell, on every rank, or all ranks refuse.
LayoutPtr reshape_layout(std::string_view op, const Tensor& x, const Shape& local, std::span<const int> from);
// An op that works inside `axes` (softmax, slice, pad): none of them may be split, and x is no partial sum unless `linear`.
// The global extents of the listed axes become those of `local`.
LayoutPtr within_axes_layout(std::string_view op, const Tensor& x, std::span<const int> axes, const Shape& local, bool linear);

// Refuses dimensions that are split: what `op` does along them would move elements between ranks. Negative ones count from the
// end.
void require_whole(const char* op, const Tensor& x, std::span<const int> axes);

}  // namespace mpigrad
