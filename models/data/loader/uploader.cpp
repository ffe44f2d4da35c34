#include "models/data/loader/uploader.h"

#include <array>
#include <span>
#include <utility>

#include "comm/halos/ghosts.h"
#include "ops/views/views.h"

namespace mpigrad::data {

Uploader::Uploader(SourcePtr source, const LoaderOptions& options, Schedule& schedule, const Assembler& assembler)
    : source_(std::move(source)), options_(options), schedule_(schedule), assembler_(assembler) {
  if (assembler.as_stored()) widening_.emplace(source_->type(), assembler.transform(), options.dtype);
}

Batch Uploader::laid_out(const Fetch& fetch, const Tensor& x, const Tensor& y) {
  const auto& layout = schedule_.layouts(fetch.n);
  if (!layout.x) return {constant(x), constant(y)};
  const auto& block = schedule_.block();
  const auto& spatial = schedule_.spatial();
  if (spatial == block) return {constant(x).with_layout(layout.x), constant(y).with_layout(layout.y)};
  std::array<std::int64_t, 3> low{}, high{};
  for (int a = 0; a < 3; ++a) {
    const auto i = static_cast<std::size_t>(a);
    low[i] = block.begin[a] - spatial.begin[a], high[i] = spatial.end[a] - block.end[a];
  }
  auto own = y;
  if (source_->target_type().per_cell)
    for (int a = 0; a < 3; ++a) own = slice(own, a + 1, block.begin[a] - spatial.begin[a], block.end[a] - spatial.begin[a]);
  return {with_ghosts(x, low, high, schedule_.ghost_planes()).with_layout(layout.x), constant(own).with_layout(layout.y)};
}

Batch Uploader::upload(Fetch& fetch) {
  const auto [x, y] = assembler_.on_host(fetch);
  if (options_.device != DeviceKind::cuda) return laid_out(fetch, x, y);
  return arrived(fetch, detail::copied(x, options_.device), detail::copied(y, options_.device));
}

Batch Uploader::upload(Fetch& fetch, cuda::Uploads::Places& places) {
  const auto [x_type, y_type] = assembler_.types(fetch);
  const auto batch = uploads_.upload(std::array{x_type, y_type}, places, [&](std::span<std::byte* const> to) {
    if (!fetch.assembled.valid()) return assembler_.assemble(fetch, to[0], to[1]);
    const auto [x, y] = assembler_.on_host(fetch);
    detail::copy_bytes(DeviceKind::cpu, to[0], x.raw(), x.bytes()),
        detail::copy_bytes(DeviceKind::cpu, to[1], y.raw(), y.bytes());
  });
  return arrived(fetch, batch[0], batch[1]);
}

}  // namespace mpigrad::data
