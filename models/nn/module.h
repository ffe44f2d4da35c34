#pragma once
// Networks: modules that own parameters named by path. Input sizes are inferred by running the network once on the dry device, so
// the same source runs on one rank and on any grid.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "comm/distributed/channels.h"
#include "comm/distributed/grid.h"
#include "framework/engine/parameter.h"
#include "framework/engine/tape.h"
#include "framework/tensor/random.h"
#include "framework/tensor/tensor.h"

namespace mpigrad::nn {

class Pipeline;

// Fills a parameter: (global shape, type, a generator of its own) -> tensor on the current device; with a layout as fourth
// argument, this rank's block of it. A function that takes no layout makes the whole tensor, and only the block is kept.
class Initialiser {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, Initialiser>) Initialiser(F f) {
    if constexpr (std::is_invocable_v<F, const Shape&, DType, const Philox&, const LayoutPtr&>) of_block_ = std::move(f);
    else of_all_ = std::move(f);
  }
  Tensor operator()(const Shape& shape, DType dtype, const Philox& random, const LayoutPtr& layout = {}) const;

 private:
  std::function<Tensor(const Shape&, DType, const Philox&)> of_all_;
  std::function<Tensor(const Shape&, DType, const Philox&, const LayoutPtr&)> of_block_;
};
// All elements `value`.
Initialiser constant_value(double value);
// Uniform in +-sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010)
Initialiser glorot_uniform(double fan_in, double fan_out);
// Normal with variance 2 / fan_in (He et al. 2015)
Initialiser he_normal(double fan_in);

// How a layer is split along an axis of the grid (comm/distributed/channels.h describes the communication). On P ranks, each rank
// stores 1/P of the weights, their gradients and the optimizer's state; the initial numbers are the same as on one rank.
//
//   filters   each rank computes some of the result's channels, from all of the input's; a grouped layer: some of the groups
//   channels  each rank takes some of the input's channels, and partial sums are reduced; a grouped layer: as with filters
//   groups    only grouped layers are split
//   none      all of the layer on all ranks of the axis
//
// Where the grid also has the axis `beside`, a layer is split both ways: a layer that is not grouped computes some of the
// result's channels along one axis and takes some of the input's along the other. Its weights are split in both dimensions;
// partial sums are reduced along the second axis, and gradients of the input along the first. A layer takes its input's channels
// along the axis that already splits them, and computes its output's channels along the other. So the axes swap roles from layer
// to layer.
//
// If a layer is to be split along a grid axis that already splits samples or space, its weights are stored in parts along that
// axis and gathered where they are used.
struct LayerSplit {
  ChannelSplit split = ChannelSplit::none;
  std::string axis = "channel";
  bool scatter = false;  // for ChannelSplit::channels along one axis: a reduce-scatter completes the partial sums, so that the
                         // result is split
  std::string beside = "filter";  // a grid need not have it
  LayerSplit() = default;
  LayerSplit(ChannelSplit how, std::string along = "channel", bool scatters = false)
      : split(how), axis(std::move(along)), scatter(scatters) {}
};

// A grid for some layers, over the ranks of the network's grid. It applies to the layers with weights at or below the path
// `layers`, such as "conv5", "conv5-7" for conv5, conv6 and conv7, or "stage4". Their input is redistributed if it is on another
// grid. Their result is redistributed before the next layer that the entry does not name. Layers without weights run on their
// input's grid.
struct LayerGrid {
  std::string layers;
  GridPtr grid;
  std::optional<LayerSplit> split{};  // for layers without a `split` of their own; none: the network's
};

