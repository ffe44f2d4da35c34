// Components for contrastive losses: gradient caching, distributed embeddings, MoCo's queue and shuffling, SwAV's assignments and
// queue.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "comm/distributed/grid.h"
#include "comm/distributed/invariant.h"
#include "models/losses/contrastive/gradient_cache.h"
#include "models/losses/contrastive/moco.h"
#include "models/losses/contrastive/pairs.h"
#include "models/losses/contrastive/spread.h"
#include "models/losses/contrastive/statistics.h"
#include "models/losses/contrastive/swav.h"
#include "models/nn/layers.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tests/models/losses/contrastive_cases.h"
#include "tests/models/losses/contrastive_formulas.h"
#include "tests/support/distributed.h"
#include "tests/support/gradient_check.h"
#include "tests/support/random.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;
using namespace mpigrad::testing::contrastive;
namespace losses = mpigrad::contrastive;

TEST_CASE("contrastive: cached gradients are those of the whole batch") {
  for (const int size : {1, 2, 3, 8})
    for (const std::int64_t chunk : {1, 3, 100})
      check_on_ranks(size, "gradient cache", [&](const Communicator& comm) {
        const auto part = part_of(comm, lopsided(size));
        Parameters parameters;
        parameters.add("w", weights(DType::float64), true);
        parameters.add("v", random_tensor({width, width}, 8), true);
        parameters.add("log_scale", full({}, 1.1, DType::float64), false);
        parameters.add("unused", ones({2}, DType::float64), false);
        parameters.pack();
        const auto encode = [&](std::int64_t begin, std::int64_t end) {
          const auto w = replicate(parameters[0].value, comm), v = replicate(parameters[1].value, comm);
          const auto x = slice(part.of(inputs_of(0, DType::float64)), 0, begin, end),
                     y = slice(part.of(inputs_of(1, DType::float64)), 0, begin, end);
          return Tensors{linear(tanh(linear(x, w)), v), linear(y, w)};
        };
        const auto loss = [&](const Tensors& z) { return losses::clip(z[0], z[1], parameters[2].value, comm); };
        Tape tape(parameters);
        const auto share = loss(encode(0, part.here));
        const auto expected = tape.gradient(share);
        const auto found = losses::cached_gradient(parameters, encode, loss, comm, {.samples = part.here, .chunk = chunk});
        require(std::abs(total(found.share, comm) - total(share, comm)) < 1e-13, "[test] loss {}", total(found.share, comm));
        for (std::size_t i = 0; i < parameters.size(); ++i)
          require_close(parameters[i].name, found.gradients[i], expected[i], 1e-12);
      });
}

TEST_CASE("contrastive: gradient caching needs less memory") {
  on_ranks(1, [](const Communicator& comm) {
    constexpr std::int64_t n = 512, hidden = 256;
    Parameters parameters;
    parameters.add("w", random_tensor({hidden, features}, 1), true);
    parameters.add("v", random_tensor({width, hidden}, 2), true);
    parameters.pack();
    const auto x = random_tensor({n, features}, 3), y = random_tensor({n, features}, 4);
    const auto encode = [&](std::int64_t begin, std::int64_t end) {
      Tensors views;
      for (const auto& input : {x, y})
        views.push_back(linear(tanh(linear(slice(input, 0, begin, end), parameters[0].value)), parameters[1].value));
      return views;
    };
    const auto loss = [&](const Tensors& z) { return losses::spectral(z[0], z[1], comm); };
    const auto peak = [&](std::int64_t chunk) {
      reset_peak_memory(DeviceKind::cpu);
      const auto before = memory_statistics(DeviceKind::cpu).current_bytes;
      losses::cached_gradient(parameters, encode, loss, comm, {.samples = n, .chunk = chunk});
      return memory_statistics(DeviceKind::cpu).peak_bytes - before;
    };
    const auto whole = peak(n), cached = peak(16);
    INFO(whole, " and ", cached);
    CHECK(cached * 5 < whole);
  });
}

