#include "framework/optim/division.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "framework/engine/op.h"

namespace mpigrad {
namespace {

// Several tensors in one buffer, ordered by ranks: the rows of rank 0 of each tensor, those of rank 1, ...
class Packing {
 public:
  explicit Packing(std::span<const LayoutPtr> rows) : rows_(rows), ranks_(rows[0]->grid->ranks()) {}

  std::int64_t first(std::size_t tensor, int rank) const {  // element in the tensor
    const auto& layout = *rows_[tensor];
    const auto row = layout.global[0] == 0 ? 0 : layout.global.elements() / layout.global[0];
    return layout.axes[0].cuts[static_cast<std::size_t>(rank)] * row;
  }
  std::int64_t count(std::size_t tensor, int rank) const { return first(tensor, rank + 1) - first(tensor, rank); }
  std::vector<std::int64_t> counts() const {
    std::vector<std::int64_t> result(static_cast<std::size_t>(ranks_), 0);
    for (int r = 0; r < ranks_; ++r)
      for (std::size_t t = 0; t < rows_.size(); ++t) result[static_cast<std::size_t>(r)] += count(t, r);
    return result;
  }
  // Calls f(tensor, rank, first element in the tensor, first element in the buffer, elements).
  template <class F>
  void for_each(const F& f) const {
    std::int64_t at = 0;
    for (int r = 0; r < ranks_; ++r)
      for (std::size_t t = 0; t < rows_.size(); ++t) f(t, r, first(t, r), at, count(t, r)), at += count(t, r);
  }

 private:
  std::span<const LayoutPtr> rows_;
  int ranks_;
};

// Balanced, at rows that begin a line of 16 elements, as in for_shares(): the remainders of vector loops, which may round
// differently, are then those of the whole tensor.
std::vector<std::int64_t> cuts_of(const Shape& shape, int ranks) {
  const auto rows = shape[0], together = 16 / std::gcd(std::int64_t{16}, shape.elements() / rows);
  auto cuts = balanced_cuts((rows + together - 1) / together, ranks);
  for (auto& cut : cuts) cut = std::min(rows, cut * together);
  return cuts;
}

std::int64_t total(const std::vector<std::int64_t>& counts) {
  std::int64_t sum = 0;
  for (const auto count : counts) sum += count;
  return sum;
}

void copy(std::byte* to, const std::byte* from, std::int64_t elements, DType dtype) {
  if (to && from) detail::copy_bytes(DeviceKind::cpu, to, from, elements * size_of(dtype));
}
std::byte* at(std::byte* memory, std::int64_t element, DType dtype) {
  return memory ? memory + element * size_of(dtype) : nullptr;
}

// Rows of other ranks that are on their way to parameters.
class UpdatedRows final : public Storage::Arrival {
 public:
  UpdatedRows(std::vector<Tensor> values, std::vector<LayoutPtr> rows) : values_(std::move(values)), rows_(std::move(rows)) {
    const detail::ReductionClock clock("start of a gather of weights");
    const auto& grid = *rows_[0]->grid;
    const Packing packing(rows_);
    const auto counts = packing.counts();
    const auto dtype = values_[0].dtype();
    all_ = values_.size() == 1 ? values_[0] : Tensor({Shape{total(counts)}, dtype}, values_[0].device());
    std::int64_t before = 0;
    for (int r = 0; r < grid.rank; ++r) before += counts[static_cast<std::size_t>(r)];
    if (values_.size() > 1)
      packing.for_each([&](std::size_t t, int rank, std::int64_t first, std::int64_t place, std::int64_t count) {
        if (rank == grid.rank) copy(at(all_.raw(), place, dtype), at(values_[t].raw(), first, dtype), count, dtype);
      });
    const Tensor own({Shape{counts[static_cast<std::size_t>(grid.rank)]}, dtype}, all_.storage(),
                     all_.offset() + before * size_of(dtype));
    wait_ = grid.start_gather(own, all_, counts);
  }

