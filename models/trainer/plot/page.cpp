#include "models/trainer/plot/page.h"

#include <cctype>
#include <cstdint>
#include <fstream>
#include <iterator>

#include "framework/base/error.h"

namespace mpigrad::plot {
namespace {

// RFC 4648, section 4.
std::string base64(const std::string& bytes) {
  constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve(bytes.size() * 4 / 3 + 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t j = i; j < i + 3; ++j) group = group << 8 | (j < bytes.size() ? static_cast<unsigned char>(bytes[j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j) text += i + j <= bytes.size() ? letters[group >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

bool is_number(const std::string& text) {
  return !text.empty() && (std::isdigit(static_cast<unsigned char>(text[0])) != 0 || text[0] == '-' || text[0] == '+');
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '&': result += "&amp;"; break;
      case '"': result += "&quot;"; break;
      default: result += c;
    }
  }
  return result;
}

Page::Page(const std::string& title) : title_(escaped(title)) {}

void Page::heading(const std::string& text) { body_ += fmt::format("<h2>{}</h2>\n", escaped(text)); }
void Page::paragraph(const std::string& text) { body_ += fmt::format("<p>{}</p>\n", escaped(text)); }
void Page::text(const std::string& lines) { body_ += fmt::format("<pre>{}</pre>\n", escaped(lines)); }

void Page::table(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows) {
  body_ += "<div class=\"table\"><table>\n<tr>";
  for (const auto& cell : header) body_ += fmt::format("<th>{}</th>", escaped(cell));
  body_ += "</tr>\n";
  for (const auto& row : rows) {
    require(row.size() == header.size(), "[page] a table of {} columns has a row of {}", header.size(), row.size());
    body_ += "<tr>";
    for (const auto& cell : row) body_ += fmt::format("<td{}>{}</td>", is_number(cell) ? " class=\"n\"" : "", escaped(cell));
    body_ += "</tr>\n";
  }
  body_ += "</table></div>\n";
}

void Page::picture(const std::filesystem::path& png, const std::string& description) {
  std::ifstream file(png, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  require(file.good() && !bytes.empty(), "[page] the picture {} cannot be read", png.string());
  body_ += fmt::format("<img alt=\"{}\" src=\"data:image/png;base64,{}\">\n", escaped(description), base64(bytes));
}

std::string Page::html() const {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{0}</title>\n<style>\n"
      "body {{ font: 16px/1.5 sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; color: #222; }}\n"
      "img {{ max-width: 100%; height: auto; }}\n.table, pre {{ overflow-x: auto; }}\n"
      "table {{ border-collapse: collapse; margin: 1rem 0; }}\n"
      "th, td {{ border-bottom: 1px solid #ccc; padding: 0.2rem 0.8rem; text-align: left; white-space: nowrap; }}\n"
      "td.n {{ text-align: right; font-variant-numeric: tabular-nums; }}\n</style>\n</head>\n<body>\n<h1>{0}</h1>\n{1}</body>\n"
      "</html>\n",
      title_, body_);
}

}  // namespace mpigrad::plot
