#include <nlohmann/json.hpp>

#include <cmath>

#include "examples/cosmoflow/cosmoflow.h"
#include "framework/joined.h"

namespace mpigrad::cosmoflow {
namespace {

void write_predictions(const std::filesystem::path& path, const Results& r, const data::Source& source) {
  std::vector<std::string> columns{"sample"};
  for (const auto& name : r.names) columns.push_back(name + "_true"), columns.push_back(name + "_predicted");
  CsvWriter csv(path, columns, true);
  const auto n = r.names.size();
  for (std::size_t i = 0; i < r.predictions.samples.size(); ++i) {
    std::vector<CsvCell> row{source.name_of_sample(r.predictions.samples[i])};
    for (std::size_t t = 0; t < n; ++t)
      row.emplace_back(r.predictions.truth[i * n + t]), row.emplace_back(r.predictions.predicted[i * n + t]);
    csv.row(row);
  }
}

void print_scores(const Results& r) {
  fmt::print("\n{:<10} {:>10} {:>10} {:>7} {:>10} {:>10}   on {} test samples, in units of [-1, 1]\n", "parameter", "MSE",
             "of mean", "ratio", "MAE", "of mean", r.predictions.samples.size());
  for (std::size_t t = 0; t < r.names.size(); ++t) {
    const auto& s = r.scores[t];
    fmt::print("{:<10} {:>10.5f} {:>10.5f} {:>7.3f} {:>10.5f} {:>10.5f}\n", r.names[t], s.mse, s.mean_mse, s.mse / s.mean_mse,
               s.mae, s.mean_mae);
  }
  fmt::print("of mean: of predicting the mean of {}\n", r.mean_of);
}

nlohmann::ordered_json summary(const Options& o, const Results& r, const nlohmann::ordered_json& run) {
  auto document = run;
  document["mean_of"] = r.mean_of;
  auto& scores = document["test"] = nlohmann::ordered_json::object();
  for (std::size_t t = 0; t < r.names.size(); ++t) {
    const auto& s = r.scores[t];
    scores[r.names[t]] = {{"mse", s.mse},
                          {"mae", s.mae},
                          {"mean_mse", s.mean_mse},
                          {"mean_mae", s.mean_mae},
                          {"ratio", s.mse / s.mean_mse},
                          {"correlation", s.correlation}};
  }
  auto& epochs = document["epochs"] = nlohmann::ordered_json::array();
  for (const auto& e : r.epochs)
    epochs.push_back({{"epoch", e.epoch + 1}, {"train_loss", e.train_loss}, {"test_loss", e.test_loss}});
  document["out"] = o.out;
  return document;
}

}  // namespace

TargetMeans target_means(const Communicator& world, const data::Source& source, const std::vector<std::int64_t>& samples) {
  TargetMeans means{source.target_names(), std::vector<double>(source.target_names().size())};
  auto& sums = means.values;
  trainer::together(world, [&] {
    for (auto i = static_cast<std::size_t>(world.rank()); i < samples.size(); i += static_cast<std::size_t>(world.size())) {
      const auto targets = source.targets(samples[i]);
      for (std::size_t t = 0; t < sums.size(); ++t) sums[t] += targets[t] / static_cast<double>(samples.size());
    }
  });
  world.transport().allreduce(sums.data(), sums.data(), static_cast<std::int64_t>(sums.size()), DType::float64, CombineOp::sum);
  return means;
}

std::string to_note(const TargetMeans& means) {
  const nlohmann::ordered_json document{{"names", means.names}, {"means", means.values}};
  return document.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::optional<TargetMeans> means_of(const std::string& weights, const CheckpointInfo& info) {
  const auto note = info.notes.find(means_note);
  if (note == info.notes.end()) return std::nullopt;
  TargetMeans means;
  try {
    const auto document = nlohmann::ordered_json::parse(note->second);
    document.at("names").get_to(means.names);
    document.at("means").get_to(means.values);
  } catch (const nlohmann::ordered_json::exception&) {
    fail("[weights] {}: the note '{}' holds no means of targets", weights, means_note);
  }
  const bool finite = std::all_of(means.values.begin(), means.values.end(), [](double x) { return std::isfinite(x); });
  require(means.names.size() == means.values.size() && finite, "[weights] {}: the note '{}' holds no means of targets", weights,
          means_note);
  return means;
}

std::string fingerprint_of(const data::Source& source, const std::vector<std::int64_t>& samples) {
  std::vector<std::string> names;
  for (const auto sample : samples) names.push_back(std::filesystem::path(source.name_of_sample(sample)).filename().string());
  return trainer::fingerprint(names);
}

void score(Results& r, const std::vector<double>& means, const std::string& of) {
  r.mean_of = of;
  r.scores = regression_scores(r.predictions.predicted, r.predictions.truth, static_cast<std::int64_t>(r.names.size()), means);
}

void report(const Options& o, const trainer::Outputs& out, const Results& r, const data::Source& source,
            nlohmann::ordered_json run, const std::vector<std::string>& files, const std::string& text) {
  write_predictions(out / predictions_file, r, source);
  draw(out / picture_file, r, source);
  const auto document = tool::to_text(summary(o, r, run));
  trainer::write_text(out / summary_file, document + "\n");
  if (o.json) {
    fmt::print("{}\n", document);
    return;
  }
  print_scores(r);
  fmt::print("\n{}\nwritten to {}: {}\n", text, o.out, joined(out.written(files), ", "));
}

}  // namespace mpigrad::cosmoflow
