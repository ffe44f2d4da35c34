// An operation as a picture: its matrix and the transpose, with a colour for each rank, and below them the messages between
// ranks, forwards and backwards. A rank sends to another rank if their block of the matrix is not zero.

#include "examples/tools/adjoint/calculate.h"
#include "examples/tools/adjoint/operations.h"
#include "models/trainer/plot/svg.h"

namespace mpigrad::adjoint {
namespace {

using tool::Svg;

constexpr double cell = 26, margin = 46, head = 44;

std::string number(double value) { return fmt::format("{:.4g}", value); }

struct Frame {
  double x = 0, y = 0;
};

// Rows have the colour of the rank that receives them, cells the colour of the rank from which they come.
void draw_matrix(Svg& svg, const Matrix& m, Frame at, const std::string& title, const std::string& row_name,
                 const std::string& column_name) {
  const auto name = [](const std::string& base, std::size_t block, std::size_t blocks) {
    return blocks == 1 ? base : fmt::format("{}{}", base, block);
  };
  svg.text(at.x, at.y + 14, title, "start", 14);
  const double left = at.x + margin, top = at.y + head;
  double x = left;
  for (std::size_t b = 0; b < m.column_blocks.size(); ++b) {
    const double width = cell * static_cast<double>(m.column_blocks[b]);
    if (width > 0) svg.text(x + width / 2, top - 6, name(column_name, b, m.column_blocks.size()));
    x += width;
  }
  double y = top;
  std::size_t row = 0;
  for (std::size_t b = 0; b < m.row_blocks.size(); ++b) {
    const double height = cell * static_cast<double>(m.row_blocks[b]);
    if (height > 0) svg.text(left - 8, y + height / 2 + 4, name(row_name, b, m.row_blocks.size()), "end");
    for (std::int64_t i = 0; i < m.row_blocks[b]; ++i, ++row) {
      x = left;
      std::size_t column = 0;
      for (std::size_t c = 0; c < m.column_blocks.size(); ++c)
        for (std::int64_t j = 0; j < m.column_blocks[c]; ++j, x += cell) {
          const double value = m.rows[row][column++];
          svg.rectangle(x, y, cell, cell, value == 0 ? "white" : Svg::colour_of(static_cast<int>(c), 78), "stroke=\"#ccc\"");
          if (value != 0) svg.text(x + cell / 2, y + cell / 2 + 4, number(value));
        }
      y += cell;
    }
  }
  // Lines between ranks.
  const double right = left + cell * static_cast<double>(m.rows.empty() ? 0 : m.rows[0].size());
  x = left;
  for (std::size_t b = 0; b <= m.column_blocks.size(); ++b) {
    svg.rectangle(x - 0.75, top, 1.5, y - top, "#555");
    if (b < m.column_blocks.size()) x += cell * static_cast<double>(m.column_blocks[b]);
  }
  double cut = top;
  for (std::size_t b = 0; b <= m.row_blocks.size(); ++b) {
    svg.rectangle(left, cut - 0.75, right - left, 1.5, "#555");
    if (b < m.row_blocks.size()) cut += cell * static_cast<double>(m.row_blocks[b]);
  }
}

bool any(const Matrix& m, std::size_t row_block, std::size_t column_block) {
  const auto begin = [](const Sizes& sizes, std::size_t block) {
    std::int64_t sum = 0;
    for (std::size_t b = 0; b < block; ++b) sum += sizes[b];
    return static_cast<std::size_t>(sum);
  };
  const auto r = begin(m.row_blocks, row_block), c = begin(m.column_blocks, column_block);
  for (std::size_t i = 0; i < static_cast<std::size_t>(m.row_blocks[row_block]); ++i)
    for (std::size_t j = 0; j < static_cast<std::size_t>(m.column_blocks[column_block]); ++j)
      if (m.rows[r + i][c + j] != 0) return true;
  return false;
}

// Ranks in a row, between their inputs above and their results below.
void draw_messages(Svg& svg, const Matrix& m, const Fields& from, const Fields& to, Frame at, const std::string& title,
                   const std::string& upper, const std::string& lower) {
  const auto ranks = from.size();
  constexpr double width = 96, box = 26, gap = 64;
  const auto words = [](const Fields& fields, std::size_t r) {
    std::string text;
    for (const double value : fields[r]) text += (text.empty() ? "" : " ") + number(value);
    return text.size() > 14 ? text.substr(0, 12) + "..." : text;
  };
  svg.text(at.x, at.y + 14, title, "start", 14);
  const double top = at.y + head;
  for (const bool below : {false, true})
    svg.text(at.x + margin - 8, top + (below ? box + gap : 0) + 18, below ? lower : upper, "end");
  for (std::size_t r = 0; r < ranks; ++r) {
    const double x = at.x + margin + width * static_cast<double>(r);
    svg.text(x + width / 2 - 4, top - 6, fmt::format("rank {}", r), "middle", 11);
    for (const bool below : {false, true}) {
      svg.rectangle(x, top + (below ? box + gap : 0), width - 8, box, Svg::colour_of(static_cast<int>(r), 86), "rx=\"4\"");
      svg.text(x + width / 2 - 4, top + (below ? box + gap : 0) + 17, words(below ? to : from, r), "middle", 11);
    }
  }
  // A value that is replicated on all ranks is drawn at rank 0.
  for (std::size_t r = 0; r < m.row_blocks.size(); ++r)
    for (std::size_t c = 0; c < m.column_blocks.size(); ++c)
      if (any(m, r, c))
        svg.arrow(at.x + margin + width * static_cast<double>(c) + width / 2 - 4, top + box + 2,
                  at.x + margin + width * static_cast<double>(r) + width / 2 - 4, top + box + gap - 2,
                  Svg::colour_of(static_cast<int>(c), 48));
}

}  // namespace

std::string to_svg(const Problem& p, const Result& result) {
  Svg svg;
  if (!result.matrix || !result.transposed) {
    svg.text(10, 24, p.linear() ? fmt::format("more than {} rows or columns", largest_matrix) : "not linear: no matrix", "start",
             14);
    return svg.str(std::string(p.operation->name));
  }
  const auto size = [](const Matrix& m) {
    return std::pair(cell * static_cast<double>(m.rows.empty() ? 0 : m.rows[0].size()),
                     cell * static_cast<double>(m.rows.size()));
  };
  const auto [width, height] = size(*result.matrix);
  const double other_height = size(*result.transposed).second;
  draw_matrix(svg, *result.matrix, {10, 6}, fmt::format("{}: y = A x", p.operation->name), "y", "x");
  draw_matrix(svg, *result.transposed, {10 + margin + width + 50, 6}, "its adjoint: A transposed", "x\u0304", "y\u0304");
  const double below = 6 + head + std::max(height, other_height) + 28;
  const double messages = margin + 96 * static_cast<double>(p.size()) + 24;
  draw_messages(svg, *result.matrix, p.x, result.y, {10, below}, "forwards", "x", "y");
  draw_messages(svg, *result.transposed, p.ybar, result.xbar, {10 + messages, below}, "backwards", "y\u0304", "x\u0304");
  return svg.str(fmt::format("{} on {} ranks: the matrix, its transpose, and the messages forwards and backwards",
                             p.operation->name, p.ranks));
}

}  // namespace mpigrad::adjoint
