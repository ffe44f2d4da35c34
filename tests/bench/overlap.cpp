// Times blocking and non-blocking calls, forward and backward, together with independent local work.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <functional>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/launch.h"
#include "comm/messages/nonblocking.h"
#include "comm/messages/point_to_point.h"
#include "ops/linear/matmul.h"

namespace mpigrad::bench {
namespace {

constexpr std::string_view usage =
    R"(Usage: overlap [--mib N]... [--delay MS]... [--repeats N] [--transport threads|mpi] [--ranks P]

Times of blocking and of non-blocking calls with local work, forward and backward, medians over steps that alternate:
  delay   one rank comes MS milliseconds late, the others have local work of MS milliseconds (both sleep: no core is needed);
          what overlaps saves MS in each direction
  ring    N MiB to the next rank, while products of matrices take about as long as the message
  sum     the same with allreduce
At least two ranks. Defaults: --mib 1 --mib 8 --mib 32 --delay 5 --delay 20 --repeats 15.
  overlap --transport threads --ranks 2
  mpiexec -n 2 overlap
)";

struct Options {
  std::vector<std::int64_t> mib, delays;
  std::int64_t repeats = 15;
};

struct BadArguments {
  std::string message;
};

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name != "--mib" && name != "--delay" && name != "--repeats")
      throw BadArguments{fmt::format("the argument {} was not expected; --help lists the options", name)};
    const std::string_view text = ++i < argc ? argv[i] : "";
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.begin(), text.end(), value);
    if (error != std::errc() || end != text.end() || value < 1 || value > 4096)
      throw BadArguments{fmt::format("{}: a whole number from 1 to 4096 is needed, got '{}'", name, text)};
    if (name == "--mib") o.mib.push_back(value);
    else if (name == "--delay") o.delays.push_back(value);
    else o.repeats = value;
  }
  if (o.mib.empty()) o.mib = {1, 8, 32};
  if (o.delays.empty()) o.delays = {5, 20};
  return o;
}

