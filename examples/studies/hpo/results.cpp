#include "examples/studies/hpo/results.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "framework/base/new_file.h"

namespace mpigrad::hpo {
namespace {

std::vector<std::string> header(const std::vector<std::string>& parameters) {
  std::vector<std::string> names{"trial", "bracket", "rung", "resource"};
  names.insert(names.end(), parameters.begin(), parameters.end());
  for (const auto* name : {"status", "value", "seconds", "at", "reason"}) names.emplace_back(name);
  return names;
}

std::optional<double> number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0') return std::nullopt;
  return value;
}

}  // namespace

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"') cells.back() += line[++i];
    else if (c == '"') quoted = !quoted;
    else if (c == ',' && !quoted) cells.emplace_back();
    else cells.back() += c;
  }
  return cells;
}

std::string line_of(const std::vector<std::string>& cells) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) line += ',';
    auto cell = cells[i];
    for (char& c : cell)
      if (static_cast<unsigned char>(c) < 0x20) c = ' ';
    if (cell.find_first_of("\",") == std::string::npos) {
      line += cell;
      continue;
    }
    line += '"';
    for (const char c : cell) line += c == '"' ? std::string("\"\"") : std::string(1, c);
    line += '"';
  }
  return line + '\n';
}

Results::Results(const std::filesystem::path& path, const std::vector<std::string>& parameters) : path_(path) {
  file_ = open_growing_file(path, O_RDWR | O_APPEND, "hpo");
  try {
    std::ifstream stream(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    require(!stream.bad(), "[hpo] {} cannot be read", path.string());
    const auto whole = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
    require(whole == text.size() || ftruncate(file_, static_cast<off_t>(whole)) == 0, "[hpo] {} cannot be written: {}",
            path.string(), std::strerror(errno));
    const auto names = header(parameters);
    if (whole == 0) {
      write(line_of(names));
      return;
    }
    std::istringstream lines(text.substr(0, whole));
    std::string line;
    std::getline(lines, line);
    require(cells_of(line) == names, "[hpo] {} is of a search with other parameters", path.string());
    for (std::size_t n = 2; std::getline(lines, line); ++n) {
      const auto cells = cells_of(line);
      bool good = cells.size() == names.size();
      const auto numbered = [&](std::size_t i) {
        const auto value = good ? number(cells[i]) : std::nullopt;
        good = good && value;
        return value.value_or(0);
      };
      Result result;
      auto& task = result.task;
      int* const counts[] = {&task.trial, &task.bracket, &task.rung, &task.resource};
      for (std::size_t i = 0; i < 4; ++i) *counts[i] = static_cast<int>(numbered(i));
      const auto status = 4 + parameters.size();
      result.seconds = numbered(status + 2), result.at = numbered(status + 3);
      if (good) result.status = cells[status], result.value = number(cells[status + 1]), result.reason = cells[status + 4];
      require(good && task.trial > 0 && (result.status != done || result.value), "[hpo] {}:{}: no result of a trial",
              path.string(), n);
      take(result);
    }
  } catch (...) {
    close(file_);
    throw;
  }
}

Results::~Results() { close(file_); }

void Results::take(const Result& result) {
  std::erase_if(all_,
                [&](const Result& each) { return each.task.trial == result.task.trial && each.task.rung == result.task.rung; });
  all_.push_back(result);
}

void Results::write(const std::string& text) const {
  std::size_t written = 0;
  while (written < text.size()) {
    const auto n = ::write(file_, text.data() + written, text.size() - written);
    if (n < 0 && errno == EINTR) continue;
    require(n > 0, "[hpo] {} cannot be written: {}", path_.string(), std::strerror(errno));
    written += static_cast<std::size_t>(n);
  }
  require(fsync(file_) == 0 || errno == EINVAL || errno == EROFS, "[hpo] {} cannot be written: {}", path_.string(),
          std::strerror(errno));
}

void Results::append(const Result& result, const Setting& setting) {
  const auto& task = result.task;
  std::vector<std::string> cells;
  for (const int n : {task.trial, task.bracket, task.rung, task.resource}) cells.push_back(std::to_string(n));
  cells.insert(cells.end(), setting.begin(), setting.end());
  cells.push_back(result.status);
  cells.push_back(result.value ? fmt::format("{}", *result.value) : std::string());
  for (const double seconds : {result.seconds, result.at}) cells.push_back(fmt::format("{:.3f}", seconds));
  cells.push_back(result.reason);
  write(line_of(cells));
  take(result);
}

void Results::forget_failed() {
  std::erase_if(all_, [](const Result& each) { return each.status != done; });
}

double read_metric(const std::filesystem::path& table, const Space& space) {
  std::ifstream stream(table);
  std::string line;
  require(stream.good() && std::getline(stream, line), "it wrote no {}", table.filename().string());
  const auto trimmed = [](std::string text) {
    const auto begin = text.find_first_not_of(" \t\r"), end = text.find_last_not_of(" \t\r");
    return begin == std::string::npos ? std::string() : text.substr(begin, end - begin + 1);
  };
  std::string names;
  std::optional<std::size_t> column;
  const auto cells = cells_of(line);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (trimmed(cells[i]) == space.metric) column = i;
    names += fmt::format("{}{}", i > 0 ? ", " : "", trimmed(cells[i]));
  }
  require(column.has_value(), "{} has no column {}, but {}", table.filename().string(), space.metric, names);
  std::optional<double> result;
  while (std::getline(stream, line)) {
    if (trimmed(line).empty()) continue;
    const auto row = cells_of(line);
    const auto value = *column < row.size() ? number(trimmed(row[*column])) : std::nullopt;
    require(value.has_value(), "{} has a row whose {} is not a number", table.filename().string(), space.metric);
    const bool better = !result || !std::isfinite(*result) || (space.minimize ? *value < *result : *value > *result);
    if (!space.best_row || (better && (std::isfinite(*value) || !result))) result = value;
  }
  require(result.has_value(), "{} has no row", table.filename().string());
  return *result;
}

bool tells_of_divergence(const std::string& line) {
  std::string word;
  for (const char c : line + " ") {
    if (std::isalpha(static_cast<unsigned char>(c))) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      continue;
    }
    if (word == "nan" || word == "inf" || word == "infinity" || word == "infinite" || word == "diverged" || word == "diverges")
      return true;
    word.clear();
  }
  std::string lower = line;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower.find("not finite") != std::string::npos || lower.find("non-finite") != std::string::npos;
}

}  // namespace mpigrad::hpo
