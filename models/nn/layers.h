#pragma once
// Layers. Each works on plain tensors and on distributed ones; attributes are designated initialisers:
//
//   nn::Conv3d conv{*this, "conv", {.out = 16, .kernel = 3, .padding = 1}};
//
// Where the grid has an axis `channel` or `filter`, layers with weights are split along it by BuildOptions::split or their own
// `split` (LayerSplit in models/nn/module.h). With `filters` (the default), a layer with weights gathers all input channels and
// computes only part of the output channels. Layers without weights that follow work on that part. With both axes, weights are
// cut in both dimensions. Networks take inputs with all channels (input_layout) and mark their last layer's result as `whole`.

#include <optional>

#include "comm/distributed/distributed.h"
#include "models/nn/module.h"

namespace mpigrad::nn {

// The distribution of the initial weights; biases are 0.
enum class WeightStart : std::uint8_t {
  glorot_uniform,
  he_fan_out,      // normal, variance 2 / (out * taps)
  uniform_fan_in,  // in +-1 / sqrt(in * taps), the bias, too, as in PyTorch's convolutions
};

struct Conv3dAttributes {
  std::int64_t out = 0;
  Triple kernel = 1, stride = 1;
  Padding padding = 0;
  Triple dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  Activation activation = Activation::none;  // runs in the same pass as the convolution if it can be fused
  WeightStart start = WeightStart::glorot_uniform;
  std::optional<LayerSplit> split{};  // none: the network's choice
  bool whole = false;                 // all channels of the result on every rank, for results that cannot be split, such as a
                                      // network's scores
};
enum class Pooling : std::uint8_t { average, maximum };
// [N, D, H, W, C] -> [N, D', H', W', out]
class Conv3d : public Module {
 public:
  using Attributes = Conv3dAttributes;
  Conv3d(Module& parent, const std::string& name, const Conv3dAttributes& attributes);
  Tensor operator()(const Tensor& x) override { return (*this)(x, a_.activation); }
  // With another activation or stride than the attributes': a stride may depend on the extents of x.
  Tensor operator()(const Tensor& x, Activation activation, const std::optional<Triple>& stride = {});
  const Conv3dAttributes& attributes() const { return a_; }
  Activation activation() const { return a_.activation; }
  // pool(conv(x)), called `name` in tables. The passes are ordered so that the large tensor is read as few times as possible and
  // is not kept for the tape. Convolution and pooling share one halo exchange where that sends fewer bytes. For average pooling
  // the activation runs in the pooling pass, which keeps one sign bit per element. Bias and fused activations do not change which
  // element is the largest, so for maximum pooling they run after it.
  Tensor pooled(const Tensor& x, const std::string& name, Pooling pooling, const PoolAttributes& pool) {
    return pooled(x, name, pooling, pool, a_.activation);
  }
  Tensor pooled(const Tensor& x, const std::string& name, Pooling pooling, const PoolAttributes& pool, Activation activation,
                const std::optional<Triple>& stride = {});

