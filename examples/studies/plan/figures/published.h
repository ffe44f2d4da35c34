#pragma once
// Numbers that the documents print, as tests and `plan figures` compare them with ours. NaN: the document is known to have the
// number, but it is not in our hands.

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>

namespace mpigrad::plan::published {

inline constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

// Gholami et al. (2018), Table 1 and Figure 7: AlexNet, ImageNet, Cori KNL.
namespace gholami {
inline constexpr std::int64_t samples = 1'200'000, batch = 2048;
inline constexpr double latency = 2e-6, bandwidth = 6.0 * (1 << 30);  // "6 GB/s"; GiB in the figures
struct Best {
  std::int64_t ranks, pr, pc;
  double speedup, communication_speedup;  // of the best grid over batch parallelism
  double compute;                         // seconds of an epoch, read from the figure: within a few percent
};
inline constexpr std::array<Best, 4> figure_7{
    {{8, 4, 2, 1.1, 2.5, 279}, {32, 8, 4, 1.3, 3.9, 87}, {128, 16, 8, 1.9, 6.4, 36}, {512, 32, 16, 2.5, 9.7, 22.5}}};
}  // namespace gholami

// Kahira et al. (2021), seconds, and the constants of ABCI in the authors' programs: technical report, logs and layers of
// github.com/TruongThaoNguyen/paraDL-analysis.
namespace paradl {
inline constexpr std::int64_t samples = 1'280'000;
inline constexpr double weight_bytes = 90'936'064, sample_seconds = 3.1195e-3;  // of ResNet-50
inline constexpr double vgg16_sample_seconds = 8.245589e-3;                     // model/VGG_ImageNet_profall.net_sc
inline constexpr double halo_latency = 3.00011e-3, halo_bandwidth = 16e9;       // through the hosts' memory
struct DataParallel {
  std::int64_t ranks, batch;
  double latency, bandwidth, communication;  // of an epoch
};
inline constexpr std::array<DataParallel, 4> data_parallel{{{2, 128, 9e-6, 50e9, 18.3672128},
                                                            {8, 512, 30.31e-6, 12.5e9, 32.8884724},
                                                            {64, 4096, 30.31e-6, 12.5e9, 5.67828639504},
                                                            {1024, 65536, 30.98e-6, 12.5e9, 1.5584128296}}};
inline constexpr double filter_two_ranks = 1423.6449216;  // filter and channel parallelism, 64 samples, of an epoch
// Table VIII.
struct Epoch {
  const char* network;
  std::int64_t ranks;
  const char* strategy;
  double measured, projected;
};
// Samples of a step: of each node of four GPUs, or of all ranks with filter and channel parallelism.
inline constexpr std::int64_t batch_of(const Epoch& row) {
  const std::string_view network = row.network, strategy = row.strategy;
  const std::int64_t each = network == "VGG-16" ? 32 : strategy == "data+spatial" ? 256 : 64;
  return strategy.starts_with("data+") ? each * row.ranks / 4 : each;
}
inline constexpr std::array<Epoch, 20> epochs{
    {{"ResNet-50", 32, "data+spatial", 481, 335}, {"ResNet-50", 32, "data+filter", 763, 672},
     {"ResNet-50", 32, "filter", 9970, 13912},    {"ResNet-50", 32, "channel", 17567, 13912},
     {"ResNet-50", 64, "data+spatial", 244, 150}, {"ResNet-50", 64, "data+filter", 395, 231},
     {"ResNet-50", 64, "filter", 18364, 18731},   {"ResNet-50", 64, "channel", 20858, 18731},
     {"ResNet-50", 256, "data+spatial", 73, 43},  {"ResNet-50", 256, "data+filter", 124, 90},
     {"VGG-16", 32, "data+spatial", 11393, 5593}, {"VGG-16", 32, "data+filter", 2307, 2500},
     {"VGG-16", 32, "filter", 86299, 19236},      {"VGG-16", 32, "channel", 108814, 19236},
     {"VGG-16", 64, "data+spatial", 5691, 3046},  {"VGG-16", 64, "data+filter", 1156, 1287},
     {"VGG-16", 64, "filter", 102443, 34097},     {"VGG-16", 64, "channel", 110213, 34097},
     {"VGG-16", 256, "data+spatial", 1533, 761},  {"VGG-16", 256, "data+filter", 313, 332}}};
// Table IX.
struct CosmoFlow {
  std::int64_t extent, ranks;
  double measured, projected;  // of an iteration
};
inline constexpr std::array<CosmoFlow, 4> cosmoflow{
    {{256, 16, 0.177, 0.162}, {256, 32, 0.212, 0.164}, {512, 16, 6.192, 2.176}, {512, 32, 6.973, 2.178}}};
}  // namespace paradl

}  // namespace mpigrad::plan::published
