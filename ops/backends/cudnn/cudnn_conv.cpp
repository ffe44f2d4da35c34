// Convolutions by cuDNN, or by kernels of our own: slabs, the forms of a slab's call, the choice among them, and the copies
// before and after a call.

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>

#include "framework/base/error.h"
#include "framework/cuda/check.h"
#include "ops/backends/cuda/convert.h"
#include "ops/backends/cuda/scratch.h"
#include "ops/backends/cudnn/conv_choice.h"
#include "ops/backends/cudnn/cudnn_conv.h"
#include "ops/conv/few_channels.h"
#include "ops/conv/sixteen_channels.h"
#include "ops/conv/thirty_two_channels.h"
#include "ops/conv/weights_tf32.h"
#include "ops/gpu_settings.h"
#include "ops/kernel/plan_cache.h"

namespace mpigrad::cuda {
namespace {

struct CudnnContext {
  explicit CudnnContext(int index) : device(index) { check_cudnn(cudnn().cudnnCreate(&handle), "cudnnCreate"); }
  const int device;
  cudnnHandle_t handle{};
  ops::PlanCache<Question, Choice, QuestionHash> choices;
};
// The stream belongs to the thread, but contexts pass from thread to thread. Asking for the stream first selects the thread's
// GPU.
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
    bias_activation(p.batch * volume(p.out), p.out_channels, y, static_cast<const T*>(e.bias), e.fused, y, compute_stream());
  });
}

// Operands in the form of the call, and back: [batch, extent, channels] with a box cut out or padded, then channels first.
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
    std::int64_t batch = 0;  // of the call: weights may have a larger one than the problem's
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

void perform(CudnnContext& here, const Choice& choice, const ConvProblem& p, const Pointers& own, void* workspace) {
  const auto& call = choice.form.call;
  const auto& wanted = own.epilogue;
  Operands operands(p, choice.form, own);
  operands.bring(call.pass);
  auto at = operands.call();
  at.bias = wanted.bias;
  execute(here.handle, choice.plan, at, workspace);
  operands.take_back(call.pass);
  if (call.pass != Pass::forward) return;
  // The part that the plan does not compute.
  const bool adds = wanted.bias && !call.bias, activates = wanted.fused != call.fused;
  if (adds || activates)
    finish(call.type, p, {.bias = adds ? wanted.bias : nullptr, .fused = activates ? wanted.fused : scalar::Fused{}},
           own.outputs);
}

Choice choose_for(CudnnContext& here, const Question& q, const ConvProblem& p, const Pointers& own) {
  return choose(here.handle, q, p, own.outputs, [&](const Choice& choice, const void* bias) {
    auto at = own;
    if (bias) at.epilogue.bias = bias;
    const Scratch workspace(choice.plan.workspace);
    perform(here, choice, p, at, workspace.data());
  });
}

