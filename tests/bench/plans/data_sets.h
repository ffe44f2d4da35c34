#pragma once
// The data sets of data_sets.json, described by extents and spacings, and nnU-Net's measure of memory.

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "models/trainer/segmentation/plan/rules.h"

namespace mpigrad::testing {

inline nlohmann::ordered_json json_of_plans(const std::string& file) {
  std::ifstream stream(std::string(MPIGRAD_SOURCE_ROOT) + "/tests/bench/plans/" + file);
  return nlohmann::ordered_json::parse(stream);
}

inline std::map<std::string, trainer::segmenting::Fingerprint> described_data_sets() {
  std::map<std::string, trainer::segmenting::Fingerprint> result;
  const auto document = json_of_plans("data_sets.json");
  for (const auto& [name, entry] : document.items()) {
    auto& f = result[name];
    f.channels = entry.at("channels").get<std::int64_t>(), f.classes = entry.at("classes").get<std::int64_t>();
    for (std::size_t i = 0; i < entry.at("extents").size(); ++i)
      for (int times = 0; times < entry.at("times").get<int>(); ++times) {
        const auto e = entry.at("extents").at(i).get<std::array<std::int64_t, 3>>();
        f.extents.push_back({e[0], e[1], e[2]});
        f.spacings.push_back(entry.at("spacings").at(i).get<std::array<double, 3>>());
      }
  }
  return result;
}

// Numbers in the results of all convolutions of a residual encoder U-Net for one window, which nnU-Net's planner compares with
// 680 million for two windows in 8 GB.
inline std::int64_t feature_maps(const Shape& window, const trainer::NetworkPlan& network, std::int64_t classes) {
  const std::int64_t blocks[] = {1, 3, 4, 6, 6, 6, 6, 6, 6, 6};
  std::vector<std::int64_t> cells;
  std::int64_t sum = 0;
  auto extents = window;
  for (std::size_t i = 0; i < network.filters.size(); ++i) {
    bool strided = false;
    for (int a = 0; a < 3; ++a) {
      const auto stride = network.strides[i][static_cast<std::size_t>(a)];
      extents[a] /= stride, strided = strided || stride != 1;
    }
    cells.push_back(extents.elements());
    const auto own = network.filters[i] * cells.back();
    if (i == 0) sum += own;  // the stem
    sum += 2 * blocks[std::min<std::size_t>(i, 9)] * own;
    if (strided || (i > 0 && network.filters[i] != network.filters[i - 1])) sum += own;
  }
  for (std::size_t i = 0; i + 1 < cells.size(); ++i) sum += 2 * network.filters[i] * cells[i];
  return sum + classes * cells.front();
}

inline trainer::segmenting::PlanRules rules_of_nnunet(std::int64_t classes) {
  return {.bytes = [classes](const Shape& window, const trainer::NetworkPlan& network,
                             std::int64_t batch) { return feature_maps(window, network, classes) * batch / 2; },
          .most_bytes = 680000000};
}

}  // namespace mpigrad::testing