struct BuildOptions {
  std::uint64_t seed = 0;
  DType dtype = DType::float32;  // of parameters, gradients, statistics and the optimizer's state
  // The type in which layers compute; `dtype` if it is empty. bfloat16 or float16 together with a `dtype` of float32 is mixed
  // precision. Convolutions and products round their operands; on CPUs weights are rounded only where a kernel computes in 16
  // bits. The weights' gradients are float32 when they are reduced over ranks. The result has the compute type, too; losses
  // compute with it in float32. float16 needs loss scaling (framework/optim/loss_scale.h).
  std::optional<DType> compute{};
  DeviceKind device = current_device();  // where the parameters are; on the dry device nothing is allocated
  // For layers without a `split` of their own. Most grids have no axis `channel`, and nothing is split.
  LayerSplit split = ChannelSplit::filters;
  // The first entry that names a layer applies to it. Error: an entry that names no layer.
  std::vector<LayerGrid> grids{};
  // If a weight is not split along the grid, each rank stores only one part of it, of its gradient and of the optimizer's state
  // (as in ZeRO, Rajbhandari et al. 2020). A weight is gathered where it is used, and the gathered copy lives as long as the
  // tape; where ranks have different samples or different parts of space, the gather's adjoint, a reduce-scatter, is the
  // reduction of the gradient. Only for layers of this library; biases and norms stay whole.
  bool sharded_weights = false;
  // Runs consecutive layers on different ranks (models/nn/pipeline.h). The layout of the input is on the pipeline's grid(). A
  // rank stores the parameters and statistics of its stage; files have those of all. Error: with `grids` or `sharded_weights`.
  std::shared_ptr<Pipeline> pipeline{};
};

class Module {
 public:
  Module();  // the root of a network
  // A part of a network. A path identifies a layer. Two parts with the same path may not exist at the same time. During
  // build(), moreover, the root's function must not make a second part with a path that it has used, even if the first part no
  // longer exists. To use a layer twice, call the same object twice. A part that is not the root may make its own parts in every
  // call; those with the same name are the same layer.
  Module(Module& parent, const std::string& name);
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // The network's function. Layers and networks define this function or forward().
  virtual Tensor operator()(const Tensor& x);
  // The network's function, for evaluation outside of tapes: in a pipeline every rank gets the result of the last stage, as a
  // constant.
  Tensor run_everywhere(const Tensor& x);
  // A function of several inputs, with several outputs.
  virtual std::vector<Tensor> forward(const std::vector<Tensor>& inputs);

  // Creates all parameters for an input of this layout (or shape). To be called once; a network on the dry device can be built
  // again. A plain_layout(), the layout of loaders without a grid, counts as a shape. Error: a null layout, such as layout() of a
  // plain tensor.
  void build(const LayoutPtr& input, const BuildOptions& options = {});
  void build(const Shape& input, const BuildOptions& options = {});
  // For forward(): layouts of all inputs, on one grid, or their shapes.
  void build(const std::vector<LayoutPtr>& inputs, const BuildOptions& options = {});
  void build(const std::vector<Shape>& inputs, const BuildOptions& options = {});

  // Runs the network's function on the dry device as build() does, for inputs of these shapes without a layout, and leaves the
  // network unchanged, built or not. Returns names and shapes of the parameters that the function asks for.
  std::vector<std::pair<std::string, Shape>> rehearse(const std::vector<Shape>& inputs);

  Parameters& parameters() { return root().state_->parameters; }
  operator Parameters&() { return parameters(); }  // Tape tape(net); Adam adam(net, ...)
  // State that is not trained: running statistics, by path. On a GPU, steps change them in place.
  // In a pipeline those of this rank's stage.
  std::map<std::string, Tensor>& buffers() { return root().state_->buffers; }
  // The same for files: in a pipeline those of all stages, each with the layout of a tensor that one stage stores.
  std::vector<NamedTensor> all_buffers() const;
  const std::shared_ptr<Pipeline>& pipeline() const { return root().state_->pipeline; }  // of build(), or null

  // Switches between training and evaluation: dropout and batch norm differ.
  void train(bool on = true) { root().state_->training = on; }
  bool training() const { return root().state_->training; }
  // The step number from which random layers draw; dropout masks repeat for a repeated step. Every step of an optimizer adds one,
  // so only two kinds of loops must set it: those with several batches per step and those that resume from files; fit() does. A
  // network that is trained without an optimizer and without set_step() has the same masks in every step and prints a warning.
  void set_step(std::int64_t step) { root().state_->parameters.set_step(step), root().state_->told_step = true; }
  std::int64_t step() const { return root().state_->parameters.step(); }

  const std::string& path() const { return path_; }
  DType dtype() const { return root().state_->dtype; }
  DType compute_dtype() const { return root().state_->compute; }

