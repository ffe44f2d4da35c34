#pragma once
// MLPerf log files, which the checkers of submissions read: lines of ":::MLLOG" and a JSON document
// (https://github.com/mlcommons/logging; mlperf_logging/mllog/constants.py lists the keys).

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "framework/base/new_file.h"

namespace mpigrad::trainer {

class MlLog {
 public:
  // Makes a new file; with "" nothing is written. Error: it cannot be made.
  explicit MlLog(const std::filesystem::path& path);
  void start(const std::string& key, const nlohmann::ordered_json& metadata = {}) {
    write("INTERVAL_START", key, nullptr, metadata);
  }
  void end(const std::string& key, const nlohmann::ordered_json& metadata = {}) { write("INTERVAL_END", key, nullptr, metadata); }
  void point(const std::string& key, const nlohmann::ordered_json& value, const nlohmann::ordered_json& metadata = {}) {
    write("POINT_IN_TIME", key, value, metadata);
  }

 private:
  // Error: a line cannot be written completely.
  void write(const char* type, const std::string& key, const nlohmann::ordered_json& value,
             const nlohmann::ordered_json& metadata);
  std::optional<GrowingFile> file_;
};

}  // namespace mpigrad::trainer
