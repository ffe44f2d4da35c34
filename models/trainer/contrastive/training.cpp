#include "models/trainer/contrastive/training.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "comm/distributed/grid.h"
#include "framework/base/joined.h"
#include "framework/engine/activity.h"
#include "framework/optim/loss_scale.h"
#include "models/evaluate/embeddings.h"
#include "models/losses/contrastive/gradient_cache.h"
#include "models/losses/contrastive/join_views.h"
#include "models/train/stragglers.h"
#include "models/trainer/run.h"
#include "ops/elementwise/elementwise.h"
#include "ops/views/views.h"

namespace mpigrad::contrast {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// This rank's samples `begin` to `end` of x. Every rank takes the same part of its own: samples from c * chunk on.
Tensor chunk_of(const Tensor& x, std::int64_t begin, std::int64_t end, std::int64_t c, std::int64_t chunk) {
  const auto& layout = *x.layout();
  std::vector<std::int64_t> cuts{0};
  const auto& whole = layout.axes[0].cuts;
  for (std::size_t r = 0; r + 1 < whole.size(); ++r) {
    const auto n = whole[r + 1] - whole[r];
    cuts.push_back(cuts.back() + std::min(n, (c + 1) * chunk) - std::min(n, c * chunk));
  }
  auto part = std::make_shared<Layout>(layout);
  part->global[0] = whole.empty() ? end - begin : cuts.back();  // one rank has no cuts
  if (!whole.empty()) part->axes[0].cuts = cuts;
  Untaped scope;
  return constant(slice(x.without_layout(), 0, begin, end)).with_layout(part);
}

}  // namespace

ViewTraining::ViewTraining(const TrainOptions& options, Network& net, Objective& objective, const data::ViewLoader& loader,
                           const Communicator& world)
    : o_(options), net_(net), objective_(objective), loader_(loader), world_(world) {}

std::vector<trainer::Explained> ViewTraining::explained() const {
  trainer::Explained data{"data", {}}, loss{"loss", {objective_.text()}};
  const auto add = [](trainer::Explained& part, std::string line) { part.lines.push_back(std::move(line)); };
  add(data, fmt::format("{} samples of {}, {} batches of {}, prepared by {} threads of each rank (0: by the one that trains)",
                        loader_.samples(), loader_.source().extents(), loader_.steps(), o_.batch, loader_.options().workers));
  for (std::int64_t epoch = 0; epoch < 2; ++epoch)
    add(data, fmt::format("epoch {} begins with samples {}", epoch + 1, joined(loader_.samples_of(epoch, 0), " ")));
  add(data, "views: " + loader_.text());
  add(data,
      o_.skip_bad ? "batches with samples that are not finite are left out" : "a sample that is not finite ends the training");
  add(loss, o_.frozen_norm ? "batch norms use their running statistics" : "batch norms use statistics of batches");
  add(loss, o_.cached > 0 ? fmt::format("a batch is encoded in {} parts", o_.cached) : "a batch is encoded at once");
  add(loss, fmt::format("{} samples are looked at after each epoch", std::min(o_.monitor, loader_.samples())));
  return {data, loss};
}

bool ViewTraining::usable(const data::ViewBatch& batch, Progress& progress) const {
  try {
    data::require_finite(batch, world_);  // throws on all ranks
    return true;
  } catch (const Error& error) {
    if (!o_.skip_bad) throw tool::SharedError(error.what());
    progress.print(fmt::format("left out: {}", error.what()));
    return false;
  }
}

void ViewTraining::fail_for(const contrastive::SampleError& error, const data::ViewBatch& batch) const {
  const auto& layout = batch.x[0].layout();
  const auto axis = layout ? layout->axis_of(0) : -1;
  const auto comm = axis < 0 ? Communicator() : grid_of(*layout).along({axis});
  std::int64_t sample = -1;
  if (axis < 0 || comm.rank() == error.place().rank) {
    // Rows of several views follow one another.
    const auto row = static_cast<std::size_t>(error.place().row % batch.x[0].dim(0));
    sample = static_cast<std::int64_t>(batch.indices.without_layout().to_vector()[row]);
  }
  if (axis >= 0) comm.transport().bcast(&sample, 1, DType::int64, error.place().rank);
  throw tool::SharedError(
      fmt::format("[contrastive] the embedding of {} {}", loader_.source().name_of_sample(sample), error.place().flaw));
}

Objective::Step ViewTraining::differentiate(const data::ViewBatch& batch, std::int64_t step, const LossScale* scale,
                                            Gradients& gradients) {
  const double factor = scale != nullptr ? scale->value() : 1;
  Tensors x;
  for (const auto& view : batch.x) x.push_back(input_of(view, net_));
  if (o_.cached > 0) return differentiate_in_parts(x, batch, factor, gradients);
  Tape tape(net_);
  auto result = objective_(x, batch, step);
  gradients = tape.gradient(scale != nullptr ? result.share * factor : result.share);
  return result;
}

