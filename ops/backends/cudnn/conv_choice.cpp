#include "ops/backends/cudnn/conv_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <optional>

#include "framework/base/error.h"
#include "framework/base/warning.h"
#include "framework/cuda/graph.h"
#include "framework/cuda/timer.h"
#include "ops/backends/cuda/convert.h"
#include "ops/backends/cuda/scratch.h"
#include "ops/backends/cudnn/cudnn_defects.h"
#include "ops/backends/cudnn/tuning_file.h"
#include "ops/gpu_settings.h"

namespace mpigrad::cuda {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// The part of bias and activation inside the call. A kernel of our own computes the rest after it.
enum class Fused : std::uint8_t { both, bias, nothing };

// Images and outputs are the large operands; weights are small.
bool copies(const ConvForm& form) { return form.moves_image || form.moves_outputs; }

class Chooser {
 public:
  Chooser(cudnnHandle_t handle, const Question& q, const ConvProblem& p, void* outputs, const Trial& trial)
      : handle_(handle), q_(q), p_(p), outputs_(outputs), trial_(trial) {}

  Choice choose() {
    std::optional<Choice> choice;
    // Timing blocks the host, which is not allowed in a captured step.
    if (q_.autotune && !q_.reference) choice = capturing() ? remembered() : remembered_or_timed();
    if (!choice) choice = by_heuristics(0);
    if (!choice) choice = by_heuristics(4);  // for calls supported only by engines that compile their kernel
    if (!choice)
      fail("[{}] cuDNN {} has no engine for {}: {}{}", name_of(q_.call.pass), cudnn().cudnnGetVersion(), to_string(q_.call), why_,
           avoided_);
    return std::move(*choice);
  }

 private:
  std::vector<Fused> levels() const {
    std::vector<Fused> all;
    if (q_.call.bias && !q_.call.fused.is_none()) all.push_back(Fused::both);
    if (q_.call.bias) all.push_back(Fused::bias);
    all.push_back(Fused::nothing);
    return all;
  }

  std::vector<ConvForm> forms(Fused fused) {
    const auto version = cudnn().cudnnGetVersion();
    auto all = forms_of(p_, q_.call.pass, q_.call.type, q_.call.tf32);
    const bool inside = fused != Fused::nothing;
    // Kernels of fused graphs read operands as they are in memory, and the bias is as long as the call's channels.
    if (inside)
      std::erase_if(
          all, [&](const ConvForm& f) { return f.call.out_channels != p_.out_channels || f.call.order != Order::channels_last; });
    for (auto& form : all) {
      form.call.alignment = q_.call.alignment;
      form.moves_weights = form.moves_weights || q_.copies_weights;
      if (inside) form.call.bias = true;
      if (fused == Fused::both) form.call.fused = q_.call.fused;
    }
    if (q_.call.alignment < 16 && !inside) {  // copies everything to aligned memory
      auto form = form_of(p_, q_.call.pass, q_.call.type, {.padded = true});
      form.call.tf32 = q_.call.tf32;
      form.moves_image = form.moves_weights = form.moves_outputs = true;
      all.push_back(form);
    }
    for (auto& form : all) form.call.deterministic = q_.call.deterministic;
    std::erase_if(all, [&](ConvForm& form) {
      const auto* defect = defect_of(version, form.call);
      if (!defect) return false;
      const auto text = text_of(*defect, version);
      if (!defect->float32_instead) {
        avoided_ = "; " + text;
        return true;
      }
      warn_once(text, text + "; float32 is used instead");
      form.call.tf32 = false;
      return false;
    });
    return all;
  }

  std::vector<CudnnPlan> plans(const ConvForm& form, std::size_t most, std::size_t compiled) {
    Search search{.most = most, .compiled = compiled, .workspace = q_.workspace};
    if (q_.reference) search.engine = 0;
    return plans_of(form.call, {.handle = handle_}, search, why_);
  }

  std::optional<Choice> by_heuristics(std::size_t compiled) {
    std::optional<Choice> slow;
    for (const auto fused : levels())
      for (const auto& form : forms(fused))
        for (auto& plan : plans(form, 1, compiled)) {
          Choice candidate{form, std::move(plan)};
          if (!keeps_specials(candidate)) continue;
          // Another form may have a faster kernel than an engine that takes anything.
          if (candidate.plan.fast && candidate.plan.workspace <= q_.workspace) return candidate;
          if (!slow || (slow->plan.engine == 0 && candidate.plan.engine != 0)) slow = std::move(candidate);
        }
    return slow;
  }

  std::optional<Choice> remembered_or_timed() {
    if (auto choice = remembered()) {
      detail::add_tuning({.remembered = 1});
      return choice;
    }
    const auto start = Clock::now();
    double best_time = 0;
    std::int64_t timed = 0;
    auto choice = by_time(start, best_time, timed);
    if (choice)
      tuning_file().add(key(), fmt::format("{}|{}|{}|{:.4g} ms", to_string(choice->form.call), choice->plan.place,
                                           choice->plan.engine, 1e3 * best_time));
    detail::add_tuning({.problems = 1, .kernels = timed, .seconds = seconds_since(start)});
    return choice;
  }

