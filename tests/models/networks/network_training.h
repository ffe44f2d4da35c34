#pragma once
// Trainings of whole networks in float64 with the same data on every grid, on threads and under mpiexec.

#include <vector>

#include "models/networks/cosmoflow.h"
#include "models/networks/unet3d.h"
#include "models/train/session.h"

namespace mpigrad::testing {

struct CosmoFlowRun {
  CosmoFlowOptions options{};
  std::int64_t extent = 16, batch = 8;
  int steps = 12;
};
struct UNetRun {
  UNet3dOptions options{};
  Shape extents{10, 9, 12};
  std::int64_t batch = 2;
  int steps = 3;
};

// Losses of all steps, on every rank of `world`.
std::vector<double> losses_of(const CosmoFlowRun& run, const Communicator& world, const GridExtents& extents,
                              Overlap overlap = Overlap::automatic);
std::vector<double> losses_of(const UNetRun& run, const Communicator& world, const GridExtents& extents,
                              Overlap overlap = Overlap::automatic);
// Losses on threads of this process, as many as the grid has ranks, on the current device.
std::vector<double> losses_on_threads(const CosmoFlowRun& run, const GridExtents& extents, Overlap overlap = Overlap::automatic);
std::vector<double> losses_on_threads(const UNetRun& run, const GridExtents& extents, Overlap overlap = Overlap::automatic);
// The largest relative difference of two lists of losses; throws an Error if their lengths differ.
double largest_difference(const std::vector<double>& a, const std::vector<double>& b);

// U-Nets with few filters, for every norm.
UNet3dOptions small_unet(UNet3dVariant variant, nn::NormAttributes::Kind kind);

}  // namespace mpigrad::testing