// y = x after some milliseconds;  xbar = ybar, after as many
struct Pause {
  std::int64_t milliseconds = 0;
  static constexpr OpTraits traits() { return {.name = "pause"}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  Tensor view(Inputs in) const {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    return in[0].as_variable();
  }
  Tensors vjp(const Replay&, Inputs g) const { return {apply(*this, {g[0]})}; }
};

struct Times {
  double forward = 0, backward = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}
Times median(const std::vector<Times>& times) {
  std::vector<double> forward, backward;
  for (const auto& t : times) forward.push_back(t.forward), backward.push_back(t.backward);
  return {median(forward), median(backward)};
}

double largest(const Communicator& comm, double value) {
  comm.transport().allreduce(&value, &value, 1, DType::float64, CombineOp::max);
  return value;
}

using Step = std::function<Tensors(const Tensors&)>;

// Milliseconds of the slowest rank; all ranks begin together.
Times time(const Communicator& comm, const Step& step, const Tensors& x) {
  const auto measure = [&](const std::function<void()>& run) {
    comm.transport().barrier();
    const double start = detail::seconds_now();
    run();
    return 1e3 * largest(comm, detail::seconds_now() - start);
  };
  Tape tape;
  Tensors y;
  Times times;
  times.forward = measure([&] { y = step(x); });
  Tensors cotangents;
  for (const auto& value : y) cotangents.push_back(ones_like(value));
  times.backward = measure([&] { tape.vjp(y, cotangents, x); });
  return times;
}

void compare(const Communicator& comm, const Options& o, const std::string& what, const Step& blocking, const Step& overlapped,
             const Tensors& x, double work) {
  std::vector<Times> a, b;
  for (std::int64_t i = -2; i < o.repeats; ++i) {
    const auto one = time(comm, blocking, x), other = time(comm, overlapped, x);
    if (i >= 0) a.push_back(one), b.push_back(other);
  }
  const auto m = median(a), n = median(b);
  if (comm.rank() == 0)
    fmt::print("{:<24}{:>8.2f} |{:>10.2f}{:>14.2f}{:>8.2f} |{:>10.2f}{:>14.2f}{:>8.2f}\n", what, work, m.forward, n.forward,
               n.forward / m.forward, m.backward, n.backward, n.backward / m.backward);
}

// Rank 0 is late with a message to rank 1, or with its part of a sum; the other ranks work meanwhile.
void delays(const Communicator& comm, const Options& o) {
  const Tensors x{ones({100}), ones({1})};
  for (const auto ms : o.delays) {
    const auto pause = [ms](const Tensor& a) { return apply(Pause{ms}, {a}); };
    const auto message = [&](bool overlapped) {
      return [&comm, pause, overlapped](const Tensors& in) -> Tensors {
        if (comm.rank() == 0) {
          send(pause(in[0]), comm, 1);
          return {};
        }
        if (comm.rank() > 1) return {};
        auto receive = irecv(in[0].type(), comm, 0);
        Tensor y;
        if (!overlapped) y = wait(receive);
        const auto z = pause(in[1]);
        if (overlapped) y = wait(receive);
        return {y, z};
      };
    };
    const auto reduction = [&](bool overlapped) {
      return [&comm, pause, overlapped](const Tensors& in) -> Tensors {
        if (comm.rank() == 0) return {wait(iallreduce(pause(in[0]), comm))};
        auto request = iallreduce(in[0], comm);
        Tensor y;
        if (!overlapped) y = wait(request);
        const auto z = pause(in[1]);
        if (overlapped) y = wait(request);
        return {y, z};
      };
    };
    compare(comm, o, fmt::format("delay {} ms, message", ms), message(false), message(true), x, static_cast<double>(ms));
    compare(comm, o, fmt::format("delay {} ms, sum", ms), reduction(false), reduction(true), x, static_cast<double>(ms));
  }
}

// Work that fits in the caches, combined with data that do not.
constexpr std::int64_t extent = 128;
Tensor products(Tensor a, const Tensor& q, int n) {
  for (int i = 0; i < n; ++i) a = matmul(a, q);
  return a;
}

void transfers(const Communicator& comm, const Options& o) {
  const auto a = ones({extent, extent}), q = constant(full({extent, extent}, 1.0 / extent));
  for (const auto mib : o.mib)
    for (const bool sum : {false, true}) {
      const auto x = ones({mib << 18});
      const auto start = [&comm, sum](const Tensor& data) {
        std::vector<Request> requests;
        if (sum) {
          requests.push_back(iallreduce(data, comm));
        } else {
          const int p = comm.size();
          requests.push_back(irecv(data.type(), comm, (comm.rank() + p - 1) % p));
          requests.push_back(isend(data, comm, (comm.rank() + 1) % p));
        }
        return requests;
      };
      const auto alone = [&](const Tensors& in) {
        auto requests = start(in[0]);
        return Tensors{waitall(requests)[0]};
      };
      // As many products as fit in the time of the transfer.
      std::vector<Times> transfer, work;
      const auto trial = [&](const Tensors& in) { return Tensors{products(in[0], q, 20)}; };
      for (int i = 0; i < 5; ++i) transfer.push_back(time(comm, alone, {x})), work.push_back(time(comm, trial, {a}));
      const int n = std::max(1, static_cast<int>(largest(comm, 20 * median(transfer).forward / median(work).forward)));
      const auto step = [&, n](bool overlapped) {
        return [&, n, overlapped](const Tensors& in) {
          auto requests = start(in[0]);
          Tensor y;
          if (!overlapped) y = waitall(requests)[0];
          const auto z = products(in[1], q, n);
          if (overlapped) y = waitall(requests)[0];
          return Tensors{y, z};
        };
      };
      compare(comm, o, fmt::format("{} of {} MiB", sum ? "sum" : "ring", mib), step(false), step(true), {x, a},
              n * median(work).forward / 20);
    }
}

int run(std::shared_ptr<Transport> transport, const Options& o) {
  const Communicator comm(std::move(transport));
  if (comm.size() < 2) {
    fmt::print(stderr, "overlap: at least two ranks are needed: --transport threads --ranks 2, or mpiexec -n 2\n");
    return 2;
  }
  if (comm.rank() == 0)
    fmt::print(
        "{} ranks, {}; milliseconds\n{:<24}{:>8} |{:>10}{:>14}{:>8} |{:>10}{:>14}{:>8}\n{:<24}{:>8} |{:>10}{:>14}{:>8} |{:>10}"
        "{:>14}{:>8}\n",
        comm.size(), comm.transport().name(), "", "", "forward", "", "", "backward", "", "", "", "work", "blocking",
        "non-blocking", "ratio", "blocking", "non-blocking", "ratio");
  delays(comm, o);
  transfers(comm, o);
  return 0;
}

}  // namespace
}  // namespace mpigrad::bench

int main(int argc, char** argv) {
  using namespace mpigrad;
  bench::Options options;
  for (int i = 1; i < argc; ++i)
    if (const std::string_view argument = argv[i]; argument == "--help" || argument == "-h") {
      fmt::print("{}", bench::usage);
      return 0;
    }
  try {
    std::vector<char*> rest(argv, argv + argc + 1);  // arguments that launch does not use
    int count = argc;
    take_launch_options(count, rest.data());
    options = bench::parse(count, rest.data());
  } catch (const bench::BadArguments& bad) {
    fmt::print(stderr, "overlap: {}\n", bad.message);
    return 2;
  } catch (const Error&) {  // launch prints the error
  }
  return launch(argc, argv, [&](std::shared_ptr<Transport> transport) { return bench::run(std::move(transport), options); });
}
