#pragma once
// The costs of an epoch of training for a network laid out over ranks in one of eight ways: the formulas of Kahira et al. ("An
// Oracle for Guiding Large-Scale Model/Hybrid Parallel Training of CNNs", HPDC 2021, arXiv 2104.09075), term by term.
//
// Notation of the paper: D samples, B of them in a mini-batch, I = ceil(D/B) iterations wherever D/B is printed, p ranks (p1
// groups of p2 in the hybrids), alpha seconds per message, beta = 1/bandwidth, delta bytes per element, x, y, w a layer's input,
// output and weights, W all weights. Bandwidths are in bytes per second and decimal: 50e9 reproduces the numbers printed for "50
// GB/s". If samples are split, a rank has ceil(D/p) samples with data parallelism and ceil(D/p1) in the hybrids, as in the
// printed numbers.
//
// Choices where the formulas leave something open:
//   all        Norms, activations and dropouts work in place: they have weights and times, but no separate x and y, and do not
//              count among the G layers. W includes biases, as Layer::weights.
//   serial     T = D sum(FW + BW) + I sum WU, memory as data on one rank.
//   spatial    A layer's halo is floor((k - 1)/2) planes to each side along each split dimension, and the planes are those of one
//              rank: extents of the other dimensions are divided by their ranks. Each split dimension has separate messages,
//              2 alpha + B (halo(x) + halo(dL/dy)) delta beta, as the formula for one. A layer without a halo sends none.
//   pipeline   Groups of consecutive layers that minimise the cost of the costliest group, by times (forward and backward) or,
//              without them, by floating-point operations. Weights are updated once in an epoch, as the formula is printed.
//   filter,    Collectives of convolutions and products, without the last of them (l < G). The limit's minimum is over all of
//   channel    them, the first included: with channel, the minimum is often 3.
//   df, ds     Limits are B min F, and B times the first input's extent along the split dimension; groups are no more than B, and
//              their ranks no more than filters or planes.
//   ds         Split along the outermost dimension that has an extent above 1. Spatial are the first layers, as long as that
//              dimension has a plane for each rank of a group and no product mixes all places, unless a number of them is given.
//              What follows is computed by one rank, after a gather. b = B/p1 samples are in a group. Contention as printed:
//              halos go at 1/(2 p2) of the bandwidth inside a group, the gather at 1/2, the reduction between groups at 1/(2 p2)
//              of the bandwidth between them. The formula for computing has no update of weights. None is printed for memory;
//              ours is 2 delta (sum over spatial layers b(x + y)/p2 + sum over the others b(x + y) + W).

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "examples/studies/plan/planner/layers.h"

namespace mpigrad::planner {

enum class Strategy : std::uint8_t { serial, data, spatial, pipeline, filter, channel, data_filter, data_spatial };
std::string name_of(Strategy strategy);                           // "data+filter"
std::optional<Strategy> strategy_named(const std::string& name);  // none: there is no such strategy
inline bool is_hybrid(Strategy s) { return s == Strategy::data_filter || s == Strategy::data_spatial; }

struct LayerTime {
  double forward = 0, backward = 0;  // seconds per sample
  double update = 0;                 // seconds per iteration
};

struct OracleInput {
  Strategy strategy = Strategy::serial;
  std::vector<Layer> layers{};           // for one sample; may be empty for serial and data if weight_bytes is given
  std::optional<double> weight_bytes{};  // W delta; none: the layers'
  std::vector<LayerTime> times{};        // empty, or as many as layers
  std::int64_t ranks = 1, samples = 1, batch = 1;
  double latency = 0;                  // alpha
  double bandwidth = 1;                // bytes per second
  double bytes_per_element = 4;        // delta
  std::int64_t groups = 1, group = 1;  // p1 and p2 of hybrids
  // For data+spatial: the link inside a group; none: as between groups.
  std::optional<double> group_latency{}, group_bandwidth{};
  // For data+spatial: the link of halos and the gather, if they take another path than reductions, for example an MPI without
  // GPUDirect through host memory; none: as inside a group.
  std::optional<double> halo_latency{}, halo_bandwidth{};
  std::int64_t spatial_layers = 0;  // for data+spatial; 0: see above
  std::int64_t segments = 1;        // S, of a pipeline
  // For spatial: ranks along depth, height and width; zeros: the grid with the smallest halos of all that fit.
  std::array<std::int64_t, 3> grid{};
  double memory = 0;  // bytes of a rank, for diagnoses; 0: unknown
};

struct CostTerm {
  std::string name;    // "gradient all-reduce", "halo", "layer collectives", "pipeline messages", "gather"
  double seconds = 0;  // per epoch
};
struct ScalingLimit {
  std::string name;  // "B"
  double value = 0;
  bool exceeded = false;
};

struct OracleResult {
  std::int64_t iterations = 0;
  std::optional<double> compute;       // seconds per epoch; none without times
  std::optional<double> update;        // part of `compute` for the update of weights
  double communication = 0;            // seconds per epoch, the sum of terms
  std::vector<CostTerm> terms;         // only those of the strategy
  std::optional<double> memory_bytes;  // on the rank that needs most; none without layers
  ScalingLimit limit;
  std::array<std::int64_t, 3> grid{};    // of spatial
  std::vector<std::int64_t> group_ends;  // for a pipeline: the index after each group's last layer
  double imbalance = 1;                  // for a pipeline: the costliest group's cost over the mean
};

// Errors, by name: no layers if the strategy needs them, numbers that are not positive, groups or a grid whose product is not the
// number of ranks, numbers of times and layers that differ. An exceeded limit is not an error.
OracleResult evaluate(const OracleInput& input);

// The limits of a strategy, by the classes of the paper: limitations belong to the strategy, bottlenecks to systems.
struct Diagnosis {
  enum class Kind : std::uint8_t { limitation, bottleneck };
  Kind kind = Kind::limitation;
  std::string name;   // "gradient exchange"
  double number = 0;  // the number that triggered it; `sentence` explains it
  std::string sentence;
};
inline const char* name_of(Diagnosis::Kind kind) { return kind == Diagnosis::Kind::limitation ? "limitation" : "bottleneck"; }

// The fraction of an epoch or of the memory from which on a class is reported. Without times only the seconds of communication
// are known.
inline constexpr double reported_part = 0.1;
// The number of ranks from which on the authors saw reductions that took four times as long as expected.
inline constexpr std::int64_t congested_ranks = 512;
// The fraction of a rank's memory above which fragmentation ended one of seven trainings.
inline constexpr double fragmented_part = 0.85;

// Classes that apply to the strategy and reach these numbers: communication (gradient exchange, layer-wise collectives,
// point-to-point messages, network congestion, input and staging), memory (redundancy, fragmentation), computation (weight
// update, workload balance, computation redundancy) and scaling (number of ranks).
std::vector<Diagnosis> diagnose(const OracleInput& input, const OracleResult& result);

}  // namespace mpigrad::planner
