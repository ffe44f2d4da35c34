#include "framework/optim/optimizer.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "framework/base/target_clones.h"
#include "framework/cuda/cuda.h"
#include "framework/cuda/graph.h"
#include "framework/engine/activity.h"
#include "framework/optim/division.h"
#include "framework/optim/optimizer_state.h"
#include "framework/optim/step_hook.h"
#include "framework/optim/update_cuda.h"

namespace mpigrad {
namespace {

// Eight partial sums: a fixed order without one long chain of additions.
template <class T>
MPIGRAD_BODY double squares_body(const T* __restrict x, std::int64_t n) {
  double sums[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (std::int64_t j = 0; j < 8; ++j) {
      const auto value = static_cast<double>(x[i + j]);
      sums[j] += value * value;
    }
  for (; i < n; ++i) sums[0] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}
MPIGRAD_CLONES double squares(const float* x, std::int64_t n) { return squares_body(x, n); }
MPIGRAD_CLONES double squares(const double* x, std::int64_t n) { return squares_body(x, n); }

// Segments of the gradients of one type, for norms on a GPU.
std::vector<UpdateSegment> segments_of(std::span<const Tensor> gradients, DType dtype) {
  std::vector<UpdateSegment> segments;
  for (const auto& g : gradients)
    if (g.dtype() == dtype) segments.push_back({.count = g.elements(), .gradient = g.raw()});
  return segments;
}

std::atomic<StepHook> step_hook{nullptr};

void tell(const Parameters& parameters, std::int64_t steps) {
  if (const auto hook = step_hook.load(std::memory_order_acquire)) hook(parameters, steps);
}

}  // namespace

void set_step_hook(StepHook hook) { step_hook.store(hook, std::memory_order_release); }

Optimizer::Optimizer(Parameters& parameters, double learning_rate, double weight_decay, const std::vector<ParameterGroup>& groups,
                     std::vector<std::string> slots, bool replicated)
    : parameters_(parameters), learning_rate_(0), slots_(std::move(slots)), segments_(parameters.size()) {
  set_learning_rate(learning_rate);
  require(weight_decay >= 0, "[optimizer] weight decay is not negative, got {}", weight_decay);
  detail::require_packed("optimizer", parameters);
  divide(replicated);
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    auto& segment = segments_[i];
    segment.weight_decay = parameters[i].decay ? weight_decay : 0;
    if (!division_ || !division_->divides(i)) whole_.push_back(i);
    const auto group =
        std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.contains && g.contains(parameters[i]); });
    if (group == groups.end()) continue;
    segment.learning_rate_factor = group->learning_rate_factor;
    segment.weight_decay = group->weight_decay.value_or(segment.weight_decay);
  }
  const auto values = own_values();
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    const auto arena = detail::state_arena(values);
    for (std::size_t i = 0; i < segments_.size(); ++i) segments_[i].state[slot] = arena[i];
  }
}

void Optimizer::divide(bool replicated) {
  work_ = "every rank updates all of its weights: ";
  if (replicated) return void(work_ += "optimizer.replicated");
  std::string why;
  auto division = parameters_.division();
  if (!division) division = std::make_shared<const Division>(parameters_, why);
  std::int64_t state = 0;
  for (std::size_t i = 0; i < segments_.size(); ++i)
    if (division->divides(i)) state += parameters_[i].value.bytes() * static_cast<std::int64_t>(slots_.size());
  if (!division->divides_any()) return void(work_ += why);
  if (state < Division::least_state) return void(work_ += "less than 1 MiB of state could be divided");
  division_ = division;
  parameters_.set_division(division);
  work_ = fmt::format("each of {} ranks updates a part of the weights and has the state of that part", division->ranks());
}

Tensor Optimizer::own(std::size_t i) const {
  const auto& value = parameters_[i].value;
  return division_ ? division_->own(i, value) : value;
}

Tensor Optimizer::own(std::size_t i, const Tensor& gradient) const {
  if (!division_ || !division_->divides(i)) return gradient;
  const auto rows = SummedRows::own(gradient);
  return rows ? rows : division_->own(i, gradient);
}

std::vector<Tensor> Optimizer::own_values() const {
  std::vector<Tensor> values;
  for (std::size_t i = 0; i < segments_.size(); ++i) values.push_back(own(i));
  return values;
}

std::int64_t Optimizer::own_elements() const {
  std::int64_t elements = 0;
  for (const auto& value : own_values()) elements += value.elements();
  return elements;
}

void Optimizer::set_learning_rate(double rate) {
  require(std::isfinite(rate) && rate >= 0, "[optimizer] the learning rate is finite and not negative, got {}", rate);
  learning_rate_ = rate;
}

