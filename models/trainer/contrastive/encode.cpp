#include "models/trainer/contrastive/encode.h"

#include <cmath>

#include "comm/distributed/redistribute.h"
#include "comm/hdf5/hdf5_file.h"
#include "models/trainer/contrastive/objective.h"
#include "models/trainer/run.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/to_device.h"
#include "ops/views/views.h"

namespace mpigrad::contrast {
namespace {

Tensors collect(const data::SourcePtr& source, const std::vector<std::int64_t>& samples, const Communicator& world,
                const EncodeAttributes& at, const std::function<Tensor(const Tensor&)>& f) {
  Untaped scope;
  const data::ViewLoader loader(source, {.grid = at.grid,
                                         .batch = std::min(at.batch, static_cast<std::int64_t>(samples.size())),
                                         .seed = at.seed,
                                         .shuffle = false,
                                         .views = {{at.recipe, at.views}},
                                         .samples = samples,
                                         .drop_last = false,
                                         .workers = at.workers});
  std::vector<Tensors> parts(static_cast<std::size_t>(at.views));
  for (const auto& batch : loader.epoch(0)) {
    if (at.refuse_bad) data::require_finite(batch, world);
    for (std::size_t v = 0; v < parts.size(); ++v) {
      const auto z = gather_all(f(batch.x[v]));
      parts[v].push_back(constant(to(z.without_layout(), DeviceKind::cpu)));
    }
  }
  Tensors result;
  UseDevice device(DeviceKind::cpu);
  for (const auto& part : parts) result.push_back(constant(concatenate(part, 0)));
  return result;
}

}  // namespace

Tensors encode(Network& net, const data::SourcePtr& source, const std::vector<std::int64_t>& samples, const Communicator& world,
               const EncodeAttributes& at) {
  const bool training = net.training();
  net.train(false);
  auto result = collect(source, samples, world, at, [&](const Tensor& x) {
    const auto h = net.features(input_of(x, net));
    return cast(at.projected ? net.project(h) : h, net.dtype());
  });
  net.train(training);
  return result;
}

Tensors pixels(const data::SourcePtr& source, const std::vector<std::int64_t>& samples, const Communicator& world,
               const EncodeAttributes& at) {
  return collect(source, samples, world, at, [](const Tensor& x) { return flatten(constant(x)); });
}

void require_finite_embeddings(const Tensor& z, const data::Source& source, const std::vector<std::int64_t>& samples) {
  const UseDevice device(DeviceKind::cpu);
  const Untaped scope;
  const auto sums = sum(abs(cast(z, DType::float64)), {1}).to_vector();
  for (std::size_t i = 0; i < sums.size(); ++i)
    if (!std::isfinite(sums[i]))
      throw trainer::UsageError(
          fmt::format("[contrastive] the embedding of {} is not finite, while its values are: the weights cannot be used",
                      source.name_of_sample(samples[i])));
}

Tensor part_of(const Tensor& whole, const Communicator& world) {
  const auto cuts = balanced_cuts(whole.dim(0), world.size());
  const auto r = static_cast<std::size_t>(world.rank());
  Untaped scope;
  return constant(slice(whole, 0, cuts[r], cuts[r + 1]));
}

Loaded load_network(const std::string& weights, const Communicator& world) {
  Loaded result;
  auto& info = result.info;
  trainer::of_input(world, [&] {
    info = read_checkpoint_info(weights);
    const auto program = info.notes.find("program"), network = info.notes.find("network");
    require(program != info.notes.end() && program->second == "contrastive" && network != info.notes.end(),
            "[contrastive] {} was not written by contrastive train", weights);
    auto& config = result.config = NetworkConfig::parse(network->second);
    trainer::Options o;
    o.dtype = config.dtype, o.precision = config.precision == config.dtype ? "" : config.precision;
    trainer::apply_precision(o);
    result.net = std::make_unique<Network>(config, nn::BatchNormAttributes{});
    result.net->build(config.input(world.size()), {.dtype = trainer::dtype_of(o), .compute = trainer::compute_of(o)});
    // State that only a resumed training needs.
    const std::string prefix = std::string("buffers/") + state_prefix;
    const Hdf5Reader file(weights);
    for (const auto& dataset : file.datasets())
      if (dataset.name.starts_with(prefix))
        result.net->buffers()[dataset.name.substr(8)] = Tensor({dataset.shape, dataset.type}, DeviceKind::cpu);
    load_checkpoint(weights, *result.net);
    std::erase_if(result.net->buffers(), [](const auto& entry) { return entry.first.starts_with(state_prefix); });
  });
  trainer::require_same_file(world, weights, info);
  return result;
}

void require_fitting(const NetworkConfig& config, const data::Source& source) {
  require(source.channels() == config.channels, "[contrastive] the network was trained on {} channels, {} has {}",
          config.channels, source.name_of_sample(0), source.channels());
  require((source.extents()[0] == 1) == (config.extents[0] == 1),
          "[contrastive] the network was trained on samples of {}, those of {} are {}", config.extents, source.name_of_sample(0),
          source.extents());
}

}  // namespace mpigrad::contrast
