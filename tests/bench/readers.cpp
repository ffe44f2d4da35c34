// Comparison of ways to feed ranks that each have a block of every sample; and the access patterns of MLPerf Storage.
//
//   build/tests/readers [--side 128] [--samples 24] [--compute 20] [--folder /tmp] [--along width]
//   mpiexec -n 2 build/tests/readers
//   build/tests/readers --mlperf
//
// Each way fetches one batch ahead, on a thread of its own, while "compute" sleeps. GB/s are bytes of whole samples, as stored,
// per second of reading only; stall is the fraction of the time in which compute waits. Files are in the system's cache, so the
// disk is not measured.

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <optional>
#include <random>
#include <thread>

#include "comm/hdf5/hdf5_file.h"
#include "comm/launch.h"
#include "framework/base/job_queue.h"
#include "models/data/compressed/compressed.h"
#include "models/data/data.h"
#include "models/data/records/example.h"
#include "models/data/records/frames.h"
#include "models/data/records/source.h"
#include "models/data/sources/hdf5.h"
#include "models/data/volumes/npy_pairs.h"
#include "models/train/session.h"

namespace mpigrad::bench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct Options {
  std::int64_t side = 128, samples = 24, records = 96, volumes = 10;
  double compute = 20;  // ms
  std::string folder = fs::temp_directory_path().string(), along = "depth";
  bool mlperf = false;
  int prefetch = 4;  // as many as the threads of MLPerf Storage's own CosmoFlow reader
};

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }
void sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

struct Rate {
  double bytes_per_second = 0, stall = 0;
};

// Calls fetch(step) for every step, by itself and together with compute.
Rate measure(std::int64_t steps, double bytes, double compute, const Transport& ranks,
             const std::function<void(std::int64_t)>& fetch) {
  auto& all = const_cast<Transport&>(ranks);
  Rate rate;
  all.barrier();
  auto begin = Clock::now();
  for (std::int64_t step = 0; step < steps; ++step) fetch(step);
  all.barrier();
  rate.bytes_per_second = bytes * static_cast<double>(steps) / since(begin);
  JobQueue reader(1);
  double waited = 0;
  begin = Clock::now();
  auto next = reader.submit([&] { fetch(0); });
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto asked = Clock::now();
    next.get();
    waited += since(asked);
    if (step + 1 < steps) next = reader.submit([&, step] { fetch(step + 1); });
    sleep(compute);
  }
  rate.stall = waited / since(begin);
  return rate;
}

void write_universes(const fs::path& folder, const Options& o, int rank, int ranks) {
  std::vector<std::int16_t> counts(static_cast<std::size_t>(o.side * o.side * o.side * 4));
  for (std::int64_t s = rank; s < o.samples; s += ranks) {
    for (std::size_t i = 0; i < counts.size(); ++i)
      counts[i] = static_cast<std::int16_t>((i * 31 + static_cast<std::size_t>(s)) % 7);
    Hdf5Writer writer(folder / fmt::format("universe_{:05}.hdf5", s), true);
    writer.write("full", {o.side, o.side, o.side, 4}, DType::int16, counts.data());
    writer.write<float>("unitPar", std::array<float, 4>{0, 0, 0, static_cast<float>(s)});
    writer.commit();
  }
}

