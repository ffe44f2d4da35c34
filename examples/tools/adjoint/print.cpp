// The calculator's output: JSON for programs; for people a table of the ranks and the operation as a matrix.

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

#include "examples/tools/adjoint/calculate.h"
#include "examples/tools/adjoint/operations.h"

namespace mpigrad::adjoint {
namespace {

std::string text_of(double value) { return std::isfinite(value) ? fmt::format("{:.6g}", value + 0.0) : "null"; }

std::string text_of(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += (text.empty() ? "" : " ") + text_of(value);
  return text.empty() ? "(empty)" : text;
}

std::string without_trailing_blanks(const std::string& line) { return line.substr(0, line.find_last_not_of(' ') + 1) + "\n"; }

std::string table(const std::vector<std::vector<std::string>>& lines) {
  std::vector<std::size_t> widths(lines[0].size());
  for (const auto& line : lines)
    for (std::size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], line[c].size());
  std::string text;
  for (const auto& line : lines) {
    std::string row;
    for (std::size_t c = 0; c < line.size(); ++c) row += fmt::format("{:<{}}   ", line[c], widths[c]);
    text += without_trailing_blanks(row);
  }
  return text;
}

// Ends of blocks; the ranks' names precede their first row.
std::string picture(const Matrix& m, const std::string& row_name, const std::string& column_name) {
  const auto named = [](const std::string& name, std::size_t block, std::size_t blocks) {
    return blocks == 1 ? name : fmt::format("{}_{}", name, block);
  };
  const auto cell = [](double value) { return value == 0 ? std::string(".") : text_of(value); };
  std::size_t width = 1;
  for (const auto& row : m.rows)
    for (const double value : row) width = std::max(width, cell(value).size());

  const auto names = m.row_blocks.size();
  const auto margin = std::max(named(row_name, names - 1, names).size(), row_name.size()) + 3;
  std::string header(margin, ' '), rule(margin, ' ');
  std::vector<std::size_t> widths;  // of a block
  for (std::size_t b = 0; b < m.column_blocks.size(); ++b) {
    const auto name = named(column_name, b, m.column_blocks.size());
    const auto cells = static_cast<std::size_t>(m.column_blocks[b]) * (width + 1) + 1;
    widths.push_back(std::max(cells, name.size() + 2));
    header += fmt::format("| {:<{}}", name, widths[b] - 1);
    rule += "+" + std::string(widths[b], '-');
  }
  std::string text = without_trailing_blanks(header + "|");
  std::size_t r = 0;
  for (std::size_t block = 0; block < names; ++block) {
    text += rule + "+\n";
    for (std::int64_t i = 0; i < std::max<std::int64_t>(1, m.row_blocks[block]); ++i) {
      auto line = fmt::format("  {:<{}}", i == 0 ? named(row_name, block, names) : "", margin - 2);
      std::size_t c = 0;
      for (std::size_t b = 0; b < m.column_blocks.size(); ++b) {
        std::string cells;
        for (std::int64_t j = 0; j < m.column_blocks[b] && m.row_blocks[block] > 0; ++j)
          cells += fmt::format(" {:>{}}", cell(m.rows[r][c++]), width);
        line += fmt::format("|{:<{}}", cells, widths[b]);
      }
      text += line + "|\n";
      if (m.row_blocks[block] > 0) ++r;
    }
  }
  return text + rule + "+\n";
}

}  // namespace

nlohmann::ordered_json to_json(const Problem& p, const Result& result) {
  // The library writes numbers that are not finite as null.
  nlohmann::ordered_json document{
      {"op", p.operation->name}, {"ranks", p.ranks}, {"y", result.y}, {"xbar", result.xbar}, {"adjoint_error", nullptr}};
  if (result.adjoint_error) document["adjoint_error"] = *result.adjoint_error;
  if (result.hessian) document["hessian"] = *result.hessian;
  return document;
}

std::string to_text(const Problem& p, const Result& result) {
  const auto& op = *p.operation;
  auto text =
      fmt::format("{}{} on {} rank{}\n\n", op.name, op.takes & takes_reduce ? fmt::format(" ({})", name_of(p.reduce)) : "",
                  p.ranks, p.ranks == 1 ? "" : "s");
  std::vector<std::vector<std::string>> lines{{"rank", "x", "y", "ybar", "xbar"}};
  for (std::size_t r = 0; r < p.size(); ++r)
    lines.push_back({fmt::format("{}", r), text_of(p.x[r]), text_of(result.y[r]), text_of(p.ybar[r]), text_of(result.xbar[r])});
  text += table(lines) + "\n";
  if (op.same_input) text += "x is one value that all ranks hold; it counts once, and so does its cotangent.\n";
  if (op.same_output) text += "y is one value that all ranks hold; it counts once, and so does its cotangent.\n";
  text += adjoint_sentence(p) + "\n";
  if (result.matrix && result.transposed) {
    text += "\ny = A x, with A applied to unit vectors:\n\n" + picture(*result.matrix, "y", "x");
    text += "\nxbar = A^T ybar, with the adjoint applied to unit vectors:\n\n" + picture(*result.transposed, "xbar", "ybar");
  } else if (!p.linear()) {
    text += fmt::format("It is not linear, so it has no matrix; the adjoint applies the transpose of its Jacobian at x.\n");
  } else {
    text += fmt::format("Its matrix has more than {} rows or columns and is not shown.\n", largest_matrix);
  }
  if (result.adjoint_error)
    text += fmt::format("\n|<{}, ybar> - <{}>| / max(1, |<{}, ybar>|) = {:.3g}\n", p.linear() ? "A x" : "J v",
                        p.linear() ? "x, A^T ybar" : "v, J^T ybar", p.linear() ? "A x" : "J v", *result.adjoint_error);
  else text += "\nThe adjoint cannot be checked here: x has ties or is not finite.\n";
  if (result.hessian)
    text += fmt::format("d2Phi / dx_{} dx_{} = {}, where Phi is the sum over ranks of <ybar, y>\n", p.second->first,
                        p.second->second, text_of(*result.hessian));
  return text;
}

}  // namespace mpigrad::adjoint
