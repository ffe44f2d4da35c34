#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "examples/classify/classify.h"
#include "framework/joined.h"

namespace mpigrad::classify {
namespace {

void write_predictions(const std::filesystem::path& path, const Results& r, const data::Source& source) {
  std::vector<std::string> columns{"sample", "label"};
  for (std::int64_t c = 0; c < r.classes; ++c) columns.push_back(fmt::format("logit_{}", c));
  CsvWriter csv(path, columns, true);
  const auto n = static_cast<std::size_t>(r.classes);
  for (std::size_t i = 0; i < r.labels.size(); ++i) {
    std::vector<CsvCell> row{source.name_of_sample(r.predictions.samples[i]), r.labels[i]};
    for (std::size_t c = 0; c < n; ++c) row.emplace_back(r.predictions.predicted[i * n + c]);
    csv.row(row);
  }
}

nlohmann::ordered_json to_json(const Score& s) { return {{"loss", s.loss}, {"accuracy", s.accuracy}, {"auc", s.auc}}; }

}  // namespace

data::SourcePtr open(const Options& o, const std::string& group) {
  auto source = std::make_shared<data::ArraySource>(o.data, group, data::ArrayNames{.volume = o.volume, .label = o.label});
  require(source->has_classes() && source->target_names().size() == 1,
          "[classify] the labels in {} are not classes: integers, one for each sample", source->name_of_sample(0));
  return source;
}

std::vector<std::int64_t> count_classes(const data::Source& source) {
  std::vector<std::int64_t> counts;
  for (std::int64_t i = 0; i < source.size(); ++i) {
    const auto label = static_cast<std::int64_t>(source.targets(i).front());
    require(label >= 0 && label < 10000, "[classify] the label of {} is {}; classes count from 0", source.name_of_sample(i),
            label);
    if (static_cast<std::size_t>(label) >= counts.size()) counts.resize(static_cast<std::size_t>(label) + 1);
    ++counts[static_cast<std::size_t>(label)];
  }
  return counts;
}

Score score(const Predictions& p, const std::vector<std::int64_t>& labels, std::int64_t classes) {
  Score result;
  result.accuracy = accuracy(argmax_rows(p.predicted, classes), labels);
  const auto n = static_cast<std::size_t>(classes);
  RunningMean loss, auc;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double* row = p.predicted.data() + i * n;
    const double largest = *std::max_element(row, row + n);
    double sum = 0;
    for (std::size_t c = 0; c < n; ++c) sum += std::exp(row[c] - largest);
    loss.add(largest + std::log(sum) - row[static_cast<std::size_t>(labels[i])]);
  }
  result.loss = loss.mean();
  for (std::size_t c = classes == 2 ? 1 : 0; c < n; ++c) {
    std::vector<double> scores;
    std::vector<std::int64_t> is_class;
    for (std::size_t i = 0; i < labels.size(); ++i) {
      // Against the best of the others: for two classes the difference of logits.
      double other = -1e300;
      for (std::size_t k = 0; k < n; ++k)
        if (k != c) other = std::max(other, p.predicted[i * n + k]);
      scores.push_back(p.predicted[i * n + c] - other);
      is_class.push_back(labels[i] == static_cast<std::int64_t>(c));
    }
    const auto positives = std::count(is_class.begin(), is_class.end(), 1);
    if (positives > 0 && positives < static_cast<std::ptrdiff_t>(labels.size())) auc.add(roc_auc(scores, is_class));
  }
  result.auc = auc.mean();
  return result;
}

double majority_of(const std::vector<std::int64_t>& counts) {
  const auto all = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  return static_cast<double>(*std::max_element(counts.begin(), counts.end())) / static_cast<double>(all);
}

void evaluate(nn::Module& net, const data::Loader& validation, Results& r) {
  r.predictions = predict(net, validation);
  r.labels.assign(r.predictions.truth.begin(), r.predictions.truth.end());
  r.score = score(r.predictions, r.labels, r.classes);
}

void report(const Options& o, const trainer::Outputs& out, const Results& r, const data::Source& validation,
            nlohmann::ordered_json run, const std::vector<std::string>& files, const std::string& text) {
  write_predictions(out / predictions_file, r, validation);
  draw(out / picture_file, r, validation);
  auto document = std::move(run);
  document["validation"] = to_json(r.score);
  document["majority_accuracy"] = r.majority;
  auto& epochs = document["epochs"] = nlohmann::ordered_json::array();
  for (const auto& e : r.epochs)
    epochs.push_back({{"epoch", e.epoch + 1}, {"train_loss", e.train_loss}, {"validation", to_json(e.validation)}});
  document["out"] = o.out;
  trainer::write_text(out / summary_file, tool::to_text(document) + "\n");
  if (o.json) {
    fmt::print("{}\n", tool::to_text(document));
    return;
  }
  fmt::print(
      "\nvalidation: AUC {:.3f}, accuracy {:.3f} (most frequent class {:.3f}), cross-entropy {:.4f}\n{}\nwritten to {}: {}\n",
      r.score.auc, r.score.accuracy, r.majority, r.score.loss, text, o.out, joined(out.written(files), ", "));
}

}  // namespace mpigrad::classify
