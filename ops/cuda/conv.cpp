// Convolutions by cuDNN: slabs, the forms of a slab's call, the choice among them, and the moves around it.

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <optional>

#include "framework/cuda/check.h"
#include "framework/cuda/graph.h"
#include "framework/error.h"
#include "ops/cuda/cudnn_plan.h"
#include "ops/cuda/libraries.h"
#include "ops/cuda/plan_cache.h"
#include "ops/cuda/scratch.h"
#include "ops/cuda/window_kernels.h"
#include "ops/gpu_settings.h"

namespace mpigrad::cuda {
namespace {

struct Choice {
  ConvForm form;
  CudnnPlan plan;
};

// What is asked: the problem as a call without any treatment, and how to choose.
struct Question {
  ConvCall call;
  bool copies_weights = false, autotune = false;
  std::int64_t workspace = 0;
  bool operator==(const Question&) const = default;
};
struct QuestionHash {
  std::size_t operator()(const Question& q) const {
    return CallHash{}(q.call) * 31 + static_cast<std::size_t>(q.workspace) * 4 + (q.copies_weights ? 2 : 0) +
           (q.autotune ? 1 : 0);
  }
};

struct CudnnContext {
  explicit CudnnContext(int index) : device(index) { check_cudnn(cudnn().cudnnCreate(&handle), "cudnnCreate"); }
  const int device;
  cudnnHandle_t handle{};
  PlanCache<Question, Choice, QuestionHash> choices;
};
// The stream is the thread's, and contexts pass from thread to thread. Asking for it first makes the thread's GPU the current
// one.
CudnnContext& context() {
  const auto stream = native(compute_stream());
  auto& here = Leased<CudnnContext>::of_this_thread();
  cudaStream_t held{};
  check_cudnn(cudnn().cudnnGetStream(here.handle, &held), "cudnnGetStream");
  if (held != stream) check_cudnn(cudnn().cudnnSetStream(here.handle, stream), "cudnnSetStream");
  return here;
}

// Image, weights and outputs of a problem; one of them is written.
struct Pointers {
  std::byte *image = nullptr, *weights = nullptr, *outputs = nullptr;
  Epilogue epilogue{};
};

template <class F>
void with_type(DType type, F&& f) {
  visit_any_floating(type, f);
}

void finish(DType type, const ConvProblem& p, const Epilogue& e, void* outputs) {
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    auto* y = static_cast<T*>(outputs);
    bias_activation(p.batch * volume(p.out), p.out_channels, y, static_cast<const T*>(e.bias), e.slope, y, compute_stream());
  });
}

// An operand in the form of the call, and back: [batch, extent, channels] with a box cut out or padded, then channels first.
class Operands {
 public:
  Operands(const ConvProblem& p, const ConvForm& form, const Pointers& own)
      : width_(size_of(form.call.type)), first_(form.call.order == Order::channels_first), stream_(compute_stream()) {
    const auto& c = form.call;
    const auto g = p.groups;
    image_ = {{p.batch, p.in, form.image, form.offset, p.in_channels, c.in_channels}, p.batch, form.moves_image, own.image};
    weights_ = {{p.out_channels, p.kernel, p.kernel, {}, p.in_channels / g, c.in_channels / g},
                c.out_channels,
                form.moves_weights,
                own.weights};
    outputs_ = {{p.batch, p.out, p.out, {}, p.out_channels, c.out_channels}, p.batch, form.moves_outputs, own.outputs};
    for (auto* operand : {&image_, &weights_, &outputs_}) {
      operand->at = operand->own;
      if (!operand->moves) continue;
      const auto& b = operand->box;
      operand->copy = Scratch(operand->batch * volume(b.to) * b.to_channels * width_);
      operand->at = operand->copy.data();
    }
  }

  ConvOperands call() const { return {image_.at, weights_.at, outputs_.at, nullptr}; }
  void bring(Pass pass) {
    if (pass != Pass::data) bring(image_);
    if (pass != Pass::weight) bring(weights_);
    if (pass != Pass::forward) bring(outputs_);
  }
  void take_back(Pass pass) { take_back(pass == Pass::forward ? outputs_ : pass == Pass::data ? image_ : weights_); }

 private:
  struct Operand {
    Box box;
    std::int64_t batch = 0;  // of the call: weights may have more than the problem's
    bool moves = false;
    std::byte* own = nullptr;
    void* at = nullptr;
    Scratch copy{0};
    std::int64_t bytes(std::int64_t width) const { return batch * volume(box.to) * box.to_channels * width; }
  };

