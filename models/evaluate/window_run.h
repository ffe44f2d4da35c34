#pragma once
// The pass of networks over all windows of a sample. A part of sliding_window.h.

#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "comm/together.h"
#include "framework/base/host_memory.h"
#include "framework/engine/tape.h"
#include "models/data/source.h"
#include "models/data/window.h"
#include "models/evaluate/window_sums.h"
#include "ops/elementwise/activation.h"
#include "ops/elementwise/elementwise.h"
#include "ops/softmax/softmax.h"

namespace mpigrad::segmentation {

// Softmax of scores [N, D, H, W, K], or their sigmoid; NaN for scores that are not finite.
inline Tensor probabilities_of_scores(const Tensor& scores, bool sigmoid) {
  return sigmoid ? mpigrad::sigmoid(scores) + scores * 0.0 : softmax(scores);
}

// Flips of windows along D, H, W.
using Flips = std::array<bool, 3>;

inline std::vector<Flips> all_flips(const std::vector<int>& axes) {
  std::vector<Flips> result{{}};
  for (const int axis : axes)
    for (std::size_t i = 0, n = result.size(); i < n; ++i) {
      result.push_back(result[i]);
      result.back()[static_cast<std::size_t>(axis)] = true;
    }
  return result;
}

// Copies `part` of a row-major array of the cells of `box` whose axes are stored backwards where flipped. f(from, to): copies a
// cell, numbered in the array and in the part.
template <class F>
void for_each_cell(const Box& box, const Box& part, const Flips& flips, F f) {
  const auto n = box.extents();
  const auto place = [&](int a, std::int64_t at) {
    return flips[static_cast<std::size_t>(a)] ? box.end[a] - 1 - at : at - box.begin[a];
  };
  std::int64_t to = 0;
  for (auto d = part.begin[0]; d < part.end[0]; ++d)
    for (auto h = part.begin[1]; h < part.end[1]; ++h) {
      const auto row = (place(0, d) * n[1] + place(1, h)) * n[2];
      for (auto w = part.begin[2]; w < part.end[2]; ++w) f(row + place(2, w), to++);
    }
}

inline Box moved(const Box& box, const Place& by) {
  Box result = box;
  for (int a = 0; a < 3; ++a) {
    result.begin[a] += by[static_cast<std::size_t>(a)];
    result.end[a] += by[static_cast<std::size_t>(a)];
  }
  return result;
}

// Runs networks on all windows of a sample. Each rank computes its block of every window, and sends the probabilities to the
// ranks that sum them.
template <class T>
class Run {
 public:
  // `own`: the box of the sample that each rank sums.
  Run(const Ensemble& nets, const data::Source& source, std::int64_t sample, const SlidingWindowOptions& o, std::vector<Box> own)
      : nets_(nets), source_(source), sample_(sample), o_(o), own_(std::move(own)), windows_(source.extents_of(sample), o) {
    batch_ = std::min<std::int64_t>(o.batch, static_cast<std::int64_t>(windows_.size()));
    const Shape global{batch_, o.window[0], o.window[1], o.window[2], source.channels()};
    if (o.grid) layout_ = input_layout(o.grid, global);
    for (std::size_t rank = 0; rank < own_.size(); ++rank) {
      const auto box = layout_ ? layout_->box(static_cast<int>(rank)) : Box{Shape{0, 0, 0, 0, 0}, global};
      blocks_.push_back({{box.begin[1], box.begin[2], box.begin[3]}, {box.end[1], box.end[2], box.end[3]}});
    }
  }

