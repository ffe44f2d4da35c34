#include "models/trainer/mllog.h"

#include <fcntl.h>

#include <chrono>

namespace mpigrad::trainer {

MlLog::MlLog(const std::filesystem::path& path) {
  if (!path.empty()) file_.emplace(path, O_WRONLY | O_TRUNC, "mllog");
}

void MlLog::write(const char* type, const std::string& key, const nlohmann::ordered_json& value,
                  const nlohmann::ordered_json& metadata) {
  if (!file_) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const nlohmann::ordered_json line{
      {"namespace", ""},    {"time_ms", std::chrono::duration_cast<std::chrono::milliseconds>(now).count()},
      {"event_type", type}, {"key", key},
      {"value", value},     {"metadata", metadata.is_null() ? nlohmann::ordered_json::object() : metadata}};
  file_->write(":::MLLOG " + line.dump() + "\n");
}

}  // namespace mpigrad::trainer
