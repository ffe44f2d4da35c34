#include "models/nn/module.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <exception>
#include <string_view>
#include <utility>

#include "comm/distributed/grid.h"
#include "comm/distributed/redistribute.h"
#include "framework/base/fnv.h"
#include "framework/base/joined.h"
#include "framework/base/warning.h"
#include "framework/cuda/graph.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/views/views.h"

namespace mpigrad::nn {
namespace {

// A stable number for a name, so that a parameter's initial values depend only on its path and the seed.
std::uint64_t hash(const std::string& text) { return fnv1a(fnv_start, text); }

// The number at the end of text[0, end), and where it begins; -1 if there is none or it is too large.
std::pair<std::int64_t, std::size_t> number_before(std::string_view text, std::size_t end) {
  auto begin = end;
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(text[begin - 1])) != 0) --begin;
  std::int64_t number = -1;
  if (end - begin <= 9) std::from_chars(text.data() + begin, text.data() + end, number);
  return {number, begin};
}

// True if `layers` of a LayerGrid names the layer of this path or a module that contains it.
bool names_layer(std::string_view layers, std::string_view path) {
  const auto ends = [&](std::size_t at) { return at == path.size() || path[at] == '.'; };
  if (path.starts_with(layers) && ends(layers.size())) return true;
  const auto dash = layers.rfind('-');
  if (dash == std::string_view::npos) return false;
  const auto [last, behind] = number_before(layers, layers.size());
  const auto [first, begin] = number_before(layers, dash);
  const auto prefix = layers.substr(0, begin);
  if (behind != dash + 1 || first < 0 || last < 0 || !path.starts_with(prefix)) return false;
  auto end = begin;
  while (end < path.size() && std::isdigit(static_cast<unsigned char>(path[end])) != 0) ++end;
  const auto number = number_before(path, end).first;
  return ends(end) && end > begin && number >= first && number <= last;
}

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

Tensor Initialiser::operator()(const Shape& shape, DType dtype, const Philox& random, const LayoutPtr& layout) const {
  if (of_block_) return of_block_(shape, dtype, random, layout);
  const auto whole = of_all_(shape, dtype, random);
  if (!layout) return whole;
  const Untaped scope;
  const auto box = layout->box();
  return slice(whole, box.begin, box.end);
}

Initialiser constant_value(double value) {
  return [=](const Shape& shape, DType dtype, const Philox&, const LayoutPtr& layout) {
    return full(layout ? layout->box().extents() : shape, value, dtype);
  };
}

Initialiser glorot_uniform(double fan_in, double fan_out) {
  const double bound = std::sqrt(6 / (fan_in + fan_out));
  return [=](const Shape& shape, DType dtype, const Philox& random, const LayoutPtr& layout) {
    return random_uniform(shape, random, -bound, bound, dtype, layout);
  };
}

Initialiser he_normal(double fan_in) {
  return [=](const Shape& shape, DType dtype, const Philox& random, const LayoutPtr& layout) {
    return random_normal(shape, random, 0, std::sqrt(2 / fan_in), dtype, layout);
  };
}

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
      state_->storage = std::make_shared<Grid>(state_->grid->world(), std::vector<std::string>{"rank"},
                                               std::vector<int>{state_->grid->ranks()});
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
  state_->made_in_build.clear();
  {
    Untaped scope;
    forward(inputs);
  }
  state_->building = false;
  for (const auto& own : state_->grids)
    require(std::any_of(state_->placed.begin(), state_->placed.end(),
                        [&](const std::string& path) { return names_layer(own.layers, path); }),
            "[module] no layer with weights is called {}; there are {}", own.layers,
            joined(std::vector<std::string>(state_->placed.begin(), state_->placed.end()), ", "));

  UseDevice device(options.device);
  for (const auto& declared : state_->declared) {
    const Philox random{state_->seed, hash(declared.name)};
    const auto made = declared.initialise(declared.shape, state_->dtype, random, declared.layout);
    const Tensor value = declared.layout ? made.with_layout(declared.layout) : same(made);
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

Tensor Module::placed(const Tensor& x) const {
  auto& state = *root().state_;
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
    const Tensor stand_in = known->layout ? Tensor({known->layout->box().extents(), state.dtype}).with_layout(known->layout)
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
  return value;
}

Tensor Module::computed(const Tensor& x) const { return is_half(compute_dtype()) ? cast(x, compute_dtype()) : x; }

Tensor& Module::buffer(const std::string& name, const Shape& shape, double value, const LayoutPtr& layout) {
  auto& state = *root().state_;
  const auto full_name = path_.empty() ? name : path_ + "." + name;
  auto& slot = state.buffers[full_name];
  if (!slot) {
    UseDevice device(state.buffers_on);
    const bool split = layout && layout->has(Placement::split);
    slot = full(split ? layout->box().extents() : shape, value, state.dtype);
    if (split) slot = slot.with_layout(layout);
  }
  return slot;
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
