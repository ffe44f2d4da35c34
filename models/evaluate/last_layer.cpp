#include "models/evaluate/last_layer.h"

#include <algorithm>
#include <cmath>

#include "models/train/checkpoint/file.h"
#include "models/train/ridge.h"
#include "models/train/training.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace {

struct Features : nn::Module {
  explicit Features(CosmoFlow& net) : Module(net, "features"), net(net) {}
  Tensor operator()(const Tensor& x) override { return net.features(x); }
  CosmoFlow& net;
};

void set(const Tensor& to, const std::vector<double>& values) {
  const Untaped scope;
  const UseDevice host(DeviceKind::cpu);
  const auto& layout = to.layout();
  const auto whole = from_vector(layout ? layout->global : to.shape(), values, to.dtype());
  checkpoint_file::give(to, layout ? slice(whole, layout->box().begin, layout->box().end) : whole);
}

}  // namespace

void fit_last_layer(CosmoFlow& net, const data::Loader& loader) {
  Features features(net);
  const auto found = predict(features, loader);
  auto ridge = fit_ridge(found.predicted, found.truth, static_cast<std::int64_t>(found.samples.size()));
  // A feature that varies by no more than float32 rounds says nothing.
  std::vector<double> variance;
  for (std::size_t j = 0; j < ridge.scale.size(); ++j) {
    const double least = std::max(1e-5 * std::abs(ridge.mean[j]), 1e-5);
    for (std::size_t w = j; ridge.scale[j] < least && w < ridge.weight.size(); w += ridge.scale.size()) ridge.weight[w] = 0;
    variance.push_back(std::pow(std::max(ridge.scale[j], least), 2));
  }
  // In a pipeline only the last stage has these buffers.
  auto& buffers = net.buffers();
  if (const auto mean = buffers.find("norm.mean"); mean != buffers.end())
    set(mean->second, ridge.mean), set(buffers.at("norm.variance"), variance), set(buffers.at("norm.steps"), {-1});
  const auto& parameters = net.parameters();
  set(parameters.find("linear1.weight").value, ridge.weight), set(parameters.find("linear1.bias").value, ridge.offset);
}

}  // namespace mpigrad
