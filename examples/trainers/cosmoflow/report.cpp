#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>

#include "examples/trainers/cosmoflow/cosmoflow.h"
#include "framework/base/joined.h"
#include "framework/base/printable.h"
#include "framework/base/text_bounds.h"

namespace mpigrad::cosmoflow {
namespace {

// What is predicted, in the units of physPar.
double physical(const Results& r, std::size_t i) {
  const auto t = i % r.names.size();
  return r.offset[t] + r.scale[t] * r.predictions.predicted[i];
}

void write_predictions(const std::filesystem::path& path, const Results& r, const data::Source& source) {
  const bool scored = !r.scores.empty();
  std::vector<std::string> columns{"sample"};
  for (const auto& name : r.names) {
    if (scored) columns.push_back(name + "_true");
    columns.push_back(name + "_predicted");
    if (!r.scale.empty()) columns.push_back(name + "_physical");
  }
  CsvWriter csv(path, columns, true);
  const auto n = r.names.size();
  for (std::size_t i = 0; i < r.predictions.samples.size(); ++i) {
    std::vector<CsvCell> row{source.name_of_sample(r.predictions.samples[i])};
    for (std::size_t t = i * n; t < (i + 1) * n; ++t) {
      if (scored) row.emplace_back(r.predictions.truth[t]);
      row.emplace_back(r.predictions.predicted[t]);
      if (!r.scale.empty()) row.emplace_back(physical(r, t));
    }
    csv.row(row);
  }
}

void print_predictions(const Results& r, const data::Source& source) {
  const auto n = r.names.size(), samples = r.predictions.samples.size();
  fmt::print("\n");
  for (const auto& name : r.names) fmt::print("{:>10} ", name);
  fmt::print("  predicted, {}\n", r.scale.empty() ? "in units of [-1, 1]" : "in physical units");
  for (std::size_t i = 0; i < std::min(samples, trainer::most_rows); ++i) {
    for (std::size_t t = i * n; t < (i + 1) * n; ++t)
      fmt::print("{:>10.4g} ", r.scale.empty() ? r.predictions.predicted[t] : physical(r, t));
    fmt::print("  {}\n", std::filesystem::path(source.name_of_sample(r.predictions.samples[i])).filename().string());
  }
  if (samples > trainer::most_rows) fmt::print("and {} more in {}\n", samples - trainer::most_rows, predictions_file);
}

void print_scores(const Results& r) {
  const bool spectrum = !r.spectrum_mse.empty();
  fmt::print("\n{:<10} {:>10} {:>10} {:>7} {}{:>10} {:>10}   on {} test samples, in units of [-1, 1]\n", "parameter", "MSE",
             "of mean", "ratio", spectrum ? fmt::format("{:>10} {:>7} ", "P(k)", "ratio") : "", "MAE", "of mean",
             r.predictions.samples.size());
  for (std::size_t t = 0; t < r.names.size(); ++t) {
    const auto& s = r.scores[t];
    fmt::print("{:<10} {:>10.5f} {:>10.5f} {:>7.3f} {}{:>10.5f} {:>10.5f}\n", r.names[t], s.mse, s.mean_mse, s.mse / s.mean_mse,
               spectrum ? fmt::format("{:>10.5f} {:>7.3f} ", r.spectrum_mse[t], s.mse / r.spectrum_mse[t]) : "", s.mae,
               s.mean_mae);
  }
  fmt::print("of mean: of predicting the mean of {}\n", r.mean_of);
  if (spectrum)
    fmt::print(
        "P(k): ridge regression on binned power spectra and one-point numbers of the same universes, "
        "fitted to the training set\n");
  else fmt::print("P(k): none, {}\n", printable(r.spectrum.missing));
}

nlohmann::ordered_json summary(const std::string& out, const Results& r, const nlohmann::ordered_json& run) {
  auto document = run;
  document["out"] = out;
  document["targets"] = r.names;
  if (r.scores.empty()) return document;
  document["mean_of"] = r.mean_of;
  if (r.spectrum_mse.empty()) document["spectrum_missing"] = r.spectrum.missing;
  auto& scores = document["test"] = nlohmann::ordered_json::object();
  for (std::size_t t = 0; t < r.names.size(); ++t) {
    const auto& s = r.scores[t];
    scores[r.names[t]] = {{"mse", s.mse},
                          {"mae", s.mae},
                          {"mean_mse", s.mean_mse},
                          {"mean_mae", s.mean_mae},
                          {"ratio", s.mse / s.mean_mse},
                          {"correlation", s.correlation}};
    if (!r.spectrum_mse.empty())
      scores[r.names[t]].update({{"spectrum_mse", r.spectrum_mse[t]}, {"spectrum_ratio", s.mse / r.spectrum_mse[t]}});
  }
  auto& epochs = document["epochs"] = nlohmann::ordered_json::array();
  for (const auto& e : r.epochs)
    epochs.push_back({{"epoch", e.epoch + 1}, {"train_loss", e.train_loss}, {"test_loss", e.test_loss}});
  return document;
}

}  // namespace

Targets targets_of(const Communicator& world, const data::Source& source, const std::vector<std::int64_t>& samples) {
  const auto n = source.target_names().size();
  const auto* universes = dynamic_cast<const data::UniverseSource*>(&source);
  const bool physical = universes && universes->has_physical();
  // Means of unitPar u and of physPar p, and of their products u u, u p, p p.
  std::vector<double> sums(5 * n);
  trainer::together(world, [&] {
    for (auto i = static_cast<std::size_t>(world.rank()); i < samples.size(); i += static_cast<std::size_t>(world.size())) {
      const auto u = source.targets(samples[i]), p = physical ? universes->physical(samples[i]) : std::vector<double>(n);
      for (std::size_t t = 0; t < n; ++t) {
        const std::array<double, 5> terms{u[t], p[t], u[t] * u[t], u[t] * p[t], p[t] * p[t]};
        for (std::size_t k = 0; k < terms.size(); ++k) sums[k * n + t] += terms[k] / static_cast<double>(samples.size());
      }
    }
  });
  world.transport().allreduce(sums.data(), sums.data(), static_cast<std::int64_t>(sums.size()), DType::float64, CombineOp::sum);
  Targets result{.names = source.target_names(), .means = {sums.begin(), sums.begin() + static_cast<std::ptrdiff_t>(n)}};
  for (std::size_t t = 0; t < n; ++t) {
    const auto of = [&](std::size_t k) { return sums[k * n + t]; };
    const double uu = of(2) - of(0) * of(0), up = of(3) - of(0) * of(1), pp = of(4) - of(1) * of(1);
    // One line through all samples, up to what float32 rounds; a parameter that does not vary says nothing.
    if (!(uu > 1e-12) || !(pp > 0) || pp - up * up / uu > 1e-6 * pp) {
      result.offset.clear(), result.scale.clear();
      break;
    }
    result.scale.push_back(up / uu), result.offset.push_back(of(1) - up / uu * of(0));
  }
  return result;
}

std::string to_note(const Targets& targets) {
  nlohmann::ordered_json document{{"names", targets.names}, {"means", targets.means}};
  if (!targets.scale.empty()) document["offset"] = targets.offset, document["scale"] = targets.scale;
  return document.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::optional<Targets> targets_of(const std::string& weights, const CheckpointInfo& info) {
  const auto note = info.notes.find(targets_note);
  if (note == info.notes.end()) return std::nullopt;
  Targets targets;
  const auto excess = excess_of_json(note->second);
  require(excess.empty(), "[weights] {}: the note '{}' {}", weights, targets_note, excess);
  try {
    const auto document = nlohmann::ordered_json::parse(note->second);
    document.at("names").get_to(targets.names);
    document.at("means").get_to(targets.means);
    if (document.contains("scale")) document.at("offset").get_to(targets.offset), document.at("scale").get_to(targets.scale);
  } catch (const nlohmann::ordered_json::exception&) {
    fail("[weights] {}: the note '{}' holds no means of targets", weights, targets_note);
  }
  for (const auto* numbers : {&targets.means, &targets.offset, &targets.scale}) {
    const bool finite = std::all_of(numbers->begin(), numbers->end(), [](double x) { return std::isfinite(x); });
    const bool enough = numbers->size() == targets.names.size() || (numbers != &targets.means && targets.scale.empty());
    require(finite && enough, "[weights] {}: the note '{}' holds no means of targets", weights, targets_note);
  }
  return targets;
}

void score(Results& r, const std::vector<double>& means, const std::string& of) {
  r.mean_of = of;
  const auto& truth = r.predictions.truth;
  const auto targets = static_cast<std::int64_t>(r.names.size());
  r.scores = regression_scores(r.predictions.predicted, truth, targets, means);
  if (!r.spectrum.missing.empty()) return;
  for (const auto& of_target : regression_scores(r.spectrum.values, truth, targets)) r.spectrum_mse.push_back(of_target.mse);
}

void report(const trainer::Options& o, const trainer::Outputs& out, const Results& r, const data::Source& source,
            nlohmann::ordered_json run, const std::vector<std::string>& files, const std::string& text) {
  write_predictions(out / predictions_file, r, source);
  draw(out / picture_file, r, source);
  const auto document = tool::to_text(summary(out.folder(), r, run));
  trainer::write_text(out / summary_file, document + "\n");
  if (o.json) {
    fmt::print("{}\n", document);
    return;
  }
  if (r.scores.empty()) print_predictions(r, source);
  else print_scores(r);
  fmt::print("\n{}\nwritten to {}: {}\n", text, out.folder(), joined(out.written(files), ", "));
}

}  // namespace mpigrad::cosmoflow
