#include "tests/support/collective_cases.h"

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "comm/invariant.h"
#include "comm/point_to_point.h"
#include "comm/scan.h"
#include "framework/random.h"
#include "tests/support/gradient_check.h"

namespace mpigrad::testing {
namespace {

using Values = std::vector<double>;
using All = std::vector<Values>;  // of every rank

constexpr std::int64_t width = 2;  // elements of a row

struct Case {
  std::string name;
  Across in = Across::varying, out = Across::varying;
  std::function<Shape(int rank)> shape;
  std::function<Tensor(const Tensor&)> op;
  std::function<All(const All&)> expected;
};

class Cases {
 public:
  Cases(const Communicator& comm, std::uint64_t seed, bool few)
      : comm_(comm), p_(comm.size()), first_root_(few ? p_ - 1 : 0), few_(few), random_{.key = seed, .stream = 77} {}

  std::vector<Case> all() {
    for (const bool scalar : {false, true}) {
      if (scalar && few_) break;
      const Shape shape = scalar ? Shape{} : Shape{rows(), width};
      const auto same_shape = [shape](int) { return shape; };
      add({"allreduce", Across::varying, Across::varying, same_shape, [c = comm_](const Tensor& x) { return allreduce(x, c); },
           [](const All& x) { return everywhere(x, summed(x)); }});
      add({"allreduce_invariant", Across::varying, Across::same, same_shape,
           [c = comm_](const Tensor& x) { return allreduce_invariant(x, c); },
           [](const All& x) { return everywhere(x, summed(x)); }});
      add({"replicate", Across::same, Across::varying, same_shape, [c = comm_](const Tensor& x) { return replicate(x, c); },
           [](const All& x) { return x; }});
      add({"once", Across::same, Across::varying, same_shape, [c = comm_](const Tensor& x) { return once(x, c); },
           [](const All& x) { return only(x, 0, x[0]); }});
      for (int root = first_root_; root < p_; ++root) {
        add({"reduce", Across::varying, Across::varying, same_shape,
             [c = comm_, root](const Tensor& x) { return reduce(x, c, root); },
             [root](const All& x) { return only(x, root, summed(x)); }});
        add({"bcast", Across::varying, Across::varying, same_shape,
             [c = comm_, root](const Tensor& x) { return bcast(x, c, root); },
             [root](const All& x) { return everywhere(x, x[static_cast<std::size_t>(root)]); }});
      }
      for (const int by : few_ ? std::vector{1} : std::vector{0, 1, -1, p_ + 2})
        add({fmt::format("shift by {}", by), Across::varying, Across::varying, same_shape,
             [c = comm_, by](const Tensor& x) { return shift(x, c, by); },
             [p = p_, by](const All& x) {
               All y = x;
               for (int r = 0; r < p; ++r) y[static_cast<std::size_t>(r)] = x[static_cast<std::size_t>((r + 4 * p - by) % p)];
               return y;
             }});
    }
    for (int root = first_root_; root < p_; ++root) {
      const auto n = uneven();
      const auto total = sum_of(n);
      add({"gather", Across::varying, Across::varying, block(n),
           [c = comm_, root, n](const Tensor& x) { return gather(x, c, root, n); },
           [root](const All& x) { return only(All(x.size()), root, joined(x)); }});
      add({"scatter", Across::varying, Across::varying,
           [=](int r) {
             return Shape{r == root ? total : 0, width};
           },
           [c = comm_, root, n](const Tensor& x) { return scatter(x, c, root, n); },
           [root, n](const All& x) { return cut(x[static_cast<std::size_t>(root)], n); }});
    }
    for (int repeat = 0; repeat < (few_ ? 1 : 2); ++repeat) {
      const auto n = uneven();
      const auto total = sum_of(n);
      add({"allgather", Across::varying, Across::varying, block(n),
           [c = comm_, n](const Tensor& x) { return allgather(x, c, n); },
           [](const All& x) { return everywhere(x, joined(x)); }});
      add({"allgather_invariant", Across::varying, Across::same, block(n),
           [c = comm_, n](const Tensor& x) { return allgather_invariant(x, c, n); },
           [](const All& x) { return everywhere(x, joined(x)); }});
      add({"reduce_scatter", Across::varying, Across::varying,
           [=](int) {
             return Shape{total, width};
           },
           [c = comm_, n](const Tensor& x) { return reduce_scatter(x, c, n); }, [n](const All& x) { return cut(summed(x), n); }});
      add({"shard", Across::same, Across::varying,
           [=](int) {
             return Shape{total, width};
           },
           [c = comm_, n](const Tensor& x) { return shard(x, c, n); }, [n](const All& x) { return cut(x[0], n); }});
      add_alltoall();
      add_sendrecv();
    }
    return std::move(list_);
  }

 private:
  static std::int64_t sum_of(const Rows& rows) { return std::accumulate(rows.begin(), rows.end(), std::int64_t{0}); }
  static Values summed(const All& x) {
    Values y(x[0].size());
    for (const auto& part : x)
      for (std::size_t i = 0; i < y.size(); ++i) y[i] += part[i];
    return y;
  }
  static Values joined(const All& x) {
    Values y;
    for (const auto& part : x) y.insert(y.end(), part.begin(), part.end());
    return y;
  }
  static All everywhere(const All& x, const Values& value) { return All(x.size(), value); }
  static All only(const All& x, int root, const Values& value) {
    All y;
    for (const auto& part : x) y.emplace_back(part.size());
    y[static_cast<std::size_t>(root)] = value;
    return y;
  }
  static All cut(const Values& x, const Rows& rows) {
    All y;
    auto at = x.begin();
    for (const auto n : rows) y.emplace_back(at, at + n * width), at += n * width;
    return y;
  }
  static std::function<Shape(int)> block(const Rows& n) {
    return [n](int r) { return Shape{n[static_cast<std::size_t>(r)], width}; };
  }

