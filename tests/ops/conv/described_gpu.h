#pragma once
// Descriptions of GPUs for cuDNN, which can plan from them without a GPU from version 9.11 on.

#include <fmt/format.h>

#include <memory>
#include <string>

#include "framework/base/error.h"
#include "ops/backends/cudnn/cudnn_graph.h"

namespace mpigrad::testing {

// cuDNN's own description of an H200; an A100 has fewer multiprocessors and less shared memory.
inline std::string gpu_description(bool hopper) {
  return fmt::format(
      R"({{"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"multiProcessorCount":{},)"
      R"("warpSize":32,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":{},"reservedSharedMemoryPerBlock":1024,)"
      R"("maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,)"
      R"("isTccDriver":0,"supportCoopLaunch":1,"totalGlobalMem":{},"smClockRateKHz":{},"memClockRateKHz":{},"l2CacheSize":{},)"
      R"("deviceName":"NVIDIA {}","cudaDeviceId":0,"deviceVer":{},"driverVer":13000}})",
      hopper ? 132 : 108, hopper ? 232448 : 166912, hopper ? 150000000000 : 84000000000, hopper ? 1980000 : 1410000,
      hopper ? 3201000 : 1512000, hopper ? 62914560 : 41943040, hopper ? "H200" : "A100", hopper ? 900 : 800);
}

// Throws if this cuDNN cannot plan without a GPU.
inline std::unique_ptr<cuda::Descriptor> described_gpu(bool hopper) {
#if CUDNN_VERSION >= 91100
  if (cuda::cudnn().cudnnGetVersion() >= 91100) {
    auto device = std::make_unique<cuda::Descriptor>(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    const auto text = gpu_description(hopper);
    device->set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, static_cast<std::int64_t>(text.size()), text.data());
    device->finalize();
    return device;
  }
#else
  static_cast<void>(hopper);
#endif
  throw Error("cuDNN is older than 9.11 and plans on a GPU only");
}

}  // namespace mpigrad::testing
