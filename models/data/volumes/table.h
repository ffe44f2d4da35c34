#pragma once
// Tables in CSV files.

#include <filesystem>
#include <string>
#include <vector>

namespace mpigrad::data {

struct Table {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  // as many cells each as there are columns
};
// Reads RFC 4180: the first line names the columns, cells may be quoted, lines end in \n or \r\n; a byte-order mark and empty
// lines are ignored. Errors, with the file and the line: missing, no columns, another number of cells than columns, an unclosed
// quote.
Table read_table(const std::filesystem::path& path);

}  // namespace mpigrad::data
