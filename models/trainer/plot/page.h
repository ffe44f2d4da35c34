#pragma once
// A page of results: text, tables and pictures in one HTML file without references to other files.

#include <filesystem>
#include <string>
#include <vector>

namespace mpigrad::plot {

class Page {
 public:
  explicit Page(const std::string& title);
  void heading(const std::string& text);
  void paragraph(const std::string& text);
  void text(const std::string& lines);  // verbatim, in a monospaced font
  // Cells that are numbers are aligned to the right. Error: a row whose length is not the header's.
  void table(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows);
  // Embeds a PNG file. Error: it cannot be read.
  void picture(const std::filesystem::path& png, const std::string& description);
  std::string html() const;

 private:
  std::string title_, body_;
};

// Escapes < > & and quotes for HTML.
std::string escaped(const std::string& text);

}  // namespace mpigrad::plot
