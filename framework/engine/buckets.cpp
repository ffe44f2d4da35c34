#include "framework/engine/buckets.h"

#include "framework/engine/op.h"
#include "framework/engine/parameter.h"
#include "framework/optim/optimizer.h"

namespace mpigrad {
namespace {

// Reductions are not ops; this makes profiles show the time to start them and to wait for them.
class ReductionClock {
 public:
  explicit ReductionClock(std::string_view what) : what_(what) {}
  ~ReductionClock() {
    if (counting_) detail::count_cost(what_, {}, detail::seconds_now() - start_, {}, {});
  }
  ReductionClock(const ReductionClock&) = delete;
  ReductionClock& operator=(const ReductionClock&) = delete;

 private:
  std::string_view what_;
  bool counting_ = detail::counting_costs();
  double start_ = counting_ ? detail::seconds_now() : 0;
};

thread_local LocalGradientNorm* innermost_norm = nullptr;

}  // namespace

LocalGradientNorm::LocalGradientNorm() : outer_(innermost_norm) { innermost_norm = this; }
LocalGradientNorm::~LocalGradientNorm() { innermost_norm = outer_; }

void LocalGradientNorm::started(const Tensor& cotangent) {
  if (!innermost_norm) return;
  innermost_norm->squared_ += squared_norm(Gradients({cotangent.without_layout()}));
  innermost_norm->elements_ += cotangent.elements();
}

void ReductionBuckets::add(std::uint64_t id, Tensor cotangent, const StartReduction& reduce) {
  if (cotangent.bytes() >= full) {
    auto alone = std::make_shared<Bucket>(Bucket{reduce, {}, cotangent.bytes(), nullptr, {}});
    places_[id] = {alone, cotangent.type(), 0};
    alone->parts.push_back(std::move(cotangent));
    return start(*alone);
  }
  const std::pair key{reduce.over, cotangent.dtype()};
  auto& bucket = open_[key];
  if (!bucket) bucket = std::make_shared<Bucket>(Bucket{reduce, {}, 0, nullptr, {}});
  places_[id] = {bucket, cotangent.type(), bucket->bytes};
  bucket->bytes += cotangent.bytes();
  bucket->parts.push_back(std::move(cotangent));
  if (bucket->bytes < full) return;
  start(*bucket);
  open_.erase(key);
}

void ReductionBuckets::start(Bucket& bucket) {
  const ReductionClock clock("start of a reduction");
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
  const auto& [bucket, type, offset] = places_.at(id);
  if (bucket->pending) {
    const ReductionClock clock("wait for a reduction");
    bucket->result = bucket->pending->wait();
    bucket->pending = nullptr;
  }
  return {type, bucket->result.storage(), bucket->result.offset() + offset};
}

bool Reducer::take(std::uint64_t id, Tensor& cotangent, const StartReduction& reduce) {
  if (accumulate_.value_or(false)) return parameters_->defer(id, cotangent, reduce), true;
  if (buckets_.contains(id)) return false;
  // Only the last micro-batch adds the cotangents that the earlier ones deferred.
  const auto before = accumulate_.has_value() ? parameters_->take_deferred(id, reduce) : Tensor();
  buckets_.add(id, before ? mpigrad::add(cotangent, before) : std::move(cotangent), reduce);
  return true;
}

}  // namespace mpigrad
