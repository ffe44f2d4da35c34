#include "models/train/metrics_file.h"

#include <cstdlib>
#include <fstream>

namespace mpigrad {
namespace {

// Splits a line into cells; cells of these tables have no quotes.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells(1);
  for (const char c : line)
    if (c == ',') cells.emplace_back();
    else cells.back() += c;
  return cells;
}

}  // namespace

MetricsFile::MetricsFile(const std::filesystem::path& path, const std::vector<std::string>& columns, std::int64_t epochs_before)
    : path_(path), columns_(columns) {
  if (epochs_before > 0) read_earlier(epochs_before);
}

void MetricsFile::read_earlier(std::int64_t epochs) {
  if (std::error_code none; !std::filesystem::is_regular_file(path_, none)) return;  // a pipe would wait for a writer
  std::ifstream file(path_);
  std::string line;
  if (!std::getline(file, line) || cells_of(line) != columns_) return;
  double last = 0;
  while (std::getline(file, line)) {
    auto cells = cells_of(line);
    std::vector<double> numbers;
    for (const auto& cell : cells) {
      char* end = nullptr;
      const double number = std::strtod(cell.c_str(), &end);
      if (cell.empty() || *end != '\0') break;
      numbers.push_back(number);
    }
    // Stop at the first line that is not a row of this table.
    if (numbers.size() != columns_.size() || !(numbers[0] > last) || numbers[0] > static_cast<double>(epochs)) return;
    last = numbers[0];
    earlier_text_.push_back(std::move(cells)), earlier_.push_back(std::move(numbers));
  }
}

void MetricsFile::row(std::span<const CsvCell> cells) {
  if (csv_) return csv_->row(cells);
  std::vector<std::vector<CsvCell>> rows;
  for (const auto& row : earlier_text_) rows.emplace_back(row.begin(), row.end());
  rows.emplace_back(cells.begin(), cells.end());
  csv_.emplace(path_, columns_, true, rows);
}

}  // namespace mpigrad
