// How convolutions become calls of a GPU library, tested without a GPU: the plain CPU kernels compute every form and every slab,
// and the results are compared with the whole convolution.

#include <doctest/doctest.h>

#include <set>

#include "framework/base/error.h"
#include "ops/backends/cudnn/conv_call.h"
#include "ops/kernel/plan_cache.h"
#include "tests/ops/kernel_problems.h"

using namespace mpigrad;
using namespace mpigrad::testing;
using cuda::Pass;

namespace {

using Values = std::vector<double>;

struct Operands {
  Values image, weights, outputs;
  explicit Operands(const ConvProblem& p)
      : image(random_values<double>(sizes(p).x)), weights(random_values<double>(sizes(p).w)),
        outputs(random_values<double>(sizes(p).y)) {}
};

void compute(Pass pass, const ConvProblem& p, double* image, double* weights, double* outputs) {
  if (pass == Pass::forward) reference::conv_forward(p, image, weights, outputs);
  else if (pass == Pass::data) reference::conv_data(p, outputs, weights, image);
  else reference::conv_weight(p, image, outputs, weights);
}

Values& result(Pass pass, Operands& t) { return pass == Pass::forward ? t.outputs : pass == Pass::data ? t.image : t.weights; }

double difference(const Values& a, const Values& b) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double error = std::abs(a[i] - b[i]);
    worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
  }
  return worst;
}

// to[n, i, c] = from[n, i + offset, c], or zero outside, like the GPU kernel of the same name.
void move_box(std::int64_t batch, const Extent3& from, const Extent3& to, const Extent3& offset, std::int64_t from_channels,
              std::int64_t to_channels, const Values& x, Values& y) {
  y.assign(
      static_cast<std::size_t>(std::max<std::int64_t>(static_cast<std::int64_t>(y.size()), batch * volume(to) * to_channels)), 0);
  std::size_t at = 0;
  for (std::int64_t n = 0; n < batch; ++n)
    for (std::int64_t d = 0; d < to[0]; ++d)
      for (std::int64_t h = 0; h < to[1]; ++h)
        for (std::int64_t w = 0; w < to[2]; ++w)
          for (std::int64_t c = 0; c < to_channels; ++c, ++at) {
            const Extent3 i{d + offset[0], h + offset[1], w + offset[2]};
            bool is_inside = c < from_channels;
            for (std::size_t a = 0; a < 3; ++a) is_inside = is_inside && i[a] >= 0 && i[a] < from[a];
            if (!is_inside) continue;
            y[at] = x[static_cast<std::size_t>((((n * from[0] + i[0]) * from[1] + i[1]) * from[2] + i[2]) * from_channels + c)];
          }
}

// The problem that a library computes for the call, with its own formula for the number of outputs.
ConvProblem checked_problem_of(const cuda::ConvCall& c) {
  for (std::size_t a = 0; a < 3; ++a) {
    const std::int64_t reach = c.dilation[a] * (c.kernel[a] - 1) + 1;
    CHECK(c.pad_low[a] >= 0);
    CHECK(c.pad_high[a] >= 0);
    CHECK((c.pad_low[a] < reach && c.pad_high[a] < reach));
    CHECK((c.in[a] + c.pad_low[a] + c.pad_high[a] - reach) / c.stride[a] + 1 == c.out[a]);
  }
  if (c.flat) CHECK((c.in[0] == 1 && c.out[0] == 1 && c.kernel[0] == 1));
  return cuda::problem_of(c);
}

void check_form(const ConvProblem& p, const cuda::ConvForm& form) {
  const auto& c = form.call;
  INFO(text(p), " as ", cuda::to_string(c));
  Operands own(p), wanted = own;
  compute(c.pass, p, wanted.image.data(), wanted.weights.data(), wanted.outputs.data());

  const auto q = checked_problem_of(c);
  Values image = own.image, weights = own.weights, outputs = own.outputs;
  const auto g = p.groups;
  if (form.moves_image) move_box(p.batch, p.in, form.image, form.offset, p.in_channels, c.in_channels, own.image, image = {});
  else CHECK((form.image == p.in && form.offset == Extent3{} && c.in_channels == p.in_channels));
  if (form.moves_weights) {
    weights.assign(static_cast<std::size_t>(sizes(q).w), 0);
    move_box(p.out_channels, p.kernel, p.kernel, {}, p.in_channels / g, c.in_channels / g, own.weights, weights);
  }
  if (form.moves_outputs) move_box(p.batch, p.out, p.out, {}, p.out_channels, c.out_channels, own.outputs, outputs = {});
  REQUIRE(static_cast<std::int64_t>(image.size()) == sizes(q).x);
  REQUIRE(static_cast<std::int64_t>(weights.size()) == sizes(q).w);
  REQUIRE(static_cast<std::int64_t>(outputs.size()) == sizes(q).y);
  compute(c.pass, q, image.data(), weights.data(), outputs.data());

  const auto& o = form.offset;
  Values& got = result(c.pass, own);
  if (c.pass == Pass::forward) move_box(p.batch, p.out, p.out, {}, c.out_channels, p.out_channels, outputs, got = {});
  else if (c.pass == Pass::data)
    move_box(p.batch, form.image, p.in, {-o[0], -o[1], -o[2]}, c.in_channels, p.in_channels, image, got = {});
  else move_box(p.out_channels, p.kernel, p.kernel, {}, c.in_channels / g, p.in_channels / g, weights, got = {});
  CHECK(difference(got, result(c.pass, wanted)) < 1e-10);
}

}  // namespace

