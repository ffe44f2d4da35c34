#include "tests/comm/fuzz/adjoint_fuzz.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <optional>

#include "framework/base/joined.h"

namespace mpigrad::testing {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// ---- participating ranks

// The communicator of a case, and its name; none on ranks that do not take part. The seed determines the members.
struct Chosen {
  Communicator comm;
  std::string name;
  int color = 0;
};

Chosen choose(const Communicator& world, Dice& dice) {
  const auto p = static_cast<std::size_t>(world.size()), me = static_cast<std::size_t>(world.rank());
  const auto what = dice(0, 5);
  if (what <= 1) return {world, "all ranks"};
  if (what == 2) return {world.duplicate(), "a duplicate"};
  std::vector<int> order(p);
  std::iota(order.begin(), order.end(), 0);
  for (auto i = p; i-- > 1;) std::swap(order[i], order[static_cast<std::size_t>(dice(0, static_cast<std::int64_t>(i)))]);
  if (what == 3) {
    order.resize(static_cast<std::size_t>(dice(1, static_cast<std::int64_t>(p))));
    const auto mine = std::find(order.begin(), order.end(), world.rank());
    if (mine == order.end()) return {};
    Chosen chosen{world.subgroup(order), fmt::format("subgroup {}", mpigrad::joined(order, ","))};
    require(chosen.comm.rank() == mine - order.begin(), "[fuzz] subgroup: rank {}", chosen.comm.rank());
    return chosen;
  }
  std::vector<int> color(p), key(p);
  for (std::size_t r = 0; r < p; ++r) {
    color[r] = what == 4 ? 0 : static_cast<int>(dice(-1, 1));
    key[r] = what == 4 ? -static_cast<int>(r) : static_cast<int>(dice(-3, 3));
  }
  Chosen chosen{world.split(color[me], key[me]),
                fmt::format("split by colours {} and keys {}", mpigrad::joined(color, ","), mpigrad::joined(key, ",")),
                color[me]};
  require(static_cast<bool>(chosen.comm) == (color[me] >= 0), "[fuzz] split: a colour that is negative");
  if (!chosen.comm) return {};
  int before = 0;
  for (std::size_t r = 0; r < p; ++r)
    before += color[r] == color[me] && (key[r] < key[me] || (key[r] == key[me] && r < me)) ? 1 : 0;
  require(chosen.comm.rank() == before && chosen.comm.size() == std::count(color.begin(), color.end(), color[me]),
          "[fuzz] split: rank {} of {}", chosen.comm.rank(), chosen.comm.size());
  return chosen;
}

DType random_type(Dice& dice) {
  const auto n = dice(1, 20);
  if (n <= 10) return DType::float64;
  if (n <= 13) return DType::float32;
  if (n <= 15) return DType::int64;
  if (n == 16) return DType::int32;
  return n <= 18 ? DType::bfloat16 : DType::float16;
}

// ---- numbers that every rank can compute for every other rank

enum Purpose : std::uint64_t { values, directions, cotangents };

double number(std::uint64_t seed, Purpose purpose, std::size_t rank, std::size_t tensor, std::size_t i, Numbers numbers,
              bool truth) {
  const Philox random = Philox{.key = seed, .stream = 100 + purpose}.child(rank * 64 + tensor);
  if (purpose == values && truth) return static_cast<double>(random.below(i, 2));
  if (purpose == values && numbers == Numbers::quarters_and_minus_infinity) {
    const auto n = random.below(i, 12);
    return n == 0 ? -infinity : 0.25 * static_cast<double>(n) - 1.5;
  }
  return static_cast<double>(random.below(i, 5)) - 2;
}

class Run {
 public:
  Run(FuzzContext& context, const FuzzCase& c, std::uint64_t seed) : context_(context), c_(c), seed_(seed) {
    truth_ = context.dtype == DType::boolean;
    for (std::size_t r = 0; r < context.ranks(); ++r) {
      silent_.push_back(c.out == Across::varying && context.one_in(8));
      x_.emplace_back();
      for (std::size_t t = 0; t < c.shapes[r].size(); ++t) {
        Row row(static_cast<std::size_t>(c.shapes[r][t].elements()));
        const auto from = c.in == Across::same ? 0 : r;
        for (std::size_t i = 0; i < row.size(); ++i)
          row[i] = {number(seed, values, from, t, i, c.numbers, truth_), 0,
                    number(seed, directions, from, t, i, c.numbers, truth_), 0};
        x_.back().push_back(std::move(row));
      }
    }
    nested_ = context.one_in(3);
  }

