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

// Fills a parameter: global shape, type and a generator of its own -> tensor on the current device; with a layout behind them,
// this rank's block of it. A function that takes no layout makes the whole tensor, of which the block is kept.
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
Initialiser constant_value(double value);
// Uniform in +-sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010)
Initialiser glorot_uniform(double fan_in, double fan_out);
// Normal with variance 2 / fan_in (He et al. 2015)
Initialiser he_normal(double fan_in);

// How a layer is split along an axis of the grid (comm/distributed/channels.h tells what ranks then say to each other). Its
// weights, their gradients and the optimizer's state are on P ranks 1/P of what they are on one, and begin with the same numbers.
//
//   filters   each rank makes some of the result's channels, of all of the input's; a grouped layer: some of the groups
//   channels  each rank takes some of the input's channels, and sums are made whole; a grouped layer as with filters
//   groups    grouped layers alone
//   none      all of it on all ranks of the axis
//
// Where the grid has the axis `beside`, too, filters and channels at once: a layer that is not grouped makes some of the result's
// channels along one axis and takes some of the input's along the other. Its weights are cut in both dimensions; sums are made
// whole along the second axis, as gradients of the input are along the first. Axes change places from layer to layer, because
// each takes its input as it is cut.
//
// Along an axis that splits samples or space the weights are stored in parts and gathered where they are used.
struct LayerSplit {
  ChannelSplit split = ChannelSplit::none;
  std::string axis = "channel";
  bool scatter = false;           // of channels along one axis: the sums are split, too
  std::string beside = "filter";  // a grid need not have it
  LayerSplit() = default;
  LayerSplit(ChannelSplit how, std::string along = "channel", bool scatters = false)
      : split(how), axis(std::move(along)), scatter(scatters) {}
};

// Layers that have a grid of their own, over the ranks of the network's: those with weights of that path or below it, such as
// "conv5", "conv5-7" for conv5, conv6 and conv7, or "stage4". What they take in is redistributed where it is on another grid, and
// again where a layer follows that is not among them; layers without weights run on the grid on which their input is.
struct LayerGrid {
  std::string layers;
  GridPtr grid;
  std::optional<LayerSplit> split{};  // of layers that do not say it themselves; none: the network's
};

struct BuildOptions {
  std::uint64_t seed = 0;
  DType dtype = DType::float32;  // of parameters, gradients, statistics and the optimizer's state
  // What layers compute in: none is dtype; bfloat16 or float16 beside float32 is mixed precision. Convolutions and products round
  // what they take in, weights included, whose gradients become float32 again before they are reduced over ranks. The result has
  // the type, too; losses compute with it in float32. float16 needs loss scaling (framework/optim/loss_scale.h).
  std::optional<DType> compute{};
  DeviceKind device = current_device();  // where the parameters are; on the dry device nothing is allocated
  // Of the layers that do not say it themselves. Most grids have no axis `channel`, and nothing is split.
  LayerSplit split = ChannelSplit::filters;
  // The first that names a layer counts. An Error if one names no layer.
  std::vector<LayerGrid> grids{};
  // Whether weights that are not split along the grid are stored in parts, one on each rank, with their gradients and the
  // optimizer's state (as in ZeRO, Rajbhandari et al. 2020): gathered where they are used, which lasts as long as the tape;
  // where ranks have different samples or places the gather's adjoint, a reduce-scatter, is the reduction of the gradient. Of
  // layers of this library; biases and norms are whole.
  bool sharded_weights = false;
};

class Module {
 public:
  Module();  // the root of a network
  // A part of one. No two that live at the same time, nor two that the root makes while build() runs its function, have one path:
  // they would be one layer. To share a layer call the same object twice. Parts of parts may be made where they are used, again
  // for each call; of these the ones of one name are one layer.
  Module(Module& parent, const std::string& name);
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // The network's function. Layers and networks define it, or the one below.
  virtual Tensor operator()(const Tensor& x);
  // Of several inputs, with several outputs.
  virtual std::vector<Tensor> forward(const std::vector<Tensor>& inputs);

