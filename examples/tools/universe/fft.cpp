#include "examples/tools/universe/fft.h"

#include <fftw3.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>

#include "framework/base/error.h"
#include "framework/base/host_pool.h"

namespace mpigrad::universe {

namespace {

// FFTW's planner is not thread-safe, and ranks may be threads of one process.
std::mutex& planner() {
  static std::mutex mutex;
  return mutex;
}

fftw_complex* raw(std::complex<double>* p) { return reinterpret_cast<fftw_complex*>(p); }

// Never destroyed, because fields may be destroyed later.
HostPool& field_memory() {
  static HostPool* instance =
      new HostPool(static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
  return *instance;
}

}  // namespace

void* take_field_memory(std::size_t bytes) { return field_memory().allocate(bytes); }
void release_field_memory(void* memory) { field_memory().release(static_cast<std::byte*>(memory)); }

Range balanced_block(std::int64_t n, int parts, int part) {
  const std::int64_t base = n / parts, extra = n % parts;
  const std::int64_t begin = part * base + std::min<std::int64_t>(part, extra);
  return {begin, begin + base + (part < extra ? 1 : 0)};
}

int balanced_owner(std::int64_t n, int parts, std::int64_t index) {
  const std::int64_t base = n / parts, extra = n % parts;
  const std::int64_t longer = extra * (base + 1);
  return static_cast<int>(index < longer ? index / (base + 1) : extra + (index - longer) / base);
}

// Plans for one plane (y, z) and for one row of lines along x, executed repeatedly: with batches, FFTW would choose its algorithm
// by the number of planes, and the rounding would depend on the number of ranks.
struct SlabFft::Plans {
  fftw_plan plane_forward = nullptr, plane_inverse = nullptr;
  fftw_plan line_forward = nullptr, line_inverse = nullptr;

  explicit Plans(std::int64_t size) {
    const int n = static_cast<int>(size), half = n / 2 + 1;
    RealField real(static_cast<std::size_t>(n) * static_cast<std::size_t>(n));
    ComplexField complex(static_cast<std::size_t>(n) * static_cast<std::size_t>(half));
    // Planes of an odd size are not all aligned in the same way.
    const unsigned flags = FFTW_ESTIMATE | (n % 2 != 0 ? FFTW_UNALIGNED : 0U);
    const std::lock_guard lock(planner());
    plane_forward = fftw_plan_dft_r2c_2d(n, n, real.data(), raw(complex.data()), flags);
    plane_inverse = fftw_plan_dft_c2r_2d(n, n, raw(complex.data()), real.data(), flags | FFTW_DESTROY_INPUT);
    for (const int sign : {FFTW_FORWARD, FFTW_BACKWARD})
      (sign == FFTW_FORWARD ? line_forward : line_inverse) = fftw_plan_many_dft(
          1, &n, half, raw(complex.data()), nullptr, half, 1, raw(complex.data()), nullptr, half, 1, sign, flags);
    require(plane_forward && plane_inverse && line_forward && line_inverse, "[fft] FFTW makes no plan for {}^3", n);
  }
  ~Plans() {
    const std::lock_guard lock(planner());
    for (auto plan : {plane_forward, plane_inverse, line_forward, line_inverse})
      if (plan) fftw_destroy_plan(plan);
  }
  Plans(const Plans&) = delete;
  Plans& operator=(const Plans&) = delete;
};

SlabFft::SlabFft(std::shared_ptr<Transport> transport, std::int64_t n) : transport_(std::move(transport)), n_(n) {
  require(n >= 2 && n <= 32768, "[fft] cells per side must be 2 to 32768, got {}", n);
  rows_ = balanced_block(n, transport_->size(), transport_->rank());
  plans_ = std::make_unique<Plans>(n);
}
SlabFft::~SlabFft() = default;
SlabFft::SlabFft(SlabFft&&) noexcept = default;

namespace {

// [first in rows, second, z] of every rank -> [second in rows, first, z]: the distributed transpose of the first two axes. It is
// its own inverse, because both axes have the same extent and blocks.
ComplexField transpose(const SlabFft& fft, const ComplexField& in) {
  auto& transport = fft.transport();
  const std::int64_t n = fft.n(), half = fft.half(), mine = fft.x_range().size();
  const auto ranks = transport.size();
  ComplexField out(in.size());
  if (ranks == 1) {
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) std::copy_n(in.data() + (i * n + j) * half, half, out.data() + (j * n + i) * half);
    return out;
  }
  ComplexField send(in.size()), receive(in.size());
  std::vector<std::int64_t> counts;  // of doubles; the same in both directions
  auto* to = send.data();
  for (int r = 0; r < ranks; ++r) {
    const auto block = balanced_block(n, ranks, r);
    counts.push_back(2 * mine * block.size() * half);
    for (std::int64_t i = 0; i < mine; ++i) {
      const auto* from = in.data() + (i * n + block.begin) * half;
      to = std::copy(from, from + block.size() * half, to);
    }
  }
  transport.alltoall(send.data(), counts, receive.data(), counts, DType::float64);
  const auto* from = receive.data();
  for (int r = 0; r < ranks; ++r) {
    const auto block = balanced_block(n, ranks, r);
    for (std::int64_t i = block.begin; i < block.end; ++i)
      for (std::int64_t j = 0; j < mine; ++j, from += half) std::copy(from, from + half, out.data() + (j * n + i) * half);
  }
  return out;
}

}  // namespace

ComplexField SlabFft::forward(const RealField& f) const {
  ComplexField planes(complex_size());
  for (std::int64_t x = 0; x < rows_.size(); ++x)  // out of place, multi-dimensional r2c: the input survives
    fftw_execute_dft_r2c(plans_->plane_forward, const_cast<double*>(f.data()) + x * n_ * n_,
                         raw(planes.data() + x * n_ * half()));
  auto result = transpose(*this, planes);
  for (std::int64_t y = 0; y < rows_.size(); ++y) {
    auto* row = raw(result.data() + y * n_ * half());
    fftw_execute_dft(plans_->line_forward, row, row);
  }
  return result;
}

RealField SlabFft::inverse(ComplexField F) const {
  for (std::int64_t y = 0; y < rows_.size(); ++y) {
    auto* row = raw(F.data() + y * n_ * half());
    fftw_execute_dft(plans_->line_inverse, row, row);
  }
  auto planes = transpose(*this, F);
  RealField result(real_size());
  for (std::int64_t x = 0; x < rows_.size(); ++x)
    fftw_execute_dft_c2r(plans_->plane_inverse, raw(planes.data() + x * n_ * half()), result.data() + x * n_ * n_);
  const double scale = 1.0 / (static_cast<double>(n_) * static_cast<double>(n_) * static_cast<double>(n_));
  for (auto& value : result) value *= scale;
  return result;
}

}  // namespace mpigrad::universe
