#pragma once
// All functions of ops/elementwise_ops.h, for the files that make one kernel of each:
//   #define MPIGRAD_MAKE(F) template void Unary<F>::run(Cpu, Inputs, Outputs) const;
//   MPIGRAD_UNARY_FUNCTIONS(MPIGRAD_MAKE)

#define MPIGRAD_UNARY_FUNCTIONS(X)                                                                                     \
  X(Affine) X(DivideBy) X(DivideNumber) X(PowScalar) X(Exp) X(Expm1) X(Log) X(Log1p) X(Sqrt) X(Square) X(Reciprocal) \
  X(Abs) X(Sign) X(Floor) X(Ceil) X(Sin) X(Cos) X(Tanh) X(Erf) X(Sigmoid) X(Softplus) X(LeakyRelu) X(Clamp)
#define MPIGRAD_BINARY_FUNCTIONS(X) \
  X(Add) X(Subtract) X(Multiply<first>) X(Multiply<second>) X(Multiply<both>) X(Divide) X(Pow) X(Maximum) X(Minimum) X(LeakyReluAdjoint)
#define MPIGRAD_COMPARE_FUNCTIONS(X) X(Equal) X(NotEqual) X(Less) X(LessEqual) X(LogicalAnd) X(LogicalOr)
