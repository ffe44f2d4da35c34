#pragma once
// Contrastive losses over ranks: right ones, and wrong ones as found in published code. Each is this rank's share for its rows of
// two views, with N samples on all ranks together; gradients are summed over ranks, as always.

#include "examples/lessons/lesson.h"

namespace lesson::wrong {

struct Loss {
  std::string name;
  std::string truth;  // name of the right loss
  double rate = 0;    // learning rate of SGD with momentum 0.9 for the right loss
  std::function<Tensor(const Tensor& a, const Tensor& b, const Communicator& comm)> share;
};

inline constexpr double tau = 0.2, lambda = 0.02;

// This rank's samples among N.
struct Place {
  std::int64_t first = 0, all = 0;
};
inline Place place_of(const Tensor& x, const Communicator& comm) {
  Place place;
  const auto rows = rows_of_all(x, comm);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (static_cast<int>(r) < comm.rank()) place.first += rows[r];
    place.all += rows[r];
  }
  return place;
}

inline Tensor unit(const Tensor& z) { return z / sqrt(sum(square(z), {1}, true) + 1e-12); }
// -log softmax of each row's partner among all columns; the partner of row i is column first + i.
inline Tensor info_nce(const Tensor& rows, const Tensor& columns, std::int64_t first) {
  const Tensor partners = slice(columns, 0, first, first + rows.dim(0));
  return sum(logsumexp(matmul(rows, columns, {.transpose_b = true}) / tau, {1})) - sum(rows * partners) / tau;
}
// The result of a call of the communication library outside the tape: constants.
inline Tensor untaped(const std::function<Tensor()>& call) {
  const Untaped scope;
  return constant(call());
}

// Features with mean 0 and variance 1 over all samples, or only the mean.
inline Tensor standard(const Tensor& z, const Communicator& comm, double n, bool scale) {
  const Tensor centred = z - allreduce(sum(z, {0}), comm) / n;
  return scale ? centred / sqrt(allreduce(sum(square(centred), {0}), comm) / n + 1e-5) : centred;
}
inline Tensor identity(std::int64_t width) { return constant(one_hot(arange(width), width)); }
inline Tensor twins(const Tensor& c) {
  const Tensor eye = cast(identity(c.dim(0)), c.dtype());
  return sum(square((c - eye) * (eye + (1 - eye) * std::sqrt(lambda)))) / double(c.dim(0));
}
// Weights (25, 25, 1), with statistics over all samples; `of_statistics` is the fraction of their part that this rank
// contributes.
inline Tensor vicreg(const Tensor& a, const Tensor& b, const Communicator& comm, double of_statistics) {
  const double n = double(place_of(a, comm).all), d = double(a.dim(1));
  Tensor loss = sum(square(a - b)) * (25 / (n * d));
  for (const Tensor& view : {a, b}) {
    const Tensor x = standard(view, comm, n, false), c = allreduce(matmul(x, x, {.transpose_a = true}) / (n - 1), comm);
    const Tensor eye = cast(identity(a.dim(1)), c.dtype());
    loss = loss + (sum(relu(1 - sqrt(sum(c * eye, {1}) + 1e-4))) * 12.5 + sum(square(c * (1 - eye)))) * (of_statistics / d);
  }
  return loss;
}

inline std::vector<Loss> losses() {
  using T = const Tensor&;
  using C = const Communicator&;
  std::vector<Loss> list;
  const auto add = [&](const char* name, const char* truth, auto share) {
    const std::string right = truth;
    list.push_back({name, right, right.starts_with("InfoNCE") ? 0.1 : right.starts_with("Barlow") ? 0.3 : 0.01, share});
  };
  // The loss with both views' columns from `columns(z, comm, first)`, times `factor(ranks)`.
  const auto rows_against = [](auto columns, auto factor) {
    return [=](T za, T zb, C comm) {
      const Tensor a = unit(za), b = unit(zb);
      const auto at = place_of(a, comm);
      const auto loss = info_nce(a, columns(b, comm, at.first), at.first) + info_nce(b, columns(a, comm, at.first), at.first);
      return loss * (factor(comm.size()) / double(2 * at.all));
    };
  };
  const auto once = [](int) { return 1.0; };
  const auto gathered = [](T z, C comm, std::int64_t) { return allgather(z, comm); };
  const auto constants = [](T z, C comm, std::int64_t) { return untaped([&] { return allgather(constant(z), comm); }); };
  add("InfoNCE, exact", "InfoNCE, exact", rows_against(gathered, once));
  add("gather without gradient", "InfoNCE, exact", rows_against(constants, once));
  add("the same, own columns put back", "InfoNCE, exact",
      rows_against(
          [=](T z, C comm, std::int64_t first) {
            const Tensor all = constants(z, comm, first);
            return concatenate({slice(all, 0, 0, first), z, slice(all, 0, first + z.dim(0), all.dim(0))}, 0);
          },
          once));
  add("local negatives only", "InfoNCE, exact", [](T za, T zb, C comm) {
    const Tensor a = unit(za), b = unit(zb);
    return (info_nce(a, b, 0) + info_nce(b, a, 0)) / double(2 * place_of(a, comm).all);
  });
  add("full matrix, gradients summed", "InfoNCE, exact", [](T za, T zb, C comm) {
    const Tensor a = allgather(unit(za), comm), b = allgather(unit(zb), comm);
    return (info_nce(a, b, 0) + info_nce(b, a, 0)) / double(2 * a.dim(0));
  });
  add("averaged instead of summed", "InfoNCE, exact", rows_against(gathered, [](int ranks) { return 1.0 / ranks; }));

  // This rank's part of C = 1/N ahat^T bhat over all samples.
  const auto correlation = [](T a, T b, C comm) {
    const double n = double(place_of(a, comm).all);
    return matmul(standard(a, comm, n, true), standard(b, comm, n, true), {.transpose_a = true}) / n;
  };
  add("Barlow Twins, exact", "Barlow Twins, exact",
      [=](T a, T b, C comm) { return twins(allreduce(correlation(a, b, comm), comm)) / double(comm.size()); });
  add("Barlow Twins, without adjoint", "Barlow Twins, exact", [=](T a, T b, C comm) {
    const Tensor own = correlation(a, b, comm);
    const Tensor others = untaped([&] { return allreduce(constant(own), comm) - constant(own); });
    return twins(own + others) / double(comm.size());
  });
  add("Barlow Twins, full loss on all ranks", "Barlow Twins, exact",
      [=](T a, T b, C comm) { return twins(allreduce(correlation(a, b, comm), comm)) * 1.0; });
  add("VICReg, exact", "VICReg, exact", [](T a, T b, C comm) { return vicreg(a, b, comm, 1.0 / comm.size()); });
  add("VICReg, full loss on all ranks", "VICReg, exact", [](T a, T b, C comm) { return vicreg(a, b, comm, 1); });
  return list;
}

}  // namespace lesson::wrong
