#include "tests/models/losses/contrastive_cases.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "comm/check/adjoint_check.h"
#include "comm/distributed/distributed.h"
#include "comm/distributed/invariant.h"
#include "models/losses/contrastive/dino.h"
#include "models/losses/contrastive/moco.h"
#include "models/losses/contrastive/pairs.h"
#include "models/losses/contrastive/spread.h"
#include "models/losses/contrastive/statistics.h"
#include "models/losses/contrastive/swav.h"
#include "models/losses/ranking.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tests/models/losses/contrastive_formulas.h"
#include "tests/support/random.h"

namespace mpigrad::testing::contrastive {
namespace {

Tensor queue(DType dtype) { return constant(mpigrad::contrastive::unit_rows(random_tensor({6, width}, 21, dtype))); }
Tensor prototypes(DType dtype) { return constant(mpigrad::contrastive::unit_rows(random_tensor({4, width}, 22, dtype))); }

Tensors earlier() {
  return {queue(DType::float64), constant(mpigrad::contrastive::unit_rows(random_tensor({6, width}, 23, DType::float64)))};
}

std::function<Tensors(DType)> numbers(const std::vector<double>& values) {
  return [values](DType dtype) {
    Tensors result;
    for (const double value : values) result.push_back(full({}, value, dtype));
    return result;
  };
}

constexpr double heat = 0.3;
constexpr Philox slices{.key = 3, .stream = 7};
constexpr mpigrad::contrastive::SigRegAttributes sketch{.slices = 5, .points = 9, .range = 3};
Matrix directions() { return matrix_of(transpose(random_normal({width, sketch.slices}, slices, 0, 1, DType::float64))); }

Tensor centre() { return constant(random_tensor({width}, 24, DType::float64)); }
Tensors teachers(const Tensors& z) { return {constant(z[1] * 2), constant(z[0] * 2)}; }
std::vector<Matrix> teachers(const std::vector<Matrix>& z) {
  std::vector<Matrix> result{z[1], z[0]};
  for (auto& view : result)
    for (auto& row : view)
      for (auto& value : row) value *= 2;
  return result;
}
Tensor binary_labels() { return constant(from_vector({samples}, {1, 0, 0, 1, 0, 1, 0}, DType::int64)); }

std::vector<LossCase> make_cases() {
  using namespace mpigrad::contrastive;
  std::vector<LossCase> list;
  for (const auto form : {Form::direct, Form::ring}) {
    const std::string kind = form == Form::ring ? ", ring" : "";
    list.push_back(
        {.name = "nt_xent" + kind,
         .share = [form](const Tensors& z, const Tensors&,
                         const Part& at) { return nt_xent(z[0], z[1], at.comm, {.temperature = heat, .form = form, .tile = 3}); },
         .formula = [](const auto& z, const auto&) { return formulas::nt_xent(z[0], z[1], heat); }});
    list.push_back({.name = "clip" + kind,
                    .learned = numbers({1.1}),
                    .share = [form](const Tensors& z, const Tensors& t,
                                    const Part& at) { return clip(z[0], z[1], t[0], at.comm, {.form = form, .tile = 3}); },
                    .formula = [](const auto& z, const auto& t) { return formulas::clip(z[0], z[1], t[0].item()); }});
  }
  for (const bool together : {true, false})
    for (const bool per_sample : {true, false})
      for (const auto form : {Form::direct, Form::ring})
        list.push_back({.name = fmt::format("sup_con, {}, mean over {}{}", together ? "L_out" : "positives apart",
                                            per_sample ? "samples" : "pairs", form == Form::ring ? ", ring" : ""),
                        .views = 1,
                        .share =
                            [=](const Tensors& z, const Tensors&, const Part& at) {
                              return sup_con(z[0], at.of(class_labels()), at.comm,
                                             {.temperature = heat,
                                              .positives_in_denominator = together,
                                              .mean_over_samples = per_sample,
                                              .form = form,
                                              .tile = 3});
                            },
                        .formula =
                            [=](const auto& z, const auto&) {
                              return formulas::sup_con(z[0], class_labels().to_vector(), heat, together, per_sample);
                            }});
  list.push_back(
      {.name = "siglip",
       .learned = numbers({0.9, -1.5}),
       .share = [](const Tensors& z, const Tensors& t,
                   const Part& at) { return siglip(z[0], z[1], t[0], t[1], at.comm, {.tile = 3}); },
       .formula = [](const auto& z, const auto& t) { return formulas::siglip(z[0], z[1], t[0].item(), t[1].item()); }});
  list.push_back({.name = "barlow_twins",
                  .share = [](const Tensors& z, const Tensors&,
                              const Part& at) { return barlow_twins(z[0], z[1], at.comm, {.lambda = 0.05}); },
                  .formula = [](const auto& z, const auto&) { return formulas::barlow_twins(z[0], z[1], 0.05); }});
  list.push_back({.name = "vicreg",
                  .share = [](const Tensors& z, const Tensors&, const Part& at) { return vicreg(z[0], z[1], at.comm); },
                  .formula = [](const auto& z, const auto&) { return formulas::vicreg(z[0], z[1]); }});
  for (const bool all : {true, false})
    list.push_back({.name = all ? "spectral, all pairs" : "spectral, other pairs",
                    .share = [all](const Tensors& z, const Tensors&,
                                   const Part& at) { return spectral(z[0], z[1], at.comm, {.all_pairs = all}); },
                    .formula = [all](const auto& z, const auto&) { return formulas::spectral(z[0], z[1], all); }});
  list.push_back(
      {.name = "moco",
       .share = [](const Tensors& z, const Tensors&,
                   const Part& at) { return moco(z[0], z[1], queue(DType::float64), at.comm, {.temperature = heat}); },
       .formula = [](const auto& z, const auto&) { return formulas::moco(z[0], z[1], matrix_of(queue(DType::float64)), heat); },
       .second_order = false});
  list.push_back({.name = "swav",
                  .views = 3,
                  .learned = [](DType dtype) { return Tensors{prototypes(dtype).as_variable()}; },
                  .share = [](const Tensors& z, const Tensors& c,
                              const Part& at) { return swav(z, c[0], at.comm, {.sinkhorn = {.epsilon = 0.25}}); },
                  .formula = [](const auto& z, const auto& c) { return formulas::swav(z, matrix_of(c[0]), 0.1, 0.25); },
                  .second_order = false});
  list.push_back(
      {.name = "swav, queue",
       .views = 3,
       .learned = [](DType dtype) { return Tensors{prototypes(dtype).as_variable()}; },
       .share = [](const Tensors& z, const Tensors& c,
                   const Part& at) { return swav(z, c[0], at.comm, {.sinkhorn = {.epsilon = 0.25}, .queue = earlier()}); },
       .formula =
           [](const auto& z, const auto& c) {
             return formulas::swav(z, matrix_of(c[0]), 0.1, 0.25, {matrix_of(earlier()[0]), matrix_of(earlier()[1])});
           },
       .second_order = false});
  list.push_back(
      {.name = "sigreg",
       .views = 1,
       .share = [](const Tensors& z, const Tensors&, const Part& at) { return sigreg(z[0], at.comm, slices, sketch); },
       .formula = [](const auto& z, const auto&) { return formulas::sigreg(z[0], directions(), sketch.points, sketch.range); }});
  list.push_back({.name = "lejepa",
                  .views = 3,
                  .share = [](const Tensors& z, const Tensors&,
                              const Part& at) { return lejepa(z, at.comm, slices, {.lambda = 0.3, .sigreg = sketch}); },
                  .formula = [](const auto& z,
                                const auto&) { return formulas::lejepa(z, directions(), 0.3, sketch.points, sketch.range); }});
  list.push_back({.name = "koleo",
                  .views = 1,
                  .share = [](const Tensors& z, const Tensors&, const Part& at) { return koleo(z[0], at.comm); },
                  .formula = [](const auto& z, const auto&) { return formulas::koleo(z[0]); }});
  list.push_back(
      {.name = "dino",
       .views = 3,
       .share = [](const Tensors& z, const Tensors&,
                   const Part& at) { return dino(z, teachers(z), centre(), at.comm, {.teacher_temperature = 0.5}); },
       .formula = [](const auto& z, const auto&) { return formulas::dino(z, teachers(z), centre().to_vector(), 0.1, 0.5); },
       .second_order = false});
  list.push_back(
      {.name = "auc",
       .views = 1,
       .share = [](const Tensors& z, const Tensors&,
                   const Part& at) { return auc_loss(slice(z[0], 1, 0, 1), at.of(binary_labels()), at.comm, {.margin = 0.7}); },
       .formula = [](const auto& z, const auto&) { return formulas::auc(z[0], binary_labels().to_vector(), 0.7); }});
  return list;
}

// ---- wrong losses as found in published code

Tensor logits(const Tensor& a, const Tensor& b, double temperature) {
  return matmul(a, b, {.transpose_b = true}) * (1 / temperature);
}
// Sum over local rows of the InfoNCE loss against columns; column `first` is the partner of the first row.
Tensor rows_against(const Tensor& a, const Tensor& all, std::int64_t first) {
  using namespace mpigrad::contrastive;
  const auto x = exp(logits(a, all, heat));
  const auto pair = masked(x, constant(logical_not(diagonal(a.dim(0), all.dim(0), first, a.device()))), 0);
  return sum(log(sum(x, {1}))) - sum(log(sum(pair, {1})));
}
Tensor covariance(const Tensor& z, double n) { return matmul(z, z, {.transpose_a = true}) * (1 / n); }

std::vector<LossCase> make_wrong() {
  using namespace mpigrad::contrastive;
  const double n = samples;
  const auto unit = [](const Tensors& z) { return Tensors{unit_rows(z[0]), unit_rows(z[1])}; };
  std::vector<LossCase> list;
  const auto add = [&](const std::string& name, auto share) {
    list.push_back({.name = name, .share = share, .formula = [](const auto&, const auto&) { return 0.0; }});
  };
  add("right", [=](const Tensors& z, const Tensors&, const Part& at) {
    const auto u = unit(z);
    return rows_against(u[0], allgather(u[1], at.comm, at.rows), at.first) * (1 / n);
  });
  add("gather without gradient", [=](const Tensors& z, const Tensors&, const Part& at) {
    const auto u = unit(z);
    Tensor columns;
    {
      Untaped scope;
      columns = constant(allgather(constant(u[1]), at.comm, at.rows));
    }
    // As is common, the local block is inserted again with its gradient.
    const auto before = slice(columns, 0, 0, at.first), after = slice(columns, 0, at.first + at.here, columns.dim(0));
    return rows_against(u[0], concatenate({before, u[1], after}, 0), at.first) * (1 / n);
  });
  add("local negatives only", [=](const Tensors& z, const Tensors&, const Part&) {
    const auto u = unit(z);
    return rows_against(u[0], u[1], 0) * (1 / n);
  });
  add("full matrix, summed gradients", [=](const Tensors& z, const Tensors&, const Part& at) {
    const auto u = unit(z);
    return rows_against(allgather(u[0], at.comm, at.rows), allgather(u[1], at.comm, at.rows), 0) * (1 / n);
  });
  add("averaged instead of summed", [=](const Tensors& z, const Tensors&, const Part& at) {
    const auto u = unit(z);
    return rows_against(u[0], allgather(u[1], at.comm, at.rows), at.first) * (1 / n / at.comm.size());
  });
  const auto twins = [](const Tensor& c) {
    const auto eye = diagonal(width, width, 0, c.device());
    return sum(where(eye, square(1 - c), square(c) * 0.05));
  };
  const auto standard = [=](const Tensor& z, const Communicator& comm) {
    const auto x = z - allreduce(sum(z, {0}), comm) * (1 / n);
    return x / sqrt(allreduce(sum(square(x), {0}), comm) * (1 / n) + 1e-5);
  };
  add("barlow twins, right", [=](const Tensors& z, const Tensors&, const Part& at) {
    const auto c = matmul(standard(z[0], at.comm), standard(z[1], at.comm), {.transpose_a = true}) * (1 / n);
    return twins(allreduce(c, at.comm)) * (1.0 / at.comm.size());
  });
  add("barlow twins, full loss on every rank", [=](const Tensors& z, const Tensors&, const Part& at) {
    const auto c = matmul(standard(z[0], at.comm), standard(z[1], at.comm), {.transpose_a = true}) * (1 / n);
    return twins(allreduce(c, at.comm));
  });
  add("barlow twins, without adjoint", [=](const Tensors& z, const Tensors&, const Part& at) {
    const auto c = matmul(standard(z[0], at.comm), standard(z[1], at.comm), {.transpose_a = true}) * (1 / n);
    Tensor others;
    {
      Untaped scope;
      others = constant(allreduce(constant(c), at.comm) - constant(c));
    }
    return twins(c + others) * (1.0 / at.comm.size());
  });
  const auto vicreg_of = [=](const Tensors& z, const Part& at, bool once_each) {
    const double share = once_each ? 1.0 / at.comm.size() : 1;
    Tensor loss = sum(square(z[0] - z[1])) * (25 / (n * width));
    for (const auto& view : z) {
      const auto x = view - allreduce(sum(view, {0}), at.comm) * (1 / n);
      const auto c = allreduce(covariance(x, n - 1), at.comm);
      const auto eye = diagonal(width, width, 0, c.device());
      const auto variance = sum(masked(c, constant(logical_not(eye)), 0), {1});
      loss = loss + sum(relu(1 - sqrt(variance + 1e-4))) * (12.5 / width * share) +
             sum(square(masked(c, eye, 0))) * (1.0 / width * share);
    }
    return loss;
  };
  add("vicreg, right", [=](const Tensors& z, const Tensors&, const Part& at) { return vicreg_of(z, at, true); });
  add("vicreg, full loss on every rank",
      [=](const Tensors& z, const Tensors&, const Part& at) { return vicreg_of(z, at, false); });
  return list;
}

}  // namespace

const std::vector<LossCase>& cases() {
  static const auto list = make_cases();
  return list;
}
const std::vector<LossCase>& wrong_cases() {
  static const auto list = make_wrong();
  return list;
}
const LossCase& case_named(const std::string& name) {
  for (const auto& loss : cases())
    if (loss.name == name) return loss;
  fail("[test] no loss is called {}", name);
}

Tensor Part::of(const Tensor& global) const { return slice(global, 0, first, first + here); }

Rows balanced(int ranks) {
  const auto cuts = balanced_cuts(samples, ranks);
  Rows rows;
  for (std::size_t r = 1; r < cuts.size(); ++r) rows.push_back(cuts[r] - cuts[r - 1]);
  return rows;
}
Rows lopsided(int ranks) {
  Rows rows(static_cast<std::size_t>(ranks), 1);
  rows[0] = 0;
  rows[ranks > 1 ? 1 : 0] = samples - std::max(0, ranks - 2);
  return rows;
}
Part part_of(const Communicator& comm, const Rows& rows) {
  return {comm, rows, std::accumulate(rows.begin(), rows.begin() + comm.rank(), std::int64_t{0}),
          rows[static_cast<std::size_t>(comm.rank())]};
}

Matrix matrix_of(const Tensor& x) {
  const auto values = x.to_vector();
  Matrix result;
  for (std::int64_t i = 0; i < x.dim(0); ++i)
    result.emplace_back(values.begin() + i * x.dim(1), values.begin() + (i + 1) * x.dim(1));
  return result;
}

Tensor inputs_of(int view, DType dtype) {
  return constant(random_tensor({samples, features}, 10 + static_cast<std::uint64_t>(view), dtype));
}
Tensor weights(DType dtype) { return constant(random_tensor({width, features}, 3, dtype)).as_variable(); }
Tensor class_labels() { return constant(from_vector({samples}, {4, 1, 4, 1, 9, 4, 1}, DType::int64)); }

Tensors learned_of(const LossCase& loss, DType dtype) { return loss.learned ? loss.learned(dtype) : Tensors(); }

Tensors embed(const LossCase& loss, const Tensor& w, const Tensors& noise, const Part& part) {
  Tensors views;
  for (int v = 0; v < loss.views; ++v)
    views.push_back(tanh(linear(part.of(inputs_of(v, w.dtype())), replicate(w, part.comm))) + noise[static_cast<std::size_t>(v)]);
  return views;
}

Gradient gradient_of(const LossCase& loss, const Part& part, DType dtype) {
  Tensors noise, same{weights(dtype)};
  for (int v = 0; v < loss.views; ++v) noise.push_back(zeros({part.here, width}, dtype));
  for (const auto& start : learned_of(loss, dtype)) same.push_back(start);
  Tensors wanted = noise;
  wanted.insert(wanted.end(), same.begin(), same.end());
  Tape tape;
  const auto share = loss.share(embed(loss, same[0], noise, part), {same.begin() + 1, same.end()}, part);
  Gradient result{total(share, part.comm), {}, {}};
  const auto g = tape.gradient(share, wanted);
  result.embeddings.assign(g.begin(), g.begin() + loss.views);
  result.same.assign(g.begin() + loss.views, g.end());
  return result;
}

double relative_difference(const Gradient& g, const Gradient& expected, const Part& part) {
  double local = 0, same = 0, norm = 0;
  const auto add = [](double& sum, const Tensor& found, const Tensor& wanted) {
    const auto a = found.to_vector(), b = wanted.to_vector();
    require(a.size() == b.size(), "[test] {} and {}", found, wanted);
    for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  };
  const auto squares = [](const Tensor& x) {
    double sum = 0;
    for (const double value : x.to_vector()) sum += value * value;
    return sum;
  };
  for (std::size_t v = 0; v < g.embeddings.size(); ++v) {
    add(local, g.embeddings[v], part.of(expected.embeddings[v]));
    norm += squares(expected.embeddings[v]);
  }
  for (std::size_t i = 0; i < g.same.size(); ++i) add(same, g.same[i], expected.same[i]), norm += squares(expected.same[i]);
  // Sums over ranks, so that a NaN on one rank reaches all.
  const double all = total(full({}, local, DType::float64), part.comm) + total(full({}, same, DType::float64), part.comm);
  return std::sqrt(all / norm);
}

}  // namespace mpigrad::testing::contrastive