TEST_CASE("conv call: every form of random problems computes the same") {
  int flat = 0, moved = 0, direct = 0, filled = 0;
  for (int i = 0; i < 60; ++i) {
    auto p = random_conv();
    if (i % 5 == 0) p.kernel[0] = p.stride[0] = 1, p.pad_low[0] = 0, p.out[0] = p.in[0];
    for (const auto pass : {Pass::forward, Pass::data, Pass::weight})
      for (const auto& form : cuda::forms_of(p, pass, i % 2 ? DType::bfloat16 : DType::float32, false)) {
        if (form.call.order == cuda::Order::channels_first && form.call.in == p.in) continue;  // differs only in memory
        check_form(p, form);
        flat += form.call.flat;
        moved += form.moves_image;
        direct += !form.moves_image && !form.moves_weights && !form.moves_outputs;
        filled += form.call.in_channels != p.in_channels;
      }
  }
  CHECK((flat > 10 && moved > 10 && direct > 10 && filled > 10));
}

TEST_CASE("conv call: what needs no treatment gets none") {
  // A layer with stride 2 that does not need its last plane of padding: padding is nevertheless equal on both sides.
  const ConvProblem p{.batch = 2,
                      .in = {8, 8, 8},
                      .out = {4, 4, 4},
                      .kernel = {3, 3, 3},
                      .stride = {2, 2, 2},
                      .pad_low = {1, 1, 1},
                      .in_channels = 16,
                      .out_channels = 32};
  const auto form = cuda::forms_of(p, Pass::forward, DType::bfloat16, false).front();
  CHECK_FALSE((form.moves_image || form.moves_weights || form.moves_outputs || form.call.flat));
  CHECK(form.call.pad_high == Extent3{1, 1, 1});
  CHECK(form.call.batch == 2);

  auto planes = p;
  planes.kernel[0] = planes.stride[0] = 1, planes.pad_low[0] = 0, planes.out[0] = 8;
  const auto flat = cuda::forms_of(planes, Pass::forward, DType::float32, false).front();
  CHECK(flat.call.flat);
  CHECK(flat.call.batch == 16);
  CHECK_FALSE(flat.moves_image);

  auto one_channel = p;
  one_channel.in_channels = 1;
  CHECK(cuda::forms_of(one_channel, Pass::weight, DType::bfloat16, false).front().call.in_channels == 8);
  CHECK(cuda::forms_of(one_channel, Pass::weight, DType::float32, true).front().call.in_channels == 4);
  CHECK(cuda::forms_of(one_channel, Pass::weight, DType::float32, false).front().call.in_channels == 1);
}

TEST_CASE("conv call: slabs cover the whole, each within the limit, and add up to it") {
  int by_samples = 0, by_depth = 0;
  for (int i = 0; i < 80; ++i) {
    auto p = random_conv();
    p.batch = pick(1, 3);
    for (const auto pass : {Pass::forward, Pass::data, Pass::weight}) {
      const std::int64_t limit = std::max(sizes(p).x, sizes(p).y) / pick(1, 6) + 20000;
      INFO(text(p), " ", cuda::name_of(pass), " limit ", limit);
      std::vector<cuda::Slab> slabs;
      try {
        slabs = cuda::slabs_of(p, pass, limit);
      } catch (const Error& error) {
        CHECK(std::string(error.what()).find("one plane of") != std::string::npos);
        continue;
      }
      Operands own(p), wanted = own;
      compute(pass, p, wanted.image.data(), wanted.weights.data(), wanted.outputs.data());
      std::fill(result(pass, own).begin(), result(pass, own).end(), std::numeric_limits<double>::quiet_NaN());
      Values sum(own.weights.size(), 0);
      for (const auto& s : slabs) {
        const auto& q = s.problem;
        CHECK((q.batch == s.n.end - s.n.begin && q.in[0] == s.i.end - s.i.begin && q.out[0] == s.o.end - s.o.begin));
        CHECK((sizes(q).x <= limit && sizes(q).y <= limit));
        // Parts of tensors are contiguous.
        CHECK((q.batch == 1 || (q.in[0] == p.in[0] && q.out[0] == p.out[0])));
        auto* image = own.image.data() + (s.n.begin * p.in[0] + s.i.begin) * p.in[1] * p.in[2] * p.in_channels;
        auto* outputs = own.outputs.data() + (s.n.begin * p.out[0] + s.o.begin) * p.out[1] * p.out[2] * p.out_channels;
        compute(pass, q, image, own.weights.data(), outputs);
        for (std::size_t e = 0; e < sum.size(); ++e) sum[e] += own.weights[e];
      }
      if (pass == Pass::weight) own.weights = sum;
      CHECK(difference(result(pass, own), result(pass, wanted)) < 1e-9);
      by_samples += slabs.size() > 1 && slabs[0].problem.in[0] == p.in[0] && slabs[0].problem.out[0] == p.out[0];
      by_depth += slabs.size() > 1 && slabs.back().i.begin > 0;
    }
  }
  CHECK((by_samples > 3 && by_depth > 3));
}