 private:
  struct Convolved;  // conv(x) and its plan
  // `pool`: the pooling that follows, or null.
  Convolved convolved(const Tensor& x, bool with_bias, Activation activation, const std::optional<Triple>& stride,
                      const PoolAttributes* pool);
  Tensor bias(double fan_in, const LayoutPtr& layout);
  Conv3dAttributes a_;
};

struct Conv2dAttributes {
  std::int64_t out = 0;
  Pair kernel = 1, stride = 1;
  Padding2d padding = 0;
  Pair dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  Activation activation = Activation::none;  // fused
  WeightStart start = WeightStart::glorot_uniform;
  std::optional<LayerSplit> split{};
  bool whole = false;
};
// [N, H, W, C] -> [N, H', W', out]: a Conv3d of one plane, with its weight [out, 1, kh, kw, C/groups].
class Conv2d : public Conv3d {
 public:
  using Attributes = Conv2dAttributes;
  Conv2d(Module& parent, const std::string& name, const Conv2dAttributes& attributes);
  Tensor operator()(const Tensor& x) override;
};

struct Conv1dAttributes {
  std::int64_t out = 0;
  std::int64_t kernel = 1, stride = 1;
  Padding1d padding = 0;
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  Activation activation = Activation::none;  // fused
  WeightStart start = WeightStart::glorot_uniform;
  std::optional<LayerSplit> split{};
  bool whole = false;
};
// [N, W, C] -> [N, W', out]: a Conv3d of one line, with its weight [out, 1, 1, kw, C/groups].
class Conv1d : public Conv3d {
 public:
  using Attributes = Conv1dAttributes;
  Conv1d(Module& parent, const std::string& name, const Conv1dAttributes& attributes);
  Tensor operator()(const Tensor& x) override;
};

struct ConvTranspose3dAttributes {
  std::int64_t out = 0;
  Triple kernel = 1, stride = 1;
  Padding padding = 0;
  Triple output_padding = 0, dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  Activation activation = Activation::none;  // runs in the same pass as the bias if it can be fused
  std::optional<LayerSplit> split{};         // none: the network's choice
  bool whole = false;  // all channels of the result on every rank, for results that cannot be split, such as a network's scores
};
// [N, D, H, W, C] -> [N, D', H', W', out], D' = (D - 1) stride - low - high + dilation (kernel - 1) + output_padding + 1. If
// global `extents` are given, the end padding or the output padding of each dimension is chosen so that the result has them.
class ConvTranspose3d : public Module {
 public:
  using Attributes = ConvTranspose3dAttributes;
  ConvTranspose3d(Module& parent, const std::string& name, const ConvTranspose3dAttributes& attributes);
  Tensor operator()(const Tensor& x) override { return (*this)(x, a_.activation); }
  Tensor operator()(const Tensor& x, Activation activation, const std::optional<Extent3>& extents = {});
  Activation activation() const { return a_.activation; }

 private:
  ConvTranspose3dAttributes a_;
};

struct BatchNormAttributes {
  double momentum = 0.9;  // running = momentum * running + (1 - momentum) * batch
  double epsilon = 1e-5;
  StatisticsOver statistics = StatisticsOver::all;
  bool affine = true;                        // learns a factor gamma and a summand beta per channel
  double gamma_start = 1;                    // 0 for the last norm of a residual branch: the block begins as the identity
  Activation activation = Activation::none;  // runs in the same pass as the norm if it can be fused
};
// Channels are last. In training, statistics of the batch; in evaluation, running ones (with the unbiased variance).
class BatchNorm : public Module {
 public:
  using Attributes = BatchNormAttributes;
  BatchNorm(Module& parent, const std::string& name, const BatchNormAttributes& attributes = {});
  Tensor operator()(const Tensor& x) override { return (*this)(x, a_.activation); }
  Tensor operator()(const Tensor& x, Activation activation);
  Activation activation() const { return a_.activation; }

 private:
  void update(const Tensor& x, const BatchNormResult& result, Tensor& mean, Tensor& variance) const;
  // A running statistic, laid out like the channels of x.
  Tensor beside(const Tensor& x, const Tensor& statistic) const;
  BatchNormAttributes a_;
};

struct GroupNormAttributes {
  std::int64_t groups = 0;  // of channels; 0: each channel by itself (instance norm); 1: all channels and cells of a sample
  double epsilon = 1e-5;
  StatisticsOver statistics = StatisticsOver::spatial_group;  // or local
  bool affine = true;                                         // learns a factor gamma and a summand beta per channel
  Activation activation = Activation::none;                   // runs in the same pass as the norm if it can be fused
};
// Normalises each sample by its own statistics, in training and in evaluation. Where a group of channels lies on several ranks,
// the channels are gathered first. With one group each sample is normalised over all its channels and cells; LayerNorm normalises
// each row of channels by itself.
class GroupNorm : public Module {
 public:
  using Attributes = GroupNormAttributes;
  GroupNorm(Module& parent, const std::string& name, const GroupNormAttributes& attributes = {})
      : Module(parent, name), a_(attributes) {}
  Tensor operator()(const Tensor& x) override { return (*this)(x, a_.activation); }
  Tensor operator()(const Tensor& x, Activation activation);
  Activation activation() const { return a_.activation; }

 private:
  GroupNormAttributes a_;
};

struct RowNormAttributes {
  double epsilon = 1e-5;
  bool affine = true;  // learns a factor gamma per channel, and LayerNorm a summand beta
};
// layer_norm() and rms_norm() of comm/distributed/normalisation.h: each row along the last dimension is normalised by itself.
// Split channels are gathered first.
class LayerNorm : public Module {
 public:
  using Attributes = RowNormAttributes;
  LayerNorm(Module& parent, const std::string& name, const RowNormAttributes& attributes = {})
      : Module(parent, name), a_(attributes) {}
  Tensor operator()(const Tensor& x) override;

