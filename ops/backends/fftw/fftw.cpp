#include "ops/backends/fftw/fftw.h"

#include <fftw3.h>

#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "framework/base/error.h"

// Of FFTW's library for threads, if the program is linked with it.
extern "C" {
__attribute__((weak)) int fftw_planner_nthreads();
__attribute__((weak)) int fftwf_planner_nthreads();
__attribute__((weak)) void fftw_plan_with_nthreads(int);
__attribute__((weak)) void fftwf_plan_with_nthreads(int);
}

namespace mpigrad::cpu {
namespace {

// FFTW's planner is not thread-safe, and ranks may be threads of one process.
std::mutex& planner() {
  static std::mutex mutex;
  return mutex;
}

template <class T>
struct AlignedArray {
  explicit AlignedArray(std::int64_t count)
      : data(static_cast<T*>(::operator new(static_cast<std::size_t>(count) * sizeof(T), alignment))) {}
  ~AlignedArray() { ::operator delete(data, alignment); }
  AlignedArray(const AlignedArray&) = delete;
  AlignedArray& operator=(const AlignedArray&) = delete;
  static constexpr std::align_val_t alignment{64};
  T* data;
};

// Plans of lines have one thread each, whatever the program has told FFTW.
class OneThread {
 public:
  OneThread(int (*threads)(), void (*plan_with)(int)) : plan_with_(threads && plan_with ? plan_with : nullptr) {
    if (plan_with_) before_ = threads(), plan_with_(1);
  }
  ~OneThread() {
    if (plan_with_) plan_with_(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  void (*plan_with_)(int);
  int before_ = 1;
};

template <class T>
class FftwTransform;

#define MPIGRAD_FFTW(T, prefix)                                                                                    \
  template <>                                                                                                      \
  class FftwTransform<T> final : public LineTransform<T> {                                                         \
   public:                                                                                                         \
    FftwTransform(ops::Lines kind, std::int64_t n) : kind_(kind) {                                                 \
      const AlignedArray<T> in(2 * n + 2), out(2 * n + 2);                                                         \
      const int count = static_cast<int>(n);                                                                       \
      const OneThread one(prefix##_planner_nthreads, prefix##_plan_with_nthreads);                                 \
      auto* const z = reinterpret_cast<prefix##_complex*>(in.data);                                                \
      auto* const w = reinterpret_cast<prefix##_complex*>(out.data);                                               \
      switch (kind) {                                                                                              \
        case ops::Lines::forward: plan_ = prefix##_plan_dft_1d(count, z, w, FFTW_FORWARD, FFTW_ESTIMATE); break;   \
        case ops::Lines::backward: plan_ = prefix##_plan_dft_1d(count, z, w, FFTW_BACKWARD, FFTW_ESTIMATE); break; \
        case ops::Lines::real_to_half: plan_ = prefix##_plan_dft_r2c_1d(count, in.data, w, FFTW_ESTIMATE); break;  \
        case ops::Lines::half_to_real: plan_ = prefix##_plan_dft_c2r_1d(count, z, out.data, FFTW_ESTIMATE); break; \
      }                                                                                                            \
      require(plan_ != nullptr, "[fft] FFTW makes no plan for {} numbers", n);                                     \
    }                                                                                                              \
    void run(T* in, T* out) const override {                                                                       \
      auto* const z = reinterpret_cast<prefix##_complex*>(in);                                                     \
      auto* const w = reinterpret_cast<prefix##_complex*>(out);                                                    \
      switch (kind_) {                                                                                             \
        case ops::Lines::forward:                                                                                  \
        case ops::Lines::backward: return prefix##_execute_dft(plan_, z, w);                                       \
        case ops::Lines::real_to_half: return prefix##_execute_dft_r2c(plan_, in, w);                              \
        case ops::Lines::half_to_real: return prefix##_execute_dft_c2r(plan_, z, out);                             \
      }                                                                                                            \
    }                                                                                                              \
                                                                                                                   \
   private:                                                                                                        \
    ops::Lines kind_;                                                                                              \
    prefix##_plan plan_ = nullptr;                                                                                 \
  };
MPIGRAD_FFTW(float, fftwf)
MPIGRAD_FFTW(double, fftw)
#undef MPIGRAD_FFTW

}  // namespace

// Never destroyed: threads may still use the plans when the process ends.
template <class T>
const LineTransform<T>& line_transform(ops::Lines kind, std::int64_t n) {
  static auto& plans = *new std::map<std::pair<ops::Lines, std::int64_t>, std::unique_ptr<FftwTransform<T>>>;
  const std::lock_guard lock(planner());
  auto& plan = plans[{kind, n}];
  if (!plan) plan = std::make_unique<FftwTransform<T>>(kind, n);
  return *plan;
}
template const LineTransform<float>& line_transform(ops::Lines, std::int64_t);
template const LineTransform<double>& line_transform(ops::Lines, std::int64_t);

}  // namespace mpigrad::cpu
