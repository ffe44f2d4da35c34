// plan figures: writes a CSV file and a picture of each figure, and one page with all of them.

#include "examples/studies/plan/figures/figures.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <filesystem>

#include "framework/base/joined.h"
#include "models/trainer/plot/page.h"
#include "models/trainer/tool/command_line.h"

namespace mpigrad::plan {
namespace {

namespace fs = std::filesystem;
using tool::UsageError;

std::string csv_of(const DocumentFigure& figure) {
  std::string text;
  const auto add = [&](const std::vector<std::string>& fields) {
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const bool quoted = fields[i].find_first_of(",\"") != std::string::npos;
      text += fmt::format("{0}{1}{2}{1}", i > 0 ? "," : "", quoted ? "\"" : "", fields[i]);
    }
    text += '\n';
  };
  add(figure.header);
  for (const auto& row : figure.rows) add(row);
  return text;
}

}  // namespace

std::string cell(double value, int digits) { return std::isnan(value) ? "" : fmt::format("{:.{}g}", value, digits); }

void add_figures(CLI::App& app, FiguresOptions& o) {
  auto* command = app.add_subcommand("figures", "figures and tables of three documents, published numbers next to ours");
  command->add_option("--documents", o.documents, "gholami (Figures 6 to 10), paradl (tables), oyama (strong and weak scaling)")
      ->delimiter(',')
      ->check(CLI::IsMember({"gholami", "paradl", "oyama"}))
      ->capture_default_str();
  command->add_option("--out", o.out, "folder for CSV files, pictures and index.html")->capture_default_str();
  command->add_option("--examples", o.examples, "the folder examples/ of the sources, with machine files and layer files")
      ->capture_default_str();
  command->add_option("--ranks", o.ranks, "of the largest grids of oyama, a power of two")
      ->check(tool::whole_number(8, 65536))
      ->capture_default_str();
  command->add_flag("--overwrite", o.overwrite, "replace files of an earlier run");
}

int figures(const FiguresOptions& o) {
  const fs::path out = o.out;
  if (!o.overwrite && fs::exists(out / "index.html"))
    throw UsageError(fmt::format("--out {} has an index.html: choose another folder, or say --overwrite", o.out));
  std::vector<DocumentFigure> all;
  try {
    for (const auto& document : o.documents) {
      auto made = document == "gholami"  ? gholami_figures()
                  : document == "paradl" ? paradl_figures(o.examples)
                                         : oyama_figures(o.examples, o.ranks);
      for (auto& figure : made) all.push_back(std::move(figure));
    }
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  std::error_code error;
  fs::create_directories(out, error);
  if (error) throw UsageError(fmt::format("--out {}: {}", o.out, error.message()));
  plot::Page page("Published numbers and ours");
  std::vector<std::string> names;
  for (const auto& figure : all) {
    const auto picture = out / (figure.name + ".png");
    tool::write_text(out / (figure.name + ".csv"), csv_of(figure));
    page.heading(figure.title);
    if (plot::available()) {
      plot::Figure drawing(figure.title, 1100);
      drawing.row(360, figure.panels);
      drawing.save(picture, true);
      page.picture(picture, figure.title);
    }
    page.table(figure.header, figure.rows);
    for (const auto& note : figure.notes) page.paragraph(note);
    names.push_back(figure.name);
  }
  tool::write_text(out / "index.html", page.html());
  fmt::print("{}\nwritten to {}: index.html, and a .csv and a .png of each\n", joined(names, ", "), o.out);
  return 0;
}

}  // namespace mpigrad::plan