Objective::Step ViewTraining::differentiate_in_parts(const Tensors& x, const data::ViewBatch& batch, double factor,
                                                     Gradients& gradients) {
  // All ranks use the same chunk size, so that each knows the others' layouts without communication.
  const auto most = (x[0].layout()->global[0] + world_.size() - 1) / world_.size();
  const auto chunk = (most + o_.cached - 1) / o_.cached;
  Objective::Step result;
  const auto encode = [&](std::int64_t begin, std::int64_t end) {
    const auto c = call_++ % parts_;
    return contrastive::split_views(
        net_(contrastive::join_views({chunk_of(x[0], begin, end, c, chunk), chunk_of(x[1], begin, end, c, chunk)})));
  };
  const auto loss = [&](const Tensors& z) {
    for (const auto& view : z) result.views.push_back(constant(view));
    return objective_.loss(z, batch, world_) * factor;
  };
  parts_ = (most + chunk - 1) / chunk, call_ = 0;
  const auto cached = contrastive::cached_gradient(net_, encode, loss, world_, {.samples = x[0].dim(0), .chunk = chunk});
  gradients = cached.gradients;
  Untaped scope;
  result.share = cached.share * (1 / factor);
  return result;
}

ViewTraining::Taken ViewTraining::step(const data::ViewBatch& batch, std::int64_t epoch, std::int64_t place,
                                       const FitOptions& options, Optimizer& optimizer) {
  const auto step = epoch * loader_.steps() + place;
  net_.set_step(step);
  optimizer.set_learning_rate(options.learning_rate(step));
  Gradients gradients;
  Taken taken;
  try {
    taken.result = differentiate(batch, step, options.loss_scale, gradients);
  } catch (const contrastive::SampleError& error) {
    fail_for(error, batch);
  }
  taken.loss = total(taken.result.share, world_);
  require(std::isfinite(taken.loss), "[contrastive] the loss is {} in epoch {}, step {}: a smaller learning rate may help",
          taken.loss, epoch + 1, place + 1);
  if (options.loss_scale != nullptr) {
    const auto scaled = options.loss_scale->unscaled(gradients, options.clip_norm);
    if (scaled) optimizer.step(gradients, {.scale = scaled->scale});
  } else {
    optimizer.step(gradients, {.scale = options.clip_norm > 0 ? clip_global_norm(gradients, options.clip_norm).scale : 1});
  }
  objective_.finish(taken.result);
  return taken;
}

std::optional<Epoch> ViewTraining::run(std::int64_t epoch, const FitOptions& options, Optimizer& optimizer) {
  net_.train(!o_.frozen_norm);
  auto& progress = *options.progress;
  const auto start = Clock::now();
  const auto steps = loader_.steps();
  const double waited_before = loader_.throughput().waited;
  double waited = waited_before, samples = 0;
  Epoch made{.report = {.epoch = epoch}};
  auto& report = made.report;
  auto at = options.begin;
  // All batches have the same size, and skipped ones have no loss.
  made.bad_batches = at.steps - std::llround(at.loss.weight() / static_cast<double>(o_.batch));
  StepClock clock(options.times);
  clock.start();
  for (const auto& batch : loader_.epoch(epoch, at.steps)) {
    const double now = loader_.throughput().waited;
    clock.batch(now - std::exchange(waited, now));
    const auto n = batch.x[0].layout()->global[0];
    if (usable(batch, progress)) {
      const auto taken = step(batch, epoch, at.steps, options, optimizer);
      at.loss.add(taken.loss, static_cast<double>(n));
      samples += static_cast<double>(n);
      progress.step(n, taken.loss);
      if (at.steps + 1 == steps) {
        const auto& z = taken.result.views;
        const auto comm = z[0].layout() ? contrastive::sample_group(z[0]) : world_;
        made.retrieval = contrastive::score_or_nan([&] {
          return contrastive::paired_recall(constant(z[0]).without_layout(), constant(z[1]).without_layout(), comm, {1})[0];
        });
      }
    } else {
      ++made.bad_batches;
    }
    clock.step();
    ++at.steps;
    if (options.after_step) options.after_step(epoch, at.steps);
    if (at.steps < steps && options.interrupts && options.interrupts(epoch, at.steps)) {
      const mpigrad::detail::SlowPhase phase;  // it writes files
      if (options.interrupt(epoch, at)) return std::nullopt;
      clock.start();
    }
  }
  require(at.loss.weight() > 0, "[contrastive] epoch {} had no batch that could be used", epoch + 1);
  report.steps = (epoch + 1) * steps;
  report.loss = at.loss.mean(), report.learning_rate = optimizer.learning_rate();
  report.seconds = seconds_since(start), report.samples_per_second = samples / report.seconds;
  report.waiting_seconds = loader_.throughput().waited - waited_before;
  if (const auto* scale = options.loss_scale) report.loss_scale = scale->value(), report.skipped_steps = scale->skipped();
  return made;
}

}  // namespace mpigrad::contrast
