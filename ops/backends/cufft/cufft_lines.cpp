#include "ops/backends/cufft/cufft_lines.h"

#include <functional>
#include <type_traits>

#include "framework/base/error.h"
#include "framework/cuda/cuda.h"
#include "ops/backends/cufft/vendor_cufft.h"
#include "ops/kernel/plan_cache.h"

namespace mpigrad::cuda {
namespace {

void check_cufft(cufftResult code, const char* call) {
  require(code == CUFFT_SUCCESS, "[fft] {} failed: cuFFT's error {}", call, static_cast<int>(code));
}
#define MPIGRAD_CUFFT(function, ...) check_cufft(cufft().function(__VA_ARGS__), #function)

struct PlanKey {
  int device;
  cufftType type;
  std::int64_t n, lines;
  bool operator==(const PlanKey&) const = default;
};
struct PlanHash {
  std::size_t operator()(const PlanKey& key) const {
    std::size_t hash = 0;
    for (const std::int64_t part : {std::int64_t{key.device}, std::int64_t{key.type}, key.n, key.lines})
      hash = hash * 1000003 + std::hash<std::int64_t>()(part);
    return hash;
  }
};

// A plan with its own work memory.
class Plan {
 public:
  explicit Plan(const PlanKey& key) {
    MPIGRAD_CUFFT(cufftCreate, &handle_);
    long long int n = key.n;
    std::size_t bytes = 0;
    MPIGRAD_CUFFT(cufftMakePlanMany64, handle_, 1, &n, nullptr, 1, 0, nullptr, 1, 0, key.type, key.lines, &bytes);
  }
  Plan(Plan&& other) noexcept : handle_(std::exchange(other.handle_, 0)), owns_(std::exchange(other.owns_, false)) {}
  Plan& operator=(Plan&&) = delete;
  ~Plan() {
    if (owns_) static_cast<void>(cufft().cufftDestroy(handle_));
  }
  cufftHandle handle() const { return handle_; }

 private:
  cufftHandle handle_ = 0;
  bool owns_ = true;
};

template <class T>
cufftType type_of(ops::Lines kind) {
  constexpr bool wide = std::is_same_v<T, double>;
  if (kind == ops::Lines::real_to_half) return wide ? CUFFT_D2Z : CUFFT_R2C;
  if (kind == ops::Lines::half_to_real) return wide ? CUFFT_Z2D : CUFFT_C2R;
  return wide ? CUFFT_Z2Z : CUFFT_C2C;
}

}  // namespace

template <class T>
void transform_lines(ops::Lines kind, std::int64_t n, std::int64_t lines, T* in, T* out) {
  if (lines == 0) return;
  // A plan may be executed by one thread at a time.
  static thread_local ops::PlanCache<PlanKey, Plan, PlanHash> plans(64);
  const PlanKey key{selected(), type_of<T>(kind), n, lines};
  const auto plan = plans.find(key, [&] { return Plan(key); });
  const auto handle = plan->handle();
  MPIGRAD_CUFFT(cufftSetStream, handle, static_cast<cudaStream_t>(compute_stream()));
  const int direction = kind == ops::Lines::backward ? CUFFT_INVERSE : CUFFT_FORWARD;
  if constexpr (std::is_same_v<T, double>) {
    auto *z = reinterpret_cast<cufftDoubleComplex*>(in), *w = reinterpret_cast<cufftDoubleComplex*>(out);
    if (kind == ops::Lines::real_to_half) MPIGRAD_CUFFT(cufftExecD2Z, handle, in, w);
    else if (kind == ops::Lines::half_to_real) MPIGRAD_CUFFT(cufftExecZ2D, handle, z, out);
    else MPIGRAD_CUFFT(cufftExecZ2Z, handle, z, w, direction);
  } else {
    auto *z = reinterpret_cast<cufftComplex*>(in), *w = reinterpret_cast<cufftComplex*>(out);
    if (kind == ops::Lines::real_to_half) MPIGRAD_CUFFT(cufftExecR2C, handle, in, w);
    else if (kind == ops::Lines::half_to_real) MPIGRAD_CUFFT(cufftExecC2R, handle, z, out);
    else MPIGRAD_CUFFT(cufftExecC2C, handle, z, w, direction);
  }
}
template void transform_lines(ops::Lines, std::int64_t, std::int64_t, float*, float*);
template void transform_lines(ops::Lines, std::int64_t, std::int64_t, double*, double*);

}  // namespace mpigrad::cuda
