#include "models/evaluate/sliding_window.h"

#include <algorithm>
#include <cmath>

#include "framework/base/host_memory.h"
#include "models/evaluate/window_run.h"

namespace mpigrad::segmentation {
namespace {

void check(const Ensemble& nets, const SlidingWindowOptions& o) {
  require(!nets.empty(), "[sliding_window] there is no network");
  require(o.window.rank() == 3 && o.window.elements() > 0, "[sliding_window] windows are [D, H, W], at least 1 each: {}",
          o.window);
  require(o.overlap >= 0 && o.overlap < 1, "[sliding_window] windows overlap by a fraction in [0, 1), not {}", o.overlap);
  require(o.batch >= 1, "[sliding_window] a batch has at least one window, not {}", o.batch);
  if (o.grid) require(o.grid->extents[0] == 1, "[sliding_window] the grid's axis sample is 1, not {}", o.grid->extents[0]);
  require(o.sums == DType::float32 || o.sums == DType::uint16, "[sliding_window] sums are of float32 or uint16, not {}",
          name_of(o.sums));
  std::array<bool, 3> seen{};
  for (const int axis : o.mirrored) {
    require(axis >= 0 && axis < 3 && !seen[static_cast<std::size_t>(axis)],
            "[sliding_window] mirrored axes are some of 0, 1 and 2, each once, not {} here", axis);
    seen[static_cast<std::size_t>(axis)] = true;
  }
}

int ranks_of(const SlidingWindowOptions& o) { return o.grid ? o.grid->ranks() : 1; }

template <class T>
float probability(T stored) {
  return std::is_same_v<T, float> ? static_cast<float>(stored) : static_cast<float>(stored) / 65535.0F;
}

template <class T>
Tensor probabilities_of(const Ensemble& nets, const data::Source& source, std::int64_t sample, const SlidingWindowOptions& o) {
  const auto extents = source.extents_of(sample);
  const auto boxes = columns_of_ranks(extents, ranks_of(o));
  Run<T> run(nets, source, sample, o, boxes);
  const auto& box = boxes[run.rank()];
  Tensor result;
  float* to = nullptr;
  run.run([&](std::int64_t d, const std::vector<T>& plane, std::int64_t classes) {
    if (!result) {
      run.shared([&] {
        const auto n = extents.elements() * classes;
        require_host_memory(fmt::format("[sliding_window] {} of {} x {} x {} cells, with a number for each of {} classes",
                                        source.name_of_sample(sample), extents[0], extents[1], extents[2], classes),
                            static_cast<double>(sizeof(float)) * static_cast<double>(n));
        result = Tensor(TensorType{Shape{extents[0], extents[1], extents[2], classes}, DType::float32}, DeviceKind::cpu);
        std::fill_n(to = result.mutable_data<float>(), n, 0.0F);
      });
    }
    const auto row = (box.end[2] - box.begin[2]) * classes;
    for (auto h = box.begin[1]; h < box.end[1]; ++h)
      std::transform(plane.begin() + (h - box.begin[1]) * row, plane.begin() + (h - box.begin[1] + 1) * row,
                     to + ((d * extents[1] + h) * extents[2] + box.begin[2]) * classes, probability<T>);
  });
  if (ranks_of(o) > 1) o.grid->world().transport().allreduce(to, to, result.elements(), DType::float32, CombineOp::sum);
  return constant(result);
}

// The classes of some planes' rows and columns, from planes of probabilities that arrive one after the other.
template <class T>
class Classes {
 public:
  // `box`: of the cells of `extents`; `needed`: the cells of the sample with which the planes arrive; `written`: by regions.
  Classes(const Shape& seen, const Shape& extents, const Box& box, const Box& needed, const std::vector<std::int64_t>& written)
      : box_(box), needed_(needed), written_(written), d_(seen[0], extents[0]), h_(seen[1], extents[1]), w_(seen[2], extents[2]) {
    found_.reserve(static_cast<std::size_t>(box.elements()));
  }