TEST_CASE("contrastive: gradient caching refuses what chunks would change") {
  struct Normed : nn::Module {
    Tensor operator()(const Tensor& x) override { return norm(x); }
    nn::BatchNorm norm{*this, "norm"};
  };
  on_ranks(1, [](const Communicator& comm) {
    Normed net;
    net.build(Shape{4, 3}, {.dtype = DType::float64});
    const auto x = random_tensor({4, 3}, 5);
    const auto encode = [&](std::int64_t begin, std::int64_t end) {
      const auto z = net(slice(x, 0, begin, end));
      return Tensors{z, z + 1};
    };
    const auto loss = [&](const Tensors& z) { return losses::nt_xent(z[0], z[1], comm); };
    const auto text = error_text([&] { losses::cached_gradient(net, encode, loss, comm, {.samples = 4, .chunk = 2}); });
    CHECK(has(text, "[norm] uses statistics of the whole batch, but gradient caching encodes in chunks"));
    net.train(false);
    CHECK_NOTHROW(losses::cached_gradient(net, encode, loss, comm, {.samples = 4, .chunk = 2}));
    int calls = 0;
    const auto fickle = [&](std::int64_t begin, std::int64_t end) {
      const auto z = slice(x, 0, begin, end) + replicate(net.parameters()[0].value, comm) * ++calls;
      return Tensors{z, z + 1};
    };
    CHECK(has(error_text([&] { losses::cached_gradient(net, fickle, loss, comm, {.samples = 4, .chunk = 2}); }),
              "the second time"));
  });
}

TEST_CASE("contrastive: distributed embeddings, batch and space split at once") {
  const Shape shape{5, 4, 3, 3, 2};
  struct Net {
    Tensor w = random_tensor({4, 3, 3, 3, 2}, 1), head = random_tensor({width, 4}, 2), log_scale = full({}, 1.2, DType::float64);
  } net;
  const std::vector<std::string> names{"w", "head", "log_scale"};
  const auto gradient = [&](const GridPtr& grid, double& loss, bool direct) {
    const auto layout = activation_layout(grid, shape);
    const auto encode = [&](std::uint64_t seed) {
      const auto x = global_tensor(shape, seed, layout);
      const auto h = conv(x, net.w, {.padding = 1, .activation = Activation::leaky_relu(0.1)});
      return linear(global_avg_pool(h), net.head);
    };
    Tape tape;
    const auto a = encode(7), b = encode(8);
    const auto group = losses::sample_group(a);
    const auto form = direct ? losses::Form::direct : losses::Form::ring;
    const auto share = losses::clip(a, b, net.log_scale, group, {.form = form, .tile = 2}) +
                       losses::nt_xent(a, b, group, {.temperature = 0.4, .form = form}) + losses::vicreg(a, b, group);
    loss = total(share, grid->world());
    return tape.gradient(share, {net.w, net.head, net.log_scale});
  };
  Tensors expected;
  double whole = 0;
  on_ranks(1, [&](const Communicator& comm) { expected = gradient(make_grid(comm, {}), whole, true); });
  const std::vector<GridExtents> grids{{.sample = 2, .depth = 2}, {.sample = 2}, {.depth = 2}, {.sample = 3, .height = 2}};
  for (const auto& extents : grids)
    check_on_ranks(extents.sample * extents.depth * extents.height, "grid", [&](const Communicator& comm) {
      const auto grid = make_grid(comm, extents);
      for (const bool direct : {true, false}) {
        double loss = 0;
        const auto found = gradient(grid, loss, direct);
        require(std::abs(loss - whole) < 1e-11, "[test] the loss is {}, of one rank {}", loss, whole);
        for (std::size_t i = 0; i < found.size(); ++i) require_close(names[i], found[i], expected[i], 1e-11);
      }
    });
}

TEST_CASE("contrastive: zeros are allowed on request, with finite gradients") {
  on_ranks(2, [](const Communicator& comm) {
    for (const auto form : {losses::Form::direct, losses::Form::ring}) {
      const auto a = zeros({2, 3}, DType::float32), b = ones({2, 3}, DType::float32);
      Tape tape;
      const auto share = losses::nt_xent(a, b, comm, {.refuse_zeros = false, .form = form});
      require(std::isfinite(share.item()), "[test] {}", share.item());
      for (const double value : tape.gradient(share, {b})[0].to_vector()) require(std::isfinite(value), "[test] {}", value);
    }
  });
}

TEST_CASE("contrastive: equal embeddings have a finite gradient of koleo") {
  on_ranks(2, [](const Communicator& comm) {
    // Rows 0 and 1 are equal, on one rank, or on both.
    for (const std::int64_t cut : {2, 1}) {
      const auto all = from_vector({3, 2}, {1, 0, 1, 0, 0, 1}, DType::float64);
      const auto z = slice(all, 0, comm.rank() == 0 ? 0 : cut, comm.rank() == 0 ? cut : 3).as_variable();
      Tape tape;
      const auto share = losses::koleo(z, comm);
      CHECK(total(share, comm) == doctest::Approx(-(2 * std::log(1e-8) + std::log(std::sqrt(2.0))) / 3).epsilon(1e-4));
      const auto gradient = allgather(tape.gradient(share, {z})[0], comm).to_vector();
      // Row 2 is turned away from row 0, its nearest one.
      CHECK(gradient[0] == 0);
      CHECK(gradient[1] == doctest::Approx(1.0 / 6));
      CHECK(gradient[2] == 0);
      CHECK(gradient[3] == 0);
      CHECK(gradient[4] == doctest::Approx(1.0 / 6));
      CHECK(gradient[5] == 0);
    }
  });
}