  // f(d, sums, classes) for each plane of this rank's box, as WindowSums::finish().
  template <class F>
  void run(F f) {
    Untaped scope;
    std::deque<nn::EvaluationMode> modes;
    for (auto* net : nets_) modes.emplace_back(*net);
    const auto flips = all_flips(o_.mirrored);
    for (std::size_t first = 0; first < windows_.size(); first += static_cast<std::size_t>(batch_)) {
      for (std::size_t turn = 0; turn < flips.size(); ++turn)
        add(first, flips[turn], 1 / static_cast<double>(flips.size()), turn);
      const auto end = windows_.unfinished(first + static_cast<std::size_t>(batch_));
      sums_->finish(end, [&](std::int64_t d, std::vector<T>&& plane) { f(d, std::move(plane), classes_); });
    }
    shared([&] { require_finite(); });
  }

  std::size_t rank() const { return o_.grid ? static_cast<std::size_t>(o_.grid->rank) : 0; }
  void shared(const std::function<void()>& f) const {
    if (o_.grid) together(o_.grid->world(), f);
    else f();
  }

 private:
  void require_finite() const {
    require(finite_, "[sliding_window] what the network predicts of {} is not finite: its weights or --precision cannot be used",
            source_.name_of_sample(sample_));
  }

  // The block of a window, flipped, that a rank computes, in cells of the window as it lies in the sample.
  Box block_of(std::size_t rank, const Flips& flips) const {
    Box box = blocks_[rank];
    for (int a = 0; a < 3; ++a)
      if (flips[static_cast<std::size_t>(a)]) {
        const auto begin = o_.window[a] - box.end[a];
        box.end[a] = o_.window[a] - box.begin[a], box.begin[a] = begin;
      }
    return box;
  }

  // This rank's block of the windows of a batch, [N, D, H, W, C]. The last batch is filled with the last window.
  Tensor input(std::size_t first, const Flips& flips) {
    const auto block = block_of(rank(), flips);
    const auto cells = block.extents();
    Tensor x(TensorType{Shape{batch_, cells[0], cells[1], cells[2], source_.channels()}, o_.dtype}, DeviceKind::cpu);
    const auto each = static_cast<std::size_t>(source_.channels() * size_of(o_.dtype));
    std::vector<std::byte> straight(flips == Flips{} ? 0 : static_cast<std::size_t>(cells.elements()) * each);
    shared([&] {
      require_finite();
      for (std::int64_t i = 0; i < batch_; ++i) {
        auto* to = x.raw() + static_cast<std::size_t>(i * cells.elements()) * each;
        const auto box = moved(block, windows_.place(first + static_cast<std::size_t>(i)));
        data::read_window(source_, sample_, box, o_.dtype, straight.empty() ? to : straight.data());
        if (!straight.empty())
          for_each_cell(box, box, flips, [&](std::int64_t flipped, std::int64_t at) {
            std::copy_n(straight.data() + static_cast<std::size_t>(at) * each, each,
                        to + static_cast<std::size_t>(flipped) * each);
          });
      }
    });
    auto result = constant(detail::copied(x, o_.device));
    return layout_ ? result.with_layout(layout_) : result;
  }

  // The mean of the networks' probabilities for this rank's block.
  Tensor probabilities(const Tensor& x) {
    Tensor sum;
    for (auto* net : nets_) {
      auto p = cast(net->run_everywhere(x), DType::float32);
      require(p.rank() == 5 && p.shape().elements(0, 4) == x.shape().elements(0, 4),
              "[sliding_window] the network does not return scores [N, D, H, W, K] for windows of {}: {}", o_.window, p);
      require(!sums_ || p.dim(4) == classes_, "[sliding_window] networks of {} and of {} classes have no mean", classes_,
              p.dim(4));
      if (!sums_) {
        classes_ = p.dim(4);
        shared([&] {
          const auto extents = source_.extents_of(sample_);
          auto held = own_[rank()].extents();
          held[0] = std::min(extents[0], o_.window[0]);
          require_host_memory(
              fmt::format("[sliding_window] {} of {} x {} x {} cells, with a number for each of {} classes",
                          source_.name_of_sample(sample_), extents[0], extents[1], extents[2], classes_),
              static_cast<double>(sizeof(T)) * static_cast<double>(held.elements()) * static_cast<double>(classes_));
        });
        sums_.emplace(own_[rank()], classes_);
      }
      require(o_.written.empty() || static_cast<std::int64_t>(o_.written.size()) == classes_,
              "[sliding_window] networks of {} outputs are not of {} regions", classes_, o_.written.size());
      p = probabilities_of_scores(p, o_.sigmoid);
      sum = sum ? sum + p : p;
    }
    if (nets_.size() > 1) sum = sum / static_cast<double>(nets_.size());
    return sum.device() == DeviceKind::cpu ? sum : detail::copied(sum, DeviceKind::cpu);
  }