  // Creates all parameters for an input of this layout (or shape). Once; a network on the dry device can be built again. A
  // plain_layout(), which loaders without a grid have, is a shape. Error: no layout, which plain tensors have.
  void build(const LayoutPtr& input, const BuildOptions& options = {});
  void build(const Shape& input, const BuildOptions& options = {});
  // For forward(), of inputs of these layouts, all on one grid, or shapes.
  void build(const std::vector<LayoutPtr>& inputs, const BuildOptions& options = {});
  void build(const std::vector<Shape>& inputs, const BuildOptions& options = {});

  // Runs the network's function on the dry device as build() does, for inputs of these shapes without a layout, and leaves
  // nothing behind, whether it is built or not: names and shapes of the parameters that it asks for.
  std::vector<std::pair<std::string, Shape>> rehearse(const std::vector<Shape>& inputs);

  Parameters& parameters() { return root().state_->parameters; }
  operator Parameters&() { return parameters(); }  // Tape tape(net); Adam adam(net, ...)
  // State that is not trained: running statistics, by path. On a GPU steps change them where they are.
  std::map<std::string, Tensor>& buffers() { return root().state_->buffers; }

  // Training or evaluation: dropout and batch norm differ.
  void train(bool on = true) { root().state_->training = on; }
  bool training() const { return root().state_->training; }
  // The number that random layers draw from; dropout masks repeat for a repeated step. Every step of an optimizer adds one, so
  // that only loops in which a step has several batches, or which go on from files, say it; fit() does. A network that is trained
  // without an optimizer and never told its step, so that every step has the same masks, prints a warning.
  void set_step(std::int64_t step) { root().state_->parameters.set_step(step), root().state_->told_step = true; }
  std::int64_t step() const { return root().state_->parameters.step(); }

  const std::string& path() const { return path_; }
  DType dtype() const { return root().state_->dtype; }
  DType compute_dtype() const { return root().state_->compute; }

 protected:
  // x as what layers compute in. A layer with weights calls it first, so that its input, and with it halos, has that type.
  Tensor computed(const Tensor& x) const;
  // The parameter `name` of this module, of this global shape. The first call, under build(), declares it: whole on all ranks, or
  // in blocks as `layout` says, whatever later ones say.
  Tensor parameter(const std::string& name, const Shape& shape, const Initialiser& initialise, bool decay = true,
                   const LayoutPtr& layout = {});
  // With a layout, this rank's block; whoever puts another tensor there gives it that layout.
  Tensor& buffer(const std::string& name, const Shape& shape, double value, const LayoutPtr& layout = {});
  // How this layer is split, if it does not say it itself: as its grid, or the network.
  const LayerSplit& split() const;
  // x on this layer's grid. A layer with weights calls it first.
  Tensor placed(const Tensor& x) const;
  // What a network gives out: with whole channels, on the network's grid.
  Tensor given_out(const Tensor& y) const;
  // The layout of a weight of this shape: `split`, or if that is none in parts where weights are stored so.
  LayoutPtr stored(const LayoutPtr& split, const Shape& shape) const;
  // Numbers for this module; those of a step are its child(step()).
  Philox random_of_all_steps() const;
  // Numbers for this module and step. A step that draws from them on the host cannot be captured.
  Philox random() const;
  // step(), for a layer that draws numbers with it now.
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
    std::set<std::string> placed;  // layers that build() put on grids
    GridPtr grid;                  // the network's
    GridPtr storage;               // one axis of all ranks, if weights are stored in parts
    bool told_step = false;
    // The tape under which numbers were drawn last, and for which step, if that was never told.
    std::uint64_t drawn_under = 0;
    std::int64_t drawn_step = -1;
    int rank = 0;
    LayoutPtr same;  // of a parameter, but for its shape; none without a grid
    bool training = true, building = false, built = false, dry = false;
    std::set<std::string> made_in_build;  // the root's parts that its function makes
  };
  using Paths = std::set<std::string>;
  Module& root() { return *root_; }
  const Module& root() const { return *root_; }
  void create(const std::vector<Tensor>& inputs, const BuildOptions& options);
  const LayerGrid* own_grid() const;
  // A parameter as the same on all ranks of the grid for which the network is built.
  Tensor same(const Tensor& parameter) const;

  Module* root_;
  std::string path_;
  std::shared_ptr<Paths> paths_;  // of all parts that live; theirs too, because parts may outlive the root
  std::unique_ptr<State> state_;  // the root's
};

// A network in evaluation mode as long as this lives, then in the mode in which it was.
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