  void operator()() {
    const auto me = context_.me();
    Tensors x, v;
    for (std::size_t t = 0; t < x_[me].size(); ++t) {
      x.push_back(tensor(x_[me][t], &Jet::v, c_.shapes[me][t]));
      v.push_back(tensor(x_[me][t], &Jet::b, c_.shapes[me][t]));
    }
    const All expected = c_.expected(x_);

    std::optional<Tape> outer;
    if (nested_) outer.emplace();
    Tape tape;
    const Tensors y = c_.run(x);
    require(y.size() == expected[me].size(), "{} results instead of {}", y.size(), expected[me].size());
    for (std::size_t t = 0; t < y.size(); ++t) compare("value", t, y[t], expected[me][t], &Jet::v);
    const bool recorded = is_floating(context_.dtype);
    require(recorded || tape.entries().empty(), "integers were recorded");
    if (!recorded || (is_half(context_.dtype) && !c_.exact)) return finish(tape);

    Tensors outputs, u;
    for (std::size_t t = 0; t < y.size(); ++t) {
      if (!is_floating(y[t].dtype())) continue;
      outputs.push_back(y[t]);
      u.push_back(tensor(cotangent(me, t, expected[me][t].size()), &Jet::v, y[t].shape()));
    }
    if (silent_[me]) outputs.clear(), u.clear();
    const Tensors g = tape.vjp(outputs, u, x, nested_ ? Record::no : Record::yes);
    Tensors with_respect_to = x;
    with_respect_to.insert(with_respect_to.end(), u.begin(), u.end());
    const Tensors second = (nested_ ? *outer : tape).vjp(g, v, with_respect_to);

    for (std::size_t t = 0; t < x.size(); ++t) {
      const auto slopes = derivatives(t);
      compare("gradient", t, g[t], slopes, &Jet::a);
      compare("second derivative", t, second[t], slopes, &Jet::ab);
    }
    std::size_t k = x.size();
    for (std::size_t t = 0; !u.empty() && t < y.size(); ++t)
      if (is_floating(y[t].dtype())) compare("derivative along v", t, second[k++], expected[me][t], &Jet::b);
  }

 private:
  // Every rank replays, so that requests and the other ranks are served.
  static void finish(Tape& tape) { tape.vjp({}, {}, {}); }

  Tensor tensor(const Row& row, double Jet::*part, const Shape& shape) const {
    std::vector<double> numbers;
    for (const auto& jet : row) numbers.push_back(jet.*part);
    return from_vector(shape, numbers, context_.dtype);
  }

  Row cotangent(std::size_t rank, std::size_t t, std::size_t size) const {
    Row u(size);
    if (!silent_[rank])
      for (std::size_t i = 0; i < size; ++i)
        u[i].v = number(seed_, cotangents, c_.out == Across::same ? 0 : rank, t, i, Numbers::integers, false);
    return u;
  }

  // Derivatives of the sum over ranks of <u, y> with respect to the elements of this rank's tensor t, and their directional
  // derivatives.
  Row derivatives(std::size_t t) const {
    const auto me = context_.me();
    Row result(x_[me][t].size());
    for (std::size_t i = 0; i < result.size(); ++i) {
      All x = x_;
      for (std::size_t r = 0; r < x.size(); ++r)
        if (r == me || c_.in == Across::same) x[r][t][i].a = 1;
      const All y = c_.expected(x);
      for (std::size_t r = 0; r < (c_.out == Across::same ? 1 : y.size()); ++r)
        for (std::size_t s = 0; s < y[r].size(); ++s) {
          const auto u = cotangent(r, s, y[r][s].size());
          for (std::size_t j = 0; j < u.size(); ++j) result[i].a += u[j].v * y[r][s][j].a, result[i].ab += u[j].v * y[r][s][j].ab;
        }
    }
    return result;
  }

  void compare(std::string_view what, std::size_t t, const Tensor& found, const Row& expected, double Jet::*part) const {
    const auto numbers = found.to_vector();
    require(numbers.size() == expected.size(), "{} {} has {} elements instead of {}", what, t, numbers.size(), expected.size());
    const auto tolerance = c_.exact                           ? 0
                           : context_.dtype == DType::float64 ? 1e-11
                           : context_.dtype == DType::float32 ? 1e-4
                                                              : 1e-30;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const double e = expected[i].*part;
      require(numbers[i] == e || std::abs(numbers[i] - e) <= tolerance * std::max(1.0, std::abs(e)),
              "{} {}: element {} is {} instead of {}", what, t, i, numbers[i], e);
    }
  }