TEST_CASE("contrastive: embeddings of any size have a loss") {
  for (const auto dtype : {DType::float32, DType::float64})
    for (const double size : {1e-9, 1e15})
      on_ranks(2, [&](const Communicator& comm) {
        const auto a = random_tensor({3, 4}, 1 + static_cast<std::uint64_t>(comm.rank()), dtype), b = a + 0.1;
        const auto found = losses::nt_xent(a * size, b * size, comm, {.temperature = 0.01}).item(),
                   expected = losses::nt_xent(a, b, comm, {.temperature = 0.01}).item();
        require(std::abs(found - expected) < 1e-4 * (1 + std::abs(expected)), "[test] {} and {}", found, expected);
      });
}

TEST_CASE("contrastive: moco's queue, momentum encoder and shuffle") {
  for (const int size : {1, 2, 3})
    check_on_ranks(size, "moco", [&](const Communicator& comm) {
      losses::KeyQueue queue({.keys = 5, .width = 2, .dtype = DType::float64});
      const auto start = queue.keys().to_vector();
      // Three steps of three numbered keys wrap around the five places.
      const auto cuts = balanced_cuts(3, size);
      const auto r = static_cast<std::size_t>(comm.rank());
      for (int step = 0; step < 3; ++step) {
        const auto all = from_vector({3, 2}, {1.0 + 3 * step, 0, 2.0 + 3 * step, 0, 3.0 + 3 * step, 0}, DType::float64);
        queue.enqueue(slice(all, 0, cuts[r], cuts[r + 1]), comm);
        if (step == 0)
          require(queue.keys().to_vector() == std::vector<double>{1, 0, 2, 0, 3, 0, start[6], start[7], start[8], start[9]},
                  "[test] first step");
      }
      require(queue.keys().to_vector() == std::vector<double>{6, 0, 7, 0, 8, 0, 9, 0, 5, 0}, "[test] third step");
      require(queue.next() == 4, "[test] next is {}", queue.next());

      Rows rows = lopsided(size);
      const auto part = part_of(comm, rows);
      const auto x = part.of(inputs_of(0, DType::float64));
      const losses::SampleShuffle shuffle(comm, rows, {.key = 5, .stream = 9});
      const auto moved = shuffle.shuffle(x);
      require_close("restored", shuffle.restore(moved), x, 0);
      const auto all = allgather(moved, comm, rows).to_vector(), before = inputs_of(0, DType::float64).to_vector();
      for (std::size_t i = 0; i < samples; ++i)
        for (std::size_t j = 0; j < features; ++j)
          require(all[i * features + j] == before[static_cast<std::size_t>(shuffle.order()[i]) * features + j], "[test] {}", i);
      require(all != before, "[test] nothing has moved");
    });
  Parameters key, query;
  key.add("w", from_vector({2}, {1, 2}, DType::float64), true);
  query.add("w", from_vector({2}, {3, 6}, DType::float64), true);
  key.pack(), query.pack();
  losses::update_momentum_encoder(key, query, 0.75);
  CHECK(key[0].value.to_vector() == std::vector<double>{1.5, 3});
  losses::update_momentum_encoder(key, query, 0);
  CHECK(key[0].value.to_vector() == std::vector<double>{3, 6});
}

TEST_CASE("contrastive: moco's keys and queue get no gradient") {
  on_ranks(2, [](const Communicator& comm) {
    const auto seed = static_cast<std::uint64_t>(comm.rank());
    const auto q = random_tensor({2, 3}, 1 + seed), k = random_tensor({2, 3}, 5 + seed), queue = random_tensor({4, 3}, 9);
    Tape tape;
    const auto g = tape.gradient(losses::moco(q, k, queue, comm), {q, k, queue});
    for (const std::size_t i : {1, 2})
      for (const double value : g[i].to_vector()) require(value == 0, "[test] {}", i);
    require(sum(abs(g[0])).item() > 1e-6, "[test] no gradient for queries");
  });
}

