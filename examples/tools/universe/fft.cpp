#include "examples/tools/universe/fft.h"

#include <unistd.h>

#include <algorithm>

#include "comm/fft/fft.h"
#include "framework/base/error.h"
#include "framework/base/host_pool.h"
#include "framework/engine/tape.h"
#include "ops/views/views.h"

namespace mpigrad::universe {

namespace {

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

SlabFft::SlabFft(const std::shared_ptr<Transport>& transport, std::int64_t n)
    : SlabFft(transport, make_grid(Communicator(transport), {.depth = transport->size()}), n) {}
SlabFft::SlabFft(const SlabFft& like, std::int64_t n) : SlabFft(like.transport_, like.grid_, n) {}
SlabFft::SlabFft(std::shared_ptr<Transport> transport, GridPtr grid, std::int64_t n)
    : transport_(std::move(transport)), grid_(std::move(grid)), n_(n) {
  require(n >= 2 && n <= 32768, "[fft] cells per side must be 2 to 32768, got {}", n);
  rows_ = balanced_block(n, transport_->size(), transport_->rank());
  cells_ = split_layout(grid_, {n, n, n}, {-1, 0});
  modes_ = split_layout(grid_, {n, n, half()}, {-1, 1});
}

ComplexField SlabFft::forward(const RealField& f) const {
  const Untaped scope;
  const UseDevice device(DeviceKind::cpu);
  const Tensor x = Tensor::over(f.data(), {rows_.size(), n_, n_}, DType::float64).with_layout(cells_);
  const Tensor F = permute(rfft(x, {0, 1, 2}, modes_), {1, 0, 2});
  ComplexField result(complex_size());
  if (!result.empty()) std::copy_n(F.data<std::complex<double>>(), result.size(), result.data());
  return result;
}

RealField SlabFft::inverse(ComplexField F) const {
  const Untaped scope;
  const UseDevice device(DeviceKind::cpu);
  Tensor modes = permute(Tensor::over(F.data(), {rows_.size(), n_, half()}, DType::complex128), {1, 0, 2}).with_layout(modes_);
  F = {};
  const Tensor x = irfft(modes, {0, 1, 2}, n_, cells_);
  modes = {};
  RealField result(real_size());
  if (!result.empty()) std::copy_n(x.data<double>(), result.size(), result.data());
  return result;
}

}  // namespace mpigrad::universe
