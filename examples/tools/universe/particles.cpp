#include "examples/tools/universe/particles.h"

#include <cmath>
#include <limits>

#include "framework/base/error.h"

namespace mpigrad::universe {

namespace {

std::int64_t wrap(double position, std::int64_t n) {
  const auto cell = static_cast<std::int64_t>(std::floor(position + 0.5)) % n;
  return cell < 0 ? cell + n : cell;
}

}  // namespace

Field<std::int32_t> count_particles(const SlabFft& fft, const Displacement& psi1, const Displacement& psi2, double growth) {
  auto& transport = fft.transport();
  const std::int64_t n = fft.n(), begin = fft.x_range().begin, end = fft.x_range().end;
  const auto ranks = static_cast<std::size_t>(transport.size());
  const bool second = !psi2[0].empty();
  const double to_cells = static_cast<double>(n), g1 = growth * to_cells, g2 = growth * growth * to_cells;
  Field<std::int32_t> counts(fft.real_size());
  std::vector<std::vector<std::int64_t>> leaving(ranks);  // cells, numbered within their owner's slab

  std::size_t offset = 0;
  for (std::int64_t x = begin; x < end; ++x)
    for (std::int64_t y = 0; y < n; ++y)
      for (std::int64_t z = 0; z < n; ++z, ++offset) {
        std::array<double, 3> move{};
        for (std::size_t i = 0; i < 3; ++i) move[i] = g1 * psi1[i][offset] + (second ? g2 * psi2[i][offset] : 0.0);
        const auto cx = wrap(static_cast<double>(x) + move[0], n);
        const auto cy = wrap(static_cast<double>(y) + move[1], n), cz = wrap(static_cast<double>(z) + move[2], n);
        if (cx >= begin && cx < end) {
          ++counts[static_cast<std::size_t>(((cx - begin) * n + cy) * n + cz)];
        } else {
          const int owner = balanced_owner(n, transport.size(), cx);
          const auto first = balanced_block(n, transport.size(), owner).begin;
          leaving[static_cast<std::size_t>(owner)].push_back(((cx - first) * n + cy) * n + cz);
        }
      }
  if (ranks == 1) return counts;

  std::vector<std::int64_t> send_counts, ones(ranks, 1), receive_counts(ranks), send;
  for (const auto& cells : leaving) {
    send_counts.push_back(static_cast<std::int64_t>(cells.size()));
    send.insert(send.end(), cells.begin(), cells.end());
  }
  leaving.clear();
  transport.alltoall(send_counts.data(), ones, receive_counts.data(), ones, DType::int64);
  std::int64_t arriving = 0;
  for (const auto count : receive_counts) arriving += count;
  std::vector<std::int64_t> receive(static_cast<std::size_t>(arriving));
  transport.alltoall(send.data(), send_counts, receive.data(), receive_counts, DType::int64);
  for (const auto cell : receive) ++counts[static_cast<std::size_t>(cell)];
  return counts;
}

void store_channel(std::span<const std::int32_t> counts, std::span<std::int16_t> out, int channels, int channel) {
  for (std::size_t i = 0; i < counts.size(); ++i) {
    require(counts[i] <= std::numeric_limits<std::int16_t>::max(),
            "[universe] {} particles in one cell do not fit the format's int16", counts[i]);
    out[i * static_cast<std::size_t>(channels) + static_cast<std::size_t>(channel)] = static_cast<std::int16_t>(counts[i]);
  }
}

}  // namespace mpigrad::universe
