// Opens the libraries for which the build has headers.

#include <dlfcn.h>

#include <string>

#include "framework/base/error.h"
#ifdef MPIGRAD_HAS_CUDNN
#include "ops/backends/cudnn/vendor_cudnn.h"
#endif
#ifdef MPIGRAD_HAS_CUBLAS
#include "ops/backends/cublas/vendor_cublas.h"
#endif
#ifdef MPIGRAD_HAS_CUFFT
#include "ops/backends/cufft/vendor_cufft.h"
#endif

// Paths where the build found the libraries; the system's own search comes first.
#ifndef MPIGRAD_CUDA_LIBRARIES
#define MPIGRAD_CUDA_LIBRARIES ""
#endif

namespace mpigrad::cuda {
namespace {

class Library {
 public:
  Library(const char* name, int major) : file_(fmt::format("lib{}.so.{}", name, major)) {
    std::string folders = MPIGRAD_CUDA_LIBRARIES;
    handle_ = dlopen(file_.c_str(), RTLD_NOW | RTLD_LOCAL);
    const char* text = handle_ ? nullptr : dlerror();
    const std::string reason = text ? text : "";
    while (!handle_ && !folders.empty()) {
      const auto end = folders.find(':');
      handle_ = dlopen((folders.substr(0, end) + "/" + file_).c_str(), RTLD_NOW | RTLD_LOCAL);
      folders = end == std::string::npos ? std::string() : folders.substr(end + 1);
    }
    require(handle_, "[cuda] {} was not found: install it, or name its folder in LD_LIBRARY_PATH: {}", file_, reason);
  }
  // Never closed.

  template <class Function>
  void find(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(dlsym(handle_, name));
    require(function, "[cuda] {} has no function {}: it is older than the headers that this build was made with", file_, name);
  }

 private:
  std::string file_;
  void* handle_ = nullptr;
};

}  // namespace

#define MPIGRAD_FIND(name) library.find(#name, all.name);

#ifdef MPIGRAD_HAS_CUDNN
const Cudnn& cudnn() {
  static const Cudnn functions = [] {
    const Library library("cudnn", CUDNN_MAJOR);
    Cudnn all;
    MPIGRAD_CUDNN_FUNCTIONS(MPIGRAD_FIND)
    return all;
  }();
  return functions;
}
#endif

#ifdef MPIGRAD_HAS_CUBLAS
const CublasLt& cublas_lt() {
  static const CublasLt functions = [] {
    const Library library("cublasLt", CUBLAS_VER_MAJOR);
    CublasLt all;
    MPIGRAD_CUBLAS_FUNCTIONS(MPIGRAD_FIND)
    return all;
  }();
  return functions;
}
#endif

#ifdef MPIGRAD_HAS_CUFFT
const Cufft& cufft() {
  static const Cufft functions = [] {
    const Library library("cufft", CUFFT_VER_MAJOR);
    Cufft all;
    MPIGRAD_CUFFT_FUNCTIONS(MPIGRAD_FIND)
    return all;
  }();
  return functions;
}
#endif

}  // namespace mpigrad::cuda
