#include "models/nn/module.h"

#include <algorithm>
#include <exception>
#include <string_view>
#include <utility>

#include "comm/distributed/grid.h"
#include "comm/distributed/local_parts.h"
#include "comm/distributed/redistribute.h"
#include "framework/base/fnv.h"
#include "framework/base/joined.h"
#include "framework/base/warning.h"
#include "framework/cuda/graph.h"
#include "models/nn/layer_names.h"
#include "models/nn/pipeline.h"
#include "ops/elementwise/elementwise.h"
#include "ops/views/views.h"

namespace mpigrad::nn {
namespace {

// A stable number for a name, so that a parameter's initial values depend only on its path and the seed.
std::uint64_t hash(const std::string& text) { return fnv1a(fnv_start, text); }

bool are_equal(const Grid& a, const Grid& b) {
  return a.names == b.names && a.extents == b.extents && a.overlap() == b.overlap();
}

// [N, D, H, W, C], or [N, ...], on sample x depth x height x width and possibly x channel; other dimensions are whole.
LayoutPtr samples_and_space(const GridPtr& grid, const Shape& global, bool channels) {
  if (global.rank() == 5) return channels && grid->axes() > 4 ? activation_layout(grid, global) : input_layout(grid, global);
  std::vector<int> dimensions{0};
  if (channels && grid->axes() > 4) dimensions = {0, -1, -1, -1, global.rank() - 1};
  return split_layout(grid, global, dimensions);
}

// A substitute for an input on the dry device.
Tensor stand_in(const LayoutPtr& input, DType dtype) {
  const Tensor x({input->box().extents(), dtype});
  return is_plain(*input) ? x : x.with_layout(input);
}

}  // namespace

Module::Module() : root_(this), paths_(std::make_shared<Paths>()), state_(std::make_unique<State>()) {}

Module::Module(Module& parent, const std::string& name)
    : root_(&parent.root()), path_(parent.path_.empty() ? name : parent.path_ + "." + name), paths_(parent.paths_) {
  auto& state = *root().state_;
  const bool again = state.building && &parent == root_ && !state.made_in_build.insert(path_).second;
  require(!again && paths_->insert(path_).second,
          "[module] there are two layers named {}, which would share their parameters; give them different names, or call one "
          "object twice",
          path_);
}

Module::~Module() {
  if (root_ != this) paths_->erase(path_);
}

Tensor Module::operator()(const Tensor& x) {
  fail("[module] {} defines no function of {}", path_.empty() ? "the network" : path_, x);
}

Tensor Module::run_everywhere(const Tensor& x) {
  const auto& pipeline = root().state_->pipeline;
  return pipeline ? pipeline->result((*this)(pipeline->input(x))) : (*this)(x);
}

std::vector<Tensor> Module::forward(const std::vector<Tensor>& inputs) {
  require(inputs.size() == 1, "[module] {} defines no function of {} inputs", path_.empty() ? "the network" : path_,
          inputs.size());
  return {(*this)(inputs[0])};
}

void Module::build(const LayoutPtr& input, const BuildOptions& options) {
  require(input != nullptr, "[module] the input has no layout: without a process grid call build(shape)");
  UseDevice dry(DeviceKind::dry);
  create({stand_in(input, options.dtype)}, options);
}

void Module::build(const Shape& input, const BuildOptions& options) {
  UseDevice dry(DeviceKind::dry);
  create({Tensor({input, options.dtype})}, options);
}

void Module::build(const std::vector<LayoutPtr>& inputs, const BuildOptions& options) {
  UseDevice dry(DeviceKind::dry);
  std::vector<Tensor> stand_ins;
  for (const auto& input : inputs) {
    require(input != nullptr, "[module] an input has no layout: without a process grid call build(shapes)");
    require(input->grid == inputs.front()->grid, "[module] the inputs of a network must be on one process grid");
    stand_ins.push_back(stand_in(input, options.dtype));
  }
  create(stand_ins, options);
}

void Module::build(const std::vector<Shape>& inputs, const BuildOptions& options) {
  UseDevice dry(DeviceKind::dry);
  std::vector<Tensor> stand_ins;
  for (const auto& input : inputs) stand_ins.emplace_back(TensorType{input, options.dtype});
  create(stand_ins, options);
}

std::vector<std::pair<std::string, Shape>> Module::rehearse(const std::vector<Shape>& inputs) {
  require(this == root_, "[module] rehearse the network, not its part {}", path_);
  UseDevice dry(DeviceKind::dry);
  const auto dtype = state_->dtype;
  std::vector<Tensor> stand_ins;
  for (const auto& input : inputs) stand_ins.emplace_back(TensorType{input, dtype});
  // Parts that the function makes during this run belong to another network's state.
  auto other = std::make_unique<State>();
  other->dtype = dtype, other->compute = state_->compute, other->training = state_->training, other->building = true;
  std::swap(state_, other);
  std::exception_ptr error;
  try {
    Untaped scope;
    forward(stand_ins);
  } catch (...) {
    error = std::current_exception();
  }
  std::swap(state_, other);
  if (error) std::rethrow_exception(error);
  std::vector<std::pair<std::string, Shape>> declared;
  for (const auto& each : other->declared) declared.emplace_back(each.name, each.shape);
  return declared;
}

void Module::create(const std::vector<Tensor>& inputs, const BuildOptions& options) {
  require(!inputs.empty(), "[module] a network needs an input");
  const auto& input = inputs.front();
  require(this == root_, "[module] build the network, not its part {}", path_);
  if (state_->built) {
    require(state_->dry && options.device == DeviceKind::dry, "[module] the network is built already");
    auto fresh = std::make_unique<State>();
    fresh->training = state_->training;
    state_ = std::move(fresh);
  }
  state_->dry = options.device == DeviceKind::dry;
  const auto compute = options.compute.value_or(options.dtype);
  require(compute == options.dtype || (options.dtype == DType::float32 && is_half(compute)),
          "[module] with parameters of {}, layers compute in {}, not in {}", name_of(options.dtype),
          options.dtype == DType::float32 ? "float32, bfloat16 or float16" : name_of(options.dtype), name_of(compute));
  state_->dtype = options.dtype;
  state_->compute = compute;
  state_->seed = options.seed;
  state_->split = options.split;
  state_->buffers_on = options.device == DeviceKind::cuda ? DeviceKind::cuda : DeviceKind::cpu;
  state_->rank = input.layout() ? input.layout()->grid->rank : 0;
  if (input.layout()) {
    state_->grid = std::dynamic_pointer_cast<const Grid>(input.layout()->grid);
    state_->same = replicated_layout(state_->grid, Shape{});
    if (options.sharded_weights && state_->grid->ranks() > 1)
      state_->storage = std::make_shared<spatial::StoredWeights>(state_->grid->world());
  }
  if (options.pipeline) {
    require(options.grids.empty() && !options.sharded_weights,
            "[module] in a pipeline layers have no grids of their own, and weights are not in parts");
    require(input.layout() && input.layout()->grid == options.pipeline->grid(),
            "[module] the input of a network in a pipeline has a layout on the pipeline's grid(): {}", input);
    state_->pipeline = options.pipeline;
  }
  require(input.layout() || (options.grids.empty() && !options.sharded_weights),
          "[module] grids for layers, and weights in parts, need an input with a layout");
  for (const auto& own : options.grids)
    require(own.grid && own.grid->ranks() == state_->grid->ranks() && own.grid->rank == state_->grid->rank,
            "[module] the grid of {} has {} ranks, the network's has {}; they must be the same", own.layers,
            own.grid ? own.grid->ranks() : 0, state_->grid->ranks());
  state_->grids = options.grids;
  // Layers on equal grids share one grid object: then tensors in equal layouts are not moved, and collectives over channels
  // include all ranks concerned.
  std::vector<GridPtr> known{state_->grid};
  for (auto& own : state_->grids) {
    const auto found = std::find_if(known.begin(), known.end(), [&](const GridPtr& grid) { return are_equal(*grid, *own.grid); });
    if (found == known.end()) known.push_back(own.grid);
    else own.grid = *found;
  }
  state_->building = true;
  const auto run = [&] {
    state_->made_in_build.clear();
    Untaped scope;
    forward(options.pipeline ? options.pipeline->inputs(inputs) : inputs);
  };
  if (const auto& pipeline = options.pipeline) {
    if (pipeline->chooses()) pipeline->choose(run);
    state_->declared.clear(), state_->buffers.clear(), state_->buffer_layouts.clear(), state_->elsewhere.clear();
    pipeline->begin_build();
  }
  run();
  if (options.pipeline) options.pipeline->end_build();
  state_->building = false;
  for (const auto& own : state_->grids)
    require(std::any_of(state_->placed.begin(), state_->placed.end(),
                        [&](const std::string& path) { return names_layer(own.layers, path); }),
            "[module] no layer with weights is called {}; there are {}", own.layers,
            joined(std::vector<std::string>(state_->placed.begin(), state_->placed.end()), ", "));

  make_parameters(options);
}

void Module::make_parameters(const BuildOptions& options) {
  UseDevice device(options.device);
  for (const auto& declared : state_->declared) {
    const Philox random{state_->seed, hash(declared.name)};
    Tensor value;
    if (const auto& pipeline = state_->pipeline) {
      const auto& on_stage = state_->on_stage.at(declared.name);
      const auto stored = pipeline->messages().stored(pipeline->messages().stage_of(*on_stage->grid), *on_stage);
      const bool mine = on_stage->grid == pipeline->grid();
      value = (mine ? declared.initialise(declared.shape, state_->dtype, random, declared.layout)
                    : Tensor({stored->box().extents(), state_->dtype}))
                  .with_layout(stored);
    } else {
      const auto made = declared.initialise(declared.shape, state_->dtype, random, declared.layout);
      value = declared.layout ? made.with_layout(declared.layout) : same(made);
    }
    state_->places[declared.name] = state_->parameters.size();
    state_->parameters.add(declared.name, value, declared.decay);
  }
  state_->parameters.pack();
  state_->built = true;
}

const LayerGrid* Module::own_grid() const {
  for (const auto& own : root().state_->grids)
    if (names_layer(own.layers, path_)) return &own;
  return nullptr;
}

const LayerSplit& Module::split() const {
  const auto* own = own_grid();
  return own && own->split ? *own->split : root().state_->split;
}

int Module::stage() const { return root().state_->pipeline->stage_of(path_, building()); }

Tensor Module::at_stage(const Tensor& x) const {
  const auto& pipeline = root().state_->pipeline;
  return pipeline ? pipeline->moved(x, path_, building()) : x;
}

Tensor Module::placed(const Tensor& x) const {
  auto& state = *root().state_;
  if (state.pipeline) return at_stage(x);
  if (state.grids.empty()) return x;
  if (state.building) state.placed.insert(path_);
  if (!x.layout()) return x;
  const auto* own = own_grid();
  const auto& grid = own ? own->grid : state.grid;
  if (x.layout()->grid == grid) return x;
  // Where the layer takes some of the channels, they are split on arrival; otherwise they are gathered anyway.
  return redistribute(x, samples_and_space(grid, x.layout()->global, split().split == ChannelSplit::channels));
}

Tensor Module::given_out(const Tensor& y) const {
  const auto& state = *root().state_;
  if (state.grids.empty() || !y.layout() || y.layout()->grid == state.grid) return whole_channels(y);
  return redistribute(y, samples_and_space(state.grid, y.layout()->global, false));
}

LayoutPtr Module::stored(const LayoutPtr& split, const Shape& shape) const {
  const auto& storage = root().state_->storage;
  if (!storage || (split && split->has(Placement::split))) return split;
  // Split along the first dimension, whose blocks are contiguous: a gather along another dimension must interleave the ranks'
  // pieces. Some ranks may then have nothing, which costs less than thousands of pieces, unless a row is large.
  constexpr std::int64_t most_elements = 1 << 18;
  const auto longest = static_cast<int>(std::max_element(shape.begin(), shape.end()) - shape.begin());
  const bool rows = shape[0] >= storage->ranks() || shape.elements() <= most_elements * shape[0];
  return split_layout(storage, shape, {rows ? 0 : longest});
}

Tensor Module::same(const Tensor& parameter) const {
  const auto& on_grid = root().state_->same;
  if (!on_grid) return parameter;
  Layout layout = *on_grid;
  layout.global = parameter.shape();
  return parameter.with_layout(std::make_shared<Layout>(std::move(layout)));
}

Tensor Module::parameter(const std::string& name, const Shape& shape, const Initialiser& initialise, bool decay,
                         const LayoutPtr& layout) {
  auto& state = *root().state_;
  const auto full_name = path_.empty() ? name : path_ + "." + name;
  if (state.building) {
    auto known = std::find_if(state.declared.begin(), state.declared.end(),
                              [&](const Declaration& declared) { return declared.name == full_name; });
    require(!layout || layout->global == shape, "[module] {} is {}, its layout of {}", full_name, shape,
            layout ? layout->global : shape);
    if (known == state.declared.end())
      known = state.declared.insert(
          known, {full_name, shape, initialise, decay, layout && layout->has(Placement::split) ? layout : nullptr});
    auto on_stage = known->layout;
    if (state.pipeline) {
      if (!on_stage) on_stage = state.pipeline->messages().replicated(stage(), shape);
      state.on_stage[full_name] = on_stage;
    }
    const bool elsewhere = state.pipeline && on_stage->grid != state.pipeline->grid();
    const Tensor stand_in = elsewhere  ? state.pipeline->messages().stand_in(on_stage, state.dtype)
                            : on_stage ? Tensor({on_stage->box().extents(), state.dtype}).with_layout(on_stage)
                                       : same(Tensor({shape, state.dtype}));
    detail::name_parameter(stand_in, full_name);
    return stand_in;
  }
  const auto found = state.places.find(full_name);
  require(found != state.places.end(), "[module] {} does not exist: call build() with an input of the right shape first",
          full_name);
  const auto& value = state.parameters[found->second].value;
  const auto& global = global_shape(value);
  require(global == shape, "[module] {} was built as {}, this input needs {}", full_name, global, shape);
  detail::name_parameter(value, full_name);
  if (!state.pipeline) return value;
  const auto& on_stage = state.on_stage.at(full_name);
  if (on_stage->grid == state.pipeline->grid()) return value.with_layout(on_stage);
  return state.pipeline->messages().stand_in(on_stage, state.dtype);
}

Tensor Module::computed(const Tensor& x) const { return is_half(compute_dtype()) ? cast(x, compute_dtype()) : x; }

Tensor& Module::buffer(const std::string& name, const Shape& shape, double value, const LayoutPtr& layout) {
  auto& state = *root().state_;
  const auto full_name = path_.empty() ? name : path_ + "." + name;
  const bool split = layout && layout->has(Placement::split);
  if (state.pipeline) {
    auto& on_stage = state.buffer_layouts[full_name];
    if (!on_stage) on_stage = split ? layout : state.pipeline->messages().replicated(stage(), shape);
    if (on_stage->grid != state.pipeline->grid())
      return state.elsewhere[full_name] = state.pipeline->messages().stand_in(on_stage, state.dtype).without_layout();
  }
  auto& slot = state.buffers[full_name];
  if (!slot) {
    UseDevice device(state.buffers_on);
    slot = full(split ? layout->box().extents() : shape, value, state.dtype);
    if (split) slot = slot.with_layout(layout);
  }
  return slot;
}

std::vector<NamedTensor> Module::all_buffers() const {
  const auto& state = *root().state_;
  std::vector<NamedTensor> result;
  if (!state.pipeline) {
    for (const auto& [name, value] : state.buffers) result.push_back({name, value});
    return result;
  }
  const auto& messages = state.pipeline->messages();
  for (const auto& [name, on_stage] : state.buffer_layouts) {
    const auto stored = messages.stored(messages.stage_of(*on_stage->grid), *on_stage);
    const auto mine = state.buffers.find(name);
    const auto value =
        mine != state.buffers.end() ? mine->second : Tensor({stored->box().extents(), state.dtype}, DeviceKind::cpu);
    result.push_back({name, value.with_layout(stored)});
  }
  return result;
}

Philox Module::random_of_all_steps() const { return {root().state_->seed, hash(path_)}; }
Philox Module::random() const {
  require(!cuda::capturing(), "[{}] draws numbers that would be the same in every repetition of a captured step", path());
  return random_of_all_steps().child(static_cast<std::uint64_t>(drawn_step()));
}

// Layers that draw again under the same tape belong to the same step: in recomputation, or where a layer is used twice.
std::int64_t Module::drawn_step() const {
  auto& state = *root().state_;
  const auto tape = Tape::outermost_number();
  const bool draws = state.training && !state.building && current_device() != DeviceKind::dry;
  if (state.told_step || !draws || tape == 0) return step();
  const auto before = std::exchange(state.drawn_under, tape);
  const auto drawn = std::exchange(state.drawn_step, step());
  if (before != 0 && before != tape && drawn == step() && state.rank == 0)
    warn_once(
        "step never set",
        fmt::format("[{}] draws the random numbers of step {} again: no optimizer has made a step since, and set_step() was "
                    "never called; without either, every step has the same numbers, and dropout always has the same mask",
                    path(), step()));
  return step();
}

}  // namespace mpigrad::nn
