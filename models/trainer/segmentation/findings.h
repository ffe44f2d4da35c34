#pragma once
// What is wrong with volumes and their labels, and numbers that describe them: the command `check`.

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/data/source.h"
#include "models/data/volumes/cases.h"
#include "models/data/volumes/label_rules.h"
#include "models/trainer/segmentation/dataset.h"
#include "models/trainer/segmentation/label_values.h"
#include "models/trainer/segmentation/parts.h"

namespace mpigrad::trainer::segmenting {

// The findings for one volume and its labels.
struct CaseFindings {
  std::string name;                     // its first file
  std::vector<std::string> problems{};  // a line each, with the file
  bool read = false;                    // the values could be read; otherwise the members below say nothing
  Shape extents{};
  std::int64_t channels = 0, bytes = 0;          // bytes: of the files
  std::array<double, 3> spacing{};               // 0: unknown
  std::string orientation{};                     // as stored
  std::uint64_t hash = 0;                        // hash_of_values()
  std::map<std::int64_t, LabelValues> labels{};  // by the rules; values only if all of the case are known and finite
  bool finite = true;                            // all values are finite
  // If samples of the foreground are asked for, and all files could be read:
  double nonzero = 1;  // the part of the volume that the smallest box around its cells that are not 0 takes
  std::vector<std::vector<double>> samples{};  // of CellValues, as many for every volume
};
void to_json(nlohmann::ordered_json& json, const CaseFindings& findings);
void from_json(const nlohmann::ordered_json& json, CaseFindings& findings);

// Reads all files of a case: files that cannot be read, channels and labels on other cells than the image, a spacing that is not
// that of the affine map, values that are not finite, channels of one value, labels that are no whole numbers or below 0.
// `samples`: how many values of the foreground of each channel are taken.
CaseFindings findings_of(const data::VolumeCase& files, const data::LabelRules& rules, std::int64_t samples = 0);
// The same for a sample of a source whose labels, if it has any, follow the rules.
CaseFindings findings_of(const data::Source& source, std::int64_t sample, std::int64_t samples = 0);
// Problems that show between cases: other numbers of channels than most cases have, the values of another case, no orientation
// where others have one, labels that leave classes out or that dataset.json does not have. `data` is the name of the data.
std::vector<std::string> findings_between(const std::vector<CaseFindings>& cases, const DatasetFile& dataset,
                                          const std::string& data);
// Lines that describe the cases that could be read.
std::vector<std::string> description_of(const std::vector<CaseFindings>& cases);

// The findings for all cases of o.data, on all ranks.
struct AllFindings {
  std::vector<CaseFindings> cases{};
  std::vector<std::string> problems{};  // of files without a case, of each case, and between cases
  DatasetFile dataset{};
  bool channel_files = false;
};
// Reads every file once: ranks share the cases, and several threads of each rank read at once. `most_samples`: values of the
// foreground of each channel in all cases together; 0: none. UsageError: no such data, no volumes. Collective.
AllFindings all_findings(const Communicator& world, const std::string& data, const DataOptions& source, const Trained& trained,
                         bool ignores_given, std::int64_t workers, std::int64_t most_samples = 0);

}  // namespace mpigrad::trainer::segmenting
