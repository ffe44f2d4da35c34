#pragma once
// Tables in files of comma-separated values.

#include <filesystem>
#include <string>
#include <vector>

namespace mpigrad::data {

struct Table {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  // as many cells each as there are columns
};
// RFC 4180: the first line names the columns, cells may be quoted, lines end in \n or \r\n; a byte-order mark and empty lines are
// passed over. Errors, with the file and the line: missing, no columns, another number of cells than columns, a quote that is not
// closed.
Table read_table(const std::filesystem::path& path);

}  // namespace mpigrad::data
