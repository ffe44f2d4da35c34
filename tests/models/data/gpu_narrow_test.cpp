// Samples stored as integers of 8 or 16 bits: copied to a GPU as stored and converted there, with the bits of the host's
// conversion.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/cuda/cuda.h"
#include "framework/optim/optimizer.h"
#include "models/data/data.h"
#include "models/data/narrow.h"
#include "models/data/sources/memory.h"
#include "models/nn/layers.h"
#include "models/train/training.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"
#include "ops/reduce/reduce.h"
#include "ops/views/to_device.h"
#include "ops/views/views.h"
#include "tests/support/gpu.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

using Values = std::vector<double>;

bool same_bits(const Tensor& got, const Tensor& wanted) {
  const auto a = to(got, DeviceKind::cpu), b = to(wanted, DeviceKind::cpu);
  return a.type() == b.type() && std::memcmp(a.raw(), b.raw(), static_cast<std::size_t>(a.bytes())) == 0;
}

// Every integer of a type, in the order of bit patterns.
Tensor every_integer(DType type) {
  Values values(std::size_t{1} << (8 * size_of(type)));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = type == DType::int16 && i >= 32768 ? static_cast<double>(i) - 65536 : static_cast<double>(i);
  return from_vector({static_cast<std::int64_t>(values.size())}, values, type);
}

Tensor full_like(const Tensor& x, double value) {
  const UseDevice device(x.device());
  return full(x.shape(), value, x.dtype());
}

// The host's conversion of a row of integers.
Tensor widened_on_host(const Tensor& x, data::Transform transform, DType type) {
  Tensor y({x.shape(), type}, DeviceKind::cpu);
  data::Piece all;
  all.box = {Shape{0, 0, 0}, Shape{1, 1, x.elements()}};
  data::copy_piece(all, {all.box, x.dtype(), x.raw()}, all.box.end, 1, transform, type, y.raw(), [] { return std::string("x"); });
  return y;
}

// Another source's samples as if they came from files: a thread reads them, and a store keeps them.
class Elsewhere : public data::Source {
 public:
  explicit Elsewhere(data::SourcePtr source) : source_(std::move(source)) {}
  std::int64_t size() const override { return source_->size(); }
  const data::SampleType& sample_type() const override { return source_->sample_type(); }
  void read(std::int64_t sample, const Box& box, std::byte* out) const override { source_->read(sample, box, out); }
  void read_targets(std::int64_t sample, const Box& box, std::byte* out) const override {
    source_->read_targets(sample, box, out);
  }

 private:
  data::SourcePtr source_;
};

constexpr std::int64_t samples = 6, cells = 5 * 6 * 7, channels = 3;

// Bytes, counts, or integers of both signs; with `wide`, the same numbers as float32.
data::SourcePtr made(DType type, data::Transform transform, bool wide = false) {
  const UseDevice device(DeviceKind::cpu);
  Values values(static_cast<std::size_t>(samples * cells * channels)), targets(static_cast<std::size_t>(samples * channels));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto number = static_cast<double>(i * 7919 % (type == DType::uint8 ? 256 : type == DType::uint16 ? 65536 : 32768));
    values[i] = type == DType::int16 && transform != data::Transform::log1p && i % 2 == 1 ? -1 - number : number;
  }
  for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = static_cast<double>(i % 5) / 4;
  return std::make_shared<Elsewhere>(
      data::from_tensors(from_vector({samples, 5, 6, 7, channels}, values, wide ? DType::float32 : type),
                         from_vector({samples, channels}, targets, DType::float32), {.transform = transform}));
}

struct Form {
  std::string name;
  DType type = DType::int16;
  data::Transform transform = data::Transform::none;
};
const std::vector<Form> forms{
    {"counts", DType::int16, data::Transform::log1p},           {"large counts", DType::uint16, data::Transform::log1p},
    {"both signs", DType::int16, data::Transform::none},        {"parts of 255", DType::int16, data::Transform::unit},
    {"parts of 65535", DType::uint16, data::Transform::unit16}, {"bytes", DType::uint8, data::Transform::unit}};

// Batch statistics, weights and pooling: [N, D, H, W, C] -> [N, C]
class Net : public nn::Module {
 public:
  Tensor operator()(const Tensor& x) override { return global_avg_pool(square(norm_(x))); }

 private:
  nn::BatchNorm norm_{*this, "norm", {.momentum = 0.5}};
};

}  // namespace