  void finish(std::byte*) override {
    const std::scoped_lock lock(mutex_);
    if (!wait_) return;
    const detail::ReductionClock clock(detail::ReductionClock::wait);
    std::exchange(wait_, nullptr)();
    const int own = rows_[0]->grid->rank;
    if (values_.size() > 1)
      Packing(rows_).for_each([&](std::size_t t, int rank, std::int64_t first, std::int64_t place, std::int64_t count) {
        const auto dtype = values_[t].dtype();
        if (rank != own) copy(at(values_[t].raw(), first, dtype), at(all_.raw(), place, dtype), count, dtype);
      });
    values_.clear(), all_ = {};
  }

 private:
  std::mutex mutex_;
  std::vector<Tensor> values_;  // aliases of the parameters, which do not wait
  std::vector<LayoutPtr> rows_;
  Tensor all_;
  GridShape::Wait wait_;
};

}  // namespace

Division::Division(const Parameters& parameters, std::string& why) : parameters_(parameters), rows_(parameters.size()) {
  why = "no parameter is replicated on several ranks";
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& value = parameters[i].value;
    const auto& layout = value.layout();
    if (!layout || layout->has(Placement::split) || layout->has(Placement::partial)) continue;
    if (value.rank() == 0 || value.elements() == 0) continue;
    const auto line = layout->grid->in_line();
    if (!line) continue;
    if (value.device() == DeviceKind::cuda || value.is_stand_in() || !value.storage()->part()) {
      why = value.device() == DeviceKind::cuda ? "parameters on a GPU are not divided"
                                               : "the program owns the memory of parameters";
      continue;
    }
    Layout rows{line, value.shape(), std::vector<AxisPlacement>(1)};
    rows.axes[0].placement = Placement::split, rows.axes[0].dimension = 0;
    rows.axes[0].cuts = cuts_of(value.shape(), line->ranks());  // moved: one number for each rank is much with thousands
    rows_[i] = std::make_shared<Layout>(std::move(rows));
    places_[value.id()] = i;
    ranks_ = line->ranks();
  }
  // A backward pass begins with the last parameters. As in ReductionBuckets, each large one has a bucket of its own.
  std::vector<std::pair<std::pair<const GridShape*, DType>, std::size_t>> open;  // and the bucket's number
  std::vector<std::int64_t> bytes;
  for (std::size_t i = parameters.size(); i-- > 0;) {
    if (!rows_[i]) continue;
    const auto& value = parameters[i].value;
    const std::pair key{rows_[i]->grid.get(), value.dtype()};
    auto found = std::find_if(open.begin(), open.end(), [&](const auto& each) { return each.first == key; });
    if (value.bytes() >= full || found == open.end()) {
      buckets_.push_back({i}), bytes.push_back(value.bytes());
      if (value.bytes() < full) open.emplace_back(key, buckets_.size() - 1);
      continue;
    }
    buckets_[found->second].push_back(i), bytes[found->second] += value.bytes();
    if (bytes[found->second] >= full) open.erase(found);
  }
}

LayoutPtr Division::rows_of(std::uint64_t id, std::uint64_t over) const {
  const auto found = places_.find(id);
  if (found == places_.end()) return nullptr;
  const auto& rows = rows_[found->second];
  return rows->grid->number() == over ? rows : nullptr;
}

Tensor Division::own(std::size_t i, const Tensor& whole) const {
  const auto& rows = rows_[i];
  if (!rows) return whole;
  const auto box = rows->box();
  const auto row = rows->global.elements() / rows->global[0] * size_of(whole.dtype());
  return Tensor({box.extents(), whole.dtype()}, whole.storage(), whole.offset() + box.begin[0] * row).with_layout(rows);
}

void Division::gather(const std::vector<std::size_t>& bucket) const {
  std::vector<Tensor> values;
  std::vector<LayoutPtr> rows;
  for (const auto i : bucket) {
    const auto& value = parameters_[i].value;
    if (parameters_[i].frozen) continue;
    value.raw();  // an earlier gather ends first
    values.push_back(Tensor(value.type(), value.storage()->alias(), value.offset()));
    rows.push_back(rows_[i]);
  }
  if (values.empty()) return;
  const auto arrival = std::make_shared<UpdatedRows>(std::move(values), std::move(rows));
  for (const auto i : bucket)
    if (!parameters_[i].frozen) parameters_[i].value.storage()->await(arrival);
}

