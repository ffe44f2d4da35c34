#pragma once
// Layout rules of ops on distributed tensors, shared by ops of one kind. Each function returns the layout of the result, or
// refuses with a message that names the op, the operands and a redistribution that would make the op legal.

#include <span>
#include <string_view>

#include "framework/engine/op.h"

namespace mpigrad {

enum class Elementwise : std::uint8_t { nonlinear, linear, product, quotient };

// Operands have equal layouts, up to broadcasting. Linear functions keep partial sums; a product keeps the partial sum of one
// operand.
LayoutPtr elementwise_layout(std::string_view op, Inputs in, Elementwise kind);
// A reduction over `axes` of the one input. Sums over a split dimension are partial; other reductions refuse there.
LayoutPtr reduction_layout(std::string_view op, const Tensor& x, std::span<const int> axes, bool keep, bool is_sum);
// Dimension i of the result is dimension order[i] of the input.
LayoutPtr permutation_layout(const Tensor& x, std::span<const int> order);
// A reshape must keep every split dimension, and the number of elements between two of them in row-major order. from[i] is the
// dimension of x that becomes dimension i of the result, or -1 for a new or merged dimension. If `from` is empty, the shapes must
// determine on every rank where the split dimensions go; otherwise all ranks refuse.
LayoutPtr reshape_layout(std::string_view op, const Tensor& x, const Shape& local, std::span<const int> from);
// For ops that work inside `axes` (softmax, slice, pad): none of them may be split, and x must not be a partial sum unless
// `linear`. The global extents of the listed axes become those of `local`.
LayoutPtr within_axes_layout(std::string_view op, const Tensor& x, std::span<const int> axes, const Shape& local, bool linear);

// Refuses dimensions that are split, as `op` along them would move elements between ranks. Negative dimensions count from the
// end.
void require_whole(const char* op, const Tensor& x, std::span<const int> axes);

}  // namespace mpigrad