  void take(std::int64_t d, std::vector<T>&& plane, std::int64_t classes) {
    planes_.push_back(std::move(plane));
    const auto last = [&](std::size_t i) { return d_.first[i] + (d_.right[i] > 0 ? 1 : 0); };
    for (; next_ < d_.first.size() && last(next_) <= d; ++next_) {
      for (; first_ < d_.first[next_]; ++first_) planes_.pop_front();
      choose(next_, classes);
    }
  }
  // [cells of the box]
  std::vector<std::uint16_t>& found() { return found_; }

 private:
  void choose(std::size_t plane, std::int64_t classes) {
    const auto rows = box_.end[1] - box_.begin[1], columns = box_.end[2] - box_.begin[2];
    const auto begin = found_.size();
    found_.resize(begin + static_cast<std::size_t>(rows * columns));
    const auto stride = (needed_.end[2] - needed_.begin[2]) * classes;
#pragma omp parallel if (rows * columns * classes > 1 << 16)
    {
      std::vector<float> p(static_cast<std::size_t>(classes));
#pragma omp for schedule(static)
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t column = 0; column < columns; ++column) {
          const auto h = static_cast<std::size_t>(box_.begin[1] + row), w = static_cast<std::size_t>(box_.begin[2] + column);
          const auto at = (h_.first[h] - needed_.begin[1]) * stride + (w_.first[w] - needed_.begin[2]) * classes;
          std::fill(p.begin(), p.end(), 0.0F);
          for (std::size_t corner = 0; corner < 8; ++corner) {
            const bool below = corner & 4, right = corner & 2, behind = corner & 1;
            const float weight = (below ? d_.right[plane] : 1 - d_.right[plane]) * (right ? h_.right[h] : 1 - h_.right[h]) *
                                 (behind ? w_.right[w] : 1 - w_.right[w]);
            if (weight == 0) continue;
            const T* from = planes_[below ? 1 : 0].data() + at + (right ? stride : 0) + (behind ? classes : 0);
            for (std::size_t c = 0; c < p.size(); ++c) p[c] += weight * static_cast<float>(from[c]);
          }
          found_[begin + static_cast<std::size_t>(row * columns + column)] = class_of(p, written_, one_half<T>);
        }
    }
  }

  Box box_, needed_;
  const std::vector<std::int64_t>& written_;
  LinearPlaces d_, h_, w_;
  std::deque<std::vector<T>> planes_;  // from plane first_ on
  std::int64_t first_ = 0;
  std::size_t next_ = 0;
  std::vector<std::uint16_t> found_;
};

template <class T>
std::vector<std::int32_t> classes_of(const Ensemble& nets, const data::Source& source, std::int64_t sample, const Shape& extents,
                                     const SlidingWindowOptions& o) {
  const auto seen = source.extents_of(sample);
  const auto boxes = columns_of_ranks(extents, ranks_of(o));
  std::vector<Box> needed;
  std::vector<std::int64_t> counts;
  for (const auto& box : boxes) needed.push_back(needed_cells(box, seen, extents)), counts.push_back(box.elements());
  std::vector<std::uint16_t> found, all;
  Run<T> run(nets, source, sample, o, needed);
  {
    Classes<T> classes(seen, extents, boxes[run.rank()], needed[run.rank()], o.written);
    run.run([&](std::int64_t d, std::vector<T>&& plane, std::int64_t count) { classes.take(d, std::move(plane), count); });
    found = std::move(classes.found());
  }
  const bool first = run.rank() == 0;
  if (boxes.size() > 1) {
    if (first) all.resize(static_cast<std::size_t>(extents.elements()));
    o.grid->world().transport().gather(found.data(), all.data(), counts, DType::uint16, 0);
  } else {
    all = std::move(found);
  }
  std::vector<std::int32_t> result(first ? all.size() : 0);
  const auto* next = all.data();
  for (const auto& box : boxes) {
    if (!first) break;
    for_each_cell({{0, 0, 0}, extents}, box, {},
                  [&](std::int64_t cell, std::int64_t i) { result[static_cast<std::size_t>(cell)] = next[i]; });
    next += box.elements();
  }
  return result;
}

}  // namespace

