#pragma once
// All functions of ops/elementwise_ops.h, a row each: the function of ops/scalar.h, the op's name, and what it is on a
// distributed tensor (Elementwise, ops/layout_rules.h). The files that make one kernel of each use the first column:
//   #define MPIGRAD_MAKE(F, ...) template void Unary<F>::run(Cpu, Inputs, Outputs) const;
//   MPIGRAD_UNARY_FUNCTIONS(MPIGRAD_MAKE)

#define MPIGRAD_UNARY_FUNCTIONS(X)       \
  X(Affine, "affine", linear)            \
  X(DivideBy, "divide", linear)          \
  X(DivideNumber, "divide", nonlinear)   \
  X(PowScalar, "pow", nonlinear)         \
  X(Exp, "exp", nonlinear)               \
  X(Expm1, "expm1", nonlinear)           \
  X(Log, "log", nonlinear)               \
  X(Log1p, "log1p", nonlinear)           \
  X(Sqrt, "sqrt", nonlinear)             \
  X(Square, "square", nonlinear)         \
  X(Reciprocal, "reciprocal", nonlinear) \
  X(Abs, "abs", nonlinear)               \
  X(Sign, "sign", nonlinear)             \
  X(Floor, "floor", nonlinear)           \
  X(Ceil, "ceil", nonlinear)             \
  X(Sin, "sin", nonlinear)               \
  X(Cos, "cos", nonlinear)               \
  X(Tanh, "tanh", nonlinear)             \
  X(Erf, "erf", nonlinear)               \
  X(Sigmoid, "sigmoid", nonlinear)       \
  X(Softplus, "softplus", nonlinear)     \
  X(LeakyRelu, "leaky_relu", nonlinear)  \
  X(Clamp, "clamp", nonlinear)
#define MPIGRAD_BINARY_FUNCTIONS(X) \
  X(Add, "add", linear)             \
  X(Subtract, "subtract", linear)   \
  X(Multiply, "multiply", product)  \
  X(Divide, "divide", quotient)     \
  X(Pow, "pow", nonlinear)          \
  X(Maximum, "maximum", nonlinear)  \
  X(Minimum, "minimum", nonlinear)  \
  X(LeakyReluAdjoint, "leaky_relu_adjoint", product)
#define MPIGRAD_COMPARE_FUNCTIONS(X)      \
  X(Equal, "equal", nonlinear)            \
  X(NotEqual, "not_equal", nonlinear)     \
  X(Less, "less", nonlinear)              \
  X(LessEqual, "less_equal", nonlinear)   \
  X(LogicalAnd, "logical_and", nonlinear) \
  X(LogicalOr, "logical_or", nonlinear)
