#include "examples/trainer/mllog.h"

#include <chrono>

#include "framework/error.h"

namespace mpigrad::trainer {

MlLog::MlLog(const std::filesystem::path& path) : path_(path) {
  if (path.empty()) return;
  file_.open(path);
  require(file_.good(), "[mllog] {} cannot be written", path.string());
}

void MlLog::write(const char* type, const std::string& key, const nlohmann::ordered_json& value,
                  const nlohmann::ordered_json& metadata) {
  if (path_.empty()) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const nlohmann::ordered_json line{
      {"namespace", ""},    {"time_ms", std::chrono::duration_cast<std::chrono::milliseconds>(now).count()},
      {"event_type", type}, {"key", key},
      {"value", value},     {"metadata", metadata.is_null() ? nlohmann::ordered_json::object() : metadata}};
  file_ << ":::MLLOG " << line.dump() << std::endl;
  require(file_.good(), "[mllog] {} could not be written completely", path_.string());
}

}  // namespace mpigrad::trainer