  void bring(Operand& o) {
    if (!o.moves) return;
    const Scratch between(first_ ? o.bytes(width_) : 0);
    void* boxed = first_ ? between.data() : o.at;
    if (o.batch > o.box.batch) zero(boxed, o.bytes(width_));
    move_box(o.box, width_, o.own, boxed, stream_);
    if (first_) transpose(o.batch, volume(o.box.to), o.box.to_channels, width_, boxed, o.at, stream_);
  }
  void take_back(Operand& o) {
    if (!o.moves) return;
    const Scratch between(first_ ? o.bytes(width_) : 0);
    const void* boxed = first_ ? between.data() : o.at;
    if (first_) transpose(o.batch, o.box.to_channels, volume(o.box.to), width_, o.at, between.data(), stream_);
    const auto& b = o.box;
    move_box({b.batch, b.to, b.from, {-b.offset[0], -b.offset[1], -b.offset[2]}, b.to_channels, b.from_channels}, width_, boxed,
             o.own, stream_);
  }

  std::int64_t width_;
  bool first_;
  Stream stream_;
  Operand image_, weights_, outputs_;
};

void perform(CudnnContext& here, const Choice& choice, const ConvProblem& p, const Pointers& own) {
  const auto& call = choice.form.call;
  Operands operands(p, choice.form, own);
  operands.bring(call.pass);
  auto at = operands.call();
  at.bias = own.epilogue.bias;
  {
    const Scratch workspace(choice.plan.workspace);
    execute(here.handle, choice.plan, at, workspace.data());
  }
  operands.take_back(call.pass);
  // What the plan does not do itself.
  if (call.pass == Pass::forward && !call.bias && call.slope == 1) finish(call.type, p, own.epilogue, own.outputs);
}

// Milliseconds of the fastest of a few runs.
float time_of(CudnnContext& here, const Choice& choice, const ConvProblem& p, const Pointers& own) {
  struct Timer {
    cudaEvent_t event{};
    Timer() { MPIGRAD_CUDA(cudaEventCreate(&event)); }
    ~Timer() { static_cast<void>(cudaEventDestroy(event)); }
  } begin, end;
  const auto stream = native(compute_stream());
  float best = std::numeric_limits<float>::infinity();
  perform(here, choice, p, own);
  for (int run = 0; run < 3; ++run) {
    MPIGRAD_CUDA(cudaEventRecord(begin.event, stream));
    perform(here, choice, p, own);
    MPIGRAD_CUDA(cudaEventRecord(end.event, stream));
    MPIGRAD_CUDA(cudaEventSynchronize(end.event));
    float time = 0;
    MPIGRAD_CUDA(cudaEventElapsedTime(&time, begin.event, end.event));
    best = std::min(best, time);
  }
  return best;
}

// Forms with the epilogue inside of the call, where its bias is as long as the call's channels; then those without.
std::vector<ConvForm> forms_to_try(const Question& q, const ConvProblem& p, bool inside) {
  auto forms = forms_of(p, q.call.pass, q.call.type, q.call.tf32);
  for (auto& form : forms) {
    form.call.deterministic = q.call.deterministic;
    form.call.alignment = q.call.alignment;
    form.moves_weights = form.moves_weights || q.copies_weights;
    if (inside) form.call.bias = q.call.bias, form.call.slope = q.call.slope;
  }
  // Kernels of fused graphs are compiled as they are asked for; only calls on the operands as they lie are worth it.
  if (inside)
    std::erase_if(
        forms, [&](const ConvForm& f) { return f.call.out_channels != p.out_channels || f.call.order != Order::channels_last; });
  if (q.call.alignment < 16 && !inside) {  // then everything is copied to where it is aligned
    auto form = form_of(p, q.call.pass, q.call.type, {.padded = true});
    form.call.tf32 = q.call.tf32, form.call.deterministic = q.call.deterministic;
    form.moves_image = form.moves_weights = form.moves_outputs = true;
    forms.push_back(form);
  }
  return forms;
}

Choice choose(CudnnContext& here, const Question& q, const ConvProblem& p, const Pointers& own) {
  std::string why = "it proposes none";
  std::optional<Choice> best, plain;
  float best_time = std::numeric_limits<float>::infinity();
  const bool tune = q.autotune && !capturing();  // timing waits
  const bool epilogue = q.call.bias || q.call.slope != 1;
  for (const bool inside : {true, false}) {
    if (inside && !epilogue) continue;
    for (const auto& form : forms_to_try(q, p, inside)) {
      for (auto& plan : plans_of(form.call, {.handle = here.handle}, tune ? 6 : 1, q.workspace, why)) {
        Choice candidate{form, std::move(plan)};
        if (tune) {
          try {
            const float time = time_of(here, candidate, p, own);
            if (time < best_time) best_time = time, best = std::move(candidate);
          } catch (const Error& error) {  // no memory for its workspace, perhaps: one of the others will do
            why = error.what();
          }
        } else if (candidate.plan.engine != 0) {
          return candidate;
        } else if (!plain) {  // engine 0 takes anything and is rarely fast: another form may have a better one
          plain = std::move(candidate);
        }
      }
    }
    if (!tune && plain && !epilogue) break;
  }
  if (!best) best = std::move(plain);
  if (!best)
    fail("[{}] cuDNN {} has no engine for {}: {}", name_of(q.call.pass), cudnn().cudnnGetVersion(), to_string(q.call), why);
  return std::move(*best);
}

