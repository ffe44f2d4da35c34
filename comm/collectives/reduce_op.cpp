#include "comm/collectives/reduce_op.h"

#include "framework/base/error.h"
#include "ops/elementwise/elementwise.h"

namespace mpigrad {

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return "sum";
    case ReduceOp::avg: return "avg";
    case ReduceOp::max: return "max";
    case ReduceOp::min: return "min";
    case ReduceOp::prod: return "prod";
    case ReduceOp::logical_and: return "logical_and";
    case ReduceOp::logical_or: return "logical_or";
    case ReduceOp::band: return "band";
    case ReduceOp::bor: return "bor";
    case ReduceOp::bxor: return "bxor";
  }
  return "?";
}

CombineOp plain(ReduceOp op) {
  switch (op) {
    case ReduceOp::prod: return CombineOp::prod;
    case ReduceOp::band: return CombineOp::band;
    case ReduceOp::bor: return CombineOp::bor;
    case ReduceOp::bxor: return CombineOp::bxor;
    case ReduceOp::logical_or:
    case ReduceOp::max: return CombineOp::max;
    case ReduceOp::logical_and:
    case ReduceOp::min: return CombineOp::min;
    case ReduceOp::sum:
    case ReduceOp::avg: break;
  }
  return CombineOp::sum;
}

bool has_prefixes(ReduceOp op) { return op != ReduceOp::avg && traits_of(plain(op)).floating; }

Tensor combined(const Tensor& a, const Tensor& b, CombineOp op) {
  switch (op) {
    case CombineOp::sum: return a + b;
    case CombineOp::prod: return a * b;
    case CombineOp::max: return maximum(a, b);
    case CombineOp::min: return minimum(a, b);
    case CombineOp::band:
    case CombineOp::bor:
    case CombineOp::bxor: break;
  }
  fail("[scan] there are no prefixes by {}", name_of(op));
}

void require_fits(std::string_view call, const Tensor& x, ReduceOp op) {
  require(x.dtype() != DType::uint16, "[{}] nothing computes with {} here; cast to int32 first: {}", call, name_of(x.dtype()), x);
  require(op != ReduceOp::avg || is_differentiable(x.dtype()), "[{}] the average of integers is not defined; cast first: {}",
          call, x);
  require(!is_floating(x.dtype()) || traits_of(plain(op)).floating,
          "[{}] {} is for integers and booleans, and has no derivative: {}", call, name_of(op), x);
  require((op != ReduceOp::logical_and && op != ReduceOp::logical_or) || x.dtype() == DType::boolean,
          "[{}] {} is for booleans, and has no derivative; compare first: {}", call, name_of(op), x);
}

}  // namespace mpigrad