 private:
  RowNormAttributes a_;
};
class RmsNorm : public Module {
 public:
  using Attributes = RowNormAttributes;
  RmsNorm(Module& parent, const std::string& name, const RowNormAttributes& attributes = {})
      : Module(parent, name), a_(attributes) {}
  Tensor operator()(const Tensor& x) override;

 private:
  RowNormAttributes a_;
};

struct EmbeddingAttributes {
  std::int64_t rows = 0, out = 0;
};
// Integers [...] in [0, rows) -> [..., out]; the table is initialised standard normal.
class Embedding : public Module {
 public:
  using Attributes = EmbeddingAttributes;
  Embedding(Module& parent, const std::string& name, const EmbeddingAttributes& attributes)
      : Module(parent, name), a_(attributes) {}
  Tensor operator()(const Tensor& x) override;

 private:
  EmbeddingAttributes a_;
};

// In this scope and on this thread, a batch norm that would use statistics of its batch throws an Error that names the layer.
// Used where a batch is encoded in parts, because the parts must give the same result as the whole batch.
class NoBatchStatistics {
 public:
  explicit NoBatchStatistics(const char* why);
  ~NoBatchStatistics();
  NoBatchStatistics(const NoBatchStatistics&) = delete;
  NoBatchStatistics& operator=(const NoBatchStatistics&) = delete;

 private:
  const char* previous_;
};

struct LinearAttributes {
  std::int64_t out = 0;
  bool bias = true;
  double bias_start = 0;
  Activation activation = Activation::none;  // runs in the same pass as the product if it can be fused
  std::optional<LayerSplit> split{};         // none: the network's choice
  bool whole = false;  // all channels of the result on every rank, for results that cannot be split, such as a network's scores
};
// [N, in] -> [N, out]
class Linear : public Module {
 public:
  using Attributes = LinearAttributes;
  Linear(Module& parent, const std::string& name, const LinearAttributes& attributes);
  Tensor operator()(const Tensor& x) override { return (*this)(x, a_.activation); }
  Tensor operator()(const Tensor& x, Activation activation);
  Activation activation() const { return a_.activation; }

 private:
  LinearAttributes a_;
};

struct DropoutAttributes {
  double keep = 0.5;
};
// The mask is the same on every grid.
class Dropout : public Module {
 public:
  using Attributes = DropoutAttributes;
  Dropout(Module& parent, const std::string& name, const DropoutAttributes& attributes = {});
  Tensor operator()(const Tensor& x) override;

 private:
  DropoutAttributes a_;
};

// Bytes that a rank has sent point to point and contributed to collectives so far.
struct LayerTraffic {
  std::int64_t sent = 0, collective = 0;
};
// Record of one layer's forward pass, for tables; see models/nn/describe.h.
struct LayerRecord {
  std::string name, kind;
  Shape out;  // global
  std::int64_t parameters = 0;
  double flops = 0;                   // forward, this rank
  std::int64_t activation_bytes = 0;  // of the local result
  // Forward, this rank: bytes sent as halos; bytes redistributed from another grid; bytes contributed to collectives.
  std::int64_t sent_bytes = 0, moved_bytes = 0, collective_bytes = 0;
  bool elsewhere = false;  // on another stage of a pipeline
};

// While it is alive on this thread, layers append their records.
class LayerTrace {
 public:
  explicit LayerTrace(std::function<LayerTraffic()> traffic = {});
  ~LayerTrace();
  LayerTrace(const LayerTrace&) = delete;
  LayerTrace& operator=(const LayerTrace&) = delete;

  std::vector<LayerRecord> layers;
  int open = 0;  // layers whose forward pass is running

 private:
  friend class LayerScope;
  std::function<LayerTraffic()> traffic_;
  LayerTrace* previous_;
};

// One layer's forward pass.
class LayerScope {
 public:
  LayerScope(std::string name, std::string kind, std::int64_t parameters = 0);
  ~LayerScope();
  // The layer's input, redistributed to the layer's grid; the bytes that this takes are counted separately.
  Tensor moved(Tensor x);
  Tensor done(Tensor y);

 private:
  struct Counter;
  std::unique_ptr<Counter> counter_;
};

}  // namespace mpigrad::nn