  // Forms that copy their large operands are tried only if no other has a fast kernel.
  std::optional<Choice> by_time(Clock::time_point start, double& best_time, std::int64_t& timed) {
    std::optional<Choice> best;
    best_time = std::numeric_limits<double>::infinity();
    for (const bool copying : {false, true}) {
      if (copying && best && best->plan.fast) break;
      for (const auto fused : levels())
        for (const auto& form : forms(fused)) {
          if (copies(form) != copying) continue;
          if (best && seconds_since(start) > q_.tuning_seconds) return best;
          for (auto& plan : plans(form, 6, 1)) {
            if (best && (plan.engine == 0 || seconds_since(start) > q_.tuning_seconds)) continue;
            Choice candidate{form, std::move(plan)};
            if (!keeps_specials(candidate)) continue;
            try {
              const bool any = !best || best->plan.engine == 0;
              const double time = time_of(candidate, any ? std::numeric_limits<double>::infinity() : best_time);
              ++timed;
              if (any || time < best_time) best_time = time, best = std::move(candidate);
            } catch (const Error& error) {  // perhaps no memory for its workspace: other plans may work
              why_ = error.what();
            }
          }
        }
    }
    return best;
  }

  // Seconds of the fastest of a few runs; of only one run if that is slower than twice `best`.
  double time_of(const Choice& candidate, double best) {
    Timer timer;
    double fastest = std::numeric_limits<double>::infinity();
    trial_(candidate, nullptr);  // loads the kernel
    for (int run = 0; run < 3; ++run) {
      timer.begin(compute_stream());
      trial_(candidate, nullptr);
      timer.end(compute_stream());
      fastest = std::min(fastest, timer.seconds());
      if (fastest > 2 * best) break;
    }
    return fastest;
  }

  // cuDNN guarantees only for engines with a certain note that NaN stays NaN after an activation. Other engines are tested: a
  // bias of NaN and infinities must appear in the outputs.
  bool keeps_specials(const Choice& candidate) {
    if (candidate.form.call.fused.is_none() || candidate.plan.has(CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP)) return true;
    const auto key = fmt::format("{}|special values|{}|{}", machine(), to_string(candidate.form.call), candidate.plan.place);
    if (const auto known = tuning_file().find(key)) return *known == "kept";
    if (capturing()) {
      why_ = "whether an activation keeps NaN must be tested before a step is captured";
      return false;
    }
    if (!has_room(candidate)) return false;
    // Exceptions are not caught: the host waits here, and may receive errors of earlier kernels.
    const bool kept = try_specials(candidate);
    if (!kept) why_ = fmt::format("engine {} loses NaN or infinity in its activation", candidate.plan.engine);
    tuning_file().add(key, kept ? "kept" : "lost");
    return kept;
  }

  bool has_room(const Choice& candidate) {
    try {
      const Scratch workspace(candidate.plan.workspace);
      return true;
    } catch (const Error& error) {
      why_ = error.what();
      return false;
    }
  }

  bool try_specials(const Choice& candidate) {
    const auto type = q_.call.type;
    const auto channels = p_.out_channels, width = size_of(type);
    const Scratch bias(channels * width), found(sizeof(std::int32_t));
    zero(found.data(), sizeof(std::int32_t));
    visit_any_floating(type, [&](auto none) {
      using T = decltype(none);
      special_bias(channels, static_cast<T*>(bias.data()), compute_stream());
      trial_(candidate, bias.data());
      find_ordinary(p_.batch * volume(p_.out), channels, static_cast<const T*>(outputs_),
                    static_cast<std::int32_t*>(found.data()), compute_stream());
    });
    std::int32_t ordinary = 0;
    copy_to_host(&ordinary, found.data(), sizeof ordinary);
    return ordinary == 0;
  }

  std::optional<Choice> remembered() {
    const auto text = tuning_file().find(key());
    if (!text) return std::nullopt;
    for (const auto fused : levels())
      for (const auto& form : forms(fused)) {
        const auto start = to_string(form.call) + "|";
        if (!text->starts_with(start)) continue;
        Search search{.compiled = 1, .workspace = q_.workspace};
        std::int64_t place = -1, engine = -1;
        if (std::sscanf(text->c_str() + start.size(), "%ld|%ld|", &place, &engine) != 2) return std::nullopt;
        search.place = place, search.engine = engine;
        for (auto& plan : plans_of(form.call, {.handle = handle_}, search, why_)) {
          Choice candidate{form, std::move(plan)};
          if (keeps_specials(candidate)) return candidate;
        }
      }
    return std::nullopt;
  }

  static std::string machine() { return fmt::format("{}|cuDNN {}", name(), cudnn().cudnnGetVersion()); }
  std::string key() const {
    return fmt::format("{}|{}{}{}|workspace {}", machine(), to_string(q_.call), q_.call.deterministic ? " deterministic" : "",
                       q_.copies_weights ? " weights copied" : "", q_.workspace);
  }

  cudnnHandle_t handle_;
  const Question& q_;
  const ConvProblem& p_;
  void* outputs_;
  const Trial& trial_;
  std::string why_ = "cuDNN proposes none", avoided_;
};

}  // namespace

Choice choose(cudnnHandle_t handle, const Question& question, const ConvProblem& problem, void* outputs, const Trial& trial) {
  return Chooser(handle, question, problem, outputs, trial).choose();
}

}  // namespace mpigrad::cuda
