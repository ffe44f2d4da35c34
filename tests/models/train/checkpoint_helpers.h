#pragma once
// A small CosmoFlow and its training, whose data depend only on the step; bytes of files.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "framework/engine/tape.h"
#include "framework/optim/optimizer.h"
#include "framework/tensor/random.h"
#include "models/networks/cosmoflow.h"
#include "models/train/session.h"
#include "ops/loss/loss.h"
#include "ops/random/random.h"

namespace mpigrad::testing::checkpoints {

namespace fs = std::filesystem;

inline CosmoFlowOptions small() { return {.batch_norm = true, .filters = 2}; }

// Steps [first, last) of a training run whose data depend only on the step.
inline void train(const Session& session, const GridExtents& extents, CosmoFlow& net, Optimizer& optimizer, int first, int last) {
  const auto grid = session.grid(extents);
  const auto layout = activation_layout(grid, {4, 16, 16, 16, 4});
  const auto targets = split_layout(grid, {4, 4}, {0, -1, -1, -1});
  for (int step = first; step < last; ++step) {
    net.set_step(step);
    const Philox random{3, static_cast<std::uint64_t>(step)};
    const auto x = constant(random_normal(layout->global, random, 0, 1, DType::float64, layout));
    const auto y = constant(random_uniform(targets->global, random.child(1), -1, 1, DType::float64, targets));
    Tape tape(net);
    const auto loss = mse(net(x), y);
    optimizer.step(tape.gradient(loss));
  }
}

inline std::vector<double> everything(CosmoFlow& net) {
  std::vector<double> values;
  const auto append = [&](const Tensor& x) {
    for (const double value : x.to_vector()) values.push_back(value);
  };
  for (std::size_t i = 0; i < net.parameters().size(); ++i) append(net.parameters()[i].value);
  for (const auto& [name, value] : net.buffers()) append(value);
  return values;
}

inline fs::path write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return path;
}
inline std::string read_bytes(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

}  // namespace mpigrad::testing::checkpoints