// The largest power of two, at most 16, to which all addresses are aligned.
std::int64_t alignment_of(std::initializer_list<const void*> pointers) {
  std::uintptr_t bits = 16;
  for (const auto* pointer : pointers) bits |= reinterpret_cast<std::uintptr_t>(pointer);
  return static_cast<std::int64_t>(bits & -bits);
}

// One slab. Sums over nothing are zeros.
void run_slab(Pass pass, DType type, const ConvProblem& p, const Pointers& own) {
  const auto width = size_of(type);
  // One by one: the product of all is beyond 2^63 for large layers.
  const std::int64_t extents[] = {p.batch, volume(p.in), volume(p.out), volume(p.kernel), p.in_channels, p.out_channels};
  const bool sums_nothing = std::find(std::begin(extents), std::end(extents), 0) != std::end(extents);
  if (sums_nothing) {
    if (pass == Pass::forward) {
      zero(own.outputs, p.batch * volume(p.out) * p.out_channels * width);
      finish(type, p, own.epilogue, own.outputs);
    } else if (pass == Pass::data) {
      zero(own.image, p.batch * volume(p.in) * p.in_channels * width);
    } else {
      zero(own.weights, p.out_channels * volume(p.kernel) * (p.in_channels / p.groups) * width);
    }
    return;
  }
  const auto settings = gpu_settings();
  // Parameters lie side by side in one arena: weights at odd addresses are copied rather than read slowly.
  const auto alignment = alignment_of({own.image, own.outputs});
  Question q{form_of(p, pass, type, {.padded = true, .flat = false}).call, alignment_of({own.weights}) < 16, settings.autotune,
             settings.workspace};
  q.call.in = p.in, q.call.pad_low = p.pad_low;
  q.call.tf32 = settings.tf32 && type == DType::float32, q.call.deterministic = settings.deterministic;
  q.call.bias = own.epilogue.bias != nullptr, q.call.slope = own.epilogue.slope;
  q.call.alignment = alignment;
  auto& here = context();
  const auto choice = here.choices.find(q, [&] { return choose(here, q, p, own); });
  perform(here, *choice, p, own);
}

void run(Pass pass, DType type, const ConvProblem& p, const Pointers& own) {
  const auto width = size_of(type);
  const auto slabs = slabs_of(p, pass);
  const std::int64_t weights = p.out_channels * volume(p.kernel) * (p.in_channels / p.groups);
  const bool adds = pass == Pass::weight && slabs.size() > 1;
  const Scratch part(adds ? weights * width : 0), sum(adds ? weights * std::max<std::int64_t>(width, 4) : 0);
  for (std::size_t s = 0; s < slabs.size(); ++s) {
    const auto& slab = slabs[s];
    Pointers at = own;
    at.image += (slab.n.begin * p.in[0] + slab.i.begin) * p.in[1] * p.in[2] * p.in_channels * width;
    at.outputs += (slab.n.begin * p.out[0] + slab.o.begin) * p.out[1] * p.out[2] * p.out_channels * width;
    if (adds) at.weights = static_cast<std::byte*>(part.data());
    run_slab(pass, type, slab.problem, at);
    if (adds)
      with_type(type, [&](auto none) {
        using T = decltype(none);
        using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
        add_up(weights, static_cast<const T*>(part.data()), static_cast<Sum*>(sum.data()), s == 0, compute_stream());
        if (s + 1 == slabs.size())
          round_sum(weights, static_cast<const Sum*>(sum.data()), reinterpret_cast<T*>(own.weights), compute_stream());
      });
  }
}

// Operands that a pass only reads are not written through these.
std::byte* bytes(const void* pointer) { return static_cast<std::byte*>(const_cast<void*>(pointer)); }

}  // namespace

void conv_forward(DType type, const ConvProblem& p, const void* x, const void* w, void* y, const Epilogue& e) {
  const bool copies = alignment_of({e.bias}) < 16;
  const Scratch bias(copies ? p.out_channels * size_of(type) : 0);
  if (copies) copy_on_device(bias.data(), e.bias, p.out_channels * size_of(type));
  run(Pass::forward, type, p, {bytes(x), bytes(w), bytes(y), {.bias = copies ? bias.data() : e.bias, .slope = e.slope}});
}
void conv_data(DType type, const ConvProblem& p, const void* gy, const void* w, void* gx) {
  run(Pass::data, type, p, {bytes(gx), bytes(w), bytes(gy)});
}
void conv_weight(DType type, const ConvProblem& p, const void* x, const void* gy, void* gw) {
  run(Pass::weight, type, p, {bytes(x), bytes(gw), bytes(gy)});
}

}  // namespace mpigrad::cuda
