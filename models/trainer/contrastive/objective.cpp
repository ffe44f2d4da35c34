#include "models/trainer/contrastive/objective.h"

#include "comm/distributed/grid.h"
#include "comm/distributed/invariant.h"
#include "framework/base/joined.h"
#include "models/losses/contrastive/dino.h"
#include "models/losses/contrastive/join_views.h"
#include "models/losses/contrastive/pairs.h"
#include "models/losses/contrastive/spread.h"
#include "models/losses/contrastive/statistics.h"
#include "models/trainer/contrastive/samples.h"
#include "models/trainer/run.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/views/to_device.h"
#include "ops/views/views.h"

namespace mpigrad::contrast {
namespace {

using namespace contrastive;

double temperature_of(const TrainOptions& o) { return o.temperature > 0 ? o.temperature : o.loss == "moco" ? 0.07 : 0.1; }

double lambda_of(const TrainOptions& o) { return o.lambda >= 0 ? o.lambda : o.loss == "lejepa" ? 0.05 : 0.0051; }

Tensor integer(std::int64_t value) { return from_vector({1}, {static_cast<double>(value)}, DType::int64); }

}  // namespace

Tensor input_of(const Tensor& x, const nn::Module& net) { return constant(cast(to(x, current_device()), net.dtype())); }

Objective::Objective(const TrainOptions& options, const NetworkConfig& config, Network& net, const nn::BatchNormAttributes& norm,
                     const LayoutPtr& layout, std::size_t label)
    : o_(options), net_(net), label_(label) {
  const auto width = config.options.head_out;
  if (o_.loss == "moco" || o_.loss == "dino") {
    key_net_ = std::make_unique<Network>(config, norm);
    trainer::build(*key_net_, layout, config.input(o_.batch), o_);
    begin();
  }
  if (o_.loss == "moco")
    queue_.emplace(QueueAttributes{.keys = o_.queue, .width = width, .dtype = net_.dtype(), .seed = o_.seed});
  if (o_.loss == "dino")
    centre_ = constant(zeros({config.options.prototypes}, is_half(net_.dtype()) ? DType::float32 : net_.dtype()));
  if (o_.loss == "swav" && o_.queue > 0)
    swav_queue_.emplace(SwavQueueAttributes{.samples = o_.queue, .width = width, .dtype = net_.dtype()});
}

Tensor Objective::key_of(const Tensor& x, std::int64_t step) {
  Untaped scope;
  auto& key_net = *key_net_;
  key_net.train(net_.training());
  key_net.set_step(step);
  // If ranks compute statistics of their own samples, keys are shuffled so that a key is not normalised together with its query.
  const int axis = o_.statistics != "all" && x.layout() ? x.layout()->axis_of(0) : -1;
  if (axis < 0 || x.layout()->grid->extents[static_cast<std::size_t>(axis)] == 1) return constant(key_net(x).without_layout());
  // Communicator of the ranks with the same part of space, all in the same order.
  const auto comm = grid_of(*x.layout()).along({axis});
  const auto& cuts = x.layout()->axes[static_cast<std::size_t>(axis)].cuts;
  Rows rows(cuts.size() - 1);
  for (std::size_t r = 0; r < rows.size(); ++r) rows[r] = cuts[r + 1] - cuts[r];
  const SampleShuffle shuffle(comm, rows, Philox{o_.seed, static_cast<std::uint64_t>(step)}.child(4));
  const auto mixed = constant(shuffle.shuffle(x.without_layout())).with_layout(x.layout());
  return constant(shuffle.restore(key_net(mixed).without_layout()));
}

Objective::Step Objective::operator()(const Tensors& x, const data::ViewBatch& batch, std::int64_t step) {
  Step result;
  if (o_.loss == "moco") {
    keys_ = {key_of(x[1], step)};
    result.views = {net_(x[0])};
  } else {
    if (o_.loss == "dino") keys_ = {key_of(x[0], step), key_of(x[1], step)};
    result.views = split_views(net_(join_views({x[0], x[1]})));
    if (x.size() > 2) {
      const auto small = split_views(net_(join_views({x.begin() + 2, x.end()})), static_cast<int>(x.size()) - 2);
      result.views.insert(result.views.end(), small.begin(), small.end());
    }
  }
  const auto& z = result.views[0];
  require(z.layout() != nullptr, "[contrastive] embeddings without a layout");
  result.share = loss(result.views, batch, sample_group(z));
  if (o_.loss == "moco") result.views.push_back(z.layout() ? keys_[0].with_layout(z.layout()) : keys_[0]);
  return result;
}

Tensor Objective::loss(const Tensors& z, const data::ViewBatch& batch, const Communicator& comm) {
  auto share = main_loss(z, batch, comm);
  if (o_.koleo > 0)
    for (std::size_t v = 0; v < std::min<std::size_t>(z.size(), 2); ++v) share = share + koleo(z[v], comm) * o_.koleo;
  return share;
}

// Scores of student and teacher are products of unit rows with unit prototypes, as of DINO's last layer with weight norm.
Tensor Objective::dino_loss(const Tensors& z, const Communicator& comm) {
  prototypes_ = {net_.prototypes(z[0])};
  const auto weights =
      net_.step() < o_.freeze_prototypes ? constant(prototypes_[0].without_layout()) : replicate(prototypes_[0], comm);
  const auto scores = [&](const Tensor& of, const Tensor& rows) {
    const auto unit = unit_rows(is_half(of.dtype()) ? cast(of.without_layout(), DType::float32) : of.without_layout());
    return matmul(unit, cast(rows, unit.dtype()), {.transpose_b = true});
  };
  Tensors student;
  for (const auto& view : z) {
    student.push_back(scores(view, weights));
    if (!view.layout()) continue;
    auto layout = std::make_shared<Layout>(*view.layout());
    layout->global[1] = weights.dim(0);
    student.back() = student.back().with_layout(layout);
  }
  {
    Untaped scope;
    const auto of_teacher = constant(key_net_->prototypes(keys_[0]).without_layout());
    for (auto& key : keys_) key = constant(scores(key, of_teacher));
  }
  return dino(student, keys_, centre_, comm,
              {.student_temperature = temperature_of(o_), .teacher_temperature = o_.teacher_temperature});
}

Tensor Objective::main_loss(const Tensors& z, const data::ViewBatch& batch, const Communicator& comm) {
  const auto form = o_.form == "ring" ? Form::ring : Form::direct;
  if (o_.loss == "nt-xent") return nt_xent(z[0], z[1], comm, {.temperature = temperature_of(o_), .form = form, .tile = o_.tile});
  if (o_.loss == "supcon") {
    const auto labels = to(batch.labels.at(label_).without_layout(), current_device());
    return sup_con(join_views(z), concatenate({labels, labels}, 0), comm,
                   {.temperature = temperature_of(o_), .form = form, .tile = o_.tile});
  }
  if (o_.loss == "clip") return clip(z[0], z[1], net_.scale(), comm, {.form = form, .tile = o_.tile});
  if (o_.loss == "siglip") return siglip(z[0], z[1], net_.scale(), net_.bias(), comm, {.tile = o_.tile});
  if (o_.loss == "barlow") return barlow_twins(z[0], z[1], comm, {.lambda = lambda_of(o_)});
  if (o_.loss == "vicreg") return vicreg(z[0], z[1], comm);
  if (o_.loss == "lejepa")
    return lejepa(z, comm, Philox{o_.seed, static_cast<std::uint64_t>(net_.step())}.child(5),
                  {.lambda = lambda_of(o_), .sigreg = {.slices = o_.slices}});
  if (o_.loss == "spectral") return spectral(z[0], z[1], comm);
  if (o_.loss == "moco") return moco(z[0], keys_[0], queue_->keys(), comm, {.temperature = temperature_of(o_)});
  if (o_.loss == "dino") return dino_loss(z, comm);
  prototypes_ = {net_.prototypes(z[0])};
  return swav(z, prototypes_[0], comm,
              {.temperature = temperature_of(o_),
               .freeze_prototypes = net_.step() < o_.freeze_prototypes,
               .queue = swav_queue_ ? swav_queue_->embeddings() : Tensors{}});
}

void Objective::finish(const Step& step) {
  Untaped scope;
  if (o_.loss == "clip") limit_log_scale(net_.scale());
  const auto plain = [&](std::size_t view) { return constant(step.views[view].without_layout()); };
  if (o_.loss == "moco") {
    update_momentum_encoder(*key_net_, net_, o_.key_momentum);
    queue_->enqueue(unit_rows(keys_[0]), sample_group(step.views[0]));
  }
  if (o_.loss == "dino") {
    renormalise_prototypes(prototypes_[0]);
    update_momentum_encoder(*key_net_, net_, o_.key_momentum);
    centre_ = next_centre(centre_, keys_, sample_group(step.views[0]), o_.centre_momentum);
  }
  if (o_.loss == "swav") {
    renormalise_prototypes(prototypes_[0]);
    if (swav_queue_) swav_queue_->enqueue({plain(0), plain(1)}, sample_group(step.views[0]));
  }
}

std::string Objective::text() const {
  const auto is = [&](auto... names) { return ((o_.loss == names) || ...); };
  std::vector<std::string> parts;
  if (is("nt-xent", "supcon", "moco", "swav", "dino")) parts.push_back(fmt::format("temperature {}", temperature_of(o_)));
  if (is("nt-xent", "supcon", "clip")) parts.push_back("form " + o_.form);
  if (is("nt-xent", "supcon", "clip", "siglip")) parts.push_back(fmt::format("tiles of {} rows (0: the device's own)", o_.tile));
  if (is("barlow", "lejepa")) parts.push_back(fmt::format("lambda {}", lambda_of(o_)));
  if (is("lejepa")) parts.push_back(fmt::format("{} directions", o_.slices));
  if (is("moco")) parts.push_back(fmt::format("{} keys, momentum {} of their encoder", o_.queue, o_.key_momentum));
  if (is("swav"))
    parts.push_back(fmt::format("a queue of {} samples, prototypes frozen for {} steps", o_.queue, o_.freeze_prototypes));
  if (is("dino"))
    parts.push_back(
        fmt::format("teacher's temperature {}, its momentum {}, momentum {} of the centre, prototypes frozen for {} steps",
                    o_.teacher_temperature, o_.key_momentum, o_.centre_momentum, o_.freeze_prototypes));
  if (o_.koleo > 0) parts.push_back(fmt::format("a KoLeo term of weight {}", o_.koleo));
  return o_.loss + (parts.empty() ? "" : ": ") + joined(parts, ", ");
}

void Objective::begin() {
  if (!key_net_) return;
  update_momentum_encoder(*key_net_, net_, 0);
  Untaped scope;  // copies, because a checkpoint fills both
  for (const auto& [name, value] : net_.buffers()) key_net_->buffers()[name] = constant(value * 1);
}

void Objective::publish() {
  auto& buffers = net_.buffers();
  const std::string prefix = state_prefix;
  if (key_net_) {
    for (std::size_t i = 0; i < key_net_->parameters().size(); ++i)
      buffers[prefix + "key/" + key_net_->parameters()[i].name] = key_net_->parameters()[i].value;
    for (const auto& [name, value] : key_net_->buffers()) buffers[prefix + "key_buffers/" + name] = value;
  }
  if (queue_) {
    buffers[prefix + "queue"] = queue_->keys();
    buffers[prefix + "queue_next"] = integer(queue_->next());
  }
  if (centre_) buffers[prefix + "centre"] = centre_;
  if (swav_queue_) {
    const auto state = swav_queue_->state();
    for (std::size_t i = 0; i < state.size(); ++i) buffers[fmt::format("{}queue{}", prefix, i)] = state[i];
    buffers[prefix + "queue_next"] = integer(swav_queue_->next());
    buffers[prefix + "queue_stored"] = integer(swav_queue_->stored());
  }
}

void Objective::restore() {
  auto& buffers = net_.buffers();
  const std::string prefix = state_prefix;
  const auto number = [&](const char* name) { return static_cast<std::int64_t>(buffers.at(prefix + name).item()); };
  if (queue_) queue_->load(buffers.at(prefix + "queue"), number("queue_next"));
  if (centre_) centre_ = constant(buffers.at(prefix + "centre") * 1);
  if (swav_queue_) {
    Tensors state;
    for (std::size_t i = 0; i < swav_queue_->state().size(); ++i)
      state.push_back(buffers.at(fmt::format("{}queue{}", prefix, i)));
    swav_queue_->load(state, number("queue_next"), number("queue_stored"));
  }
}

void Objective::withdraw() {
  std::erase_if(net_.buffers(), [](const auto& entry) { return entry.first.starts_with(state_prefix); });
}

Tensor DryStep::operator()(const Tensor& x) {
  {
    // Keys and queues are not recorded on the tape.
    Untaped scope;
    objective_.reset();
    objective_ = std::make_unique<Objective>(o_, config_, net_, norm_, x.layout(), 0);
  }
  const auto grid = std::static_pointer_cast<const Grid>(x.layout()->grid);
  const auto n = x.layout()->global[0];
  const auto view = [&](const Shape& extents) {
    const auto layout = input_layout(grid, {n, extents[0], extents[1], extents[2], config_.channels});
    return constant(Tensor({layout->box().extents(), x.dtype()}).with_layout(layout));
  };
  Tensors views{x, view(config_.extents)};
  for (int i = 0; i < o_.small_crops; ++i) views.push_back(view(small_extents(o_, config_.extents)));
  data::ViewBatch batch;
  const auto labels = split_layout(grid, {n}, {0, -1, -1, -1});
  batch.labels.push_back(constant(Tensor({labels->box().extents(), DType::int64}).with_layout(labels)));
  return (*objective_)(views, batch, 0).share;
}

}  // namespace mpigrad::contrast
