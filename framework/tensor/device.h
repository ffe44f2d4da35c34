#ifndef MPIGRAD_FRAMEWORK_TENSOR_DEVICE_H
#define MPIGRAD_FRAMEWORK_TENSOR_DEVICE_H
// Devices of tensors. An op has one `run` per device type; the dry device has shapes but no storage, so it needs no `run`.

#include <cstdint>
#include <string_view>

namespace mpigrad {

enum class DeviceKind : std::uint8_t { cpu, cuda, dry };

// Passed to `run`; the type selects the kernel. CPU kernels use OpenMP threads, whose number is set per rank at start-up.
struct Cpu {};
struct Cuda {
  int index = 0;
};

// "cpu", "cuda" or "dry".
constexpr std::string_view name_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::cpu: return "cpu";
    case DeviceKind::cuda: return "cuda";
    case DeviceKind::dry: return "dry";
  }
  return "?";
}

// The device on which this thread creates tensors (factories, parameters). cpu unless a UseDevice is in scope.
DeviceKind current_device();

class UseDevice {
 public:
  explicit UseDevice(DeviceKind kind);
  ~UseDevice();
  UseDevice(const UseDevice&) = delete;
  UseDevice& operator=(const UseDevice&) = delete;

 private:
  DeviceKind previous_;
};

}  // namespace mpigrad

#endif
