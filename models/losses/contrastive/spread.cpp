#include "models/losses/contrastive/spread.h"

#include <cmath>
#include <limits>

#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace mpigrad::contrastive {
namespace {

void require_quadrature(const SigRegAttributes& at) {
  require(at.slices > 0 && at.points >= 3 && at.points % 2 == 1 && std::isfinite(at.range) && at.range > 0,
          "[sigreg] needs slices, an odd number of points from 3 on, and a range above 0: {} slices, {} points, range {}",
          at.slices, at.points, at.range);
}

// This rank's share of the sum over views of SIGReg.
Tensor statistic(const Batch& batch, const Philox& random, const SigRegAttributes& at) {
  Tensor directions;
  {
    Untaped scope;
    const auto normal = random_normal({batch.width, at.slices}, random, 0, 1, batch.views[0].dtype());
    directions = constant(normal / sqrt(sum(square(normal), {0}, true)));
  }
  // The integrand is even in t, and 0 at t = 0: points from t = spacing on count twice.
  const int half = at.points / 2;
  const double spacing = at.range / half, n = static_cast<double>(batch.all);
  Tensors sums;  // by view and point: of cosines, of sines
  for (const auto& z : batch.views) {
    const auto y = matmul(z, directions);
    for (int k = 1; k <= half; ++k) {
      const auto ty = y * (k * spacing);
      sums.push_back(sum(cos(ty), {0}, true)), sums.push_back(sum(sin(ty), {0}, true));
    }
  }
  const auto mine = matrix_rows(transpose(concatenate(sums, 0)), batch.comm);
  Tensor total;
  for (std::size_t i = 0; i < sums.size() / 2; ++i) {
    const int k = static_cast<int>(i) % half + 1;
    const double normal = std::exp(-0.5 * k * spacing * k * spacing), weight = (k == half ? 1 : 2) * spacing * normal;
    const auto column = [&](std::size_t c) {
      return slice(mine.values, 1, static_cast<std::int64_t>(c), static_cast<std::int64_t>(c) + 1) * (1 / n);
    };
    const auto term = sum(square(column(2 * i) - normal) + square(column(2 * i + 1))) * weight;
    total = total ? total + term : term;
  }
  return total * (n / static_cast<double>(at.slices));
}

}  // namespace

Tensor sigreg(const Tensor& z, const Communicator& comm, const Philox& random, const SigRegAttributes& at) {
  require_quadrature(at);
  const auto batch = inspect("sigreg", {z}, comm, {.refuse_zeros = false});
  return batch.share(statistic(batch, random, at));
}

Tensor lejepa(const Tensors& views, const Communicator& comm, const Philox& random, const LeJepaAttributes& at) {
  require_quadrature(at.sigreg);
  require(at.lambda >= 0 && at.lambda <= 1, "[lejepa] lambda is in [0, 1], got {}", at.lambda);
  require(at.global_views >= 1 && static_cast<std::size_t>(at.global_views) <= views.size(),
          "[lejepa] of {} views {} cannot be global", views.size(), at.global_views);
  const auto batch = inspect("lejepa", views, comm, {.refuse_zeros = false});
  const double count = static_cast<double>(views.size());
  Tensor mean = batch.views[0];
  for (int v = 1; v < at.global_views; ++v) mean = mean + batch.views[static_cast<std::size_t>(v)];
  mean = mean * (1.0 / at.global_views);
  Tensor apart;
  for (const auto& z : batch.views) {
    const auto of_view = sum(square(z - mean));
    apart = apart ? apart + of_view : of_view;
  }
  const double numbers = count * static_cast<double>(batch.all * batch.width);
  return batch.share(apart * ((1 - at.lambda) / numbers) + statistic(batch, random, at.sigreg) * (at.lambda / count));
}

Tensor koleo(const Tensor& z, const Communicator& comm, const KoLeoAttributes& at) {
  const auto batch = inspect("koleo", {z}, comm, {.refuse_zeros = at.refuse_zeros});
  const auto mine = unit_rows(batch.views[0]), all = allgather(mine, batch.comm, batch.rows);
  Tensor nearest;
  {
    Untaped scope;
    const auto products = matmul(mine, all, {.transpose_b = true});
    nearest = argmax(masked(products, diagonal(batch.here, batch.all, batch.first, z.device()), -2), 1);
  }
  // Equal embeddings have no direction apart: their derivative is 0, not NaN.
  const auto squares = clamp(sum(square(mine - take(all, nearest)), {1}), 1e-24, std::numeric_limits<double>::infinity());
  const auto distance = sqrt(squares);
  return batch.share(sum(log(distance + at.epsilon)) * (-1 / static_cast<double>(batch.all)));
}

}  // namespace mpigrad::contrastive