StepScalars Optimizer::scalars() const {
  const auto of_moments = corrections();
  return {.learning_rate = learning_rate_, .correction1 = of_moments[0], .correction2 = of_moments[1], .step = 0};
}

void Optimizer::step(const Gradients& gradients, const StepOptions& options) {
  require(gradients.size() == segments_.size() && parameters_.size() == segments_.size(),
          "[optimizer] {} gradients for {} parameters, made for {}", gradients.size(), parameters_.size(), segments_.size());
  require(options.max_norm >= 0, "[optimizer] the largest norm is not negative, got {}", options.max_norm);
  detail::activity_of_this_thread()->trains = true;
  bool real = true;
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    const auto &p = parameters_[i].value, &g = gradients[i];
    require(g && g.type() == p.type() && g.device() == p.device(), "[optimizer] the gradient of {} is {}, the parameter {}",
            parameters_[i].name, g, p);
    if (division_ && division_->divides(i)) real = real && p.device() != DeviceKind::dry;
    else real = real && p.raw() && g.raw();
  }
  count_steps(steps_ + 1);
  if (!real) return division_ ? step_without_elements(gradients) : void();
  for (const auto& p : parameters_.tensors()) p.storage()->note_write();
  if (!segments_.empty() && parameters_[0].value.device() == DeviceKind::cuda) {
    step_on_gpu(gradients, options);
    return tell(parameters_, steps_);
  }
  double scale = options.scale;
  if (options.max_norm > 0) scale *= clip_of(gradients, scale, options.max_norm);
  std::vector<UpdateSegment> all(segments_.size());
  const auto fill = [&](std::span<const std::size_t> members) {
    for (const auto i : members) all[i] = segment_of(i, gradients, learning_rate_);
  };
  const auto buckets = division_ ? std::span(division_->buckets()) : std::span<const std::vector<std::size_t>>();
  if (needs_norms()) {
    fill(whole_);
    for (const auto& bucket : buckets) fill(bucket);
    prepare(all, {.factor = scale});
  }
  if (!needs_norms()) fill(whole_);
  update(whole_, all, {.factor = scale});
  // A bucket's new weights travel while the next bucket is updated and the next step begins.
  for (const auto& bucket : buckets) {
    if (!needs_norms()) fill(bucket);
    update(bucket, all, {.factor = scale});
    division_->gather(bucket);
  }
  tell(parameters_, steps_);
}

// On the dry device: only the messages.
void Optimizer::step_without_elements(const Gradients& gradients) const {
  for (const auto& bucket : division_->buckets()) {
    for (const auto i : bucket) (void)own(i, gradients[i]);
    division_->gather(bucket);
  }
  for (const auto& p : parameters_.tensors()) (void)p.raw();  // waits
}

void Optimizer::update(std::span<const std::size_t> members, std::span<const UpdateSegment> segments,
                       const GradientScale& scale) const {
  std::vector<std::int64_t> first{0};
  for (const auto i : members) first.push_back(first.back() + segments[i].count);
  detail::for_shares(
      members.size(), first.back(), [&](std::size_t s) { return first[s]; },
      [&](std::size_t s, std::int64_t begin, std::int64_t count) {
        const auto i = members[s];
        if (parameters_[i].frozen) return;
        const auto dtype = parameters_[i].value.dtype();
        update(dtype, detail::part_of(segments[i], dtype, begin, count), scale);
      });
}

UpdateSegment Optimizer::segment_of(std::size_t i, const Gradients& gradients, double rate) const {
  const auto p = own(i);
  UpdateSegment segment{.count = p.elements(),
                        .value = p.raw(),
                        .gradient = own(i, gradients[i]).raw(),
                        .state = {},
                        .rate = rate * segments_[i].learning_rate_factor,
                        .decay = segments_[i].weight_decay,
                        .ratio = parameters_[i].decay};
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) segment.state[slot] = segments_[i].state[slot].raw();
  return segment;
}

double Optimizer::clip_of(const Gradients& gradients, double scale, double max_norm) const {
  // Gradients from users need not have the layouts of their parameters.
  std::vector<Tensor> blocks;
  for (std::size_t i = 0; i < gradients.size(); ++i) blocks.push_back(own(i, gradients[i]).with_layout(own(i).layout()));
  return clip_scale(std::abs(scale) * std::sqrt(squared_norm(Gradients(std::move(blocks)))), max_norm);
}

