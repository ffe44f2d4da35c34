// Devices, memory and errors of the emulator.

#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <sstream>
#include <utility>

#include "tests/emulation/capture.h"
#include "tests/emulation/runtime.h"

namespace mpigrad::emulation {
namespace {

Settings read_settings() {
  Settings result;
  const char* text = std::getenv("MPIGRAD_EMULATION");
  std::istringstream words(text ? text : "");
  for (std::string word; std::getline(words, word, ',');) {
    if (word == "late") result.mode = Mode::late;
    else if (word == "concurrent") result.mode = Mode::concurrent;
    else if (word.rfind("devices=", 0) == 0) result.devices = std::atoi(word.c_str() + 8);
    else if (word.rfind("memory=", 0) == 0) result.memory = std::strtoull(word.c_str() + 7, nullptr, 10);
    else if (!word.empty()) std::abort();  // the test has misspelt a setting
  }
  return result;
}

// ---- errors

thread_local cudaError_t last = cudaSuccess;
thread_local std::string detail, shown;
std::mutex failure_mutex;
std::string failure;
std::atomic<bool> has_failed{false};

struct Name {
  cudaError_t code;
  const char *name, *text;
};
constexpr Name names[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched", "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent", "operation not permitted on an event last recorded in a capturing stream"},
};

// ---- memory

struct Piece {
  std::size_t bytes = 0, mapped = 0;
  int device = -1;  // -1: pinned host memory
};
struct Memory {
  std::shared_mutex mutex;
  std::map<const std::byte*, Piece> pieces;
  std::map<int, std::size_t> used;  // bytes used, by device
};
Memory& memory() {
  static auto* instance = new Memory;
  return *instance;
}
thread_local int device = 0;

constexpr std::size_t page = 4096;

// Maps memory between two inaccessible pages. It begins at a page boundary; the rest of its last page stays accessible.
void* map_memory(std::size_t bytes, std::size_t& mapped) {
  mapped = (bytes + page - 1) / page * page + 2 * page;
  void* all = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  auto* first = static_cast<std::byte*>(all);
  mprotect(first, page, PROT_NONE);
  mprotect(first + mapped - page, page, PROT_NONE);
  std::memset(first + page, 0xFF, bytes);  // NaN in every floating-point type
  return first + page;
}

cudaError_t allocate(void** result, std::size_t bytes, int on) {
  if (has_failed) return fail_for_good({});
  if (const auto why = forbidden_by_capture(false); !why.empty()) return refuse(cudaErrorStreamCaptureUnsupported, why);
  if (!result) return refuse(cudaErrorInvalidValue, "no place for the address");
  *result = nullptr;
  if (bytes == 0) return cudaSuccess;
  auto& all = memory();
  const std::unique_lock lock(all.mutex);
  if (on >= 0 && all.used[on] + bytes > settings().memory) return refuse(cudaErrorMemoryAllocation);
  Piece piece{bytes, 0, on};
  *result = map_memory(bytes, piece.mapped);
  if (!*result) return refuse(cudaErrorMemoryAllocation);
  all.pieces[static_cast<const std::byte*>(*result)] = piece;
  if (on >= 0) all.used[on] += bytes;
  return cudaSuccess;
}

cudaError_t release(void* address, bool on_device) {
  if (!address) return cudaSuccess;
  if (const auto why = forbidden_by_capture(on_device); !why.empty()) return refuse(cudaErrorStreamCaptureUnsupported, why);
  auto& all = memory();
  Piece piece;
  {
    const std::shared_lock lock(all.mutex);
    const auto found = all.pieces.find(static_cast<const std::byte*>(address));
    if (found == all.pieces.end() || (found->second.device >= 0) != on_device)
      return refuse(cudaErrorInvalidValue, on_device ? "not what cudaMalloc gave" : "not what cudaHostAlloc gave");
    piece = found->second;
  }
  if (on_device) finish(piece.device);
  else if (host_memory_in_use(address, piece.bytes)) return fail_for_good("pinned memory is freed before a copy of it is done");
  const std::unique_lock lock(all.mutex);
  all.pieces.erase(static_cast<const std::byte*>(address));
  if (on_device) all.used[piece.device] -= piece.bytes;
  munmap(static_cast<std::byte*>(address) - page, piece.mapped);
  return has_failed ? fail_for_good({}) : cudaSuccess;
}

}  // namespace

const Settings& settings() {
  static const Settings result = read_settings();
  return result;
}

cudaError_t refuse(cudaError_t code, const std::string& why) {
  if (code != cudaErrorNotReady) detail = why;
  return last = code;
}
cudaError_t fail_for_good(const std::string& why) {
  const std::lock_guard lock(failure_mutex);
  if (!has_failed) failure = why, has_failed = true;
  detail = failure;
  return last = cudaErrorLaunchFailure;
}
bool failed_for_good() { return has_failed; }
void forgive() {
  const std::lock_guard lock(failure_mutex);
  has_failed = false, last = cudaSuccess;
}

int current_device() { return device; }

std::string unreachable(const void* from, std::size_t bytes, int on, bool only_device) {
  auto& all = memory();
  const auto* first = static_cast<const std::byte*>(from);
  const std::shared_lock lock(all.mutex);
  auto found = all.pieces.upper_bound(first);
  if (found == all.pieces.begin()) return "memory of the host that is not pinned";
  --found;
  const auto& [begin, piece] = *found;
  // The address of an empty range may be the end of a piece.
  if (first > begin + piece.bytes || (bytes > 0 && first == begin + piece.bytes)) return "memory of the host that is not pinned";
  if (first + bytes > begin + piece.bytes) return "memory beyond the end of an allocation";
  if (piece.device >= 0 && on >= 0 && piece.device != on) return "memory of GPU " + std::to_string(piece.device);
  if (piece.device < 0 && only_device) return "memory of the host";
  return {};
}

}  // namespace mpigrad::emulation

