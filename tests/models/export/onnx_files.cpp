// Writes networks as NAME.onnx, with NAME.x.npy and NAME.y.npy: an input of two samples and the network's output, both in the
// order of the file, channels second. tests/models/export/onnx_runtime.py compares them with ONNX's own programs.
//
//   build/tests/onnx_files FOLDER

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models/data/sources/npy.h"
#include "models/export/onnx.h"
#include "models/networks/cosmoflow.h"
#include "models/networks/resnet.h"
#include "models/networks/unet3d.h"
#include "ops/random/random.h"
#include "ops/views/views.h"

using namespace mpigrad;

namespace {

void write_array(const std::filesystem::path& path, const Tensor& x) {
  const auto array = x.rank() == 5 ? permute(x, {0, 4, 1, 2, 3}) : x;
  write_npy(path, array, true);
}

void write(const std::filesystem::path& folder, const std::string& name, nn::Module& net, const Shape& one) {
  Untaped scope;
  auto two = one;
  two[0] = 2;
  net.build(one, {.seed = 3});
  net.train();
  for (std::uint64_t i = 0; i < 3; ++i)
    static_cast<void>(net(random_normal(two, {.key = 90 + i}, 0.3, 1.5)));  // so that norms have running statistics
  export_onnx(folder / (name + ".onnx"), net, one, {.overwrite = true});
  nn::EvaluationMode mode(net);
  const auto x = random_normal(two, {.key = 5}, 0, 1);
  write_array(folder / (name + ".x.npy"), x), write_array(folder / (name + ".y.npy"), net(x));
  fmt::print("{}\n", name);
}

}  // namespace

int main(int argc, char** argv) try {
  require(argc == 2, "[test] onnx_files FOLDER");
  const std::filesystem::path folder = argv[1];
  CosmoFlow hybrid({.batch_norm = true, .filters = 4});
  write(folder, "CosmoFlow-hybrid", hybrid, {1, 32, 32, 32, 4});
  CosmoFlow mlperf({.variant = CosmoFlowVariant::mlperf, .filters = 16});
  write(folder, "CosmoFlow-mlperf", mlperf, {1, 32, 32, 32, 4});
  UNet3d unet({.variant = UNet3dVariant::mlperf, .filters = {4, 6, 8, 8, 10, 10}, .classes = 3});
  write(folder, "U-Net-mlperf", unet, {1, 32, 32, 64, 1});
  UNet3d lbann({.variant = UNet3dVariant::lbann, .filters = {4, 6, 8, 8}, .classes = 3});
  write(folder, "U-Net-lbann", lbann, {1, 16, 24, 16, 1});
  ResNet resnet({.depth = 50, .classes = 10, .width = 16});
  write(folder, "ResNet-50", resnet, {1, 1, 64, 64, 3});
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
