#include "framework/engine/buckets.h"

#include "framework/engine/op.h"
#include "framework/engine/parameter.h"
#include "framework/optim/optimizer.h"

namespace mpigrad {
namespace {

thread_local LocalGradientNorm* innermost_norm = nullptr;

}  // namespace

LocalGradientNorm::LocalGradientNorm() : outer_(innermost_norm) { innermost_norm = this; }
LocalGradientNorm::~LocalGradientNorm() { innermost_norm = outer_; }

void LocalGradientNorm::started(const Tensor& cotangent) {
  if (!innermost_norm) return;
  innermost_norm->squared_ += squared_norm(Gradients({cotangent.without_layout()}));
  innermost_norm->elements_ += cotangent.elements();
}

void ReductionBuckets::add(std::uint64_t id, Tensor cotangent, const StartReduction& reduce, LayoutPtr rows) {
  const bool alone = cotangent.bytes() >= full;
  const std::tuple key{reduce.over, cotangent.dtype(), rows != nullptr, reduce.rows != nullptr};
  auto bucket = alone ? nullptr : open_[key];
  if (!bucket) bucket = std::make_shared<Bucket>(Bucket{.reduce = reduce});
  if (!alone) open_[key] = bucket;
  places_[id] = {bucket, cotangent.type(), bucket->bytes, bucket->parts.size()};
  bucket->bytes += cotangent.bytes();
  bucket->parts.push_back(std::move(cotangent));
  if (rows) bucket->rows.push_back(std::move(rows));
  if (bucket->bytes < full) return;
  start(*bucket);
  if (!alone) open_.erase(key);
}

void ReductionBuckets::start(Bucket& bucket) {
  const detail::ReductionClock clock("start of a reduction");
  if (!bucket.rows.empty()) {
    bucket.stored = bucket.reduce.rows != nullptr;
    for (const auto& part : bucket.parts)
      if (!bucket.stored) LocalGradientNorm::started(part);
    if (!sums_) sums_ = std::make_shared<SummedRows>();
    bucket.number = sums_->start(std::exchange(bucket.parts, {}), std::exchange(bucket.rows, {}));
    if (bucket.stored) sums_->wait_before(bucket.number);  // whole cotangents of weights in parts would fill the memory
    bucket.of_rows = true;
    return;
  }
  const auto dtype = bucket.parts[0].dtype();
  const auto device = bucket.parts[0].device();
  Tensor all;
  if (bucket.parts.size() == 1) {
    all = std::move(bucket.parts[0]);
  } else {
    all = Tensor({Shape{bucket.bytes / size_of(dtype)}, dtype}, device);
    std::byte* to = all.raw();
    for (const auto& part : bucket.parts) {
      if (!to) break;
      detail::copy_bytes(device, to, part.raw(), part.bytes());
      to += part.bytes();
    }
  }
  bucket.parts.clear();
  LocalGradientNorm::started(all);
  bucket.pending = bucket.reduce.start(all);  // in place, since this is the only handle
}

void ReductionBuckets::flush() {
  for (auto& [key, bucket] : open_) start(*bucket);
  open_.clear();
}

Tensor ReductionBuckets::wait(std::uint64_t id) {
  const auto& [bucket, type, offset, number] = places_.at(id);
  if (bucket->of_rows) {
    const auto whole = sums_->whole(bucket->number, number, type);
    return bucket->stored ? SummedRows::own(whole).without_layout() : whole;
  }
  if (bucket->pending) {
    const detail::ReductionClock clock(detail::ReductionClock::wait);
    bucket->result = bucket->pending->wait();
    bucket->pending = nullptr;
  }
  return {type, bucket->result.storage(), bucket->result.offset() + offset};
}

bool Reducer::take(std::uint64_t id, Tensor& cotangent, const StartReduction& reduce) {
  if (accumulate_.value_or(false) && reduce.rows) return false;  // whole cotangents of micro-batches would fill the memory
  if (accumulate_.value_or(false)) return parameters_->defer(id, cotangent, reduce), true;
  if (buckets_.contains(id)) return false;
  // Only the last micro-batch adds the cotangents that the earlier ones deferred.
  const auto before = accumulate_.has_value() ? parameters_->take_deferred(id, reduce) : Tensor();
  const auto division = parameters_ ? parameters_->division() : nullptr;
  buckets_.add(id, before ? mpigrad::add(cotangent, before) : std::move(cotangent), reduce,
               reduce.rows ? reduce.rows
               : division  ? division->rows_of(id, reduce.over)
                           : nullptr);
  return true;
}

}  // namespace mpigrad
