// uint16: storage, moves, messages and conversions, with numbers beyond int16; no arithmetic is possible.

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "comm/collectives/collectives.h"
#include "comm/collectives/reductions.h"
#include "comm/collectives/scan.h"
#include "comm/messages/point_to_point.h"
#include "framework/tensor/content_hash.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

using Values = std::vector<double>;
using Function = std::function<Tensor(const Tensor&)>;

constexpr DType u16 = DType::uint16;
constexpr const char* refusal = "nothing computes with uint16 here; cast to int32 first";

Tensor every() {
  Values values(65536);
  std::iota(values.begin(), values.end(), 0.0);
  return from_vector({65536}, values, u16);
}

}  // namespace

TEST_CASE("uint16: tensors of it") {
  CHECK(size_of(u16) == 2);
  CHECK(name_of(u16) == "uint16");
  CHECK(dtype_of<std::uint16_t>() == u16);
  CHECK((!is_floating(u16) && !is_half(u16) && computed_in(u16) == u16));
  // The other types keep their numbers.
  CHECK(static_cast<int>(u16) == static_cast<int>(DType::float16) + 1);
  const Tensor x = from_vector({4}, {0, 32767, 32768, 65535}, u16);
  CHECK(x.bytes() == 8);
  CHECK(x.to_vector() == Values{0, 32767, 32768, 65535});
  CHECK(x.data<std::uint16_t>()[3] == 65535);
  CHECK(full({2}, 40000, u16).to_vector() == Values{40000, 40000});
  CHECK(ones_like(x).to_vector() == Values{1, 1, 1, 1});
  CHECK(arange(40001, u16).to_vector().back() == 40000);
  CHECK(to_string(x) == "uint16 [4]");
  CHECK(has(error_text([&] { x.data<std::int16_t>(); }), "elements are uint16, accessed as int16"));
  // The hash depends on the bits only.
  CHECK(content_hash(u16, x.raw(), 4, 0) == content_hash(DType::int16, x.raw(), 4, 0));
  const Tensor other = from_vector({4}, {0, 32767, 32768, 65534}, u16);
  CHECK(content_hash(u16, x.raw(), 4, 0) != content_hash(u16, other.raw(), 4, 0));
}

TEST_CASE("uint16: cast from and to every type") {
  const Tensor all = every();
  const auto values = all.to_vector();
  for (const auto type : {DType::float32, DType::float64, DType::int64, DType::int32, u16}) {
    INFO(std::string(name_of(type)));
    CHECK(cast(all, type).to_vector() == values);
    CHECK(cast(cast(all, type), u16).to_vector() == values);
  }
  const Tensor few = from_vector({4}, {0, 1, 200, 40960}, u16);
  CHECK(cast(few, DType::float16).to_vector() == Values{0, 1, 200, 40960});
  CHECK(cast(few, DType::bfloat16).to_vector() == Values{0, 1, 200, 40960});
  CHECK(cast(few, DType::boolean).to_vector() == Values{0, 1, 1, 1});
  CHECK(cast(slice(few, 0, 0, 3), DType::uint8).to_vector() == Values{0, 1, 200});
  CHECK(cast(slice(few, 0, 0, 3), DType::int16).to_vector() == Values{0, 1, 200});
  for (const auto type : {DType::float16, DType::bfloat16})
    CHECK(cast(from_vector({2}, {3, 40960}, type), u16).to_vector() == Values{3, 40960});
  for (const auto type : {DType::uint8, DType::boolean, DType::int16})
    CHECK(cast(from_vector({2}, {0, 1}, type), u16).to_vector() == Values{0, 1});
}