TEST_CASE("conv call: slabs of the first layer at 512^3") {
  const ConvProblem p{.batch = 1,
                      .in = {512, 512, 512},
                      .out = {512, 512, 512},
                      .kernel = {3, 3, 3},
                      .pad_low = {1, 1, 1},
                      .in_channels = 4,
                      .out_channels = 16};
  const auto slabs = cuda::slabs_of(p, Pass::forward);
  CHECK(slabs.size() == 2);
  CHECK((slabs[0].o.begin == 0 && slabs[0].o.end == 256 && slabs[1].o.end == 512));
  CHECK((slabs[0].i.end == 257 && slabs[1].i.begin == 255));
  CHECK(slabs[0].problem.pad_low == Extent3{1, 1, 1});
  CHECK(slabs[1].problem.pad_low == Extent3{0, 1, 1});
  auto small = p;
  small.in = small.out = {256, 256, 256};
  CHECK(cuda::slabs_of(small, Pass::forward).size() == 1);
  small.batch = 8;
  CHECK(cuda::slabs_of(small, Pass::weight).size() == 2);
  auto plane = p;
  plane.in = plane.out = {2, 65536, 65536};
  CHECK_THROWS_WITH_AS(cuda::slabs_of(plane, Pass::data), doctest::Contains("[conv_data] one plane of 65536 x 65536"), Error);
}

TEST_CASE("conv call: every number of a call is part of its key") {
  std::vector<cuda::ConvCall> calls(1);
  const auto other = [&](auto change) { change(calls.emplace_back()); };
  other([](auto& c) { c.pass = Pass::weight; });
  other([](auto& c) { c.type = DType::bfloat16; });
  other([](auto& c) { c.tf32 = true; });
  other([](auto& c) { c.deterministic = true; });
  other([](auto& c) { c.order = cuda::Order::channels_first; });
  other([](auto& c) { c.flat = true; });
  other([](auto& c) { c.batch = 1; });
  other([](auto& c) { c.in_channels = 1; });
  other([](auto& c) { c.out_channels = 1; });
  other([](auto& c) { c.groups = 2; });
  other([](auto& c) { c.bias = true; });
  other([](auto& c) { c.fused = {0.5}; });
  other([](auto& c) { c.alignment = 4; });
  for (auto member : {&cuda::ConvCall::in, &cuda::ConvCall::out, &cuda::ConvCall::kernel, &cuda::ConvCall::stride,
                      &cuda::ConvCall::dilation, &cuda::ConvCall::pad_low, &cuda::ConvCall::pad_high})
    for (std::size_t a = 0; a < 3; ++a) other([&](auto& c) { (c.*member)[a] = 7; });
  std::set<std::size_t> hashes;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    hashes.insert(cuda::CallHash{}(calls[i]));
    for (std::size_t j = 0; j < calls.size(); ++j) CHECK((calls[i] == calls[j]) == (i == j));
  }
  CHECK(hashes.size() == calls.size());
}

TEST_CASE("plan cache: builds once, drops what was asked for longest ago, keeps nothing of a failure") {
  struct Identity {
    std::size_t operator()(int key) const { return static_cast<std::size_t>(key); }
  };
  ops::PlanCache<int, int, Identity> cache(2);
  int built = 0;
  const auto ask = [&](int key) { return *cache.find(key, [&] { return ++built, key * 10; }); };
  CHECK(ask(1) == 10);
  CHECK(ask(2) == 20);
  CHECK(ask(1) == 10);
  CHECK(built == 2);
  const auto held = cache.find(2, [] { return 0; });
  ask(1);
  ask(3);  // 2 is dropped: 1 was used after it
  CHECK(cache.size() == 2);
  CHECK(*held == 20);
  CHECK(ask(1) == 10);
  CHECK(built == 3);
  CHECK(ask(2) == 20);
  CHECK(built == 4);
  CHECK(cache.misses() == 4);
  CHECK_THROWS(cache.find(9, []() -> int { throw Error("no plan"); }));
  CHECK(cache.size() == 2);
  CHECK(*cache.find(9, [] { return 90; }) == 90);
}
