// Figure::save() of builds without cairo.

#include "models/trainer/plot/figure.h"

namespace mpigrad::plot {

bool available() { return false; }

void Figure::save(const std::filesystem::path&, bool) const {}

}  // namespace mpigrad::plot
