#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "comm/halos/ghosts.h"
#include "models/data/loader_state.h"
#include "models/data/sources/bytes.h"
#include "ops/views/views.h"

namespace mpigrad::data {

std::pair<TensorType, TensorType> Loader::State::types(const Fetch& fetch) const {
  const auto n = static_cast<std::int64_t>(fetch.items.size());
  const auto extents = spatial.extents();
  return {{Shape{n, extents[0], extents[1], extents[2], source->channels()}, assembled},
          {target_shape(n, extents), target_dtype}};
}

void Loader::State::assemble(const Fetch::Item& item, const std::vector<RegionPtr>& read, const Values& v, std::byte* to) const {
  const auto name = [&] { return source->name_of_sample(item.sample); };
  const auto extents = spatial.extents();
  const auto cell = v.channels * size_of(v.type);
  std::int64_t covered = 0;
  for (const auto& piece : item.pieces) covered += piece.box.elements();
  if (item.deformation ? covered == 0 : covered < extents.elements())
    std::memset(to, 0, static_cast<std::size_t>(extents.elements() * cell));
  for (std::size_t p = 0; p < item.pieces.size(); ++p) {
    const auto& region = *read[p];
    region.ready.get();
    const Stored stored{region.box, v.stored, region.bytes.get()};
    if (!item.deformation) {
      if (v.on_gpu == Transform::log1p) require_counts(item.pieces[p].box, stored, v.channels, name);
      copy_piece(item.pieces[p], stored, extents, v.channels, v.transform, v.type, to, name);
      continue;
    }
    const auto box = item.pieces[p].box.extents();
    std::vector<std::byte> whole(static_cast<std::size_t>(box.elements() * cell));
    copy_piece(item.pieces[p], stored, box, v.channels, v.transform, v.type, whole.data(), name);
    const auto interpolate = [&](auto zero) {
      using T = decltype(zero);
      item.deformation->values(spatial, v.channels, reinterpret_cast<const T*>(whole.data()), reinterpret_cast<T*>(to));
    };
    if (v.nearest) item.deformation->labels(spatial, cell, whole.data(), to);
    else visit_floating(v.type, interpolate);
  }
}

void Loader::State::fill(Fetch& fetch, std::byte* x, std::byte* y) {
  if (fetch.stored) fetch.stored->finish();
  const auto n = static_cast<std::int64_t>(fetch.items.size());
  const auto extents = spatial.extents();
  const auto channels = source->channels();
  const auto& target = source->target_type();
  const auto bytes = extents.elements() * channels * size_of(assembled);
  const auto numbers = target.shape.elements() * (target.per_cell ? extents.elements() : 1);
  for (std::int64_t i = 0; i < n; ++i) {
    const auto& item = fetch.items[static_cast<std::size_t>(i)];
    const auto name = [&] { return source->name_of_sample(item.sample); };
    auto* values = x + i * bytes;
    const Values here{.stored = source->type(), .type = assembled, .channels = channels, .transform = transform};
    const Values there{.stored = assembled, .type = assembled, .channels = channels, .on_gpu = transform};
    assemble(item, item.regions, widening ? there : here, values);
    if (options.intensity.any())
      visit_floating(options.dtype, [&](auto zero) {
        change_values(options.intensity, random_of(fetch.epoch, item.sample, 6), window, spatial, channels,
                      reinterpret_cast<decltype(zero)*>(values));
      });
    auto* to = y + i * numbers * size_of(target_dtype);
    if (target.per_cell) {
      assemble(item, item.targets,
               {target.type, target_dtype, target.shape.elements(), Transform::none, !is_floating(target.type)}, to);
    } else {
      const auto& region = *item.targets.front();
      region.ready.get();
      if (target.type == DType::float64 && target_dtype == DType::float32)
        require_float32(reinterpret_cast<const double*>(region.bytes.get()), numbers, name);
      convert(region.bytes.get(), target.type, numbers, target_dtype, to);
    }
  }
}

Batch Loader::State::laid_out(const Fetch& fetch, const Tensor& x, const Tensor& y) {
  const auto& layout = layouts_for(fetch.n);
  if (!layout.x) return {constant(x), constant(y)};
  if (spatial == block) return {constant(x).with_layout(layout.x), constant(y).with_layout(layout.y)};
  std::array<std::int64_t, 3> low{}, high{};
  for (int a = 0; a < 3; ++a) {
    const auto i = static_cast<std::size_t>(a);
    low[i] = block.begin[a] - spatial.begin[a], high[i] = spatial.end[a] - block.end[a];
  }
  auto own = y;
  if (source->target_type().per_cell)
    for (int a = 0; a < 3; ++a) own = slice(own, a + 1, block.begin[a] - spatial.begin[a], block.end[a] - spatial.begin[a]);
  return {with_ghosts(x, low, high, width).with_layout(layout.x), constant(own).with_layout(layout.y)};
}

// The fetch is kept by its job, not the state: that waits for its jobs.
void Loader::State::assemble_ahead(const std::shared_ptr<Fetch>& fetch) {
  const auto [x_type, y_type] = types(*fetch);
  fetch->x = Tensor(x_type, DeviceKind::cpu), fetch->y = Tensor(y_type, DeviceKind::cpu);
  if (!assembler) assembler.emplace(1);
  fetch->assembled = assembler->submit([this, fetch]() mutable {
    const auto kept = std::move(fetch);  // its future would keep it for ever
    fill(*kept, kept->x.raw(), kept->y.raw());
  });
}

std::pair<Tensor, Tensor> Loader::State::on_host(Fetch& fetch) {
  if (fetch.assembled.valid()) {
    fetch.assembled.get();
    return {std::move(fetch.x), std::move(fetch.y)};
  }
  const auto [x_type, y_type] = types(fetch);
  std::pair batch{Tensor(x_type, DeviceKind::cpu), Tensor(y_type, DeviceKind::cpu)};
  fill(fetch, batch.first.raw(), batch.second.raw());
  return batch;
}

Batch Loader::State::finish(Fetch& fetch) {
  const auto [x, y] = on_host(fetch);
  if (options.device != DeviceKind::cuda) return laid_out(fetch, x, y);
  return arrived(fetch, detail::copied(x, options.device), detail::copied(y, options.device));
}

Batch Loader::State::finish(Fetch& fetch, cuda::Uploads::Places& places) {
  const auto [x_type, y_type] = types(fetch);
  const auto batch = uploads.upload(std::array{x_type, y_type}, places, [&](std::span<std::byte* const> to) {
    if (!fetch.assembled.valid()) return fill(fetch, to[0], to[1]);
    const auto [x, y] = on_host(fetch);
    detail::copy_bytes(DeviceKind::cpu, to[0], x.raw(), x.bytes()),
        detail::copy_bytes(DeviceKind::cpu, to[1], y.raw(), y.bytes());
  });
  return arrived(fetch, batch[0], batch[1]);
}

}  // namespace mpigrad::data
