#include "models/data/loader/assembler.h"

#include <cstring>

#include "models/data/narrow.h"
#include "models/data/sources/bytes.h"

namespace mpigrad::data {

Assembler::Assembler(SourcePtr source, const LoaderOptions& o, const Schedule& schedule)
    : source_(std::move(source)), options_(o), schedule_(schedule),
      transform_(o.transform == Transform::of_source ? source_->transform() : o.transform),
      // Steps of augmentation compute with floating-point numbers, on the host.
      as_stored_(o.device == DeviceKind::cuda && is_narrow(source_->type()) && o.augment.steps().empty()),
      type_(as_stored_ ? source_->type() : o.dtype) {}

std::pair<TensorType, TensorType> Assembler::types(const Fetch& fetch) const {
  const auto n = static_cast<std::int64_t>(fetch.items.size());
  const auto extents = schedule_.spatial().extents();
  return {{Shape{n, extents[0], extents[1], extents[2], source_->channels()}, type_},
          {schedule_.target_shape(n, extents), schedule_.target_dtype()}};
}

void Assembler::assemble(const Fetch::Item& item, const std::vector<RegionPtr>& read, const Values& v, const Box& spatial,
                         std::byte* to) const {
  const auto name = [&] { return source_->name_of_sample(item.sample); };
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

void Assembler::assemble_block(const Fetch::Item& item, const std::vector<RegionPtr>& read, const Values& v,
                               std::byte* to) const {
  const auto& spatial = schedule_.spatial();
  const auto box = schedule_.reached(item, spatial);
  if (box == spatial) return assemble(item, read, v, spatial, to);
  const auto cell = v.channels * size_of(v.type);
  std::vector<std::byte> whole(static_cast<std::size_t>(box.elements() * cell));
  assemble(item, read, v, box, whole.data());
  copy_cells(whole.data(), box, spatial, spatial, cell, to);
}

void Assembler::assemble_changed(const Fetch& fetch, const Fetch::Item& item, std::byte* to) const {
  const auto& spatial = schedule_.spatial();
  const auto channels = source_->channels();
  augment::Part part{.box = schedule_.reached(item, spatial), .window = schedule_.window()};
  part.values = augment::Sample(part.box.extents(), channels);
  assemble(item, item.regions, {.stored = source_->type(), .type = DType::float32, .channels = channels, .transform = transform_},
           part.box, reinterpret_cast<std::byte*>(part.values.values.data()));
  if (item.tones != nullptr) part.tones = *item.tones;
  options_.augment.change(part, random_of(options_, fetch.epoch, item.sample));
  std::vector<float> block(static_cast<std::size_t>(spatial.elements() * channels));
  copy_cells(reinterpret_cast<const std::byte*>(part.values.values.data()), part.box, spatial, spatial,
             channels * static_cast<std::int64_t>(sizeof(float)), reinterpret_cast<std::byte*>(block.data()));
  convert(block.data(), DType::float32, spatial.elements() * channels, type_, to);
}

void Assembler::assemble(Fetch& fetch, std::byte* x, std::byte* y) const {
  if (fetch.stored) fetch.stored->finish();
  const auto n = static_cast<std::int64_t>(fetch.items.size());
  const auto& spatial = schedule_.spatial();
  const auto extents = spatial.extents();
  const auto channels = source_->channels();
  const auto& target = source_->target_type();
  const auto bytes = extents.elements() * channels * size_of(type_);
  const auto target_dtype = schedule_.target_dtype();
  const auto numbers = target.shape.elements() * (target.per_cell ? extents.elements() : 1);
  for (std::int64_t i = 0; i < n; ++i) {
    const auto& item = fetch.items[static_cast<std::size_t>(i)];
    const auto name = [&] { return source_->name_of_sample(item.sample); };
    auto* values = x + i * bytes;
    const Values here{.stored = source_->type(), .type = type_, .channels = channels, .transform = transform_};
    const Values there{.stored = type_, .type = type_, .channels = channels, .on_gpu = transform_};
    if (options_.augment.changes()) assemble_changed(fetch, item, values);
    else assemble_block(item, item.regions, as_stored_ ? there : here, values);
    auto* to = y + i * numbers * size_of(target_dtype);
    if (target.per_cell) {
      assemble_block(item, item.targets,
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

// The job keeps the fetch alive, not the assembler, whose destructor waits for its jobs.
void Assembler::assemble_ahead(const FetchPtr& fetch) {
  const auto [x_type, y_type] = types(*fetch);
  fetch->x = Tensor(x_type, DeviceKind::cpu), fetch->y = Tensor(y_type, DeviceKind::cpu);
  if (!worker_) worker_.emplace(1);
  fetch->assembled = worker_->submit([this, fetch]() mutable {
    const auto kept = std::move(fetch);  // its future would keep it alive for ever
    assemble(*kept, kept->x.raw(), kept->y.raw());
  });
}

std::pair<Tensor, Tensor> Assembler::on_host(Fetch& fetch) const {
  if (fetch.assembled.valid()) {
    fetch.assembled.get();
    return {std::move(fetch.x), std::move(fetch.y)};
  }
  const auto [x_type, y_type] = types(fetch);
  std::pair batch{Tensor(x_type, DeviceKind::cpu), Tensor(y_type, DeviceKind::cpu)};
  assemble(fetch, batch.first.raw(), batch.second.raw());
  return batch;
}

}  // namespace mpigrad::data