TEST_CASE("contrastive: sinkhorn's assignments are the paper's, and do not overflow") {
  const auto scores = random_tensor({samples, 4}, 3);
  const auto expected = formulas::sinkhorn(matrix_of(scores), 0.05);
  for (const int size : {1, 2, 3, 8})
    check_on_ranks(size, "sinkhorn", [&](const Communicator& comm) {
      const auto part = part_of(comm, lopsided(size));
      const auto found = matrix_of(losses::sinkhorn(part.of(scores), comm));
      for (std::size_t i = 0; i < found.size(); ++i)
        for (std::size_t k = 0; k < 4; ++k)
          require(std::abs(found[i][k] - expected[static_cast<std::size_t>(part.first) + i][k]) < 1e-12, "[test] {} {}", i, k);
      // exp(1 / 0.001) overflows float32.
      for (const double value : losses::sinkhorn(cast(part.of(scores), DType::float32), comm, {.epsilon = 0.001}).to_vector())
        require(value >= 0 && value <= 1 + 1e-5, "[test] {}", value);
    });
}

TEST_CASE("contrastive: swav's queue keeps the latest embeddings, and gives them when it is full") {
  for (const int size : {1, 2, 3})
    check_on_ranks(size, "queue", [&](const Communicator& comm) {
      losses::SwavQueue queue({.crops = 2, .samples = 5, .width = 2, .dtype = DType::float64});
      require(!queue.full() && queue.embeddings().empty(), "[test] it begins empty");
      const auto cuts = balanced_cuts(2, size);
      const auto r = static_cast<std::size_t>(comm.rank());
      for (int step = 0; step < 3; ++step) {
        require(!queue.full(), "[test] full at step {}", step);
        // Two samples per step, whose lengths are normalised to 1; the second crop points in the opposite direction.
        const auto all = from_vector({2, 2}, {2.0 + step, 0, 0, 3.0 + step}, DType::float64) * (step == 1 ? -1 : 1);
        const auto mine = slice(all, 0, cuts[r], cuts[r + 1]);
        queue.enqueue({mine, -mine}, comm);
      }
      require(queue.full() && queue.stored() == 6 && queue.next() == 1, "[test] {} {}", queue.stored(), queue.next());
      const auto found = queue.embeddings();
      require(found[0].to_vector() == std::vector<double>{0, 1, 0, 1, -1, 0, 0, -1, 1, 0}, "[test] first crop");
      require(found[1].to_vector() == (-found[0]).to_vector(), "[test] second crop");
      losses::SwavQueue other({.crops = 2, .samples = 5, .width = 2, .dtype = DType::float64});
      other.load(queue.state(), queue.next(), queue.stored());
      require(other.full() && other.embeddings()[1].to_vector() == found[1].to_vector() && other.next() == 1, "[test] loaded");
      require(has(error_text([&] {
                    queue.enqueue({zeros({1, 2})}, comm);
                  }),
                  "[swav] the queue has 2 crops, 1 are given"),
              "[test] crops");
      const auto z = random_tensor({4, 2}, 5 + static_cast<std::uint64_t>(comm.rank()));
      require(has(error_text([&] {
                    losses::swav({z, z}, random_tensor({3, 2}, 1), comm, {.queue = {found[0]}});
                  }),
                  "[swav] 2 crops are assigned, the queue has 1"),
              "[test] queue of one crop");
    });
}

TEST_CASE("contrastive: prototypes are frozen and renormalised, scales limited") {
  on_ranks(2, [](const Communicator& comm) {
    const auto seed = static_cast<std::uint64_t>(comm.rank());
    const auto z = random_tensor({3, 4}, 1 + seed), y = random_tensor({3, 4}, 7 + seed);
    auto c = random_tensor({5, 4}, 3);
    losses::renormalise_prototypes(c);
    for (const auto& row : matrix_of(c)) require(std::abs(formulas::dot(row, row) - 1) < 1e-14, "[test] norm");
    for (const bool freeze : {true, false}) {
      Tape tape;
      const auto g = tape.gradient(losses::swav({z, y}, c, comm, {.freeze_prototypes = freeze}), {c, z});
      require((sum(abs(g[0])).item() == 0) == freeze, "[test] prototypes");
      require(sum(abs(g[1])).item() > 0, "[test] embeddings");
    }
    const auto t = full({}, 5, DType::float64);
    losses::limit_log_scale(t);
    require(std::abs(t.item() - std::log(100.0)) < 1e-15, "[test] {}", t.item());
  });
}
