#pragma once
// Lines of MLPerf's logs, by which submissions are checked: ":::MLLOG" and a JSON document each
// (https://github.com/mlcommons/logging, mlperf_logging/mllog/constants.py has the keys).

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "framework/base/new_file.h"

namespace mpigrad::trainer {

class MlLog {
 public:
  // A new file; "" writes nothing. Error: it cannot be made.
  explicit MlLog(const std::filesystem::path& path);
  void start(const std::string& key, const nlohmann::ordered_json& metadata = {}) {
    write("INTERVAL_START", key, nullptr, metadata);
  }
  void end(const std::string& key, const nlohmann::ordered_json& metadata = {}) { write("INTERVAL_END", key, nullptr, metadata); }
  void point(const std::string& key, const nlohmann::ordered_json& value, const nlohmann::ordered_json& metadata = {}) {
    write("POINT_IN_TIME", key, value, metadata);
  }

 private:
  // Error: a line that cannot be written completely.
  void write(const char* type, const std::string& key, const nlohmann::ordered_json& value,
             const nlohmann::ordered_json& metadata);
  std::optional<GrowingFile> file_;
};

}  // namespace mpigrad::trainer
