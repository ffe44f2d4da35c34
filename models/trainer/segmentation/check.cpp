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

Subject open_subject(const Communicator& world, const CheckOptions& o) {
  Subject subject;
  bool files = false;
  of_input(world, [&] {
    std::error_code error;
    require(fs::exists(o.data, error), "[data] {}: no such file or folder", o.data);
    subject.dataset = read_dataset_file(o.data);
    const auto folders = data_folders(o.data, true);
    files = folders || has_volumes(o.data);
    if (folders) subject.files = data::volume_cases(folders->images, folders->labels);
    else if (files) subject.files = data::volume_cases(o.data, "");
  });
  if (!files) subject.source = open(world, o.data, o.source, true, o.trained).stored;
  return subject;
}

// The findings for this rank's cases, by their numbers; several threads read files at once.
Json own_findings(const Communicator& world, const CheckOptions& o, const Subject& subject) {
  auto ignored = o.trained.ignored;
  if (!o.given.contains("labels.ignore") && ignored.empty()) ignored = subject.dataset.ignored;
  const auto rules = data::label_rules(o.trained.label_map, ignored);
  const auto processors = static_cast<std::int64_t>(std::thread::hardware_concurrency());
  const auto threads = o.workers > 0 ? o.workers : std::max<std::int64_t>(1, processors / world.size());
  JobQueue queue(subject.source ? 0 : static_cast<int>(threads));
  std::vector<std::pair<std::int64_t, std::future<CaseFindings>>> waiting;
  for (std::int64_t i = world.rank(); i < subject.size(); i += world.size())
    waiting.emplace_back(i, queue.submit([&, i] {
      return subject.source ? findings_of(*subject.source, i)
                            : findings_of(subject.files.cases[static_cast<std::size_t>(i)], rules);
    }));
  Json result = Json::array();
  for (auto& [i, findings] : waiting) result.push_back({i, findings.get()});
  return result;
}

}  // namespace

int check(const Communicator& world, const CheckOptions& o) {
  if (o.data.empty()) throw UsageError("check needs the data: a folder or a file");
  const detail::SlowPhase phase;  // ranks wait for the one with the slowest files
  const auto start = std::chrono::steady_clock::now();
  const auto subject = open_subject(world, o);
  std::string own;
  trainer::together(world, [&] { own = own_findings(world, o, subject).dump(-1, ' ', false, Json::error_handler_t::replace); });
  std::vector<CaseFindings> cases(static_cast<std::size_t>(subject.size()));
  for (int rank = 0; rank < world.size(); ++rank)
    for (const auto& entry : Json::parse(text_of_rank(world.transport(), own, rank)))
      cases[entry.at(0).get<std::size_t>()] = entry.at(1).get<CaseFindings>();

  std::vector<std::string> problems;
  for (const auto& problem : subject.files.problems) problems.push_back(printable(problem));
  for (const auto& path : subject.files.unused) problems.push_back(fmt::format("{} has no image", printable(path.string())));
  std::int64_t bytes = 0, read = 0;
  for (const auto& each : cases) {
    problems.insert(problems.end(), each.problems.begin(), each.problems.end());
    bytes += each.bytes, read += each.read ? 1 : 0;
  }
  const auto between = findings_between(cases, subject.dataset, o.data);
  problems.insert(problems.end(), between.begin(), between.end());
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
