#pragma once
// A sequence of batches for one pass: for (const auto& batch : loader.epoch(0)) ...

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <utility>

namespace mpigrad::data {

template <class Batch>
class Batches {
 public:
  // next(step) returns the batch of a step; called for first ... steps - 1, in order.
  Batches(std::int64_t steps, std::function<Batch(std::int64_t)> next, std::int64_t first = 0)
      : steps_(steps), step_(first - 1), next_(std::move(next)) {}

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using pointer = const Batch*;
    using reference = const Batch&;

    reference operator*() const { return batches_->current_; }
    pointer operator->() const { return &batches_->current_; }
    Iterator& operator++() {
      batches_->advance();
      return *this;
    }
    void operator++(int) { batches_->advance(); }
    bool operator==(std::default_sentinel_t) const { return batches_->step_ >= batches_->steps_; }

   private:
    friend class Batches;
    explicit Iterator(Batches* batches) : batches_(batches) {}
    Batches* batches_;
  };

  Iterator begin() {
    if (!std::exchange(begun_, true)) advance();
    return Iterator(this);
  }
  std::default_sentinel_t end() const { return {}; }
  std::int64_t size() const { return steps_; }

 private:
  void advance() {
    current_ = {};  // frees its memory before the next batch is made
    if (++step_ < steps_) current_ = next_(step_);
  }

  std::int64_t steps_, step_;
  bool begun_ = false;
  std::function<Batch(std::int64_t)> next_;
  Batch current_;
};

}  // namespace mpigrad::data
