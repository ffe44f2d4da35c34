#pragma once
// Regions: unions of classes, as targets with an output of their own each (nnU-Net's regions_class_order), or only scored.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mpigrad::trainer::segmenting {

struct Region {
  std::string name;
  std::vector<std::int64_t> classes{};  // sorted
  std::int64_t written = 0;             // of a target: the class that cells in this region get
  bool has(std::int64_t label) const;
  bool operator==(const Region&) const = default;
};
inline constexpr const char* region_form = "NAME=CLASS+CLASS, such as whole=1+2, with classes from 1 to 9999";

// From a text "NAME=CLASS+CLASS" with classes from 1 to 9999; none: another text.
std::optional<Region> region_of(const std::string& text);
// Targets from such texts and the classes that are written, one for each. Where regions overlap, later ones replace the classes
// of earlier ones. Without `order` regions are sorted from the largest to the smallest, and each writes its one class that no
// smaller region inside has. Errors: other texts, two regions of one name or of the same classes, an order of another length, a
// written class that its region does not have or that a later region replaces.
std::vector<Region> regions_of(const std::vector<std::string>& texts, const std::vector<std::int64_t>& order);
// Regions that are scored next to the targets. UsageError: other texts, a class that is not among the `classes`, a name twice or
// of a target.
std::vector<Region> scored_regions(const std::vector<std::string>& texts, std::int64_t classes,
                                   const std::vector<Region>& targets = {});
// "NAME=CLASS+CLASS"
std::string text_of(const Region& region);
// 1 + the largest class of all regions.
std::int64_t classes_of(const std::vector<Region>& regions);
// The classes of each region, as segmentation::RegionOptions has them.
std::vector<std::vector<std::int64_t>> labels_of(const std::vector<Region>& regions);
// The class that each region writes, as segmentation::SlidingWindowOptions has them.
std::vector<std::int64_t> written_by(const std::vector<Region>& regions);
// 1 in the cells of the region, else 0.
std::vector<std::int32_t> cells_of(const Region& region, const std::vector<std::int32_t>& classes);

}  // namespace mpigrad::trainer::segmenting
