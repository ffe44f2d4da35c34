// Pooling kernels compiled for one form of windows against the general kernels: the same bits.

#include <doctest/doctest.h>

#include <cstring>

#include "ops/kernel/divide.h"
#include "ops/pool/pool_cuda.h"
#include "tests/ops/kernel_problems.h"
#include "tests/support/gpu.h"

using namespace mpigrad;
using namespace mpigrad::testing;
using cuda::PoolKernels;

namespace {

using Bytes = std::vector<unsigned char>;

// Memory on the GPU for some elements, at an address aligned for packs of them, or one element after it.
template <class T>
class Room {
 public:
  Room(std::int64_t elements, bool odd)
      : bytes_(elements * static_cast<std::int64_t>(sizeof(T))), memory_({Shape{bytes_ + 64}, DType::uint8}, DeviceKind::cuda),
        data_(memory_.raw() + (odd ? sizeof(T) : 0)) {
    Bytes filled(static_cast<std::size_t>(bytes_ + 64), 0x5A);
    cuda::copy_to_device(memory_.raw(), filled.data(), bytes_ + 64);
  }
  Room(const std::vector<T>& values, bool odd) : Room(static_cast<std::int64_t>(values.size()), odd) {
    cuda::copy_to_device(data_, values.data(), bytes_);
  }
  T* data() const { return reinterpret_cast<T*>(data_); }
  // All bytes, so that writes outside the elements are found, too.
  Bytes bytes() const {
    Bytes result(static_cast<std::size_t>(bytes_ + 64));
    cuda::copy_to_host(result.data(), memory_.raw(), bytes_ + 64);
    return result;
  }

 private:
  std::int64_t bytes_;
  Tensor memory_;
  std::byte* data_;
};

// Windows of one of the known forms that may lie completely in padding, begin inside the image or leave a part of it out.
PoolProblem known_form() {
  static const std::int64_t channels[] = {1, 3, 4, 8, 12, 16, 17};
  PoolProblem p;
  const auto k = pick(2, 3);
  p.batch = pick(1, 2), p.channels = channels[pick(0, 6)];
  p.kernel = {k, k, k}, p.stride = {2, 2, 2};
  for (std::size_t a = 0; a < 3; ++a) {
    p.in[a] = pick(1, 9);
    p.pad_low[a] = pick(0, 5) == 0 ? pick(-2, 5) : pick(0, k - 1);
    p.out[a] = std::max<std::int64_t>(1, (p.in[a] + p.pad_low[a]) / 2 + pick(-1, 2));
  }
  return p;
}

// Small numbers, many of them equal, so that maxima have ties; occasionally a NaN.
template <class T>
std::vector<T> values_for(std::int64_t n, bool special) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < n; ++i) {
    const bool nan = special && pick(0, 40) == 0;
    const auto number = static_cast<float>(pick(-20, 20)) / 7;
    values.push_back(static_cast<T>(nan ? std::numeric_limits<float>::quiet_NaN() : number == 0 && i % 2 == 0 ? -0.0F : number));
  }
  return values;
}

template <class T>
void compare(const PoolProblem& p) {
  const auto n = sizes(p);
  const auto signs_count = p.batch * volume(p.in) * kernel::octets(p.channels);
  const bool odd_x = pick(0, 3) == 0, odd_y = pick(0, 3) == 0, odd_winner = pick(0, 3) == 0;
  const Room<T> x(values_for<T>(n.x, true), odd_x), gy(values_for<T>(n.y, false), odd_y);
  std::vector<Bytes> found[3];
  for (const auto which : {PoolKernels::any_form, PoolKernels::fitting, PoolKernels::marching}) {
    const Room<T> avg(n.y, odd_y), avg_gx(n.x, odd_x), max(n.y, odd_y), max_gx(n.x, odd_x), gathered(n.y, odd_y),
        leaky(n.y, odd_y), leaky_gx(n.x, odd_x), signed_y(n.y, odd_y);
    const Room<std::int32_t> winner(n.y, odd_winner);
    const Room<std::uint8_t> signs(signs_count, false);
    const auto stream = cuda::compute_stream();
    cuda::avg_pool_forward(p, x.data(), avg.data(), stream, which);
    cuda::avg_pool_adjoint(p, gy.data(), avg_gx.data(), stream, which);
    cuda::max_pool_forward(p, x.data(), max.data(), winner.data(), stream, which);
    cuda::max_pool_scatter(p, gy.data(), winner.data(), max_gx.data(), stream, which);
    cuda::max_pool_gather(p, x.data(), winner.data(), gathered.data(), stream, which);
    cuda::leaky_avg_pool(p, {0.3}, x.data(), leaky.data(), signs.data(), stream, which);
    cuda::leaky_avg_pool_adjoint(p, {0.3}, gy.data(), signs.data(), leaky_gx.data(), stream, which);
    cuda::signed_avg_pool(p, {0.3}, x.data(), signs.data(), signed_y.data(), stream, which);
    found[which == PoolKernels::any_form  ? 0
          : which == PoolKernels::fitting ? 1
                                          : 2] = {avg.bytes(),      avg_gx.bytes(),   max.bytes(),   winner.bytes(),
                                                  max_gx.bytes(),   gathered.bytes(), leaky.bytes(), leaky_gx.bytes(),
                                                  signed_y.bytes(), signs.bytes()};
  }
  const char* const names[] = {"average",          "its adjoint", "maximum",     "winners",    "its adjoint",
                               "what is gathered", "leaky",       "its adjoint", "with signs", "signs"};
  for (std::size_t i = 0; i < std::size(names); ++i) {
    INFO(std::string(names[i]));
    CHECK(found[1][i] == found[0][i]);
    CHECK(found[2][i] == found[0][i]);
  }
}

}  // namespace

TEST_CASE("gpu: pools of known forms are those of any form to the bit") {
  if (no_gpu("gpu: pools of known forms are those of any form to the bit")) return;
  for (int i = 0; i < cases(600); ++i) {
    const auto p = known_form();
    INFO(windows(p), " channels ", p.channels);
    compare<float>(p);
    compare<double>(p);
    compare<BFloat16>(p);
    compare<Float16>(p);
  }
}

TEST_CASE("kernels divide by what is known before") {
  std::mt19937_64 random(11);
  constexpr std::int64_t largest = (std::int64_t{1} << 31) - 1;
  std::vector<std::int64_t> divisors{1,           2,      3, 5, 7, 10, 64, 641, 65536, (1 << 30) - 1, 1 << 30, (1 << 30) + 1,
                                     largest - 1, largest};
  for (int i = 0; i < 200; ++i) divisors.push_back(1 + static_cast<std::int64_t>(random() >> (34 + random() % 29)));
  for (const auto d : divisors) {
    const cuda::FastDivideInt divide(d);
    REQUIRE(divide.divisor() == d);
    const auto multiple = largest / d * d;  // the hardest cases are around multiples
    std::vector<std::int64_t> numbers{0, 1, d - 1, d, largest, largest - 1, multiple, multiple - 1};
    for (int i = 0; i < 200; ++i) numbers.push_back(static_cast<std::int64_t>(random() >> (33 + random() % 30)));
    for (const auto n : numbers) REQUIRE(divide.quotient(static_cast<std::int32_t>(n)) == n / d);
  }
}
