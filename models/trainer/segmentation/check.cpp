// The command `check`: reads every file of a data set once and says what is wrong with it.

#include <nlohmann/json.hpp>

#include <chrono>
#include <future>
#include <thread>

#include "comm/together.h"
#include "framework/base/job_queue.h"
#include "framework/base/printable.h"
#include "framework/engine/activity.h"
#include "models/data/volumes/volume_formats.h"
#include "models/nn/describe.h"
#include "models/trainer/segmentation/findings.h"
#include "models/trainer/segmentation/parts.h"

namespace mpigrad::trainer::segmenting {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// The data: files by case, or a source of another format.
struct Subject {
  data::VolumeCases files;
  data::SourcePtr source;
  DatasetFile dataset;

  std::int64_t size() const { return source ? source->size() : static_cast<std::int64_t>(files.cases.size()); }
};

bool has_volumes(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return data::is_volume(path);
  for (const auto& entry : fs::directory_iterator(path, error))
    if (data::is_volume(entry.path())) return true;
  return false;
}

Subject open_subject(const Communicator& world, const std::string& data, const DataOptions& source, const Trained& trained) {
  Subject subject;
  bool files = false;
  of_input(world, [&] {
    std::error_code error;
    require(fs::exists(data, error), "[data] {}: no such file or folder", data);
    subject.dataset = read_dataset_file(data);
    const auto folders = data_folders(data, true);
    files = folders || has_volumes(data);
    if (folders) subject.files = data::volume_cases(folders->images, folders->labels);
    else if (files) subject.files = data::volume_cases(data, "");
  });
  if (!files) subject.source = open(world, data, source, true, trained).stored;
  return subject;
}

}  // namespace

AllFindings all_findings(const Communicator& world, const std::string& data, const DataOptions& source, const Trained& trained,
                         bool ignores_given, std::int64_t workers, std::int64_t most_samples) {
  const auto subject = open_subject(world, data, source, trained);
  const auto size = subject.size();
  const auto samples =
      most_samples == 0 ? 0 : std::clamp<std::int64_t>(most_samples / std::max<std::int64_t>(1, size), 20, 10000);
  std::string own;
  trainer::together(world, [&] {
    auto ignored = trained.ignored;
    if (!ignores_given && ignored.empty()) ignored = subject.dataset.ignored;
    const auto rules = data::label_rules(trained.label_map, ignored);
    const auto processors = static_cast<std::int64_t>(std::thread::hardware_concurrency());
    const auto threads = workers > 0 ? workers : std::max<std::int64_t>(1, processors / world.size());
    JobQueue queue(subject.source ? 0 : static_cast<int>(threads));
    std::vector<std::pair<std::int64_t, std::future<CaseFindings>>> waiting;
    for (std::int64_t i = world.rank(); i < size; i += world.size())
      waiting.emplace_back(i, queue.submit([&, i] {
        return subject.source ? findings_of(*subject.source, i, samples)
                              : findings_of(subject.files.cases[static_cast<std::size_t>(i)], rules, samples);
      }));
    Json result = Json::array();
    for (auto& [i, findings] : waiting) result.push_back({i, findings.get()});
    own = result.dump(-1, ' ', false, Json::error_handler_t::replace);
  });
  AllFindings all{.dataset = subject.dataset, .channel_files = subject.files.channel_files};
  all.cases.resize(static_cast<std::size_t>(size));
  for (int rank = 0; rank < world.size(); ++rank)
    for (const auto& entry : Json::parse(text_of_rank(world.transport(), own, rank)))
      all.cases[entry.at(0).get<std::size_t>()] = entry.at(1).get<CaseFindings>();
  for (const auto& problem : subject.files.problems) all.problems.push_back(printable(problem));
  for (const auto& path : subject.files.unused) all.problems.push_back(fmt::format("{} has no image", printable(path.string())));
  for (const auto& each : all.cases) all.problems.insert(all.problems.end(), each.problems.begin(), each.problems.end());
  const auto between = findings_between(all.cases, subject.dataset, data);
  all.problems.insert(all.problems.end(), between.begin(), between.end());
  return all;
}

int check(const Communicator& world, const CheckOptions& o) {
  if (o.data.empty()) throw UsageError("check needs the data: a folder or a file");
  const detail::SlowPhase phase;  // ranks wait for the one with the slowest files
  const auto start = std::chrono::steady_clock::now();
  const auto found = all_findings(world, o.data, o.source, o.trained, o.given.contains("labels.ignore"), o.workers);
  const auto& [cases, problems, dataset, channel_files] = found;
  std::int64_t bytes = 0, read = 0;
  for (const auto& each : cases) bytes += each.bytes, read += each.read ? 1 : 0;
  const auto lines = description_of(cases);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::string text;
  if (o.json) {
    Json document{{"data", o.data},     {"volumes", cases.size()}, {"read", read},        {"bytes", bytes},
                  {"seconds", seconds}, {"problems", problems},    {"description", lines}};
    text = tool::to_text(document) + "\n";
  } else {
    for (const auto& problem : problems) text += problem + "\n";
    for (const auto& line : lines) text += line + "\n";
    text += fmt::format("{} problems in {} volumes; {} read in {:.1f} s\n", problems.size(), cases.size(), readable_bytes(bytes),
                        seconds);
  }
  tool::print_once(world.transport(), text);
  return problems.empty() ? 0 : 2;
}

}  // namespace mpigrad::trainer::segmenting
