#include "ops/backends/cudnn/cudnn_defects.h"

#include <fmt/format.h>

#include <cstdlib>
#include <limits>
#include <string_view>

namespace mpigrad::cuda {
namespace {

constexpr auto every_version = std::numeric_limits<std::size_t>::max();

// A convolution of independent planes is not three-dimensional.
bool three_dimensional(const ConvCall& c) { return !c.flat && volume(c.kernel) > 1; }

// With one channel on both sides the two orders are equal.
bool is_channels_first(const ConvCall& c) {
  return c.order == Order::channels_first || (c.in_channels == 1 && c.out_channels == 1);
}

constexpr Defect defects[] = {
    {.first = 0,
     .end = every_version,
     .concerns = [](const ConvCall& c) { return c.pass == Pass::weight && c.pad_low != c.pad_high; },
     .what = "weight gradients with unequal padding by its engines 1 and 20",
     .source = "seen with 9.19.0: tests/bench/results/gpu-2026-11-27.md",
     .float32_instead = false,
     .engines = {1, 20}},
    {.first = 90800,
     .end = 91500,
     .concerns = [](const ConvCall& c) { return is_half(c.type) && three_dimensional(c) && is_channels_first(c); },
     .what = "three-dimensional convolutions in 16 bits, channels first,",
     .source = "https://github.com/pytorch/pytorch/issues/163539 and pull/163581",
     .float32_instead = false},
    {.first = 91002,
     .end = 91600,
     .concerns = [](const ConvCall& c) { return c.type == DType::float32 && c.tf32 && three_dimensional(c); },
     .what = "three-dimensional convolutions in TF32",
     .source = "https://github.com/pytorch/pytorch/pull/167024",
     .float32_instead = true},
};

std::string version_text(std::size_t v) { return fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100); }

const Defect* find(std::size_t version, const ConvCall& call, std::int64_t engine) {
  const auto is_among = [&](const Defect& d) {
    return d.engines[0] < 0 ? engine < 0 : engine == d.engines[0] || engine == d.engines[1];
  };
  for (const auto& defect : defects) {
    if (version < defect.first || version >= defect.end || !is_among(defect) || !defect.concerns(call)) continue;
    const char* setting = std::getenv("MPIGRAD_CUDNN_DEFECTS");
    return setting && std::string_view(setting) == "ignore" ? nullptr : &defect;
  }
  return nullptr;
}

}  // namespace

const Defect* defect_of(std::size_t version, const ConvCall& call) { return find(version, call, -1); }
const Defect* defect_of_engine(std::size_t version, const ConvCall& call, std::int64_t engine) {
  return find(version, call, engine);
}

std::string text_of(const Defect& defect, std::size_t version) {
  return fmt::format("cuDNN {} computes {} wrongly ({}); {}MPIGRAD_CUDNN_DEFECTS=ignore uses them nevertheless",
                     version_text(version), defect.what, defect.source,
                     defect.end == every_version
                         ? std::string()
                         : fmt::format("no defect is known in {} and newer, and ", version_text(defect.end)));
}

}  // namespace mpigrad::cuda
