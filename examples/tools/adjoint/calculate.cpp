#include "examples/tools/adjoint/calculate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "examples/tools/adjoint/operations.h"
#include "framework/engine/jvp.h"
#include "framework/engine/tape.h"
#include "framework/tensor/random.h"

namespace mpigrad::adjoint {
namespace {

std::int64_t sum_of(const Sizes& sizes) { return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}); }

Sizes sizes_of(const Fields& fields) {
  Sizes sizes;
  for (const auto& field : fields) sizes.push_back(static_cast<std::int64_t>(field.size()));
  return sizes;
}

// Zero except at one place.
Fields unit(const Sizes& sizes, std::int64_t place, bool same) {
  Fields fields;
  std::int64_t begin = 0;
  for (const auto n : sizes) {
    auto& field = fields.emplace_back(static_cast<std::size_t>(n));
    if (place >= begin && place < begin + n) field[static_cast<std::size_t>(place - begin)] = 1;
    if (!same) begin += n;  // `same`: every rank holds the same place
  }
  return fields;
}

std::vector<double> stacked(const Fields& fields, bool same) {
  if (same) return fields[0];
  std::vector<double> all;
  for (const auto& field : fields) all.insert(all.end(), field.begin(), field.end());
  return all;
}

double inner(const Fields& a, const Fields& b, bool same) {
  const auto left = stacked(a, same), right = stacked(b, same);
  return std::inner_product(left.begin(), left.end(), right.begin(), 0.0);
}

// True if several ranks attain the maximum or minimum, of all ranks or of the first ones.
bool has_ties(const Problem& p) {
  if (p.reduce != ReduceOp::max && p.reduce != ReduceOp::min) return false;
  const auto before = [&](double a, double b) { return p.reduce == ReduceOp::max ? a > b : a < b; };
  const auto ranks = p.operation->ranks;
  const bool scans = ranks != Reduces::over_all;
  const auto last = ranks == Reduces::before_own ? p.size() - 1 : p.size();  // the last rank's x is in no rank's y
  for (std::size_t i = 0; i < p.x[0].size(); ++i) {
    double extreme = p.x[0][i];
    int attained = 1;
    for (std::size_t r = 1; r < last; ++r) {
      const double value = p.x[r][i];
      if (before(value, extreme)) extreme = value, attained = 1;
      else if (value == extreme) ++attained;
      if (scans && attained > 1) return true;
    }
    if (attained > 1) return true;
  }
  return false;
}

class Calculator {
 public:
  Calculator(const Problem& problem, const Communicator& comm)
      : p_(problem), op_(*problem.operation), comm_(comm), x_sizes_(sizes_of(problem.x)) {}

  Fields forward(const Fields& x) const { return collected(op_.run(mine(x), comm_, p_), p_.y_sizes); }

  Fields adjoint(const Fields& x, const Fields& ybar) const {
    Tape tape;
    const auto at = mine(x);
    const auto y = op_.run(at, comm_, p_);
    return collected(tape.vjp({y}, {mine(ybar)}, {at})[0], x_sizes_);
  }

  Fields along(const Fields& x, const Fields& v) const {
    const auto f = [&](const Tensor& at) { return op_.run(at, comm_, p_); };
    return collected(jvp(f, mine(x), mine(v)), p_.y_sizes);
  }

  // d2 Phi / dx_i dx_j: the gradient of Phi's derivative by x_i, which is the gradient's scalar product with a unit vector.
  double second(int i, int j) const {
    Tape tape;
    const auto at = mine(p_.x);
    const auto y = op_.run(at, comm_, p_);
    const auto g = tape.vjp({y}, {mine(p_.ybar)}, {at}, Record::yes);
    const auto direction = mine(unit(x_sizes_, op_.same_input ? 0 : i, op_.same_input));
    const auto row = collected(tape.vjp(g, {direction}, {at})[0], x_sizes_);
    return comm_.rank() == 0 ? row[static_cast<std::size_t>(j)][0] : 0;
  }

  std::optional<double> error(const Result& result) const {
    double expected = 0, found = 0;
    if (p_.linear()) {
      if (comm_.rank() != 0) return {};
      expected = inner(result.y, p_.ybar, op_.same_output);
      found = inner(p_.x, result.xbar, op_.same_input);
    } else {
      if (has_ties(p_)) return {};
      const auto v = direction();
      const auto derivative = along(p_.x, v);
      if (comm_.rank() != 0) return {};
      expected = inner(derivative, p_.ybar, op_.same_output);
      found = inner(v, result.xbar, op_.same_input);
    }
    const double error = std::abs(expected - found) / std::max(1.0, std::abs(expected));
    if (!std::isfinite(error)) return {};
    return error;
  }

  std::optional<Matrix> matrix(bool transposed) const {
    const auto once = [](const Sizes& sizes, bool same) { return same ? Sizes{sizes[0]} : sizes; };
    Matrix result{once(p_.y_sizes, op_.same_output), once(x_sizes_, op_.same_input), {}};
    const auto rows = sum_of(result.row_blocks), columns = sum_of(result.column_blocks);
    if (!p_.linear() || rows > largest_matrix || columns > largest_matrix) return {};
    if (transposed) std::swap(result.row_blocks, result.column_blocks);
    result.rows.assign(static_cast<std::size_t>(transposed ? columns : rows), {});
    for (std::int64_t c = 0; c < (transposed ? rows : columns); ++c) {
      const auto column = transposed ? stacked(adjoint(p_.x, unit(p_.y_sizes, c, op_.same_output)), op_.same_input)
                                     : stacked(forward(unit(x_sizes_, c, op_.same_input)), op_.same_output);
      for (std::size_t r = 0; r < column.size(); ++r) result.rows[r].push_back(column[r]);
    }
    return result;
  }

 private:
  Tensor mine(const Fields& fields) const {
    const auto& field = fields[static_cast<std::size_t>(comm_.rank())];
    return from_vector({static_cast<std::int64_t>(field.size())}, std::span<const double>(field), DType::float64);
  }

  // Every rank's part on rank 0; empty parts on the other ranks.
  Fields collected(const Tensor& part, const Sizes& sizes) const {
    const auto all = gather(part, comm_, 0, sizes).to_vector();
    Fields fields(sizes.size());
    if (comm_.rank() != 0) return fields;
    auto at = all.begin();
    for (std::size_t r = 0; r < sizes.size(); ++r, at += sizes[r - 1]) fields[r].assign(at, at + sizes[r]);
    return fields;
  }

  // A fixed direction, different on every rank.
  Fields direction() const {
    Fields v;
    const Philox random{.key = 7};
    std::uint64_t counter = 0;
    for (const auto& field : p_.x) {
      auto& values = v.emplace_back();
      for (std::size_t i = 0; i < field.size(); ++i) values.push_back(random.normal(counter++));
    }
    return v;
  }

  const Problem& p_;
  const Operation& op_;
  const Communicator& comm_;
  Sizes x_sizes_;
};

}  // namespace

Result calculate(const Problem& p, const Communicator& comm, bool with_matrices) {
  const Calculator calculator(p, comm);
  Result result;
  result.y = calculator.forward(p.x);
  result.xbar = calculator.adjoint(p.x, p.ybar);
  result.adjoint_error = calculator.error(result);
  if (p.second) result.hessian = calculator.second(p.second->first, p.second->second);
  if (with_matrices) {
    result.matrix = calculator.matrix(false);
    result.transposed = calculator.matrix(true);
  }
  return result;
}

}  // namespace mpigrad::adjoint
