#pragma once
// A page of results: text, tables and pictures in one HTML file that needs no other.

#include <filesystem>
#include <string>
#include <vector>

namespace mpigrad::plot {

class Page {
 public:
  explicit Page(const std::string& title);
  void heading(const std::string& text);
  void paragraph(const std::string& text);
  void text(const std::string& lines);  // as it is, in letters of one width
  // Cells that are numbers stand to the right. Error: a row of another length than the header.
  void table(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows);
  // A PNG file, which becomes part of the page. Error: it cannot be read.
  void picture(const std::filesystem::path& png, const std::string& description);
  std::string html() const;

 private:
  std::string title_, body_;
};

// < > & and quotes as HTML has them.
std::string escaped(const std::string& text);

}  // namespace mpigrad::plot
