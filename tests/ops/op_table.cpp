// The table of all ops, made from its groups of rows; their operands; and the names of all declared ops.

#include "tests/ops/op_table.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <regex>
#include <sstream>

#include "framework/tensor/random.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/scalar.h"
#include "tests/ops/op_rows.h"

#ifndef MPIGRAD_SOURCE_ROOT
#define MPIGRAD_SOURCE_ROOT "."
#endif

namespace mpigrad::testing {

Tensors make_operands(const Row& row, DType dtype) {
  Tensors result;
  for (std::size_t i = 0; i < row.operands.size(); ++i) {
    const auto& operand = row.operands[i];
    const Philox random{.key = 7, .stream = i};
    const auto n = static_cast<std::size_t>(operand.shape.elements());
    std::vector<double> values(n);
    for (std::size_t j = 0; j < n; ++j) values[j] = random.uniform(j);
    if (operand.separated) {
      std::vector<std::size_t> order(n);
      std::iota(order.begin(), order.end(), 0);
      std::sort(order.begin(), order.end(), [&](auto a, auto b) { return values[a] < values[b]; });
      for (std::size_t j = 0; j < n; ++j) values[order[j]] = (static_cast<double>(j) + 0.3) / static_cast<double>(n);
    }
    for (auto& value : values) value = operand.low + (operand.high - operand.low) * value;
    result.push_back(from_vector(operand.shape, values, dtype));
  }
  return result;
}

Tensor wide(const Tensor& x) { return cast(x, is_half(x.dtype()) ? DType::float32 : x.dtype()); }

std::vector<Row> op_table() {
  std::vector<Row> rows;
  for (const auto& part : {elementwise_rows(), reduction_rows(), view_rows(), statistics_rows(), shape_rows(), matrix_rows(),
                           complex_rows(), fourier_rows(), convolution_rows(), pooling_rows(), normalisation_and_loss_rows()})
    rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

std::set<std::string> declared_ops(bool with_constants) {
  std::set<std::string> result;
#define MPIGRAD_MAKE(F, name, kind) result.insert(#name);
  MPIGRAD_UNARY_FUNCTIONS(MPIGRAD_MAKE)
  MPIGRAD_BINARY_FUNCTIONS(MPIGRAD_MAKE)
  if (with_constants) {
    MPIGRAD_COMPARE_FUNCTIONS(MPIGRAD_MAKE)
  }
#undef MPIGRAD_MAKE
  // MPIGRAD_SOURCE_ROOT names the tree if the program was built elsewhere.
  const char* told = std::getenv("MPIGRAD_SOURCE_ROOT");
  const std::filesystem::path root = told != nullptr ? told : MPIGRAD_SOURCE_ROOT;
  for (const auto& file : std::filesystem::recursive_directory_iterator(root / "ops")) {
    if (file.path().extension() != ".h") continue;
#ifdef MPIGRAD_WITHOUT_FFTW
    if (file.path().parent_path().filename() == "fft") continue;
#endif
    std::ifstream stream(file.path());
    std::stringstream text;
    text << stream.rdbuf();
    const std::string source = text.str();
    const std::regex traits(R"re(OpTraits traits\(\) \{\s*return \{\.name = "([^"]+)"([^}]*)\})re");
    for (auto at = std::sregex_iterator(source.begin(), source.end(), traits); at != std::sregex_iterator(); ++at)
      if (with_constants || at->str(2).find("differentiable = false") == std::string::npos) result.insert(at->str(1));
  }
  return result;
}

}  // namespace mpigrad::testing