void compare_ways(Session& session, const Options& o, const fs::path& folder) {
  auto& world = session.world().transport();
  const int ranks = world.size(), rank = world.rank();
  write_universes(folder, o, rank, ranks);
  world.barrier();
  const auto source = std::make_shared<data::UniverseSource>(folder);
  const auto side = o.side;
  const auto bytes = side * side * side * 4 * 2;
  const auto cuts = balanced_cuts(side, ranks);
  const auto slab = [&](int r) {
    return Box{Shape{cuts[static_cast<std::size_t>(r)], 0, 0}, Shape{cuts[static_cast<std::size_t>(r) + 1], side, side}};
  };
  std::vector<std::int64_t> counts;
  for (int r = 0; r < ranks; ++r) counts.push_back(slab(r).elements() * 4);
  std::vector<std::int16_t> whole(static_cast<std::size_t>(bytes / 2)),
      mine(static_cast<std::size_t>(counts[static_cast<std::size_t>(rank)]));
  const auto side_by_side = world.duplicate();
  // Each epoch has another order.
  const auto sample_of = [&](std::int64_t step) { return (step * 7 + 3) % o.samples; };
  struct Way {
    const char* name;
    std::function<void(std::int64_t)> fetch;
  };
  const std::vector<Way> ways{{"rank 0 reads and scatters",
                               [&](std::int64_t step) {
                                 if (rank == 0)
                                   source->read(sample_of(step), source->whole(), reinterpret_cast<std::byte*>(whole.data()));
                                 side_by_side->scatter(whole.data(), mine.data(), counts, DType::int16, 0);
                               }},
                              {"every rank reads everything",
                               [&](std::int64_t step) {
                                 source->read(sample_of(step), source->whole(), reinterpret_cast<std::byte*>(whole.data()));
                                 const auto first = std::int64_t{cuts[static_cast<std::size_t>(rank)]} * side * side * 4;
                                 std::memcpy(mine.data(), whole.data() + first, mine.size() * 2);
                               }},
                              {"each rank reads its block", [&](std::int64_t step) {
                                 source->read(sample_of(step), slab(rank), reinterpret_cast<std::byte*>(mine.data()));
                               }}};
  if (rank == 0)
    fmt::print("{} samples of {}^3 x 4 int16, {:.1f} MB each, {} ranks along depth, compute {:g} ms\n{:<44}{:>8}{:>9}\n",
               o.samples, side, static_cast<double>(bytes) / 1e6, ranks, o.compute, "", "GB/s", "stall");
  const auto print = [&](const std::string& name, const Rate& rate) {
    if (rank == 0) fmt::print("{:<44}{:>8.2f}{:>7.1f} %\n", name, rate.bytes_per_second / 1e9, 100 * rate.stall);
  };
  for (const auto& way : ways) print(way.name, measure(o.samples, static_cast<double>(bytes), o.compute / 1e3, world, way.fetch));

  // Loaders also assemble float32 batches. With flips every rank needs blocks of all ranks.
  const GridExtents grid{.depth = o.along == "depth" ? ranks : 1,
                         .height = o.along == "height" ? ranks : 1,
                         .width = o.along == "width" ? ranks : 1};
  if (rank == 0) fmt::print("loader of float32 batches, along {}\n", o.along);
  struct From {
    const char* name;
    std::int64_t store = 0;
    bool collective = false;
  };
  for (const bool flips : {false, true})
    for (const auto& [from, store, collective] :
         {From{"files"}, From{"files, collective", 0, true}, From{"store", std::int64_t{1} << 34}}) {
      const data::Loader loader(source, {.grid = session.grid(grid),
                                         .batch = 1,
                                         .seed = 1,
                                         .shuffle = true,
                                         .flips = flips,
                                         .assemble_ahead = true,
                                         .cache_bytes = 0,
                                         .store_bytes = store,
                                         .collective = collective});
      const auto pass = [&](std::int64_t epoch, double compute) {
        world.barrier();
        const auto begin = Clock::now();
        double waited = 0;
        auto asked = begin;
        for (const auto& batch : loader.epoch(epoch)) {
          waited += since(asked);
          if (batch.x.elements() > 0) sleep(compute);
          asked = Clock::now();
        }
        world.barrier();
        const double all = since(begin);
        return std::pair{all, waited / all};
      };
      (void)pass(0, 0);
      Rate rate{static_cast<double>(bytes * o.samples) / pass(1, 0).first, pass(2, o.compute / 1e3).second};
      print(fmt::format("  {}{}", from, flips ? ", flips" : ""), rate);
    }
}

// Processor time of this process so far, in seconds, and its page faults.
struct Cost {
  double seconds = 0;
  std::int64_t pages = 0;
};
Cost cost() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
  return {seconds(use.ru_utime) + seconds(use.ru_stime), use.ru_minflt};
}

// Batches of one, each followed by a simulated step: the fraction of the time in which that "computes", as it was slept, and as
// MLPerf Storage counts it, with steps never longer than requested: the system wakes a sleeper late, and later if more programs
// run. The processor time of a step does not depend on them.
void busy(const std::string& name, const data::SourcePtr& source, double step, double bytes, int epochs, int prefetch) {
  const data::Loader loader(source, {.batch = 1,
                                     .seed = 1,
                                     .shuffle = true,
                                     .crop = source->sample_type().same_extents ? std::optional<data::Crop>()
                                                                                : data::Crop{.extents = source->extents()},
                                     .transform = data::Transform::none,
                                     .prefetch = prefetch,
                                     .assemble_ahead = true,
                                     .cache_bytes = 0});
  for (const auto& batch : loader.epoch(0)) (void)batch;  // reads the files into the system's cache
  const auto before = cost();
  const auto begin = Clock::now();
  std::int64_t steps = 0;
  double slept = 0;  // longer than requested, due to the system's clock
  for (int epoch = 1; epoch <= epochs; ++epoch)
    for (const auto& batch : loader.epoch(epoch)) {
      const auto asleep = Clock::now();
      if (batch.x.elements() > 0) sleep(step);
      slept += since(asleep);
      ++steps;
    }
  const double all = since(begin);
  const auto after = cost();
  const auto n = static_cast<double>(steps);
  fmt::print(
      "{:<44}{:>7.1f} % busy ({:.1f} % of {:g} ms), a step of {:.2f} ms, {:.2f} GB/s; of processors {:.2f} ms and {:.0f} new "
      "pages\n",
      name, 100 * slept / all, 100 * step * n / all, 1e3 * step, 1e3 * slept / n, bytes * n / all / 1e9,
      1e3 * (after.seconds - before.seconds) / n, static_cast<double>(after.pages - before.pages) / n);
}

