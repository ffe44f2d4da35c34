#pragma once
// The communication of model, batch and domain parallelism, separately and together on a grid of Pr x Pc ranks: Equations 3 to 9
// of Gholami, Azad, Jin, Keutzer and Buluc ("Integrated Model, Batch, and Domain Parallelism in Training Neural Networks", SPAA
// 2018, arXiv 1712.04432).
//
// Notation of the paper: Y_i = W_i X_i of layer i, d_i elements of a sample's output, |W_i| of weights (here with biases), B
// samples in a batch, alpha seconds per message, beta seconds per element. Pr ranks share a layer's weights, Pc a batch's
// samples. A collective takes ceil(log P) messages, as printed, to base 2. Layers are convolutions and products; others are
// skipped. Seconds are those of one iteration unless stated otherwise.
//
// 1/beta: the paper's "6 GB/s" are 6 * 2^30 bytes per second in its figures, for four bytes per element. The best grids are the
// same with 6e9; so are communication speed-ups, to within half a percent.

#include <cstdint>
#include <vector>

#include "examples/studies/plan/planner/layers.h"

namespace mpigrad::planner {

struct ElementLink {
  double latency = 0;              // alpha
  double seconds_per_element = 0;  // beta
};

// The cost of replicating outputs in model parallelism, in units of an all-gather: the paper gathers outputs (1) and reduces the
// inputs' gradients to all ranks (2). Reducing them to the ranks that need them, the adjoint of the gather, costs 1.
inline constexpr double printed_factor = 3, adjoint_factor = 2;

// (3) sum of factor (alpha ceil(log P) + beta B (P - 1)/P d_i)
double model_seconds(const std::vector<Layer>& layers, double ranks, double batch, const ElementLink& link,
                     double factor = printed_factor);
// (4) sum of 2 (alpha ceil(log P) + beta (P - 1)/P |W_i|)
double batch_seconds(const std::vector<Layer>& layers, double ranks, const ElementLink& link);
// (5) Communication of batch parallelism relative to model parallelism: 2 |W_i| / (factor B d_i).
double batch_by_model(const Layer& layer, double batch, double factor = printed_factor);
// The batch above which batch parallelism moves less: 2 |W_i| / (factor d_i); for a convolution without bias and groups 2 k_h k_w
// X_C / (3 Y_H Y_W).
double crossover_batch(const Layer& layer, double factor = printed_factor);
// (6) From batch to model parallelism before a layer: alpha ceil(log P) + beta B (P - 1)/P d_i. No other equation contains it.
double redistribution_seconds(const Layer& layer, double ranks, double batch, const ElementLink& link);
// (7) Halos of inputs and of outputs' gradients, and the reduction of (4). Images are split along their height, volumes along
// their depth (the paper has only images); a layer whose window is 1 wide there and in width, or one rank, exchanges nothing.
double domain_seconds(const std::vector<Layer>& layers, double ranks, double batch, const ElementLink& link);
// (8) Model x batch on Pr x Pc:
// sum of factor (alpha ceil(log Pr) + beta B (Pr - 1)/Pr d_i/Pc) + sum of 2 (alpha ceil(log Pc) + beta (Pc - 1)/Pc |W_i|/Pr)
double model_batch_seconds(const std::vector<Layer>& layers, double pr, double pc, double batch, const ElementLink& link,
                           double factor = printed_factor);
// (9) Layers of `model` as in (8); layers of `domain` have images split over Pr and replicated weights, as in (7) with B/Pc
// samples.
double integrated_seconds(const std::vector<Layer>& model, const std::vector<Layer>& domain, double pr, double pc, double batch,
                          const ElementLink& link, double factor = printed_factor);

// The layout of convolutions: split by samples over all P ranks, whatever the grid (the paper's Figure 7); on the same grid as
// products (Figure 6); with images split over Pr (Equation 9).
enum class Convolutions : std::uint8_t { batch, same, domain };

struct IntegratedInput {
  std::vector<Layer> layers{};
  std::int64_t ranks = 1, batch = 1, samples = 1;
  double latency = 0, bandwidth = 1;  // seconds; bytes per second
  double bytes_per_element = 4;
  Convolutions convolutions = Convolutions::batch;
  double factor = printed_factor;
};

struct IntegratedGrid {
  std::int64_t pr = 1, pc = 1;
  double communication = 0;  // seconds per epoch of ceil(D/B) iterations
  bool possible = true;      // every rank has a sample or, if images are split, a plane of each
};
struct IntegratedResult {
  std::int64_t iterations = 0;
  std::vector<IntegratedGrid> grids;  // all Pr x Pc = P, Pr ascending
  IntegratedGrid best;                // the cheapest possible one; of equal ones that with the smallest Pr
  double batch_only = 0;              // Equation 4, seconds per epoch; not possible with more ranks than samples
  double speedup = 1;                 // batch_only / best.communication; 1 without communication
};
// Errors: numbers that are not positive, no convolutions or products, no possible grid (for example convolutions split by samples
// over more ranks than the batch has samples).
IntegratedResult search_grids(const IntegratedInput& input);

}  // namespace mpigrad::planner