  // The part of window i of a batch that rank `from` computes and rank `to` sums.
  Box part(std::size_t window, std::size_t from, std::size_t to, const Flips& flips) const {
    return intersection(moved(block_of(from, flips), windows_.place(window)), own_[to]);
  }

  // Adds the probabilities of the windows of a batch, flipped.
  void add(std::size_t first, const Flips& flips, double factor, std::size_t turn) {
    const Tensor p = probabilities(input(first, flips));
    const auto count = std::min(static_cast<std::size_t>(batch_), windows_.size() - first);
    const auto ranks = own_.size();
    // What goes to, and comes from, each rank: the parts of all windows, one after the other.
    std::vector<std::vector<T>> sent(ranks), received(ranks);
    std::vector<Message> sends, receives;
    const auto mine = block_of(rank(), flips);
    const auto* values = p.data<float>();
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      std::int64_t out = 0, in = 0;
      for (std::size_t i = first; i < first + count; ++i) {
        out += part(i, rank(), peer, flips).elements() * classes_;
        in += part(i, peer, rank(), flips).elements() * classes_;
      }
      sent[peer].resize(static_cast<std::size_t>(out));
      if (peer != rank()) received[peer].resize(static_cast<std::size_t>(in));
      T* next = sent[peer].data();
      for (std::size_t i = first; i < first + count; ++i) {
        const auto box = part(i, rank(), peer, flips);
        const auto* window = values + static_cast<std::int64_t>(i - first) * mine.elements() * classes_;
        int wrong = 0;  // NaN is above no number
        for_each_cell(moved(mine, windows_.place(i)), box, flips, [&](std::int64_t from, std::int64_t to) {
          for (std::int64_t c = 0; c < classes_; ++c) {
            const float value = window[from * classes_ + c];
            wrong |= static_cast<int>(!(value <= 2.0F));
            next[to * classes_ + c] = stored_probability<T>(value);
          }
        });
        finite_ = finite_ && wrong == 0;
        next += box.elements() * classes_;
      }
      if (peer == rank()) continue;
      const auto number = static_cast<int>(peer);
      if (out > 0) sends.push_back({.peer = number, .data = sent[peer].data(), .count = out});
      if (in > 0) receives.push_back({.peer = number, .data = received[peer].data(), .count = in});
    }
    if (o_.grid) o_.grid->world().transport().exchange(sends, receives, o_.sums);
    received[rank()] = std::move(sent[rank()]);
    std::vector<const T*> next;
    for (const auto& each : received) next.push_back(each.data());
    for (std::size_t i = first; i < first + count; ++i)
      for (std::size_t peer = 0; peer < ranks; ++peer) {
        const auto box = part(i, peer, rank(), flips);
        if (box.elements() == 0) continue;
        sums_->add(windows_, i, box, factor, next[peer], turn);
        next[peer] += box.elements() * classes_;
      }
  }

  const Ensemble& nets_;
  const data::Source& source_;
  std::int64_t sample_;
  const SlidingWindowOptions& o_;
  std::vector<Box> own_, blocks_{};  // of each rank
  Windows windows_;
  std::int64_t batch_ = 1, classes_ = 0;
  LayoutPtr layout_;
  std::optional<WindowSums<T>> sums_;
  bool finite_ = true;
};

}  // namespace mpigrad::segmentation