void mlperf(const Options& o, const fs::path& folder) {
  const Shape extents{70, 71, 71};
  const auto bytes = extents.elements() * 4 * 2;
  // Counts of particles: Poisson with a log-normal mean, because the contents determine how hard they are to decompress.
  std::string volume;
  std::mt19937_64 random(1);
  std::lognormal_distribution<double> density(-1.125, 1.5);  // with mean 1
  for (std::int64_t i = 0; i < bytes / 2; ++i) {
    const auto count = static_cast<std::uint16_t>(std::min(std::poisson_distribution<int>(density(random))(random), 32767));
    volume.push_back(static_cast<char>(count & 255)), volume.push_back(static_cast<char>(count >> 8));
  }
  fs::create_directories(folder / "raw"), fs::create_directories(folder / "gzip");
  for (std::int64_t s = 0; s < o.records; ++s) {
    const auto record = data::framed(data::example_record("x", volume, "y", {1, 2, 3, static_cast<float>(s)}));
    std::ofstream(folder / "raw" / fmt::format("{:05}.tfrecord", s), std::ios::binary) << record;
    if (!data::gzip_available() || s >= 24) continue;
    const auto packed = data::gzip({reinterpret_cast<const std::byte*>(record.data()), record.size()});
    std::ofstream(folder / "gzip" / fmt::format("{:05}.tfrecord.gz", s), std::ios::binary)
        .write(reinterpret_cast<const char*>(packed.data()), static_cast<std::streamsize>(packed.size()));
  }
  fmt::print("CosmoFlow's records of {:.2f} MB, a step of 3.5 ms each\n", static_cast<double>(bytes) / 1e6);
  const data::RecordOptions options{.extents = extents};
  busy("  as they are, checksums verified", std::make_shared<data::RecordSource>(folder / "raw", options), 0.0035,
       static_cast<double>(bytes), 5, o.prefetch);
  if (data::gzip_available())
    busy("  packed by gzip", std::make_shared<data::RecordSource>(folder / "gzip", options), 0.0035, static_cast<double>(bytes),
         3, o.prefetch);

  constexpr std::int64_t side = 308;
  const auto write = [&](const std::string& name, const std::string& type, std::int64_t size) {
    std::string header =
        fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': (1, {}, {}, {}), }}", type, side, side, side);
    header.resize(117, ' ');
    std::ofstream file(folder / "kits" / name, std::ios::binary);
    file << "\x93NUMPY" << '\1' << '\0' << '\x76' << '\0' << header << '\n'
         << std::string(static_cast<std::size_t>(side * side * side * size), '\0');
  };
  fs::create_directories(folder / "kits");
  for (std::int64_t s = 0; s < o.volumes; ++s)
    write(fmt::format("case_{:05}_x.npy", s), "<f4", 4), write(fmt::format("case_{:05}_y.npy", s), "|u1", 1);
  const double sample = 5.0 * side * side * side;
  fmt::print("U-Net's samples of {:.1f} MB, a step of 185 ms each\n", sample / 1e6);
  busy("  .npy", std::make_shared<data::NpyPairs>(folder / "kits"), 0.185, sample, 3, 2);
}

}  // namespace
}  // namespace mpigrad::bench

int main(int argc, char** argv) {
  using namespace mpigrad;
  bench::Options o;
  CLI::App app("Ways to feed ranks with blocks of samples.");
  app.add_option("--side", o.side, "extent of the volumes")->check(CLI::Range(8, 1024))->capture_default_str();
  app.add_option("--samples", o.samples)->check(CLI::Range(2, 100000))->capture_default_str();
  app.add_option("--compute", o.compute, "duration of a simulated step, ms")->check(CLI::Range(0.0, 1e6))->capture_default_str();
  app.add_option("--folder", o.folder, "folder of written files")->capture_default_str();
  app.add_option("--along", o.along, "axis split over the loaders' ranks")
      ->check(CLI::IsMember({"depth", "height", "width"}))
      ->capture_default_str();
  app.add_flag("--mlperf", o.mlperf, "MLPerf Storage's access patterns of one rank");
  app.add_option("--prefetch", o.prefetch, "with --mlperf: records read ahead")->check(CLI::Range(0, 64))->capture_default_str();
  app.allow_extras();
  CLI11_PARSE(app, argc, argv);
  return run(argc, argv, [&](Session& session) {
    auto& world = session.world().transport();
    std::int64_t id = getpid();
    world.bcast(&id, 1, DType::int64, 0);
    const auto folder = std::filesystem::path(o.folder) / fmt::format("mpigrad_readers_{}", id);
    std::filesystem::create_directories(folder);
    if (o.mlperf) bench::mlperf(o, folder);
    else bench::compare_ways(session, o, folder);
    world.barrier();
    if (world.rank() == 0) std::filesystem::remove_all(folder);
  });
}