TEST_CASE("gpu: narrow integers become the numbers of the host, each of them") {
  if (no_gpu("gpu: narrow integers become the numbers of the host, each of them")) return;
  for (const auto stored : {DType::int16, DType::uint16, DType::uint8})
    for (const auto transform : {data::Transform::none, data::Transform::unit, data::Transform::unit16, data::Transform::log1p})
      for (const auto type : {DType::float32, DType::float64}) {
        INFO(std::string(name_of(stored)), " ", std::string(data::name_of(transform)), " ", std::string(name_of(type)));
        const auto all = every_integer(stored);
        data::Widening widening(stored, transform, type);
        const auto got = to(widening(to(all, DeviceKind::cuda)), DeviceKind::cpu);
        CHECK((got.is_constant() && got.dtype() == type));
        if (transform == data::Transform::log1p && stored == DType::int16) {
          const auto counts = slice(all, 0, 0, 32768);
          CHECK(same_bits(slice(got, 0, 0, 32768), widened_on_host(counts, transform, type)));
          CHECK(widening(to(slice(all, 0, 40000, 40001), DeviceKind::cuda)).to_vector()[0] !=
                widening(to(slice(all, 0, 40000, 40001), DeviceKind::cuda)).to_vector()[0]);  // NaN
        } else {
          CHECK(same_bits(got, widened_on_host(all, transform, type)));
        }
        CHECK(widening(to(slice(all, 0, 0, 0), DeviceKind::cuda)).elements() == 0);
        CHECK_THROWS_WITH_AS(widening(to(cast(all, DType::int32), DeviceKind::cuda)), doctest::Contains("are converted here"),
                             Error);
      }
}

TEST_CASE("gpu: narrow integers without a sign are moved and looked up, and not computed with") {
  if (no_gpu("gpu: narrow integers without a sign are moved and looked up, and not computed with")) return;
  const auto all = every_integer(DType::uint16), on_gpu = to(all, DeviceKind::cuda);
  for (const auto type : {DType::float32, DType::float64, DType::int64, DType::int32, DType::int16, DType::uint8, DType::boolean,
                          DType::bfloat16, DType::float16, DType::uint16}) {
    INFO(std::string(name_of(type)));
    CHECK(same_bits(cast(on_gpu, type), cast(all, type)));
    const bool holds_large = type != DType::int16 && type != DType::uint8 && type != DType::boolean;
    const auto few = from_vector({4}, {0, 1, 1, holds_large ? 40960.0 : 1.0}, type);
    CHECK(same_bits(cast(to(few, DeviceKind::cuda), DType::uint16), cast(few, DType::uint16)));
  }
  const auto check = [&](const std::function<Tensor(const Tensor&)>& f) {
    CHECK(same_bits(f(reshape(on_gpu, {16, 64, 64})), f(reshape(all, {16, 64, 64}))));
  };
  check([](const Tensor& x) { return permute(x, {2, 0, 1}); });
  check([](const Tensor& x) { return flip(slice(x, 1, 3, 40), {0, 2}); });
  check([](const Tensor& x) { return concatenate({x, x}, 1); });
  check([](const Tensor& x) {
    const UseDevice device(x.device());
    return take(x, from_vector({3}, {15, 0, 15}, DType::int64));
  });
  check([](const Tensor& x) { return where(cast(x, DType::boolean), x, full_like(x, 40000)); });
  const auto labels = from_vector({4}, {0, 2, 1, 2}, DType::uint16),
             scores = from_vector({4, 3}, Values(12, 0.5), DType::float32);
  const auto labels_on_gpu = to(labels, DeviceKind::cuda), scores_on_gpu = to(scores, DeviceKind::cuda);
  CHECK(same_bits(one_hot(labels_on_gpu, 3, DType::float32), one_hot(labels, 3, DType::float32)));
  CHECK(cross_entropy(scores_on_gpu, labels_on_gpu).to_vector() ==
        cross_entropy(scores_on_gpu, to(cast(labels, DType::int64), DeviceKind::cuda)).to_vector());
  for (const auto& f :
       std::vector<std::function<Tensor(const Tensor&)>>{[](auto& x) { return x + x; }, [](auto& x) { return less(x, x); },
                                                         [](auto& x) { return max(x); }, [](auto& x) { return argmax(x, 0); }})
    CHECK_THROWS_WITH_AS(f(on_gpu), doctest::Contains("nothing computes with uint16 here; cast to int32 first"), Error);
}

