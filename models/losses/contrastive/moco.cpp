#include "models/losses/contrastive/moco.h"

#include <algorithm>
#include <numeric>

#include "framework/cuda/cuda.h"
#include "framework/optim/update_cuda.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"

namespace mpigrad::contrastive {

KeyQueue::KeyQueue(const QueueAttributes& at) {
  require(at.keys > 0 && at.width > 0, "[moco] a queue has keys and width: [{}, {}]", at.keys, at.width);
  Untaped scope;
  keys_ = constant(unit_rows(random_normal({at.keys, at.width}, {.key = at.seed, .stream = 0x6d6f636f}, 0, 1, at.dtype)));
}

void KeyQueue::enqueue(const Tensor& keys, const Communicator& comm) {
  Untaped scope;
  const auto capacity = keys_.dim(0);
  require(keys.rank() == 2 && keys.dim(1) == keys_.dim(1), "[moco] the queue is {}, new keys are {}", keys_, keys);
  const auto mine = keys.without_layout();
  const auto arrived = allgather(mine.dtype() == keys_.dtype() ? mine : cast(mine, keys_.dtype()), comm);
  const auto count = arrived.dim(0);
  require(count <= capacity, "[moco] {} keys do not fit in a queue of {}", count, capacity);
  if (!keys_.raw()) return;
  // A new tensor, because steps still on a tape use the old keys.
  Tensor fresh(keys_.type(), keys_.device());
  const auto device = keys_.device();
  detail::copy_bytes(device, fresh.raw(), keys_.raw(), keys_.bytes());
  const auto row = keys_.bytes() / capacity, whole = std::min(count, capacity - next_);
  detail::copy_bytes(device, fresh.raw() + next_ * row, arrived.raw(), whole * row);
  detail::copy_bytes(device, fresh.raw(), arrived.raw() + whole * row, (count - whole) * row);
  keys_ = constant(fresh);
  next_ = (next_ + count) % capacity;
}

void KeyQueue::load(const Tensor& keys, std::int64_t next) {
  require(keys.type() == keys_.type() && next >= 0 && next < keys.dim(0), "[moco] the queue is {}, what is loaded {} at {}",
          keys_, keys, next);
  keys_ = constant(keys);
  next_ = next;
}

Tensor moco(const Tensor& q, const Tensor& k, const Tensor& queue, const Communicator& comm, const MocoAttributes& at) {
  const auto batch = inspect("moco", {q, k}, comm,
                             {.smallest = 1, .refuse_zeros = at.refuse_zeros && at.normalise, .temperature = at.temperature});
  const auto dtype = batch.views[0].dtype();
  require(queue.rank() == 2 && queue.dim(1) == batch.width && queue.dim(0) > 0, "[moco] the queue is {}, queries are {}", queue,
          q);
  Tensor keys, negatives;
  {
    Untaped scope;
    keys = constant(at.normalise ? unit_rows(batch.views[1]) : batch.views[1]);
    negatives = constant(queue.dtype() == dtype ? queue : cast(queue, dtype));
  }
  const auto queries = (at.normalise ? unit_rows(batch.views[0]) : batch.views[0]) * (1 / at.temperature);
  const auto positive = sum(queries * keys, {1}, true);
  const auto all = concatenate({positive, matmul(queries, negatives, {.transpose_b = true})}, 1);
  return batch.share((sum(logsumexp(all, {1})) - sum(positive)) * (1 / static_cast<double>(batch.all)));
}

void update_momentum_encoder(Parameters& key, const Parameters& query, double momentum) {
  require(momentum >= 0 && momentum <= 1, "[momentum encoder] momentum is in [0, 1], got {}", momentum);
  require(key.size() == query.size(), "[momentum encoder] {} parameters follow {}", key.size(), query.size());
  for (std::size_t i = 0; i < key.size(); ++i)
    require(key[i].value.type() == query[i].value.type(), "[momentum encoder] {} is {}, it follows {}, {}", key[i].name,
            key[i].value, query[i].name, query[i].value);
  for (std::size_t i = 0; i < key.size(); ++i) {
    auto& value = key[i].value;
    if (!value.raw()) continue;
    if (value.device() == DeviceKind::cuda) {
      const UpdateSegment segment{.count = value.elements(), .value = value.raw(), .gradient = query[i].value.raw()};
      cuda::update(value.dtype(), {&segment, 1}, RuleOfStep<AverageRule>{.rule = {.rest = 1 - momentum}});
      continue;
    }
    visit_floating(value.dtype(), [&](auto zero) {
      using T = decltype(zero);
      auto* to = value.mutable_data<T>();
      const auto* from = query[i].value.template data<T>();
      const auto rest = static_cast<T>(1 - momentum);
      for (std::int64_t j = 0; j < value.elements(); ++j) to[j] = rest == 1 ? from[j] : to[j] + rest * (from[j] - to[j]);
    });
  }
}

SampleShuffle::SampleShuffle(const Communicator& comm, Rows rows, const Philox& random) : comm_(comm), rows_(std::move(rows)) {
  require(static_cast<int>(rows_.size()) == comm.size(), "[shuffle] {} numbers of samples for {} ranks", rows_.size(),
          comm.size());
  order_.resize(static_cast<std::size_t>(std::accumulate(rows_.begin(), rows_.end(), std::int64_t{0})));
  std::iota(order_.begin(), order_.end(), std::int64_t{0});
  for (std::size_t i = order_.size(); i > 1; --i)  // Fisher-Yates shuffle
    std::swap(order_[i - 1], order_[static_cast<std::size_t>(random.below(i, i))]);
  inverse_.resize(order_.size());
  for (std::size_t i = 0; i < order_.size(); ++i) inverse_[static_cast<std::size_t>(order_[i])] = static_cast<std::int64_t>(i);
}

// Place p of the result is sample source[p]. Rows are sent sorted by destination and there by place.
Tensor SampleShuffle::move(const Tensor& x, const Rows& source) const {
  const auto p = rows_.size(), me = static_cast<std::size_t>(comm_.rank());
  require(x.rank() >= 1 && x.dim(0) == rows_[me], "[shuffle] rank {} has {} samples: {}", me, rows_[me], x);
  Rows first(p + 1, 0);
  for (std::size_t r = 0; r < p; ++r) first[r + 1] = first[r] + rows_[r];
  const auto owner = [&](std::int64_t sample) {
    return static_cast<std::size_t>(std::upper_bound(first.begin(), first.end(), sample) - first.begin() - 1);
  };
  Rows sent(p, 0), received(p, 0);
  std::vector<double> leaving, place(static_cast<std::size_t>(rows_[me]));
  for (std::size_t r = 0; r < p; ++r)
    for (auto i = first[r]; i < first[r + 1]; ++i) {
      const auto sample = source[static_cast<std::size_t>(i)];
      if (owner(sample) != me) continue;
      leaving.push_back(static_cast<double>(sample - first[me]));
      ++sent[r];
    }
  for (auto i = first[me]; i < first[me + 1]; ++i) ++received[owner(source[static_cast<std::size_t>(i)])];
  Rows at(p, 0);
  std::exclusive_scan(received.begin(), received.end(), at.begin(), std::int64_t{0});
  for (auto i = first[me]; i < first[me + 1]; ++i)
    place[static_cast<std::size_t>(i - first[me])] = static_cast<double>(at[owner(source[static_cast<std::size_t>(i)])]++);
  const auto indices = [&](const std::vector<double>& values) {
    return constant(from_vector({static_cast<std::int64_t>(values.size())}, values, DType::int64));
  };
  return take(alltoall(take(x, indices(leaving)), comm_, sent, received), indices(place));
}

}  // namespace mpigrad::contrastive