  void add(Case c) { list_.push_back(std::move(c)); }
  std::int64_t rows() { return static_cast<std::int64_t>(random_.below(counter_++, 4)); }
  Rows uneven() {
    Rows result;
    for (int r = 0; r < p_; ++r) result.push_back(rows());
    return result;
  }

  void add_alltoall() {
    std::vector<Rows> n;  // n[s][r] rows from s to r
    for (int s = 0; s < p_; ++s) n.push_back(uneven());
    Rows send = n[static_cast<std::size_t>(comm_.rank())], receive;
    for (int s = 0; s < p_; ++s) receive.push_back(n[static_cast<std::size_t>(s)][static_cast<std::size_t>(comm_.rank())]);
    add({"alltoall", Across::varying, Across::varying,
         [n](int r) {
           return Shape{sum_of(n[static_cast<std::size_t>(r)]), width};
         },
         [c = comm_, send, receive](const Tensor& x) { return alltoall(x, c, send, receive); },
         [n](const All& x) {
           All y(x.size());
           for (std::size_t s = 0; s < x.size(); ++s) {
             const All blocks = cut(x[s], n[s]);
             for (std::size_t r = 0; r < x.size(); ++r) y[r].insert(y[r].end(), blocks[r].begin(), blocks[r].end());
           }
           return y;
         }});
  }

  // A random partial permutation: some ranks send to nobody, some receive nothing; every rank has its own number of rows and tag.
  void add_sendrecv() {
    std::vector<int> to(static_cast<std::size_t>(p_)), from(static_cast<std::size_t>(p_), -1);
    std::iota(to.begin(), to.end(), 0);
    for (std::size_t i = to.size(); i-- > 1;) std::swap(to[i], to[random_.below(counter_++, i + 1)]);
    for (auto& dest : to)
      if (random_.below(counter_++, 4) == 0) dest = -1;
    for (int r = 0; r < p_; ++r)
      if (to[static_cast<std::size_t>(r)] >= 0) from[static_cast<std::size_t>(to[static_cast<std::size_t>(r)])] = r;
    const auto n = uneven();
    const auto r = static_cast<std::size_t>(comm_.rank());
    const auto none = rows();
    Rows out;
    for (const int source : from) out.push_back(source < 0 ? none : n[static_cast<std::size_t>(source)]);
    add({"sendrecv", Across::varying, Across::varying, block(n),
         [c = comm_, a = SendRecvAttributes{.dest = to[r],
                                            .source = from[r],
                                            .send_tag = 10 + c_tag(comm_.rank()),
                                            .receive_tag = 10 + c_tag(from[r]),
                                            .receive_rows = out[r]}](const Tensor& x) { return sendrecv(x, c, a); },
         [from, out](const All& x) {
           All y;
           for (std::size_t q = 0; q < x.size(); ++q)
             y.push_back(from[q] < 0 ? Values(static_cast<std::size_t>(out[q] * width)) : x[static_cast<std::size_t>(from[q])]);
           return y;
         }});
  }
  // The tag of what a rank sends.
  static int c_tag(int rank) { return rank < 0 ? 0 : rank % 3; }

  const Communicator& comm_;
  int p_, first_root_;
  bool few_;
  Philox random_;
  std::uint64_t counter_ = 0;
  std::vector<Case> list_;
};

// Small integers, which every type and every sum holds exactly.
Tensor input_of(const Case& c, int rank, std::uint64_t seed, DType dtype) {
  const Shape shape = c.shape(rank);
  const Philox random{.key = seed, .stream = c.in == Across::same ? 0 : static_cast<std::uint64_t>(rank) + 1};
  Values values(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(random.below(i, 19)) - 9;
  return from_vector(shape, values, dtype);
}

void check_values(const Communicator& comm, const Case& c, std::uint64_t seed, DType dtype) {
  All x;
  for (int r = 0; r < comm.size(); ++r) x.push_back(input_of(c, r, seed, DType::float64).to_vector());
  const auto mine = input_of(c, comm.rank(), seed, dtype);
  Tape tape;
  const auto y = c.op(mine);
  const auto expected = c.expected(x)[static_cast<std::size_t>(comm.rank())];
  require(y.dtype() == dtype && y.to_vector() == expected, "[test] {} of {} on rank {} of {}: wrong values", c.name, mine,
          comm.rank(), comm.size());
  require(is_floating(dtype) || tape.entries().empty(), "[test] {} of integers was recorded", c.name);
}

}  // namespace

void check_collective_values(const Communicator& comm, std::uint64_t seed, DType dtype) {
  for (const auto& c : Cases(comm, seed, false).all()) check_values(comm, c, seed, dtype);
}

void check_collectives(const Communicator& comm, std::uint64_t seed, DType dtype, bool few) {
  for (const auto& c : Cases(comm, seed, few).all()) {
    check_values(comm, c, seed, dtype);
    const auto x = zeros(c.shape(comm.rank()), dtype);
    require_adjoint(c.name, [&](const Tensors& in) { return Tensors{c.op(in[0])}; }, {x}, comm,
                    {.inputs = {c.in}, .outputs = {c.out}, .tolerance = dtype == DType::float64 ? 1e-12 : 1e-5, .seed = seed});
  }
}

}  // namespace mpigrad::testing
