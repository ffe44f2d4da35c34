#include "models/trainer/segmentation/regions.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/joined.h"
#include "framework/base/printable.h"
#include "models/trainer/tool/together.h"

namespace mpigrad::trainer::segmenting {
namespace {

bool inside(const Region& inner, const Region& outer) {
  return std::includes(outer.classes.begin(), outer.classes.end(), inner.classes.begin(), inner.classes.end());
}

// Without an order: the one class of the region that no region inside has.
void choose(std::vector<Region>& regions) {
  std::stable_sort(regions.begin(), regions.end(),
                   [](const Region& a, const Region& b) { return a.classes.size() > b.classes.size(); });
  for (auto& region : regions) {
    std::vector<std::int64_t> own;
    for (const auto label : region.classes)
      if (std::none_of(regions.begin(), regions.end(),
                       [&](const Region& other) { return &other != &region && inside(other, region) && other.has(label); }))
        own.push_back(label);
    require(own.size() == 1,
            "[labels] the region {} has {} classes that no region inside it has; labels.region_order says which "
            "class its cells get",
            printable(region.name), own.size());
    region.written = own.front();
  }
}

}  // namespace

bool Region::has(std::int64_t label) const { return std::binary_search(classes.begin(), classes.end(), label); }

std::optional<Region> region_of(const std::string& text) {
  constexpr std::int64_t most = 9999;
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0) return std::nullopt;
  Region region{.name = text.substr(0, equals)};
  for (const char *at = text.data() + equals, *end = text.data() + text.size(); at != end;) {
    std::int64_t label = 0;
    const auto [next, error] = std::from_chars(at + 1, end, label);
    if (error != std::errc() || (next != end && *next != '+') || label < 1 || label > most) return std::nullopt;
    region.classes.push_back(label), at = next;
  }
  std::sort(region.classes.begin(), region.classes.end());
  region.classes.erase(std::unique(region.classes.begin(), region.classes.end()), region.classes.end());
  return region;
}

std::vector<Region> regions_of(const std::vector<std::string>& texts, const std::vector<std::int64_t>& order) {
  std::vector<Region> regions;
  std::set<std::string> names;
  std::set<std::vector<std::int64_t>> classes;
  for (const auto& text : texts) {
    const auto region = region_of(text);
    require(region.has_value(), "[labels] '{}' is not {}", printable(text), region_form);
    regions.push_back(*region);
    require(names.insert(regions.back().name).second, "[labels] two regions are called {}", printable(regions.back().name));
    require(classes.insert(regions.back().classes).second, "[labels] the region {} has the classes of another one",
            printable(regions.back().name));
  }
  if (order.empty()) {
    choose(regions);
  } else {
    require(order.size() == regions.size(), "[labels] labels.region_order has {} classes for {} regions", order.size(),
            regions.size());
    for (std::size_t i = 0; i < regions.size(); ++i) regions[i].written = order[i];
  }
  // A cell of a class is in all regions that have the class: the last of them must write a class that these regions have.
  for (std::size_t i = 0; i < regions.size(); ++i) {
    const auto& region = regions[i];
    require(region.has(region.written), "[labels] cells in the region {} would get the class {}, which the region does not have",
            text_of(region), region.written);
    for (std::size_t k = i + 1; k < regions.size(); ++k)
      require(!regions[k].has(region.written),
              "[labels] cells of class {} are in {} and, later in the order, in {}, which writes class {}: no cell would get {}",
              region.written, text_of(region), text_of(regions[k]), regions[k].written, region.written);
  }
  return regions;
}

std::string text_of(const Region& region) { return region.name + "=" + joined(region.classes, "+"); }

std::int64_t classes_of(const std::vector<Region>& regions) {
  std::int64_t most = 0;
  for (const auto& region : regions) most = std::max(most, region.classes.back());
  return most + 1;
}

std::vector<std::vector<std::int64_t>> labels_of(const std::vector<Region>& regions) {
  std::vector<std::vector<std::int64_t>> labels;
  for (const auto& region : regions) labels.push_back(region.classes);
  return labels;
}

std::vector<std::int64_t> written_by(const std::vector<Region>& regions) {
  std::vector<std::int64_t> written;
  for (const auto& region : regions) written.push_back(region.written);
  return written;
}

std::vector<Region> scored_regions(const std::vector<std::string>& texts, std::int64_t classes,
                                   const std::vector<Region>& targets) {
  std::vector<Region> regions;
  for (const auto& text : texts) {
    const auto refuse = [&](const std::string& why) {
      throw tool::UsageError(fmt::format("report.regions: '{}' {}", printable(text), why));
    };
    const auto region = region_of(text);
    if (!region) refuse(fmt::format("is not {}", region_form));
    for (const auto label : region->classes)
      if (label >= classes) refuse(fmt::format("names the class {}: classes are 1 to {}", label, classes - 1));
    for (const auto* others : {&std::as_const(regions), &targets})
      for (const auto& other : *others)
        if (other.name == region->name) refuse("has the name of another region");
    regions.push_back(*region);
  }
  return regions;
}

std::vector<std::int32_t> cells_of(const Region& region, const std::vector<std::int32_t>& classes) {
  std::vector<std::int32_t> cells;
  cells.reserve(classes.size());
  for (const auto label : classes) cells.push_back(region.has(label) ? 1 : 0);
  return cells;
}

}  // namespace mpigrad::trainer::segmenting