Tensor sliding_window(const Ensemble& nets, const data::Source& source, std::int64_t sample, const SlidingWindowOptions& o) {
  check(nets, o);
  return (o.sums == DType::float32 ? probabilities_of<float> : probabilities_of<std::uint16_t>)(nets, source, sample, o);
}

Tensor sliding_window(nn::Module& net, const data::Source& source, std::int64_t sample, const SlidingWindowOptions& o) {
  return sliding_window(Ensemble{&net}, source, sample, o);
}

std::vector<std::int32_t> sliding_window_classes(const Ensemble& nets, const data::Source& source, std::int64_t sample,
                                                 const Shape& extents, const SlidingWindowOptions& o) {
  check(nets, o);
  require(extents.rank() == 3 && extents.elements() > 0, "[sliding_window] cells are [D, H, W], at least 1 each: {}", extents);
  require(o.sigmoid == !o.written.empty(), "[sliding_window] regions, with probabilities by sigmoid, write a class each: {} here",
          o.written.size());
  return (o.sums == DType::float32 ? classes_of<float> : classes_of<std::uint16_t>)(nets, source, sample, extents, o);
}

Tensor most_likely(const Tensor& probabilities) {
  require(probabilities.rank() == 4 && probabilities.dim(3) > 0, "[most_likely] probabilities are [D, H, W, K]: {}",
          probabilities);
  const auto& shape = probabilities.shape();
  Tensor result(TensorType{Shape{shape[0], shape[1], shape[2]}, DType::int32}, DeviceKind::cpu);
  auto* classes = result.mutable_data<std::int32_t>();
  const auto* row = probabilities.data<float>();
  for (std::int64_t i = 0; i < result.elements(); ++i, row += shape[3])
    classes[i] = static_cast<std::int32_t>(std::max_element(row, row + shape[3]) - row);
  return constant(result);
}

SlidingWindowMemory sliding_window_memory(const Shape& sample, const Shape& extents, std::int64_t classes, int ranks,
                                          const SlidingWindowOptions& o) {
  const Windows windows(sample, o);
  const auto batch = static_cast<std::size_t>(std::min<std::int64_t>(o.batch, static_cast<std::int64_t>(windows.size())));
  std::int64_t planes = 0;
  const auto kept =
      sample == extents ? 1 : 1 + (sample[0] + extents[0] - 1) / extents[0];  // finished planes that wait for their interpolation
  for (std::size_t i = 0; i < windows.size(); i += batch) {
    const auto end = std::min(sample[0], windows.place(i + batch - 1)[0] + o.window[0]);
    planes = std::max(planes, std::min(sample[0], end - windows.unfinished(i) + kept));
  }
  const auto number = static_cast<double>(size_of(o.sums)), all = static_cast<double>(classes);
  SlidingWindowMemory result;
  double most = 0, out = 0;
  for (const auto& box : columns_of_ranks(extents, ranks)) {
    auto columns = needed_cells(box, sample, extents);
    columns.begin[0] = 0, columns.end[0] = planes;
    most = std::max(most, static_cast<double>(columns.elements()));
    out = std::max(out, static_cast<double>(box.elements()));
  }
  result.sums = most * all * number;
  // Scores, probabilities and their sum; or probabilities, what is sent of them and what is received.
  const double block = std::ceil(static_cast<double>(o.window.elements()) / ranks) * static_cast<double>(batch);
  result.results = block * all * 3 * static_cast<double>(sizeof(float));
  // uint16 of this rank's, and on rank 0 of all, before they are int32.
  result.classes = 2 * out + (2 + 4) * static_cast<double>(extents.elements());
  return result;
}

}  // namespace mpigrad::segmentation
