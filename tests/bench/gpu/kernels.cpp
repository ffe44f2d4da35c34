// Compares the bandwidth of our own GPU kernels at CosmoFlow's shapes with that of copies in the same run: the fewest bytes that
// must be read and written, divided by the time. Prints a Markdown table, each row as soon as it is known. Tensors that fit in
// the GPU's cache may be faster than copies of large ones.
//
//   gpu_kernels --device cuda --size 128 --precision bfloat16 float32

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/launch.h"
#include "framework/base/error.h"
#include "framework/cuda/timer.h"
#include "framework/optim/rules/rules.h"
#include "framework/optim/update_cuda.h"
#include "models/train/session.h"
#include "ops/backends/cuda/convert.h"
#include "ops/conv/few_channels.h"
#include "ops/conv/sixteen_channels.h"
#include "ops/elementwise/elementwise_cuda_kernels.h"
#include "ops/elementwise/scalar.h"
#include "ops/kernel/channel_rows_cuda.h"
#include "ops/pool/pool_cuda.h"
#include "ops/random/random.h"
#include "ops/reduce/reduction_plan.h"

namespace mpigrad::bench {
namespace {

using kernel::PoolProblem;
using kernel::volume;

struct Options {
  std::int64_t size = 128, batch = 1;
  std::vector<std::string> precisions{"float32", "bfloat16"};
  bool any_form = false;
};

// The best of some rounds; a round is long enough to hide the launches.
double time_of(const std::function<void()>& call) {
  cuda::Timer timer;
  const auto round = [&](int calls) {
    timer.begin(cuda::compute_stream());
    for (int i = 0; i < calls; ++i) call();
    timer.end(cuda::compute_stream());
    return timer.seconds() / calls;
  };
  call();
  const double once = std::max(round(1), 1e-6);
  const int calls = std::clamp(static_cast<int>(0.01 / once), 1, 200);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 5; ++i) best = std::min(best, round(calls));
  return best;
}

// Random numbers: multiplying zeros takes less power and therefore less time.
Tensor numbers(std::int64_t elements, DType type) { return random_normal({elements}, {.key = 1}, 0, 1, type); }

template <class T>
T* at(const Tensor& x) {
  return reinterpret_cast<T*>(x.raw());
}

class Table {
 public:
  // Times copies of `bytes`, which are read and written.
  explicit Table(std::int64_t bytes) {
    const auto from = numbers(bytes / 4, DType::float32), to = zeros_like(from);
    const double seconds = time_of([&] { cuda::copy_on_device(to.raw(), from.raw(), from.bytes()); });
    rate_ = 2 * static_cast<double>(from.bytes()) / seconds;
    fmt::print("Own kernels on {}; copies of {:.0f} MiB read and write {:.0f} GB/s\n\n", cuda::name(),
               static_cast<double>(from.bytes()) / (1 << 20), rate_ / 1e9);
    head();
  }
  void head() const {
    fmt::print("| kernel | shape | type | ms | MB at least | GB/s | of copying |\n|---|---|---|---|---|---|---|\n");
    std::fflush(stdout);
  }
  // `make` allocates the operands and returns the call. A row that does not fit in memory says so, and the other rows continue.
  void row(const std::string& kernel, const std::string& shape, DType type, double bytes,
           const std::function<std::function<void()>()>& make) {
    fmt::print("| {} | {} | {} |", kernel, shape, name_of(type));
    try {
      const double seconds = time_of(make());
      const double rate = bytes / seconds;
      fmt::print(" {:.4f} | {:.3f} | {:.0f} | {:.0f}% |\n", 1e3 * seconds, bytes / 1e6, rate / 1e9, 100 * rate / rate_);
      auto name = fmt::format("{}-{}", kernel, name_of(type));
      std::replace(name.begin(), name.end(), ' ', '-');
      name.erase(std::remove(name.begin(), name.end(), ','), name.end());
      shares_.emplace(name, rate / rate_);  // of the first, largest shape
    } catch (const Error& error) {
      fmt::print(" {} |\n", error.what());
    }
    std::fflush(stdout);
  }
  // Lines for reports, from the rows so far.
  void summary() const {
    fmt::print("\n");
    for (const auto& [name, share] : shares_) fmt::print("measured: bandwidth-{} {:.0f} % of a copy's\n", name, 100 * share);
  }