class SummedRows::Arrival final : public Storage::Arrival {
 public:
  Arrival(std::shared_ptr<SummedRows> sums, std::size_t bucket, std::size_t place)
      : sums_(std::move(sums)), bucket_(bucket), place_(place) {}

  void finish(std::byte* data) override {
    const std::scoped_lock lock(sums_->mutex_);
    sums_->gather();
    const auto& bucket = sums_->buckets_[bucket_];
    const auto dtype = bucket.sum.dtype();
    Packing(bucket.rows).for_each([&](std::size_t t, int, std::int64_t first, std::int64_t place, std::int64_t count) {
      if (t == place_) copy(at(data, first, dtype), at(bucket.all.raw(), place, dtype), count, dtype);
    });
  }
  bool is_all_of(const Tensor& x) const {
    const std::scoped_lock lock(sums_->mutex_);
    return x.shape() == sums_->buckets_[bucket_].rows[place_]->global;
  }
  Tensor own() const {
    const std::scoped_lock lock(sums_->mutex_);
    auto& bucket = sums_->buckets_[bucket_];
    sums_->wait(bucket);
    const auto& rows = bucket.rows[place_];
    std::int64_t before = 0;
    for (std::size_t t = 0; t < place_; ++t) before += Packing(bucket.rows).count(t, rows->grid->rank);
    const auto dtype = bucket.sum.dtype();
    return Tensor({rows->box().extents(), dtype}, bucket.sum.storage(), bucket.sum.offset() + before * size_of(dtype))
        .with_layout(rows);
  }

 private:
  std::shared_ptr<SummedRows> sums_;
  std::size_t bucket_, place_;
};

std::size_t SummedRows::start(std::vector<Tensor> gradients, std::vector<LayoutPtr> rows) {
  auto& bucket = buckets_.emplace_back();
  bucket.rows = std::move(rows);
  const Packing packing(bucket.rows);
  bucket.counts = packing.counts();
  const auto& grid = *bucket.rows[0]->grid;
  const auto dtype = gradients[0].dtype();
  const auto device = gradients[0].device();
  Tensor all;
  if (gradients.size() == 1) {
    all = std::move(gradients[0]);
  } else {
    all = Tensor({Shape{total(bucket.counts)}, dtype}, device);
    packing.for_each([&](std::size_t t, int, std::int64_t first, std::int64_t place, std::int64_t count) {
      copy(at(all.raw(), place, dtype), at(gradients[t].raw(), first, dtype), count, dtype);
    });
  }
  gradients.clear();
  bucket.sum = Tensor({Shape{bucket.counts[static_cast<std::size_t>(grid.rank)]}, dtype}, device);
  bucket.wait = grid.start_sum(all, bucket.sum, bucket.counts);
  return buckets_.size() - 1;
}

Tensor SummedRows::whole(std::size_t bucket, std::size_t place, const TensorType& type) {
  const auto bytes = type.shape.elements() * size_of(type.dtype);
  return {type,
          Storage::arriving(bytes, buckets_[bucket].sum.device(), std::make_shared<Arrival>(shared_from_this(), bucket, place))};
}

Tensor SummedRows::own(const Tensor& gradient) {
  const auto arrival =
      gradient && gradient.storage() ? std::dynamic_pointer_cast<Arrival>(gradient.storage()->arrival()) : nullptr;
  return arrival && arrival->is_all_of(gradient) ? arrival->own() : Tensor();  // not of a view of some elements
}

void SummedRows::wait(Bucket& bucket) {
  if (!bucket.wait) return;
  const detail::ReductionClock clock(detail::ReductionClock::wait);
  std::exchange(bucket.wait, nullptr)();
}

void SummedRows::wait_before(std::size_t bucket) {
  for (std::size_t b = 0; b + 1 < bucket; ++b) wait(buckets_[b]);
}

void SummedRows::gather() {
  for (auto& bucket : buckets_) {
    if (bucket.all) continue;
    wait(bucket);
    bucket.all = Tensor({Shape{total(bucket.counts)}, bucket.sum.dtype()}, bucket.sum.device());
    bucket.rows[0]->grid->gather(bucket.sum, bucket.all, bucket.counts);
  }
}

}  // namespace mpigrad
