// Rows of the table of ops: complex numbers and Fourier transforms. Operands and results are real numbers [..., 2], of at least
// 32 bits.

#include <vector>

#include "ops/complex/complex.h"
#include "ops/elementwise/elementwise.h"
#include "ops/fft/fft.h"
#include "ops/linear/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tests/ops/op_rows.h"

namespace mpigrad::testing {
namespace {

Tensor c(const Tensor& x) { return view_as_complex(wide(x)); }
Tensor r(const Tensor& z) { return view_as_real(z); }

}  // namespace

#define F(...) [](const Tensors& x) -> Tensors { return {__VA_ARGS__}; }

std::vector<Row> complex_rows() {
  const Shape s{2, 3, 2}, one{3, 2}, column{2, 1, 2}, plain{2, 3};
  return {
      {"complex", {{plain}, {plain}}, F(r(complex(wide(x[0]), wide(x[1])))), true},
      {"real, imag", {{s}}, F(real(c(x[0])), imag(c(x[0]))), true},
      {"conj", {{s}}, F(r(conj(c(x[0])))), true},
      {"conj, squared", {{s}}, F(r(square(conj(c(x[0])))))},
      {"abs of complex", {apart(s, 0.5, 1.5)}, F(abs(c(x[0])))},
      {"complex + complex", {{s}, {one}}, F(r(c(x[0]) + c(x[1]))), true},
      {"complex - real", {{s}, {plain}}, F(r(c(x[0]) - wide(x[1]))), true},
      {"complex product", {{s}, {s}}, F(r(c(x[0]) * c(x[1])))},
      {"complex product, broadcast", {{s}, {column}}, F(r(c(x[0]) * c(x[1]) * c(x[1])))},
      {"conj product", {{s}, {s}}, F(r(conj(c(x[0])) * c(x[1])))},
      {"complex times real", {{s}, {{3}}}, F(r(c(x[0]) * wide(x[1])))},
      {"real times complex", {{plain}, {column}}, F(r(wide(x[0]) * c(x[1])))},
      {"complex quotient", {{s}, apart(s, 0.5, 1.5)}, F(r(c(x[0]) / c(x[1])))},
      {"complex quotient, broadcast", {{one}, apart(column, 0.5, 1.5)}, F(r(c(x[0]) / c(x[1])))},
      {"complex by real", {{s}, apart(plain, 0.5, 1.5)}, F(r(c(x[0]) / wide(x[1])))},
      {"real by complex", {{plain}, apart(s, 0.5, 1.5)}, F(r(wide(x[0]) / c(x[1])))},
      {"complex with numbers", {{s}}, F(r(2 - c(x[0]) * 3), r(c(x[0]) / 4 + 1), r(-c(x[0])))},
      {"number by complex", {apart(s, 0.5, 1.5)}, F(r(2 / c(x[0])))},
      {"sum and mean of complex", {{s}}, F(r(sum(c(x[0]), {1})), r(mean(c(x[0])))), true},
      {"dot of complex", {{s}, {s}}, F(dot(c(x[0]), c(x[1])))},
      {"vecdot of complex", {{s}, {s}}, F(r(vecdot(c(x[0]), c(x[1]))))},
      {"matmul of complex", {{{2, 2, 3, 2}}, {{3, 4, 2}}}, F(r(matmul(c(x[0]), c(x[1]))))},
      {"matmul of complex, transposed",
       {{{3, 2, 2}}, {{4, 3, 2}}},
       F(r(matmul(c(x[0]), c(x[1]), {.transpose_a = true, .transpose_b = true})))},
      {"matmul of real and complex", {{{2, 3}}, {{3, 4, 2}}}, F(r(matmul(wide(x[0]), c(x[1]))))},
      {"matmul of complex and real", {{{2, 3, 2}}, {{3, 4}}}, F(r(matmul(c(x[0]), wide(x[1]))))},
      {"views of complex",
       {{{2, 4, 3, 2}}},
       F(r(permute(c(x[0]), {2, 0, 1})), r(slice(c(x[0]), {0, 1, 0}, {2, 4, 3}, {1, 2, 2})),
         r(pad(c(x[0]), {1, 0, 0}, {0, 2, 1})), r(flip(c(x[0]), {1})), r(concatenate({c(x[0]), conj(c(x[0]))}, 1)),
         r(broadcast_to(c(x[0]), {3, 2, 4, 3}))),
       true},
      {"take of complex", {{{4, 3, 2}}}, F(r(take(c(x[0]), from_vector({3}, {2, 0, 2}, DType::int64)))), true},
  };
}

std::vector<Row> fourier_rows() {
#ifdef MPIGRAD_WITHOUT_FFTW
  return {};
#endif
  const Shape cube{3, 4, 5, 2}, real_cube{2, 3, 4, 5}, half{2, 3, 3, 4, 2};
  return {
      {"fft", {{cube}}, F(r(local::fft(c(x[0]), {0, 1, 2}))), true},
      {"fft, squared", {{cube}}, F(r(square(local::fft(c(x[0]), {2, 0}))))},
      {"fft of one dimension of real numbers", {{real_cube}}, F(r(local::fft(wide(x[0]), {-2}))), true},
      {"ifft", {{cube}}, F(r(local::ifft(c(x[0]), {1, 2}))), true},
      {"rfft, even", {{real_cube}}, F(r(local::rfft(wide(x[0]), {1, 2}))), true},
      {"rfft, odd", {{real_cube}}, F(r(local::rfft(wide(x[0]), {1, 3}))), true},
      {"rfft, squared", {{real_cube}}, F(r(square(local::rfft(wide(x[0]), {3, 2, 1}))))},
      {"irfft, even", {{half}}, F(local::irfft(c(x[0]), {1, 2}, 4)), true},
      {"irfft, odd", {{half}}, F(local::irfft(c(x[0]), {1, 2}, 5)), true},
      {"irfft, squared", {{half}}, F(square(local::irfft(c(x[0]), {0, 1, 3}, 6)))},
      {"irfft of rfft", {{real_cube}}, F(square(local::irfft(square(local::rfft(wide(x[0]), {1, 2, 3})), {1, 2, 3}, 5)))},
  };
}

}  // namespace mpigrad::testing
