// Replaces the floor in builds without oneDNN, which have no primitives to compare with.

#include "framework/base/error.h"
#include "tests/bench/unet/unet_floor.h"

namespace mpigrad::bench {

class UNetFloor::Step {};

UNetFloor::UNetFloor(UNet3d&, const Shape&) { fail("[bench] the floor consists of oneDNN's primitives: install libdnnl-dev"); }
UNetFloor::~UNetFloor() = default;
void UNetFloor::step(bool) {}
double UNetFloor::median() const { return 0; }
std::map<std::string, double> UNetFloor::medians_by_kind() const { return {}; }

}  // namespace mpigrad::bench