 private:
  double rate_ = 0;
  std::map<std::string, double> shares_;
};

template <class T>
using PerChannel = std::conditional_t<is_half(dtype_of<T>()), float, T>;

// For the output of the first convolution.
template <class T>
void elementwise_rows(Table& table, std::int64_t rows, std::int64_t channels) {
  using Call = std::function<void()>;
  const auto type = dtype_of<T>();
  const auto n = rows * channels;
  const auto shape = fmt::format("{} x {}", rows, channels);
  const double bytes = static_cast<double>(n) * sizeof(T);
  const auto stream = cuda::compute_stream();
  table.row("add", shape, type, 3 * bytes, [&]() -> Call {
    return [=, a = numbers(n, type), b = numbers(n, type), y = numbers(n, type)] {
      cuda::binary(scalar::Add{}, n, at<T>(a), at<T>(b), at<T>(y), stream);
    };
  });
  table.row("leaky relu", shape, type, 2 * bytes, [&]() -> Call {
    return
        [=, x = numbers(n, type), y = numbers(n, type)] { cuda::unary(scalar::LeakyRelu{0.01}, n, at<T>(x), at<T>(y), stream); };
  });
  table.row("sum of all", shape, type, bytes, [&]() -> Call {
    const auto reduction = cuda::reduction_of(Shape{n}, {0});
    return [=, x = numbers(n, type), partial = numbers(std::max<std::int64_t>(1, reduction.chunks), DType::float64),
            y = numbers(1, type)] {
      cuda::sum(reduction, at<T>(x), reduction.chunks > 1 ? at<double>(partial) : nullptr, at<T>(y), stream);
    };
  });
  table.row("transposing copy", shape, type, 2 * bytes, [&]() -> Call {
    return [=, x = numbers(n, type), y = numbers(n, type)] {
      cuda::transpose(1, rows, channels, sizeof(T), x.raw(), y.raw(), stream);
    };
  });
  if (type == DType::float32)
    table.row("cast to bfloat16", shape, type, 1.5 * bytes, [&]() -> Call {
      return [=, x = numbers(n, DType::float32), y = numbers(n, DType::bfloat16)] {
        cuda::cast(n, at<float>(x), at<BFloat16>(y), stream);
      };
    });
}

template <class T>
void channel_rows(Table& table, std::int64_t rows, std::int64_t channels) {
  using Call = std::function<void()>;
  using S = PerChannel<T>;
  const auto type = dtype_of<T>(), of_channels = dtype_of<S>();
  const auto n = rows * channels;
  const auto shape = fmt::format("{} x {}", rows, channels);
  const double bytes = static_cast<double>(n) * sizeof(T);
  const auto stream = cuda::compute_stream();
  const auto scratch = numbers(cuda::channel_scratch(1, rows, channels), DType::float64);
  const auto a = numbers(channels, of_channels), b = numbers(channels, of_channels), m = numbers(channels, of_channels);
  table.row("channel moments", shape, type, bytes, [&]() -> Call {
    return [=, x = numbers(n, type)] {
      cuda::channel_moments(1, rows, channels, at<T>(x), at<double>(scratch), at<S>(a), at<S>(b), stream);
    };
  });
  table.row("channel affine", shape, type, 2 * bytes, [&]() -> Call {
    return [=, x = numbers(n, type), y = numbers(n, type)] {
      cuda::channel_affine(1, rows, channels, at<T>(x), at<S>(m), at<S>(a), at<S>(b), {0.01}, at<T>(y), stream);
    };
  });
  table.row("channel dots", shape, type, 2 * bytes, [&]() -> Call {
    return [=, x = numbers(n, type), g = numbers(n, type)] {
      cuda::channel_dots(1, rows, channels, at<T>(g), at<T>(x), at<S>(m), at<double>(scratch), at<S>(a), at<S>(b), stream);
    };
  });
  table.row("bias gradient behind an activation", shape, type, 3 * bytes, [&]() -> Call {
    return [=, g = numbers(n, type), y = numbers(n, type), h = numbers(n, type), sums = numbers(channels, type)] {
      cuda::bias_activation_adjoint(rows, channels, at<T>(g), at<T>(y), {0.01}, at<double>(scratch), at<T>(h), at<T>(sums),
                                    stream);
    };
  });
}

template <class T>
void pool_rows(Table& table, const PoolProblem& p, bool average, cuda::PoolKernels which) {
  using Call = std::function<void()>;
  const auto type = dtype_of<T>();
  const auto in = p.batch * volume(p.in) * p.channels, out = p.batch * volume(p.out) * p.channels;
  const auto signs = p.batch * volume(p.in) * kernel::octets(p.channels);
  const auto shape = fmt::format("{}^3 x {}, {} by {}", p.in[0], p.channels, p.kernel[0], p.stride[0]);
  const double both = static_cast<double>(in + out) * sizeof(T);
  const auto stream = cuda::compute_stream();
  const auto pool = [&](const std::string& name, double bytes, const auto& run) {
    table.row(name, shape, type, bytes, [&]() -> Call {
      const auto x = numbers(in, type), y = numbers(out, type);
      const auto winner = zeros({average ? 0 : out}, DType::int32), bits = zeros({average ? signs : 0}, DType::uint8);
      // Realistic indices of the maxima instead of zeros.
      if (!average) cuda::max_pool_forward(p, at<T>(x), at<T>(y), at<std::int32_t>(winner), stream, which);
      return [=] { run(at<T>(x), at<T>(y), at<std::int32_t>(winner), at<std::uint8_t>(bits)); };
    });
  };
  const auto of_signs = static_cast<double>(signs), of_winners = 4 * static_cast<double>(out);
  if (average) {
    pool("average pool", both, [=](T* x, T* y, auto...) { cuda::avg_pool_forward(p, x, y, stream, which); });
    pool("average pool, adjoint", both, [=](T* x, T* y, auto...) { cuda::avg_pool_adjoint(p, y, x, stream, which); });
    pool("leaky average pool", both + of_signs,
         [=](T* x, T* y, auto, std::uint8_t* s) { cuda::leaky_avg_pool(p, {0.01}, x, y, s, stream, which); });
    pool("leaky average pool, adjoint", both + of_signs,
         [=](T* x, T* y, auto, std::uint8_t* s) { cuda::leaky_avg_pool_adjoint(p, {0.01}, y, s, x, stream, which); });
  } else {
    pool("maximum pool", both + of_winners,
         [=](T* x, T* y, std::int32_t* w, auto) { cuda::max_pool_forward(p, x, y, w, stream, which); });
    pool("maximum pool, adjoint", both + of_winners,
         [=](T* x, T* y, std::int32_t* w, auto) { cuda::max_pool_scatter(p, y, w, x, stream, which); });
  }
}

// Our own convolutions of few channels or 16.
template <class T>
void own_convolution_rows(Table& table, std::int64_t batch, std::int64_t size, std::int64_t in, std::int64_t out) {
  const auto type = dtype_of<T>();
  const Extent3 extent{size, size, size};
  const kernel::ConvProblem p{.batch = batch,
                              .in = extent,
                              .out = extent,
                              .kernel = {3, 3, 3},
                              .pad_low = {1, 1, 1},
                              .in_channels = in,
                              .out_channels = out};
  const bool few = cuda::has_few_channels(p);
  const auto cells = batch * volume(extent), bytes = type == DType::float32 ? cuda::weights_float32_scratch(p)
                                                     : few                  ? cuda::few_channels_scratch(p)
                                                                            : cuda::sixteen_channels_scratch(p, true);
  const std::string name = few ? "convolution of few channels" : "convolution of 16 channels";
  const auto row = [&](const std::string& pass, const auto& run) {
    table.row(name + pass, fmt::format("{}^3, {} -> {}", size, in, out), type,
              static_cast<double>(cells * (in + out)) * sizeof(T), [&]() -> std::function<void()> {
                return [=, x = numbers(cells * in, type), w = numbers(out * 27 * in, type), y = numbers(cells * out, type),
                        scratch = numbers(bytes / 4, DType::float32)] { run(at<T>(x), at<T>(w), at<float>(scratch), at<T>(y)); };
              });
  };
  const auto stream = cuda::compute_stream();
  if (few) row("", [=](T* x, T* w, float*, T* y) { cuda::few_channels_forward<T>(p, x, w, nullptr, {}, y, stream); });
  if constexpr (std::is_same_v<T, float>) {
    row(", weight gradient", [=](T* x, T* w, float* s, T* y) { cuda::weights_float32(p, x, y, s, w, stream); });
  } else if (few) {
    row(", weight gradient", [=](T* x, T* w, float* s, T* y) { cuda::few_channels_weight<T>(p, x, y, s, w, stream); });
  } else {
    row("", [=](T* x, T* w, float* s, T* y) { cuda::sixteen_channels_forward<T>(p, x, w, nullptr, {}, s, y, stream); });
    row(", data gradient", [=](T* x, T* w, float* s, T* y) { cuda::sixteen_channels_data<T>(p, y, w, s, x, stream); });
    row(", weight gradient", [=](T* x, T* w, float* s, T* y) { cuda::sixteen_channels_weight<T>(p, x, y, s, w, stream); });
  }
}

// Parameters and moments are float32 for every compute type.
void update_rows(Table& table, std::int64_t n) {
  const auto type = DType::float32;
  const double bytes = 4 * static_cast<double>(n);
  const auto with = [&](const std::string& name, double passes, const auto& rule) {
    table.row(name, fmt::format("{}", n), type, passes * bytes, [&]() -> std::function<void()> {
      const auto value = numbers(n, type), gradient = numbers(n, type), first = zeros({n}, type), second = zeros({n}, type);
      return [=] {
        const UpdateSegment segment{
            .count = n, .value = value.raw(), .gradient = gradient.raw(), .state = {first.raw(), second.raw()}, .rate = 1e-4};
        cuda::update(type, {&segment, 1}, rule);
      };
    });
  };
  with("SGD with momentum", 5, RuleOfStep<SGDRule>{.rule = {.momentum = 0.9}});
  with("Adam", 7, RuleOfStep<AdamRule>{.correction1 = 0.1, .correction2 = 0.001});
}

// Only layers whose pooling is large enough to matter.
std::vector<PoolProblem> pools(const Options& o, bool average) {
  std::vector<PoolProblem> found;
  std::int64_t extent = o.size, channels = average ? 16 : 32;
  for (int i = 0; i < 3 && extent >= 4; ++i, channels *= 2) {
    const auto k = average ? 3 : 2, out = static_cast<int>((extent + (average ? 1 : 0)) / 2), low = average ? 1 : 0;
    found.push_back({.batch = o.batch,
                     .in = {extent, extent, extent},
                     .out = {out, out, out},
                     .kernel = {k, k, k},
                     .stride = {2, 2, 2},
                     .pad_low = {low, low, low},
                     .channels = channels});
    extent = out;
  }
  return found;
}

// Costs of a step that could be avoided: these rows show if it is worth it.
void avoidable_rows(Table& table, const Options& o) {
  using Call = std::function<void()>;
  const auto stream = cuda::compute_stream();
  // In 16 bits, the batch of a network is rounded and then padded to the channels that tensor cores need, instead of arriving so.
  const Extent3 extent{o.size, o.size, o.size};
  const auto batch = o.batch, cells = batch * volume(extent);
  const auto shape = fmt::format("{}^3 x 4", o.size);
  table.row("batch to 16 bits", shape, DType::bfloat16, static_cast<double>(cells) * 4 * (4 + 2), [&]() -> Call {
    return [=, x = numbers(cells * 4, DType::float32), y = numbers(cells * 4, DType::bfloat16)] {
      cuda::cast(cells * 4, at<float>(x), at<BFloat16>(y), stream);
    };
  });
  table.row("batch to 8 channels", shape, DType::bfloat16, static_cast<double>(cells) * 2 * (4 + 8), [&]() -> Call {
    return [=, x = numbers(cells * 4, DType::bfloat16), y = numbers(cells * 8, DType::bfloat16)] {
      cuda::move_box({.batch = batch, .from = extent, .to = extent, .from_channels = 4, .to_channels = 8}, 2, x.raw(), y.raw(),
                     stream);
    };
  });
  // Contrastive losses inspect the embeddings on the host before they are sent.
  const std::int64_t samples = 4096, width = 128;
  table.row("embeddings to the host", fmt::format("{} x {}", samples, width), DType::float32,
            4.0 * static_cast<double>(samples * width), [&]() -> Call {
              return
                  [=, x = numbers(samples * width, DType::float32), y = std::make_shared<std::vector<float>>(samples * width)] {
                    cuda::copy_to_host(y->data(), x.raw(), x.bytes());
                  };
            });
}

void bench(const Options& o) {
  require(cuda::available(), "[bench] {}", cuda::unavailable());
  const UseDevice device(DeviceKind::cuda);
  const auto rows = o.batch * o.size * o.size * o.size;
  Table table(rows * 16 * 8);
  for (const auto& precision : o.precisions) {
    const auto type = precision == "bfloat16"  ? DType::bfloat16
                      : precision == "float16" ? DType::float16
                      : precision == "float64" ? DType::float64
                                               : DType::float32;
    visit_any_floating(type, [&](auto zero) {
      using T = decltype(zero);
      elementwise_rows<T>(table, rows, 16);
      channel_rows<T>(table, rows, 16);
      const auto which = o.any_form ? cuda::PoolKernels::any_form : cuda::PoolKernels::fitting;
      for (const bool average : {true, false})
        for (const auto& p : pools(o, average)) pool_rows<T>(table, p, average, which);
      if constexpr (sizeof(T) <= 4) {
        for (const auto& [in, out] : {std::pair{4, 16}, {2, 16}, {1, 32}})
          own_convolution_rows<T>(table, o.batch, o.size, in, out);
        own_convolution_rows<T>(table, o.batch, o.size / 2, 16, 32);
      }
    });
  }
  update_rows(table, rows * 8);
  table.summary();
  fmt::print("\n");
  table.head();
  avoidable_rows(table, o);
}

}  // namespace
}  // namespace mpigrad::bench

int main(int argc, char** argv) {
  using namespace mpigrad;
  bench::Options o;
  CLI::App app("Times our own kernels and copies on a GPU");
  app.add_option("--size", o.size, "extent of the volume")->check(CLI::Range(4, 1024))->capture_default_str();
  app.add_option("--batch", o.batch, "samples")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--precision", o.precisions, "float32, bfloat16, float16, float64")
      ->expected(1, 4)
      ->check(CLI::IsMember({"float32", "bfloat16", "float16", "float64"}))
      ->capture_default_str();
  app.add_flag("--any-form", o.any_form, "pool with the general kernels, the reference for the specialised ones");
  // Parses this program's options first; the rest selects the device.
  app.allow_extras();
  CLI11_PARSE(app, argc, argv);
  return run(argc, argv, [&](Session&) { bench::bench(o); });
}
