#include "models/losses/contrastive/pairs.h"

#include <algorithm>
#include <limits>

#include "comm/collectives/ring.h"
#include "comm/distributed/invariant.h"
#include "models/losses/contrastive/blocks.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/recompute.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"

namespace mpigrad::contrastive {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

Rows twice(Rows rows) {
  for (auto& n : rows) n *= 2;
  return rows;
}

// A learned number of one element, as a tensor to combine with z.
Tensor learned(const Tensor& value, const Tensor& z, const Communicator& comm) {
  const auto same = replicate(reshape(value, Shape()), comm);
  return value.dtype() == z.dtype() ? same : cast(same, z.dtype());
}
double value_of(std::string_view loss, const Tensor& number) {
  require(number && number.elements() == 1 && is_floating(number.dtype()), "[{}] a learned number has one element: {}", loss,
          number);
  return number.raw() ? number.item() : 0;
}

// Similarities of local rows to all columns, in the direct form.
Tensor against_all(const Tensor& q, const Tensor& k, const Communicator& comm, const Rows& rows) {
  return matmul(q, allgather(k, comm, rows), {.transpose_b = true});
}

}  // namespace

Tensor nt_xent(const Tensor& a, const Tensor& b, const Communicator& comm, const NtXentAttributes& at) {
  const auto batch =
      inspect("nt_xent", {a, b}, comm, {.refuse_zeros = at.refuse_zeros && at.normalise, .temperature = at.temperature});
  const auto x = at.normalise ? unit_rows(batch.views[0]) : batch.views[0],
             y = at.normalise ? unit_rows(batch.views[1]) : batch.views[1];
  // Both views form one block of 2n rows on each rank: pairs are on the same rank, and the excluded terms lie on a diagonal.
  const auto z = concatenate({x, y}, 0), q = z * (1 / at.temperature);
  const auto rows = twice(batch.rows);
  Tensor denominators;
  if (at.form == Form::ring) {
    denominators = ring_logsumexp(q, z, comm, {.rows = rows, .skip_own = true, .tile = at.tile});
  } else {
    const auto own = diagonal(2 * batch.here, 2 * batch.all, 2 * batch.first, z.device());
    denominators = logsumexp(masked(against_all(q, z, comm, rows), own, -infinity), {1});
  }
  const auto numerators = sum(x * y) * (2 / at.temperature);
  return batch.share((sum(denominators) - numerators) * (0.5 / static_cast<double>(batch.all)));
}

Tensor clip(const Tensor& a, const Tensor& b, const Tensor& log_scale, const Communicator& comm, const ClipAttributes& at) {
  const auto batch =
      inspect("clip", {a, b}, comm, {.refuse_zeros = at.refuse_zeros && at.normalise, .learned = value_of("clip", log_scale)});
  const auto x = at.normalise ? unit_rows(batch.views[0]) : batch.views[0],
             y = at.normalise ? unit_rows(batch.views[1]) : batch.views[1];
  const auto scaled = x * exp(learned(log_scale, x, comm));
  Tensor of_rows, of_columns;
  if (at.form == Form::ring) {
    const auto sums = ring_logsumexps(scaled, y, comm, {.rows = batch.rows, .tile = at.tile});
    of_rows = sums.rows, of_columns = sums.columns;
  } else {
    of_rows = logsumexp(against_all(scaled, y, comm, batch.rows), {1});
    of_columns = logsumexp(against_all(y, scaled, comm, batch.rows), {1});
  }
  const auto share = (sum(of_rows) + sum(of_columns) - sum(scaled * y) * 2) * (0.5 / static_cast<double>(batch.all));
  return batch.share(share);
}

void limit_log_scale(Tensor log_scale, double largest) {
  if (!log_scale.raw()) return;
  if (log_scale.device() == DeviceKind::cuda) {
    const Untaped scope;
    const auto limited = clamp(constant(log_scale), -std::numeric_limits<double>::infinity(), largest);
    return detail::copy_bytes(log_scale.device(), log_scale.raw(), limited.raw(), log_scale.bytes());
  }
  visit_floating(log_scale.dtype(), [&](auto zero) {
    using T = decltype(zero);
    auto* t = log_scale.mutable_data<T>();
    for (std::int64_t i = 0; i < log_scale.elements(); ++i) t[i] = std::min(t[i], static_cast<T>(largest));
  });
}

Tensor siglip(const Tensor& a, const Tensor& b, const Tensor& log_scale, const Tensor& bias, const Communicator& comm,
              const SiglipAttributes& at) {
  require(at.tile >= 0, "[siglip] a tile has at least one row, got {}", at.tile);
  const auto batch = inspect("siglip", {a, b}, comm,
                             {.smallest = 1,
                              .refuse_zeros = at.refuse_zeros && at.normalise,
                              .learned = value_of("siglip", log_scale) + value_of("siglip", bias)});
  const auto x = at.normalise ? unit_rows(batch.views[0]) : batch.views[0],
             y = at.normalise ? unit_rows(batch.views[1]) : batch.views[1];
  const auto scaled = x * exp(learned(log_scale, x, comm)), shift = learned(bias, x, comm);
  const auto tile = at.tile == 0 ? ring_tile(x.device()) : at.tile;
  const auto tiles = [&](const Tensor& z) {
    std::vector<Tensor> result;
    for (std::int64_t i = 0; i < z.dim(0); i += tile) result.push_back(slice(z, 0, i, std::min(z.dim(0), i + tile)));
    return result;
  };
  const auto rows = tiles(scaled);
  UseDevice device(x.device());
  // Treats all pairs as negatives, -log sigmoid(-l) = softplus(l), and corrects the positives: softplus(-l) = softplus(l) - l.
  Tensor share = -(sum(scaled * y) + shift * static_cast<double>(batch.here));
  for_each_block({y}, comm, batch.rows, [&](const Tensors& block, int) {
    for (const auto& columns : tiles(block[0]))
      for (const auto& q : rows)
        share =
            share + recompute([q, shift](const Tensor& k) { return sum(softplus(matmul(q, k, {.transpose_b = true}) + shift)); },
                              columns);
  });
  return batch.share(share * (1 / static_cast<double>(batch.all)));
}

}  // namespace mpigrad::contrastive