  FuzzContext& context_;
  const FuzzCase& c_;
  std::uint64_t seed_;
  All x_;
  std::vector<bool> silent_;  // ranks without a loss
  bool nested_ = false, truth_ = false;
};

}  // namespace

Rows FuzzContext::rows_of_ranks() {
  Rows result;
  for (int r = 0; r < size(); ++r) result.push_back(rows());
  return result;
}

const std::vector<FuzzMaker>& all_makers() {
  static const std::vector<FuzzMaker> all = [] {
    std::vector<FuzzMaker> list;
    for (const auto& part :
         {reduction_makers(), block_makers(), message_makers(), request_makers(), neighbor_makers(), user_makers()})
      list.insert(list.end(), part.begin(), part.end());
    return list;
  }();
  return all;
}

void run_fuzz_case(const Communicator& world, std::uint64_t seed) {
  Dice dice(seed);
  const auto& makers = all_makers();
  const auto& maker = makers[static_cast<std::size_t>(seed / 7 % makers.size())];
  std::string what(maker.name);
  try {
    const auto chosen = choose(world, dice);
    if (!chosen.comm) return;
    // Parts of a split run different cases.
    Dice own(Philox{.key = seed, .stream = 6}.child(static_cast<std::uint64_t>(chosen.color)).key);
    FuzzContext context{chosen.comm, own, random_type(own)};
    const auto c = maker.make(context);
    what = fmt::format("{} of {} on {}", c.name, name_of(context.dtype), chosen.name);
    Run(context, c, seed)();
  } catch (const Error& error) {
    fail("[fuzz] MPIGRAD_FUZZ_SEED={} on {} ranks, {}, rank {}: {}", seed, world.size(), what, world.rank(), error.what());
  }
}

std::int64_t asked_fuzz_seed() {
  const char* asked = std::getenv("MPIGRAD_FUZZ_SEED");
  return asked != nullptr && *asked != 0 ? std::strtoll(asked, nullptr, 10) : -1;
}

// ---- pieces of serial references

Jet reduced(const std::vector<Jet>& terms, ReduceOp op, Ties ties, std::size_t ranks) {
  const bool max = op == ReduceOp::max || op == ReduceOp::logical_or, min = op == ReduceOp::min || op == ReduceOp::logical_and;
  if (!max && !min) {
    Jet y{op == ReduceOp::prod ? 1.0 : 0.0};
    for (const auto& x : terms) y = op == ReduceOp::prod ? y * x : y + x;
    return op == ReduceOp::avg ? (1.0 / static_cast<double>(ranks)) * y : y;
  }
  double extreme = max ? -infinity : infinity;
  for (const auto& x : terms) extreme = max ? std::max(extreme, x.v) : std::min(extreme, x.v);
  Jet sum;
  int winners = 0;
  for (const auto& x : terms)
    if (x.v == extreme && (ties == Ties::split || winners == 0)) sum = sum + x, ++winners;
  if (winners == 0) return {extreme};
  const double n = winners;
  return {extreme, sum.a / n, sum.b / n, sum.ab / n};
}

Row reduced_rows(const All& x, ReduceOp op, Ties ties, std::size_t input) {
  Row y;
  for (std::size_t i = 0; i < x[0][input].size(); ++i) {
    std::vector<Jet> terms;
    for (const auto& held : x) terms.push_back(held[input][i]);
    y.push_back(reduced(terms, op, ties, x.size()));
  }
  return y;
}

All per_rank(std::size_t ranks, const std::function<Row(std::size_t)>& f) {
  All y;
  for (std::size_t r = 0; r < ranks; ++r) y.push_back({f(r)});
  return y;
}

std::vector<std::vector<Shape>> shapes_per_rank(std::size_t ranks, const std::function<Shape(std::size_t)>& f) {
  std::vector<std::vector<Shape>> shapes;
  for (std::size_t r = 0; r < ranks; ++r) shapes.push_back({f(r)});
  return shapes;
}

std::int64_t total_of(const Rows& rows) { return std::accumulate(rows.begin(), rows.end(), std::int64_t{0}); }

Row block_of(const Row& x, const Rows& rows, std::size_t r, std::int64_t width) {
  const auto first =
      x.begin() + width * std::accumulate(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(r), std::int64_t{0});
  return Row(first, first + width * rows[r]);
}

Row joined(const All& x, std::size_t input) {
  Row y;
  for (const auto& held : x) y.insert(y.end(), held[input].begin(), held[input].end());
  return y;
}

}  // namespace mpigrad::testing