 protected:
  // x in the type in which layers compute. A layer with weights calls it first, so that its input, including halos, has that
  // type.
  Tensor computed(const Tensor& x) const;
  // The parameter `name` of this module, of this global shape. The first call, in build(), declares it: replicated, or in blocks
  // by `layout`; the layout of later calls is ignored.
  Tensor parameter(const std::string& name, const Shape& shape, const Initialiser& initialise, bool decay = true,
                   const LayoutPtr& layout = {});
  // With a layout, this rank's block; code that assigns another tensor to it must give that tensor the same layout.
  Tensor& buffer(const std::string& name, const Shape& shape, double value, const LayoutPtr& layout = {});
  // How this layer is split if it has no `split` of its own: as its grid or the network says.
  const LayerSplit& split() const;
  // x on this layer's grid. A layer with weights calls it first.
  Tensor placed(const Tensor& x) const;
  // x on this layer's stage of a pipeline: for layers with parameters that do not call placed().
  Tensor at_stage(const Tensor& x) const;
  // The result of a network: with whole channels, on the network's grid.
  Tensor given_out(const Tensor& y) const;
  // The layout in which a weight of this shape is stored: `split` if it is given; otherwise the layout in parts if weights are
  // stored in parts.
  LayoutPtr stored(const LayoutPtr& split, const Shape& shape) const;
  // Generator for this module; its child(step()) is the generator of a step.
  Philox random_of_all_steps() const;
  // Generator for this module and step. On a GPU, a step in which the host draws from it cannot be captured as a graph
  // (FitOptions::graph).
  Philox random() const;
  // step(); to be called by a layer that is about to draw random numbers for this step.
  std::int64_t drawn_step() const;
  bool building() const { return root().state_->building; }

 private:
  struct Declaration {
    std::string name;
    Shape shape;
    Initialiser initialise;
    bool decay = true;
    LayoutPtr layout;  // of a parameter in blocks
  };
  struct State {
    Parameters parameters;
    std::map<std::string, std::size_t> places;
    std::map<std::string, Tensor> buffers;
    std::vector<Declaration> declared;
    DType dtype = DType::float32, compute = DType::float32;
    DeviceKind buffers_on = DeviceKind::cpu;  // also where parameters have no storage
    std::uint64_t seed = 0;
    LayerSplit split;
    std::vector<LayerGrid> grids;
    std::set<std::string> placed;  // layers that build() placed on grids
    GridPtr grid;                  // the network's
    GridPtr storage;               // one axis of all ranks, if weights are stored in parts
    std::shared_ptr<Pipeline> pipeline;
    std::map<std::string, LayoutPtr> on_stage;        // in a pipeline: layouts of parameters on their stages' grids
    std::map<std::string, LayoutPtr> buffer_layouts;  // likewise, of all stages' buffers
    std::map<std::string, Tensor> elsewhere;          // stand-ins for buffers of other stages
    bool told_step = false;
    // The tape during which numbers were last drawn, and the step, if set_step() was never called.
    std::uint64_t drawn_under = 0;
    std::int64_t drawn_step = -1;
    int rank = 0;
    LayoutPtr same;  // layout of a replicated parameter, without its shape; none without a grid
    bool training = true, building = false, built = false, dry = false;
    std::set<std::string> made_in_build;  // the root's parts that its function makes
  };
  using Paths = std::set<std::string>;
  Module& root() { return *root_; }
  const Module& root() const { return *root_; }
  void create(const std::vector<Tensor>& inputs, const BuildOptions& options);
  const LayerGrid* own_grid() const;
  // A parameter replicated on all ranks of the grid for which the network is built.
  Tensor same(const Tensor& parameter) const;
  // This layer's stage of the network's pipeline.
  int stage() const;
  void make_parameters(const BuildOptions& options);

  Module* root_;
  std::string path_;
  std::shared_ptr<Paths> paths_;  // of all live parts; shared with them, because parts may outlive the root
  std::unique_ptr<State> state_;  // in the root only
};

// Puts a network into evaluation mode for this scope; then restores its previous mode.
class EvaluationMode {
 public:
  explicit EvaluationMode(Module& net) : net_(net), training_(net.training()) { net_.train(false); }
  ~EvaluationMode() { net_.train(training_); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  Module& net_;
  bool training_;
};

}  // namespace mpigrad::nn
