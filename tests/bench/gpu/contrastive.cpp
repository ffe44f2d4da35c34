// Times NT-Xent and CLIP on a GPU, forward and backward, in the ring form on one rank, and the rate of the library's matrix
// products. N: number of rows that are compared with each other; in NT-Xent both views of N / 2 samples. Prints a Markdown table.
//
//   gpu_contrastive --rows 16384 65536 --width 768 --peer "python3 tests/bench/gpu/nt_xent_peer.py"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>

#include "comm/launch.h"
#include "framework/base/error.h"
#include "framework/cuda/cuda.h"
#include "framework/engine/tape.h"
#include "models/losses/contrastive/pairs.h"
#include "models/train/session.h"
#include "ops/elementwise/elementwise.h"
#include "ops/gpu_settings.h"
#include "ops/linear/matmul.h"
#include "ops/random/random.h"

namespace mpigrad::bench {
namespace {

struct Options {
  std::vector<std::int64_t> rows{16384, 65536}, tiles{4096, 8192};
  std::int64_t width = 768;
  int repeats = 5;
  std::string peer;
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

template <class F>
double fastest(int repeats, const F& f) {
  double best = 1e9;
  for (int i = -1; i < repeats; ++i) {
    cuda::synchronise(cuda::compute_stream());
    const double start = now();
    f();
    cuda::synchronise(cuda::compute_stream());
    if (i >= 0) best = std::min(best, now() - start);
  }
  return best;
}

// FLOP/s of the product of [n, width] and [width, n].
double product_rate(DType type, std::int64_t n, std::int64_t width) {
  const Untaped scope;
  const auto a = random_normal({n, width}, {1, 1}, 0, 1, type), b = random_normal({n, width}, {1, 2}, 0, 1, type);
  const double seconds = fastest(5, [&] { (void)matmul(a, b, {.transpose_b = true}); });
  return 2.0 * static_cast<double>(n * n) * static_cast<double>(width) / seconds;
}

struct Result {
  double seconds = 0, mib = 0;
};

Result measure(const Options& o, const Session& session, bool clip, std::int64_t rows, std::int64_t tile, DType type) {
  cuda::trim_memory();
  const auto samples = clip ? rows : rows / 2;
  const auto a = random_normal({samples, o.width}, {1, 1}, 0, 1, type), b = random_normal({samples, o.width}, {1, 2}, 0, 1, type);
  const auto scale = full({1}, 2.6593, DType::float32);
  const auto beside = cuda::memory().current;
  cuda::reset_peak_memory();
  Result result;
  result.seconds = fastest(o.repeats, [&] {
    Tape tape;
    const auto share = clip ? contrastive::clip(a, b, scale, session.world(), {.form = contrastive::Form::ring, .tile = tile})
                            : contrastive::nt_xent(a, b, session.world(), {.form = contrastive::Form::ring, .tile = tile});
    (void)(clip ? tape.gradient(share, {a, b, scale}) : tape.gradient(share, {a, b}));
  });
  result.mib = static_cast<double>(cuda::memory().peak - beside) / (1 << 20);
  return result;
}

// Milliseconds and MiB of PyTorch's direct loss, or the reason why they are missing.
std::string peer(const Options& o, bool clip, std::int64_t rows) {
  cuda::trim_memory();
  const auto line = fmt::format("{} --rows {} --width {}{} 2>&1", o.peer, rows, o.width, clip ? " --clip" : "");
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(line.c_str(), "r"), pclose);
  require(pipe != nullptr, "[bench] {} cannot be run", line);
  std::array<char, 4096> part{};
  std::string output;
  while (std::fgets(part.data(), part.size(), pipe.get())) output += part.data();
  while (!output.empty() && output.back() == '\n') output.pop_back();
  return output.substr(output.rfind('\n') + 1);
}

void bench(const Session& session, const Options& o) {
  require(cuda::available(), "[bench] {}", cuda::unavailable());
  const UseDevice device(DeviceKind::cuda);
  auto settings = gpu_settings();
  settings.tf32 = true;
  set_gpu_settings(settings);
  const auto n = o.rows.front();
  const double half = product_rate(DType::bfloat16, n, o.width), tf32 = product_rate(DType::float32, n, o.width);
  fmt::print("Products of [{}, {}] matrices: bfloat16 {:.0f} TFLOP/s, TF32 {:.0f}\n\n", n, o.width, half * 1e-12, tf32 * 1e-12);
  fmt::print(
      "| loss | rows | tile | ms, forward and backward | MiB beyond the embeddings | TFLOP/s of its 8 N^2 D | of bfloat16 "
      "products "
      "| of TF32's | PyTorch, direct |\n|---|--:|--:|--:|--:|--:|--:|--:|---|\n");
  for (const bool clip : {false, true})
    for (const auto rows : o.rows)
      for (const auto tile : o.tiles) {
        const auto found = measure(o, session, clip, rows, tile, DType::bfloat16);
        const auto all = static_cast<double>(rows), rate = 8 * all * all * static_cast<double>(o.width) / found.seconds;
        fmt::print("| {} | {} | {} | {:.2f} | {:.0f} | {:.0f} | {:.0f} % | {:.0f} % | {} |\n", clip ? "CLIP" : "NT-Xent", rows,
                   tile, 1e3 * found.seconds, found.mib, rate * 1e-12, 100 * rate / half, 100 * rate / tf32,
                   o.peer.empty() || tile != o.tiles.front() ? "" : peer(o, clip, rows));
        std::fflush(stdout);
        if (clip) continue;
        fmt::print(stderr,
                   "measured: nt-xent-memory-{}-{} {:.0f} MiB\nmeasured: nt-xent-rate-{}-{} {:.0f} % of bfloat16 products\n",
                   rows, tile, found.mib, rows, tile, 100 * rate / half);
      }
}

}  // namespace
}  // namespace mpigrad::bench

int main(int argc, char** argv) {
  using namespace mpigrad;
  bench::Options o;
  CLI::App app("Times contrastive losses and matrix products on a GPU");
  app.add_option("--rows", o.rows, "rows that are compared with each other")->expected(1, 8)->check(CLI::Range(2, 1 << 20));
  app.add_option("--tile", o.tiles, "rows and columns of a tile")->expected(1, 8)->check(CLI::PositiveNumber);
  app.add_option("--width", o.width, "width of an embedding")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--repeats", o.repeats, "repetitions; the fastest counts")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--peer", o.peer, "command that times PyTorch's loss: takes --rows --width [--clip]");
  // Parses this program's options first; the rest selects the device.
  app.allow_extras();
  CLI11_PARSE(app, argc, argv);
  return run(argc, argv, [&](Session& session) { bench::bench(session, o); });
}
