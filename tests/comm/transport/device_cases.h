#pragma once
// The cases of transport_cases.h that apply to a GPU's transports. Collective; the first wrong value throws.

#include "tests/comm/transport/fake_device.h"
#include "tests/comm/transport/transport_cases.h"

namespace mpigrad::testing {

// t accepts host buffers. `gpu_ops_alone`: only reductions by operations with GPU kernels.
inline void check_device_cases(Transport& t, const std::vector<DType>& types, bool gpu_ops_alone = false) {
  using namespace transport_cases;
  for (auto type : types) {
    for (auto op : all_reductions)
      for (std::int64_t count : {0, 1, 300})
        if (allowed(type, op) && (traits_of(op).on_gpu || !gpu_ops_alone)) check_reductions(t, type, op, count);
    for (int root = 0; root < t.size(); ++root) check_movement(t, type, root);
    check_alltoall(t, type);
    check_started_movement(t, type);
    check_round(t, type);
    check_exchange(t, type, true), check_exchange(t, type, false);
  }
  check_communicators(t);
  check_overlap(t);
  check_refusals(t);
}

}  // namespace mpigrad::testing
