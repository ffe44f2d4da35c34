#include "models/data/sources/pack.h"

#include <nlohmann/json.hpp>

#include <chrono>

#include "examples/contrastive/contrastive.h"
#include "examples/contrastive/samples.h"
#include "examples/trainer/run.h"
#include "models/train/progress.h"

namespace mpigrad::contrast {

int pack(const Communicator& world, const PackOptions& o) {
  const auto start = std::chrono::steady_clock::now();
  if (o.out.empty()) throw UsageError("--out is needed");
  trainer::together(world, [&] {
    if (world.rank() != 0) return;
    const auto source = open(o.source);
    std::int64_t before = 0;
    const auto show = [&](std::int64_t done) {
      if (done > before && !o.quiet && !o.json) fmt::print(stderr, "{} of {} samples\n", done, source->size());
      before = done;
    };
    data::pack(*source, o.out, {.samples_per_file = o.samples_per_file, .progress = show});
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!o.json) {
      fmt::print("{} samples of {} written to {} in {}\n", source->size(), source->extents(), o.out, format_duration(seconds));
      return;
    }
    const nlohmann::ordered_json document{
        {"program", "contrastive"},
        {"command", "pack"},
        {"samples", source->size()},
        {"extents", std::vector<std::int64_t>(source->extents().begin(), source->extents().end())},
        {"channels", source->channels()},
        {"labels", has_labels(*source) ? source->target_names() : std::vector<std::string>()},
        {"seconds", seconds},
        {"out", o.out}};
    fmt::print("{}\n", tool::to_text(document));
  });
  return 0;
}

}  // namespace mpigrad::contrast
