#include "models/data/volumes/table.h"

#include <algorithm>
#include <string_view>

#include "framework/base/error.h"
#include "models/data/sources/bytes.h"

namespace mpigrad::data {

Table read_table(const std::filesystem::path& path) {
  const auto bytes = read_bytes(path);
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  Table table;
  std::vector<std::string> row;
  std::string cell;
  std::int64_t line = 1;
  bool quoted = false, any = false;  // any: the line is not empty
  const auto end_row = [&] {
    if (any) {
      row.push_back(std::move(cell));
      if (table.columns.empty()) table.columns = std::move(row);
      else {
        require(row.size() == table.columns.size(), "[csv] {}, line {}: {} cells for {} columns", path.string(), line, row.size(),
                table.columns.size());
        table.rows.push_back(std::move(row));
      }
    }
    row.clear(), cell.clear(), any = false;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\n') ++line;
      if (c != '"') cell += c;
      else if (i + 1 < text.size() && text[i + 1] == '"') cell += text[++i];
      else quoted = false;
    } else if (c == '\n') {
      end_row();
      ++line;
    } else if (c == ',') {
      row.push_back(std::move(cell));
      cell.clear(), any = true;
    } else if (c == '"' && cell.empty()) {
      quoted = any = true;
    } else if (c != '\r') {
      cell += c, any = true;
    }
  }
  require(!quoted, "[csv] {}: a quote is not closed", path.string());
  end_row();
  require(!table.columns.empty(), "[csv] {}: no line with the names of the columns", path.string());
  return table;
}

}  // namespace mpigrad::data
