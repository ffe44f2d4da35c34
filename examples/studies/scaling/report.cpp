// report.html: all results of `scaling learn` and `scaling speed` in a folder, on one page.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "examples/studies/scaling/commands.h"
#include "models/trainer/plot/page.h"
#include "models/trainer/run.h"

namespace mpigrad::scaling {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

Json read(const fs::path& path) {
  std::ifstream file(path);
  try {
    return Json::parse(file);
  } catch (const Json::exception& error) {
    fail("[scaling] {} is not a result of this program: {}", path.string(), error.what());
  }
}

std::string goal_of(const Json& document) {
  return fmt::format("{}, {} {:g}", document.at("task").get<std::string>(), document.at("error").get<std::string>(),
                     document.at("goal").get<double>());
}
std::string synchronisation_of(const Json& document) {
  if (document.at("synchronisation") == "gradients") return "gradients averaged in every step";
  return fmt::format("weights averaged{} every {} steps", document.at("synchronisation") == "gossip" ? " in pairs" : "",
                     document.at("every").get<std::int64_t>());
}

// Compares studies with the same goal: additional samples due to less synchronisation, and time saved.
void compare(plot::Page& page, const std::vector<Json>& documents) {
  std::map<std::string, std::vector<const Json*>> goals;
  for (const auto& each : documents)
    if (each.at("kind") == "learn") goals[goal_of(each)].push_back(&each);
  const auto cell = [](const Json& value, const char* format) {
    return value.is_null() ? std::string("-") : fmt::format(fmt::runtime(format), value.get<double>());
  };
  for (const auto& [goal, studies] : goals) {
    if (studies.size() < 2) continue;
    page.heading(fmt::format("Ways to synchronise: {}", goal));
    std::vector<std::vector<std::string>> rows;
    for (const auto* study : studies)
      for (const auto& r : study->at("results"))
        if (r.at("samples_are") == "measured")
          rows.push_back({synchronisation_of(*study), fmt::format("{}", r.at("workers").get<int>()),
                          cell(r.at("samples"), "{:.0f}"), cell(r.at("statistical_efficiency"), "{:.3g}"),
                          cell(r.at("parallel_speed_up"), "{:.2f}"), cell(r.at("learning_speed_up"), "{:.2f}")});
    std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return std::stoi(a[1]) < std::stoi(b[1]); });
    page.table({"synchronisation", "workers", "samples", "efficiency", "parallel", "learning"}, rows);
  }
}

void add(plot::Page& page, const Json& document, const fs::path& picture) {
  const bool learn = document.at("kind") == "learn";
  if (learn) page.heading(fmt::format("Learning: {}, {}", goal_of(document), synchronisation_of(document)));
  else page.heading(document.at("headline").get<std::string>());
  if (fs::exists(picture))
    page.picture(picture, learn ? "samples, statistical efficiency and speed-up against workers" : "speed against ranks");
  const auto& table = document.at("table");
  page.table(table.at("header").get<std::vector<std::string>>(), table.at("rows").get<std::vector<std::vector<std::string>>>());
  page.text(document.at("notes").get<std::string>());
}

}  // namespace

void write_report(const std::string& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const auto name = entry.path().filename().string();
    if (name.ends_with(".json") && (name.starts_with(learn_prefix) || name.starts_with(speed_prefix)))
      files.push_back(entry.path());
  }
  require(!files.empty(), "[scaling] {} has no results of learn or speed", folder);
  std::sort(files.begin(), files.end());
  plot::Page page("Scaling: do more ranks compute faster, and do they learn faster?");
  page.paragraph(
      "Parallel speed-up PS(P) is the samples per second of P workers over those of one. Learning speed-up LS(P) is the time in "
      "which one "
      "worker first reaches an error over the time in which P workers do (medians over seeds). Statistical efficiency SE(P) is "
      "the samples "
      "that one worker needs over those that P workers need, so that LS = PS SE. The definition is ours: the DeepEx study "
      "(Yoginath et al. "
      "2019), which asks for a learning speed-up in addition to the parallel one, prints none.");
  page.paragraph(
      "The law: with a gradient noise scale B_noise = tr(Sigma) / |G|^2 (McCandlish et al. 2018), measured while training, and b "
      "samples of "
      "each worker a step, SE(P) = (1 + b / B_noise) / (1 + P b / B_noise): learning speed-up stays below 1 + B_noise / b even "
      "where "
      "parallel speed-up is ideal.");
  try {
    std::vector<Json> documents;
    for (const auto& file : files) documents.push_back(read(file));
    compare(page, documents);
    for (std::size_t i = 0; i < files.size(); ++i) add(page, documents[i], fs::path(files[i]).replace_extension(".png"));
  } catch (const Json::exception& failure) {
    fail("[scaling] a result in {} is not one of this program: {}", folder, failure.what());
  }
  trainer::write_text(fs::path(folder) / report_file, page.html());
}

}  // namespace mpigrad::scaling
