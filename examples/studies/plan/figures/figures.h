#pragma once
// The command `plan figures`: figures and tables of published cost models, drawn again by this planner, with the published
// numbers next to ours.

#include <string>
#include <vector>

#include "models/trainer/plot/figure.h"

namespace CLI {
class App;
}

namespace mpigrad::plan {

struct FiguresOptions {
  std::vector<std::string> documents{"gholami", "paradl", "oyama"};
  std::string out = "figures", examples = "examples";  // a folder for files; the folder examples/ of the sources
  std::int64_t ranks = 2048;                           // of the largest grids of oyama
  bool overwrite = false;
};
void add_figures(CLI::App& app, FiguresOptions& options);
int figures(const FiguresOptions& options);

// A figure or a table of a document: OUT/NAME.csv, OUT/NAME.png and a section of OUT/index.html.
struct DocumentFigure {
  std::string name, title;
  std::vector<std::string> header{};
  std::vector<std::vector<std::string>> rows{};  // numbers as text; "" where nothing is published or calculated
  std::vector<plot::Panel> panels{};
  std::vector<std::string> notes{};  // paragraphs: source, assumptions, what differs and why
};

// Figures 6 to 10 of Gholami et al. (2018).
std::vector<DocumentFigure> gholami_figures();
// Tables of Kahira et al. (2021). `examples`: the folder with studies/plan/kahira_cosmoflow.toml.
std::vector<DocumentFigure> paradl_figures(const std::string& examples);
// Strong and weak scaling of the two networks of Oyama et al. (2020) on machines/lassen.toml of `examples`, up to so many ranks.
std::vector<DocumentFigure> oyama_figures(const std::string& examples, std::int64_t ranks);

// A number as text; "" for NaN.
std::string cell(double value, int digits = 4);

}  // namespace mpigrad::plan