// Null if there is no memory for it.
std::optional<Scratch> scratch_of(std::int64_t bytes) {
  try {
    return Scratch(bytes);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// The largest power of two, at most 16, to which all addresses are aligned.
std::int64_t alignment_of(std::initializer_list<const void*> pointers) {
  std::uintptr_t bits = 16;
  for (const auto* pointer : pointers) bits |= reinterpret_cast<std::uintptr_t>(pointer);
  return static_cast<std::int64_t>(bits & -bits);
}

// Passes by kernels of our own. Each returns whether it computed: memory may be missing, or operands unaligned.

bool run_own_float32(Pass pass, const ConvProblem& p, const Pointers& own) {
  const auto *x = reinterpret_cast<const float*>(own.image), *gy = reinterpret_cast<const float*>(own.outputs);
  const bool tf32 = gpu_settings().tf32;
  // With four channels and more, cuDNN's TF32 kernels are fast.
  const bool exact = !tf32 || p.in_channels < 4;
  if (alignment_of({own.outputs}) < 16) return false;
  if (pass == Pass::forward) {
    if (!exact || !has_few_channels(p)) return false;
    few_channels_forward(p, x, reinterpret_cast<const float*>(own.weights), static_cast<const float*>(own.epilogue.bias),
                         own.epilogue.fused, reinterpret_cast<float*>(own.outputs), compute_stream());
    return true;
  }
  const bool rounded = tf32 && has_weights_tf32(p) && alignment_of({own.image}) >= 16 && few_channels_run_here();
  if (pass != Pass::weight || !(rounded || (exact && has_weights_float32(p)))) return false;
  const auto scratch = scratch_of(rounded ? weights_tf32_scratch(p) : weights_float32_scratch(p));
  if (!scratch) return false;
  auto *sums = static_cast<float*>(scratch->data()), *gw = reinterpret_cast<float*>(own.weights);
  if (rounded) weights_tf32(p, x, gy, sums, gw, compute_stream());
  else weights_float32(p, x, gy, sums, gw, compute_stream());
  return true;
}

// The data gradient for an image with few channels is rarely needed.
enum class Own : std::uint8_t { none, few, sixteen, thirty_two };
Own own_kernels(Pass pass, const ConvProblem& p) {
  if (has_few_channels(p) && pass != Pass::data) return Own::few;
  if (has_sixteen_channels(p)) return Own::sixteen;
  const bool thirty_two = pass == Pass::forward ? has_thirty_two_outputs(p, p.in_channels, p.out_channels)
                          : pass == Pass::data  ? has_thirty_two_outputs(p, p.out_channels, p.in_channels)
                                                : has_thirty_two_channels(p);
  return thirty_two ? Own::thirty_two : Own::none;
}
bool run_own_half(Pass pass, DType type, const ConvProblem& p, const Pointers& own) {
  const auto kernels = own_kernels(pass, p);
  if (kernels == Own::none) return false;
  const bool few = kernels == Own::few, sixteen = kernels == Own::sixteen, of_weights = pass == Pass::weight;
  if (alignment_of({own.image}) < (few ? 8 : 16) || alignment_of({own.outputs}) < 16 || !few_channels_run_here()) return false;
  const auto scratch = scratch_of(few       ? of_weights ? few_channels_scratch(p) : 0
                                  : sixteen ? sixteen_channels_scratch(p, of_weights)
                                            : thirty_two_channels_scratch(p, of_weights));
  if (!scratch) return false;
  const auto stream = compute_stream();
  const auto run = [&](auto none) {
    using T = decltype(none);
    auto *x = reinterpret_cast<T*>(own.image), *w = reinterpret_cast<T*>(own.weights), *y = reinterpret_cast<T*>(own.outputs);
    const auto* bias = static_cast<const T*>(own.epilogue.bias);
    const auto fused = own.epilogue.fused;
    auto* data = scratch->data();
    switch (pass) {
      case Pass::forward:
        if (few) return few_channels_forward<T>(p, x, w, bias, fused, y, stream);
        if (sixteen) return sixteen_channels_forward<T>(p, x, w, bias, fused, data, y, stream);
        return thirty_two_channels_forward<T>(p, x, w, bias, fused, data, y, stream);
      case Pass::data:
        return sixteen ? sixteen_channels_data<T>(p, y, w, data, x, stream)
                       : thirty_two_channels_data<T>(p, y, w, data, x, stream);
      case Pass::weight:
        if (few) return few_channels_weight<T>(p, x, y, static_cast<float*>(data), w, stream);
        if (sixteen) return sixteen_channels_weight<T>(p, x, y, data, w, stream);
        return thirty_two_channels_weight<T>(p, x, y, data, w, stream);
    }
  };
  type == DType::bfloat16 ? run(BFloat16{}) : run(Float16{});
  return true;
}
bool run_own(Pass pass, DType type, const ConvProblem& p, const Pointers& own) {
  if (type == DType::float32) return run_own_float32(pass, p, own);
  return is_half(type) && run_own_half(pass, type, p, own);
}

// One slab. Sums over nothing are zeros.
void run_slab(Pass pass, DType type, const ConvProblem& p, const Pointers& own) {
  const auto width = size_of(type);
  // Tested one by one: the product of all exceeds 2^63 for large layers.
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
  if (!settings.reference && run_own(pass, type, p, own)) return;
  auto& here = context();
  Question q{.call = form_of(p, pass, type, {.padded = true, .flat = false}).call,
             // Parameters are adjacent in one arena: unaligned weights are copied, as reading them would be slow.
             .copies_weights = alignment_of({own.weights}) < 16,
             .autotune = settings.autotune,
             .reference = settings.reference,
             .workspace = workspace_limit(settings.workspace),
             .tuning_seconds = settings.tuning_seconds};
  q.call.in = p.in, q.call.pad_low = p.pad_low;
  q.call.tf32 = settings.tf32 && type == DType::float32, q.call.deterministic = settings.deterministic;
  q.call.bias = own.epilogue.bias != nullptr, q.call.fused = own.epilogue.fused;
  q.call.alignment = alignment_of({own.image, own.outputs});
  const auto find = [&] { return here.choices.find(q, [&] { return choose_for(here, q, p, own); }); };
  auto choice = find();
  auto workspace = scratch_of(choice->plan.workspace);
  if (!workspace) {  // a kernel that needs less memory
    q.workspace = 0, q.autotune = false;
    choice = find();
    workspace = Scratch(choice->plan.workspace);
  }
  perform(here, *choice, p, own, workspace->data());
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

// Operands that a pass only reads are not written through these pointers.
std::byte* bytes(const void* pointer) { return static_cast<std::byte*>(const_cast<void*>(pointer)); }

}  // namespace

void conv_forward(DType type, const ConvProblem& p, const void* x, const void* w, void* y, const Epilogue& e) {
  const bool copies = alignment_of({e.bias}) < 16;
  const Scratch bias(copies ? p.out_channels * size_of(type) : 0);
  if (copies) copy_on_device(bias.data(), e.bias, p.out_channels * size_of(type));
  run(Pass::forward, type, p, {bytes(x), bytes(w), bytes(y), {.bias = copies ? bias.data() : e.bias, .fused = e.fused}});
}
void conv_data(DType type, const ConvProblem& p, const void* gy, const void* w, void* gx) {
  run(Pass::data, type, p, {bytes(gx), bytes(w), bytes(gy)});
}
void conv_weight(DType type, const ConvProblem& p, const void* x, const void* gy, void* gw) {
  run(Pass::weight, type, p, {bytes(x), bytes(gw), bytes(gy)});
}

}  // namespace mpigrad::cuda