TEST_CASE("gpu: narrow integers make the batches of the host, bit for bit, on every grid") {
  if (no_gpu("gpu: narrow integers make the batches of the host, bit for bit, on every grid")) return;
  struct Way {
    std::string name;
    GridExtents grid{};
    data::LoaderOptions options{};
  };
  std::vector<Way> ways{{"moved", {}, {.flips = true, .shifts = true}},
                        {"float64", {}, {.flips = true, .dtype = DType::float64}},
                        {"not ahead", {.sample = 2}, {.shifts = true, .assemble_ahead = false}},
                        {"a store", {.sample = 2, .depth = 2}, {.flips = true, .shifts = true, .store_bytes = 1 << 20}},
                        {"ghost planes", {.depth = 2}, {.flips = true, .ghosts = 1}},
                        {"windows over the edges", {.height = 2}, {.flips = true, .crop = data::Crop{.extents = {8, 4, 7}}}}};
  for (const auto& form : forms)
    for (const auto& way : ways) {
      INFO(form.name, ", ", way.name);
      on_ranks(way.grid.sample * way.grid.depth * way.grid.height, [&](const Communicator& world) {
        auto options = way.options;
        options.grid = make_grid(world, way.grid), options.batch = 4, options.seed = 7, options.shuffle = true;
        const auto source = made(form.type, form.transform);
        const auto loader_on = [&](DeviceKind on) {
          options.device = on;
          return data::Loader(source, options);
        };
        const auto on_cpu = loader_on(DeviceKind::cpu), on_gpu = loader_on(DeviceKind::cuda);
        for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
          std::vector<data::Batch> wanted;
          for (const auto& batch : on_cpu.epoch(epoch)) wanted.push_back(batch);
          std::size_t at = 0;
          for (const auto& batch : on_gpu.epoch(epoch)) {
            const auto& host = wanted[at++];
            require(batch.x.device() == DeviceKind::cuda && batch.x.is_constant() && same_bits(batch.x, host.x) &&
                        same_bits(batch.y, host.y) && batch.x.layout() && batch.x.layout()->global == host.x.layout()->global,
                    "[test] {}, {}: {} and {}", form.name, way.name, batch.x, host.x);
            require((batch.x.storage()->beside() != nullptr) == (host.x.storage()->beside() != nullptr), "[test] ghosts");
          }
          require(at == wanted.size(), "[test] {} batches of {}", at, wanted.size());
        }
        require(same_bits(on_gpu.batch(0, 1).x, on_cpu.batch(0, 1).x), "[test] a batch by itself");
      });
    }
  // Negative integers, which are not counts, are refused with the same message.
  const auto message = [](DeviceKind on) {
    const data::Loader loader(made(DType::int16, data::Transform::none),
                              {.batch = 2, .transform = data::Transform::log1p, .device = on});
    try {
      for (const auto& batch : loader.epoch(0)) static_cast<void>(batch);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(message(DeviceKind::cpu).find("log(1 + x) is for counts") != std::string::npos);
  CHECK(message(DeviceKind::cuda) == message(DeviceKind::cpu));
}

TEST_CASE("gpu: narrow integers are copied as they are stored, and no host waits") {
  if (no_gpu("gpu: narrow integers are copied as they are stored, and no host waits")) return;
  for (const auto& form : forms)
    for (const bool moved : {false, true}) {
      INFO(form.name, std::string(moved ? ", moved" : ""));
      const auto copied = [&](bool wide, const augment::Recipe& steps) {
        const data::Loader loader(made(form.type, form.transform, wide),
                                  {.batch = 4, .seed = 7, .flips = moved, .augment = steps, .device = DeviceKind::cuda});
        for (const auto& batch : loader.epoch(0)) CHECK(batch.x.dtype() == DType::float32);  // with the table, once
        const auto before = cuda::statistics();
        for (const auto& batch : loader.epoch(1)) CHECK(batch.x.dtype() == DType::float32);
        const auto after = cuda::statistics();
        CHECK(after.host_synchronisations == before.host_synchronisations);
        return after.bytes_to_device - before.bytes_to_device;
      };
      constexpr auto numbers = samples * cells * channels, targets = samples * channels * 4;
      CHECK(copied(true, {}) == 4 * numbers + targets);
      CHECK(copied(false, {}) == size_of(form.type) * numbers + targets);
      // Noise is added to converted numbers, so the host converts.
      CHECK(copied(false, {augment::random_noise({0, 0.1})}) == 4 * numbers + targets);
    }
}

TEST_CASE("gpu: narrow integers train as the same numbers do, bit for bit") {
  if (no_gpu("gpu: narrow integers train as the same numbers do, bit for bit")) return;
  for (const auto& form : forms)
    for (const bool graph : {false, true}) {
      INFO(form.name, std::string(graph ? ", captured" : ""));
      const auto train = [&](bool wide) {
        Values found;
        on_ranks(1, [&](const Communicator& world) {
          const UseDevice device(DeviceKind::cuda);
          const data::Loader loader(made(form.type, form.transform, wide),
                                    {.batch = 2, .seed = 7, .shuffle = true, .flips = true, .shifts = true});
          Net net;
          net.build(loader.shape(), {.seed = 5});
          Adam adam(net, {.learning_rate = 1e-2});
          const auto loss = [](const Tensor& prediction, const Tensor& target) { return mse(prediction, target); };
          fit(net, adam, loader, loss, world, {.epochs = 3, .graph = graph, .after_epoch = [&](const EpochReport& report) {
                                                 found.push_back(report.loss);
                                                 return std::string();
                                               }});
          for (const auto& value : net.parameters().tensors())
            for (const auto number : value.to_vector()) found.push_back(number);
        });
        return found;
      };
      const auto narrow = train(false), wide = train(true);
      REQUIRE(narrow.size() > 3);
      CHECK(narrow[0] != narrow[2]);
      CHECK(narrow == wide);
    }
}
