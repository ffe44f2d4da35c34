// Tables, scores and the progress line.

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>

#include "framework/base/error.h"
#include "framework/tensor/random.h"
#include "models/train/metrics.h"
#include "models/train/progress.h"
#include "tests/support/files.h"

using namespace mpigrad;
using namespace mpigrad::testing;
namespace fs = std::filesystem;

namespace {

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("metrics: CSV files") {
  const auto path = fs::temp_directory_path() / fmt::format("mpigrad_metrics_test_{}.csv", getpid());
  fs::remove(path);
  {
    CsvWriter csv(path, {"epoch", "loss", "note"});
    csv.row({0, 0.1, "a, \"b\""});
    CHECK(text_of(path) == "epoch,loss,note\n0,0.1,\"a, \"\"b\"\"\"\n");  // on disk before the writer is destroyed
    csv.row({1, 1.0 / 3, ""});
    CHECK(has(error_text([&] { csv.row({1, 2}); }), "2 cells for 3 columns"));
  }
  CHECK(text_of(path) == "epoch,loss,note\n0,0.1,\"a, \"\"b\"\"\"\n1,0.3333333333333333,\n");
  CHECK(has(error_text([&] { CsvWriter(path, {"x"}); }), "exists already"));
  CHECK(text_of(path).size() > 20);
  CsvWriter(path, {"x"}, true);
  CHECK(text_of(path) == "x\n");
  CHECK(has(error_text([&] { CsvWriter(path / "below" / "a.csv", {"x"}); }), "cannot be written"));
  CHECK(has(error_text([&] { CsvWriter("/dev/full", {"x"}, true); }), "/dev/full is in the way: a device"));
  fs::remove(path);
}

TEST_CASE("metrics: regression scores next to predict-the-mean") {
  const std::vector<double> truth{1, 10, 3, 20, 5, 60}, predicted{1, 12, 4, 20, 5, 58};
  const auto scores = regression_scores(predicted, truth, 2);
  CHECK(scores[0].mse == doctest::Approx(1.0 / 3));
  CHECK(scores[0].mae == doctest::Approx(1.0 / 3));
  CHECK(scores[0].mean == doctest::Approx(3));
  CHECK(scores[0].mean_mse == doctest::Approx(8.0 / 3));
  CHECK(scores[0].mean_mae == doctest::Approx(4.0 / 3));
  CHECK(scores[1].mse == doctest::Approx(8.0 / 3));
  CHECK(scores[1].mean == doctest::Approx(30));
  CHECK(scores[1].correlation > 0.99);
  const std::vector<double> means{0, 0};
  CHECK(regression_scores(predicted, truth, 2, means)[0].mean_mse == doctest::Approx(35.0 / 3));
  CHECK(has(error_text([&] { regression_scores(predicted, truth, 4); }), "[n, 4]"));
}

TEST_CASE("metrics: ROC AUC against counting pairs") {
  CHECK(roc_auc(std::vector<double>{1, 2, 3, 4}, std::vector<std::int64_t>{0, 0, 1, 1}) == 1);
  CHECK(roc_auc(std::vector<double>{4, 3, 2, 1}, std::vector<std::int64_t>{0, 0, 1, 1}) == 0);
  CHECK(roc_auc(std::vector<double>{1, 1, 1, 1}, std::vector<std::int64_t>{0, 1, 0, 1}) == 0.5);
  const Philox random{11};
  for (std::uint64_t round = 0; round < 20; ++round) {
    std::vector<double> scores;
    std::vector<std::int64_t> labels{0, 1};
    for (std::uint64_t i = 0; i < 40; ++i) scores.push_back(static_cast<double>(random.below(100 * round + i, 12)));  // many ties
    for (std::uint64_t i = 2; i < 40; ++i) labels.push_back(static_cast<std::int64_t>(random.below(5000 + 100 * round + i, 2)));
    double wins = 0, pairs = 0;
    for (std::size_t i = 0; i < 40; ++i)
      for (std::size_t j = 0; j < 40; ++j)
        if (labels[i] == 1 && labels[j] == 0) wins += scores[i] > scores[j] ? 1 : scores[i] == scores[j] ? 0.5 : 0, pairs += 1;
    CHECK(roc_auc(scores, labels) == doctest::Approx(wins / pairs).epsilon(1e-12));
  }
  CHECK(has(error_text([] { roc_auc(std::vector<double>{1, 2}, std::vector<std::int64_t>{1, 1}); }), "both classes"));
  CHECK(has(error_text([] {
              roc_auc(std::vector<double>{1, std::nan("")}, std::vector<std::int64_t>{1, 0});
            }),
            "score 1 is not a number"));
  CHECK(has(error_text([] { roc_auc(std::vector<double>{1, 2}, std::vector<std::int64_t>{1, 2}); }), "labels are 0 or 1"));
}

TEST_CASE("metrics: scores that differ by rounding are ties") {
  const std::vector<std::int64_t> labels{0, 0, 1, 1, 1, 0};
  // Outputs for one constant picture, from batches of 3 and of other sizes.
  const std::vector<double> same{0.25, 0.25, 0.25, 0.25 + 1e-9, 0.25 + 1e-9, 0.25 - 1e-9};
  std::vector<double> roundings(6, rounding_of_outputs * 0.25);
  CHECK(roc_auc(same, labels) > 0.8);
  CHECK(roc_auc(same, labels, roundings) == 0.5);
  // Of 9 pairs 4 are won, 3 are ties and 2 are lost: 2 and 2.75 tie with 2.5, but not with each other.
  CHECK(roc_auc(std::vector<double>{1, 2, 3, 1.5, 2.5, 2.75}, labels, std::vector<double>{0, 0.25, 0, 0, 0.25, 0.25}) ==
        doctest::Approx((4 + 0.5 * 3) / 9));
  const auto infinity = std::numeric_limits<double>::infinity();
  CHECK(roc_auc(std::vector<double>{-infinity, infinity}, std::vector<std::int64_t>{0, 1},
                std::vector<double>{infinity, infinity}) == 1);
  CHECK(has(error_text([&] { roc_auc(same, labels, std::vector<double>{1}); }), "1 roundings for 6 scores"));
  // Neither predictions that differ as little nor constant targets vary.
  const std::vector<double> truth{1, 2, 3, 4, 5, 4}, constant(6, 0.1), real{0.1, 0.2, 0.3, 0.4, 0.5, 0.3};
  CHECK(regression_scores(same, truth, 1)[0].correlation == 0);
  CHECK(regression_scores(real, constant, 1)[0].correlation == 0);
  CHECK(regression_scores(real, truth, 1)[0].correlation > 0.9);
}

TEST_CASE("metrics: accuracy and means") {
  const auto predicted = argmax_rows(std::vector<double>{0, 1, 5, 2, 3, 3}, 2);
  CHECK(predicted == std::vector<std::int64_t>{1, 0, 0});
  CHECK(accuracy(predicted, std::vector<std::int64_t>{1, 1, 0}) == doctest::Approx(2.0 / 3));
  RunningMean mean;
  CHECK(std::isnan(mean.mean()));
  mean.add(1, 8);
  mean.add(4, 1);
  CHECK(mean.mean() == doctest::Approx(12.0 / 9));
}

TEST_CASE("progress: lines off a terminal, one redrawn line on one") {
  CHECK(format_duration(41.2) == "0:41");
  CHECK(format_duration(725) == "12:05");
  CHECK(format_duration(10920) == "3:02:00");
  const auto shown = [](ProgressOptions options) {
    char* memory = nullptr;
    std::size_t size = 0;
    options.stream = open_memstream(&memory, &size);
    {
      Progress progress(2, 3, options);
      for (std::int64_t e = 0; e < 2; ++e) {
        progress.begin_epoch(e);
        for (int s = 0; s < 3; ++s) progress.step(8, 0.5);
        progress.end_epoch("validation 0.25");
      }
      progress.print("done");
    }
    std::fclose(options.stream);
    const std::string text(memory, size);
    std::free(memory);
    return text;
  };
  const auto lines = shown({.terminal = false});
  CHECK(std::count(lines.begin(), lines.end(), '\n') == 3);
  CHECK(lines.starts_with("epoch 1/2 3/3  loss 0.5  "));
  CHECK(has(lines, "left  validation 0.25\nepoch 2/2 3/3  loss 0.5"));
  CHECK_FALSE(has(lines, "\r"));
  const auto bar = shown({.terminal = true, .redraw_seconds = 0});
  CHECK(has(bar, "\repoch 1/2 [======>             ] 1/3  loss 0.5"));
  CHECK(has(bar, "[====================] 3/3"));
  CHECK(bar.ends_with("done\n"));
  CHECK(shown({.rank = 1, .terminal = false}).empty());
  CHECK(shown({.quiet = true}).empty());
}