TEST_CASE("uint16: moves carry bits") {
  const Tensor x = reshape(every(), {16, 64, 64}), wide = cast(x, DType::int64);
  const std::vector<Function> moves{[](auto& t) {
                                      return permute(t, {2, 0, 1});
                                    },
                                    [](auto& t) { return slice(t, 1, 3, 40); },
                                    [](auto& t) {
                                      return flip(t, {0, 2});
                                    },
                                    [](auto& t) {
                                      return concatenate({t, t}, 1);
                                    },
                                    [](auto& t) {
                                      return take(t, from_vector({3}, {15, 0, 15}, DType::int64));
                                    },
                                    [](auto& t) {
                                      return pad(t, {1, 0, 0}, {0, 2, 0}, 50000);
                                    },
                                    [](auto& t) {
                                      return broadcast_to(slice(t, 0, 15, 16), {3, 64, 64});
                                    },
                                    [](auto& t) { return where(cast(t, DType::boolean), t, full({}, 40000, t.dtype())); }};
  for (std::size_t i = 0; i < moves.size(); ++i) {
    INFO(i);
    const auto y = moves[i](x);
    CHECK(y.dtype() == u16);
    CHECK(y.to_vector() == moves[i](wide).to_vector());
  }
  CHECK(one_hot(from_vector({2}, {1, 0}, u16), 2, u16).to_vector() == Values{0, 1, 1, 0});
}

TEST_CASE("uint16: labels of it are those of int64") {
  const Values values{0, 2, 1, 40000, 2};
  const auto labels = from_vector({5}, values, u16), wide = from_vector({5}, values, DType::int64);
  const auto scores = reshape(affine(arange(15, DType::float64), 0.1, 0), {5, 3});
  const CrossEntropyOptions ignoring{.ignore_index = 40000};
  CHECK(cross_entropy(scores, labels, ignoring).to_vector() == cross_entropy(scores, wide, ignoring).to_vector());
  CHECK(has(error_text([&] { cross_entropy(scores, labels); }), "[cross_entropy] label 40000 is not one of 3 classes"));
  CHECK(one_hot(labels, 3, DType::float32).to_vector() == one_hot(wide, 3, DType::float32).to_vector());
}

TEST_CASE("uint16: nothing computes with it") {
  const Tensor x = from_vector({2, 2}, {1, 2, 3, 65535}, u16);
  const std::vector<Function> kernels{
      [](auto& t) { return t + t; },        [](auto& t) { return maximum(t, t); },
      [](auto& t) { return less(t, t); },   [](auto& t) { return equal(t, t); },
      [](auto& t) { return max(t); },       [](auto& t) { return min(t, {1}); },
      [](auto& t) { return argmax(t, 1); }, [](auto& t) { return scatter_add(t, from_vector({2}, {0, 0}, DType::int64), 1); }};
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    INFO(i);
    CHECK(has(error_text([&] { kernels[i](x); }), refusal));
    CHECK(error_text([&] { kernels[i](cast(x, DType::int32)); }) == "");
  }
  CHECK(error_text([&] { exp(x); }) != "");
  CHECK(sum(x).item() == 65541);  // in int64
}

TEST_CASE("uint16: ranks send it and do not reduce it") {
  check_on_ranks(3, "uint16", [](const Communicator& comm) {
    const int r = comm.rank();
    const Tensor x = full({2}, 50000 + r, u16);
    require(bcast(x, comm, 1).to_vector() == Values{50001, 50001}, "[test] bcast");
    require(allgather(x, comm).to_vector() == Values{50000, 50000, 50001, 50001, 50002, 50002}, "[test] allgather");
    const auto left = (r + 2) % 3;
    require(sendrecv(x, comm, {.dest = (r + 1) % 3, .source = left}).to_vector() == Values(2, 50000 + left), "[test] sendrecv");
    require(has(error_text([&] { allreduce(x, comm); }), refusal), "[test] allreduce");
    for (const auto op : {ReduceOp::sum, ReduceOp::max, ReduceOp::prod}) {
      require(has(error_text([&] { allreduce(x, comm, op); }), refusal), "[test] allreduce by {}", name_of(op));
      require(has(error_text([&] { reduce(x, comm, 0, op); }), refusal), "[test] reduce by {}", name_of(op));
      require(has(error_text([&] { scan(x, comm, op); }), refusal), "[test] scan by {}", name_of(op));
    }
  });
}