using namespace mpigrad::emulation;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = settings().devices;
  return *count > 0 ? cudaSuccess : refuse(cudaErrorNoDevice);
}
cudaError_t cudaGetDevice(int* result) {
  *result = device;
  return cudaSuccess;
}
// The emulated GPUs have this compute capability.
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 8;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int index) {
  if (index < 0 || index >= settings().devices) return refuse(cudaErrorInvalidDevice);
  *properties = {"GPU emulator"};
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int index) {
  if (index < 0 || index >= settings().devices) return refuse(cudaErrorInvalidDevice);
  device = index;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* name, int room, int index) {
  if (index < 0 || index >= settings().devices) return refuse(cudaErrorInvalidDevice);
  const auto text = "0000:" + std::to_string(10 + index) + ":00.0";
  if (room <= static_cast<int>(text.size())) return refuse(cudaErrorInvalidValue);
  std::memcpy(name, text.c_str(), text.size() + 1);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0, *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaPeekAtLastError() { return has_failed ? cudaErrorLaunchFailure : last; }
cudaError_t cudaGetLastError() {
  if (has_failed) return fail_for_good({});
  return std::exchange(last, cudaSuccess);
}
const char* cudaGetErrorName(cudaError_t error) {
  for (const auto& one : names)
    if (one.code == error) return one.name;
  return "unrecognized error code";
}
// For the last error, adds the emulator's own message.
const char* cudaGetErrorString(cudaError_t error) {
  shown = "unrecognized error code";
  for (const auto& one : names)
    if (one.code == error) shown = one.text;
  if (error != cudaSuccess && !detail.empty()) shown += ": " + detail;
  return shown.c_str();
}

cudaError_t cudaMalloc(void** result, std::size_t bytes) { return allocate(result, bytes, device); }
cudaError_t cudaHostAlloc(void** result, std::size_t bytes, unsigned) { return allocate(result, bytes, -1); }
cudaError_t cudaFree(void* address) { return release(address, true); }
cudaError_t cudaFreeHost(void* address) { return release(address, false); }
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  auto& all = memory();
  const std::unique_lock lock(all.mutex);
  *total = settings().memory, *free = *total - all.used[device];
  return cudaSuccess;
}

}  // extern "C"
