#pragma once
// Helpers for tests that need a GPU: skip conditions, and test cases that run on a CPU and on a GPU.

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "framework/base/error.h"
#include "framework/cuda/cuda.h"
#include "ops/conv/conv.h"
#include "ops/linear/matmul.h"
#include "tests/support/relative_error.h"
#include "tests/support/skip.h"

namespace mpigrad::testing {

// True if there is no GPU; then the surrounding test counts as skipped.
inline bool no_gpu(const char* test) {
  if (cuda::available()) return false;
  skip_test(test, cuda::unavailable());
  return true;
}

// True on the GPU emulator (tests/emulated.sh), which is a thousand times slower than a GPU.
inline bool emulated() { return std::getenv("MPIGRAD_EMULATION") != nullptr; }
// How many of n random cases to try: one in MPIGRAD_GPU_SAMPLE; by default all, and one in eight on the emulator.
inline int cases(int n) {
  const char* told = std::getenv("MPIGRAD_GPU_SAMPLE");
  const int of = std::max(told != nullptr ? std::atoi(told) : emulated() ? 8 : 1, 1);
  return (n + of - 1) / of;
}

// The error's message if it says that the build or the program did not find a vendor's library; otherwise empty.
inline std::string missing_library(const std::string& error) {
  if (error.find("] has no CUDA kernel") != std::string::npos) {
    if (error.find("[conv") != std::string::npos) return "this build has no cuDNN";
    if (error.find("[matmul]") != std::string::npos || error.find("[linear]") != std::string::npos)
      return "this build has no cuBLASLt";
  }
  const auto begin = error.find("[cuda] lib"), end = error.find(" was not found", begin);
  return begin == std::string::npos || end == std::string::npos ? std::string() : error.substr(begin + 7, end - begin + 7);
}

// Skips the test also if cuDNN or cuBLASLt is missing.
template <class Op>
bool no_library(const char* test, const Op& op, const std::vector<Shape>& shapes) {
  if (no_gpu(test)) return true;
  const UseDevice device(DeviceKind::cuda);
  std::vector<Tensor> operands;
  for (const auto& shape : shapes) operands.push_back(full(shape, 1));
  try {
    apply(op, operands);
  } catch (const Error& error) {
    const auto missing = missing_library(error.what());
    if (missing.empty()) throw;
    skip_test(test, missing);
    return true;
  }
  return false;
}
inline bool no_cudnn(const char* test) { return no_library(test, ops::Conv{}, {{1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}}); }
inline bool no_cublas(const char* test) { return no_library(test, ops::Matmul{}, {{1, 1}, {1, 1}}); }

}  // namespace mpigrad::testing

// One body, two cases: `name` with the CPU as `device`, and `gpu: name`, which is skipped if `lacks("gpu: name")` is true.
#define TEST_CASE_ON_DEVICES(name, lacks) TEST_CASE_OF_BODY(DOCTEST_ANONYMOUS(on_device_), name, lacks)
#define TEST_CASE_OF_BODY(body, name, lacks)                   \
  static void body(mpigrad::DeviceKind device);                \
  TEST_CASE(name) { body(mpigrad::DeviceKind::cpu); }          \
  TEST_CASE("gpu: " name) {                                    \
    if (!lacks("gpu: " name)) body(mpigrad::DeviceKind::cuda); \
  }                                                            \
  static void body(mpigrad::DeviceKind device)