void Optimizer::step_on_gpu(const Gradients& gradients, const StepOptions& options) {
  Tensor factor;
  double scale = options.scale;
  const bool blocks = detail::block_groups(parameters_.tensors()).size() > 1;
  if (options.max_norm > 0 && blocks) {
    require(!cuda::capturing(),
            "[optimizer] the norm of gradients in blocks is summed on the host, which a captured step cannot do");
    scale *= clip_of(gradients, scale, options.max_norm);
  } else if (options.max_norm > 0) {
    factor = Tensor({Shape{}, DType::float64}, DeviceKind::cuda);
    cuda::clip_factor(segments_of(gradients.tensors(), DType::float32), segments_of(gradients.tensors(), DType::float64), scale,
                      options.max_norm, reinterpret_cast<double*>(factor.raw()));
  }
  const double rate = cuda::capturing() ? 1 : learning_rate_;  // the GPU reads it from the scalars
  std::vector<GpuGroup> groups;
  for (const DType dtype : {DType::float32, DType::float64}) {
    GpuGroup group{.dtype = dtype};
    for (std::size_t i = 0; i < segments_.size(); ++i) {
      if (parameters_[i].value.dtype() != dtype || parameters_[i].frozen) continue;
      group.segments.push_back(segment_of(i, gradients, rate));
      group.places.push_back(i);
    }
    if (!group.segments.empty()) groups.push_back(std::move(group));
  }
  update_on_gpu(groups, {scale, factor ? reinterpret_cast<double*>(factor.raw()) : nullptr});
}

std::vector<NamedTensor> Optimizer::state() const {
  std::vector<NamedTensor> result;
  for (std::size_t slot = 0; slot < slots_.size(); ++slot)
    for (std::size_t i = 0; i < segments_.size(); ++i)
      result.push_back({slots_[slot] + "/" + parameters_[i].name, segments_[i].state[slot]});
  return result;
}

void Optimizer::load_state(const std::vector<NamedTensor>& state, std::int64_t steps) {
  require(steps >= 0, "[optimizer] {} steps cannot have been made", steps);
  auto given = state;
  for (std::size_t i = 0; division_ && i < segments_.size(); ++i)
    for (auto& [name, value] : given)
      if (value.type() == parameters_[i].value.type() && name.ends_with("/" + parameters_[i].name))
        value = division_->own(i, value);
  detail::copy_named("optimizer", this->state(), given);
  steps_ = steps;
  parameters_.set_step(steps);
}

namespace {

// The sum over this rank's tensors.
double local_squared_norm(std::span<const Tensor> gradients) {
  if (!gradients.empty() && gradients[0].device() == DeviceKind::cuda) {
    double total = 0;
    for (const DType dtype : {DType::float32, DType::float64}) total += cuda::squared_norm(dtype, segments_of(gradients, dtype));
    return total;
  }
  constexpr std::int64_t block = 8192;
  struct Part {
    std::size_t tensor;
    std::int64_t begin, count;
  };
  std::vector<Part> parts;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].raw()) continue;
    const auto n = gradients[i].elements();
    for (std::int64_t begin = 0; begin < n; begin += block) parts.push_back({i, begin, std::min(block, n - begin)});
  }
  std::vector<double> sums(parts.size());
  const auto count = static_cast<std::int64_t>(parts.size());
#pragma omp parallel for schedule(static) if (count > 4)
  for (std::int64_t k = 0; k < count; ++k) {
    const auto& part = parts[static_cast<std::size_t>(k)];
    const auto& g = gradients[part.tensor];
    visit_floating(g.dtype(), [&](auto zero) {
      using T = decltype(zero);
      sums[static_cast<std::size_t>(k)] = squares(g.data<T>() + part.begin, part.count);
    });
  }
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace

double squared_norm(const Gradients& gradients) {
  auto tensors = gradients.tensors();
  for (auto& tensor : tensors)
    if (auto rows = SummedRows::own(tensor)) tensor = std::move(rows);
  const auto groups = detail::block_groups(tensors);
  if (groups.size() == 1) return local_squared_norm(tensors);
  double total = 0;
  for (const auto& group : groups) {
    std::vector<Tensor> members;
    for (const auto i : group.places) members.push_back(tensors[i]);
    double sum = local_squared_norm(members);
    if (group.grid) detail::sum_blocks(std::span(members).first(1), {&sum, 1});
    total += sum;
  }
  return total;
}

double clip_scale(double norm, double max_norm) {
  const double scale = max_norm / (norm + 1e-6);
  return scale > 1 ? 1 : scale;  // NaN stays NaN
}

Clipping clip_global_norm(const Gradients& gradients, double max_norm) {
  require(max_norm > 0, "[clip_global_norm] the largest norm is positive, got {}", max_norm);
  const double norm = std::sqrt(squared_norm(gradients));
  return {norm, clip_scale(norm, max_norm)};
}

}  // namespace mpigrad
