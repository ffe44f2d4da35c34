#include "comm/launch.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "comm/hdf5/io_thread.h"
#include "comm/process/problem.h"
#include "comm/process/standard_streams.h"
#include "comm/process/threads.h"
#include "comm/transport/device/device_transport.h"
#include "comm/transport/environment.h"
#include "comm/transport/launcher.h"
#include "comm/transport/summation_mode.h"
#include "comm/transport/watch/checks.h"
#include "comm/transport/watch/watchdog.h"
#include "framework/base/error.h"
#include "framework/base/printable.h"
#include "framework/cuda/cuda.h"
#include "framework/engine/kept_memory.h"
#include "framework/tensor/device.h"

namespace mpigrad {
namespace {

using Body = std::function<int(std::shared_ptr<Transport>)>;

constexpr const char* unknown_exception = "an exception that is not a std::exception";

void set_transport(LaunchOptions& options, std::string_view source, std::string_view value) {
  require(value == "threads" || value == "mpi", "[launch] {} is threads or mpi, got '{}'", source, value);
  options.transport = value;
}

void set_device(LaunchOptions& options, std::string_view source, std::string_view value) {
  require(value == "cpu" || value == "cuda", "[launch] {} is cpu or cuda, got '{}'", source, value);
  options.device = value;
}

void require_switch(const char* name) {
  const auto value = environment_variable(name).value_or("0");
  require(value == "0" || value == "1", "[launch] {} is 0 or 1, got '{}'", name, value);
}

void set_ranks(LaunchOptions& options, std::string_view source, std::string_view value) {
  const auto ranks = parse_whole_number(value);
  require(ranks && *ranks > 0, "[launch] {} is a number of ranks, 1 or more, got '{}'", source, value);
  options.ranks = *ranks;
}

void print_error(int rank, int size, std::string_view message) {
  std::string line = size > 1 ? fmt::format("[rank {} of {}] ", rank, size) : "";
  for (bool more = true; more;) {  // a message may have several lines, which may contain file names
    const auto end = message.find('\n');
    line += printable(message.substr(0, end), std::string::npos) + "\n";
    more = end != std::string_view::npos;
    if (more) message.remove_prefix(end + 1);
  }
  std::fflush(stdout);
  std::fwrite(line.data(), 1, line.size(), stderr);  // one write, so that lines of several ranks do not mix
  std::fflush(stderr);
}

// Prints an error once for all processes where MPI does not run (yet): the launcher's environment tells which process is the
// first.
int print_launch_error(const char* message) {
  if (first_of_launch()) print_error(0, 1, message);
  return 2;
}

// The exit code of a rank whose body has returned 0.
int output_code(int rank, int size) {
  const auto problem = output_problem();
  if (problem.empty()) return 0;
  print_error(rank, size, problem.c_str());
  return 1;
}

// The watchdog that MPIGRAD_CHECKS requests, the one of the program's own limit, the one of jobs over several hosts, or that of
// ranks that have ended (threads detect this without a watchdog); null if none is needed. Collective.
std::unique_ptr<Watchdog> make_watchdog(Transport& world, double limit_of_program) {
  constexpr double default_limit = 600, limit_of_ends = 10;  // see comm/transport/watch/watchdog.h
  const auto checks = checks_of_environment();
  auto patience = Patience::none;
  double seconds = checks.watchdog;
  if (limit_of_program > 0 && seconds <= 0 && checks.stall <= 0 && !checks.no_watchdog) {
    if (!world.any_thread()) {
      if (world.rank() == 0 && world.size() > 1)
        fmt::print(stderr,
                   "[watchdog] this MPI library does not provide MPI_THREAD_MULTIPLE: nothing ends this job if it hangs "
                   "(MPIGRAD_CHECKS=watchdog=off silences this warning)\n");
      return nullptr;
    }
    seconds = limit_of_program;
  }
  if (seconds <= 0 && !checks.no_watchdog) {
    const bool several_hosts = world.node_size() < world.size();
    patience = Patience::training;
    seconds = checks.stall > 0 ? checks.stall : several_hosts ? default_limit : 0;
    if (checks.stall <= 0 && several_hosts && !world.any_thread()) {
      if (world.rank() == 0)
        fmt::print(
            stderr,
            "[watchdog] this MPI library does not provide MPI_THREAD_MULTIPLE: this job will not end if the link between its "
            "hosts is cut (MPIGRAD_CHECKS=watchdog=off silences this warning)\n");
      return nullptr;
    }
    if (seconds <= 0 && world.size() > 1 && !world.in_one_process() && world.any_thread())
      patience = Patience::ends, seconds = limit_of_ends;
  }
  if (seconds <= 0) return nullptr;
  const auto board = std::make_shared<detail::CallBoard>();
  auto watchdog = std::make_unique<Watchdog>(world, board, seconds, patience);
  detail::board_of_this_thread() = board;
  return watchdog;
}

// Runs body on the requested device, with a watchdog.
int run_watched(const std::shared_ptr<Transport>& world, const LaunchOptions& options, const Body& body, double limit) {
  set_threads_of_rank(*world);
  const bool gpu = options.device == "cuda";
  if (gpu) cuda::select(gpu_of_rank(*world, cuda::devices()));
  const UseDevice device(gpu ? DeviceKind::cuda : DeviceKind::cpu);
  const auto watchdog = make_watchdog(*world, limit);
  const int code = body(world);
  if (watchdog) watchdog->finish(code);
  return code;
}

int launch_threads(const LaunchOptions& options, const Body& body, double limit) {
  const int ranks = options.ranks;
  std::mutex mutex;
  bool printed = false;
  const auto print_first = [&](int rank, const std::exception* error) {
    std::lock_guard lock(mutex);
    if (std::exchange(printed, true)) return;
    print_error(rank, ranks, error ? problem_of(*error) + place_of(*error) : unknown_exception);
  };
  std::vector<int> codes(static_cast<std::size_t>(ranks));
  try {
    run_threads(ranks, [&](std::shared_ptr<Transport> world) {
      const int rank = world->rank();
      try {
        codes[static_cast<std::size_t>(rank)] = run_watched(world, options, body, limit);
      } catch (const std::exception& error) {
        print_first(rank, &error);
        throw;
      } catch (...) {
        print_first(rank, nullptr);
        throw;
      }
    });
  } catch (const std::exception& error) {
    print_first(0, &error);  // no rank has printed: the threads could not be started
    return 1;
  } catch (...) {
    return 1;
  }
  for (int code : codes)
    if (code != 0) return code;
  return output_code(0, 1);
}

// True if the options of any rank are invalid or request something that is not available: options may differ, and so may nodes.
// Prints the error once. Collective.
bool any_refuses(Transport& world, const std::string& mine) {
  std::int64_t first = mine.empty() ? world.size() : world.rank(), refusing = mine.empty() ? 0 : 1;
  world.allreduce(&first, &first, 1, DType::int64, CombineOp::min);
  if (first == world.size()) return false;
  world.allreduce(&refusing, &refusing, 1, DType::int64, CombineOp::sum);
  if (first == world.rank()) print_error(world.rank(), refusing == world.size() ? 1 : world.size(), mine);
  return true;
}

// True if MPI does not know the launcher. Each process is then a world by itself: the launcher's first process prints the error,
// and the others wait a second, because a launcher may end all processes when one has ended.
bool refuses_copies(const Launcher& launcher, int ranks) {
  const auto problem = copies_problem(launcher, ranks);
  if (problem.empty() || singletons_allowed()) return false;
  if (launcher.rank == 0) print_error(0, 1, problem);
  else std::this_thread::sleep_for(std::chrono::seconds(1));
  return true;
}

int launch_mpi(const LaunchOptions& options, std::string problem, int& argc, char** argv, const Body& body, double limit) {
  const int expected = options.ranks;
  const auto launcher = launcher_of_environment();  // before MPI starts: Open MPI adds variables that tell of one process
  std::shared_ptr<Transport> world;
  try {
    if (lacks_pmix(launcher, mpi_library_version()) && refuses_copies(launcher, 1)) return 2;
    hdf5::open_library();  // before MPI: see io_thread.h
    world = mpi_world(&argc, &argv);
    if (refuses_copies(launcher, world->size())) return 2;
    if (problem.empty() && expected != 0 && expected != world->size())
      problem =
          fmt::format("[launch] --ranks {0} was asked for, but mpiexec started {1}: use mpiexec -n {0}", expected, world->size());
    if (any_refuses(*world, problem)) return 2;
    const Setting device{"--device (or MPIGRAD_DEVICE)", options.device, options.device};
    require_same_settings(*world, {&device, 1});
  } catch (const SettingsError& error) {
    return print_launch_error(error.what());
  } catch (const std::exception& error) {
    print_error(0, 1, problem_of(error));
    return 1;
  }
  const int rank = world->rank(), size = world->size();
  // `since`: when the error came.
  const auto end = [&](const std::string& message, std::chrono::steady_clock::time_point since) {
    print_error(rank, size, message);
    if (size == 1) return 1;
    // Gives ranks that fail at the same time, for the same or another reason, the time to print their errors. Others may take
    // longer to look up the place of theirs.
    std::this_thread::sleep_for(std::chrono::milliseconds(200) + 2 * (std::chrono::steady_clock::now() - since));
    world->abort(1);
    return 1;
  };
  try {
    const int code = run_watched(world, options, body, limit);
    return code != 0 ? code : output_code(rank, size);
  } catch (const std::exception& error) {
    const auto now = std::chrono::steady_clock::now();
    return end(problem_of(error) + place_of(error), now);
  } catch (...) {
    return end(unknown_exception, std::chrono::steady_clock::now());
  }
}

}  // namespace

bool first_of_launch() { return launcher_of_environment().rank == 0; }

LaunchOptions take_launch_options(int& argc, char** argv) {
  LaunchOptions options;
  if (const auto value = environment_variable("MPIGRAD_TRANSPORT")) set_transport(options, "MPIGRAD_TRANSPORT", *value);
  if (const auto value = environment_variable("MPIGRAD_RANKS")) set_ranks(options, "MPIGRAD_RANKS", *value);
  if (const auto value = environment_variable("MPIGRAD_DEVICE")) set_device(options, "MPIGRAD_DEVICE", *value);
  int kept = 0;
  for (int i = 0; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--") {
      while (i < argc) argv[kept++] = argv[i++];
      break;
    }
    bool taken = false;
    for (const std::string_view name : {"--transport", "--ranks", "--device"}) {
      if (i == 0 || !argument.starts_with(name)) continue;
      const std::string_view rest = argument.substr(name.size());
      std::string_view value;
      if (rest.empty()) {
        require(i + 1 < argc, "[launch] {} needs a value", name);
        value = argv[++i];
      } else if (rest[0] == '=') {
        value = rest.substr(1);
      } else {
        continue;  // another option with the same beginning
      }
      const auto set = name == "--ranks" ? set_ranks : name == "--device" ? set_device : set_transport;
      set(options, name, value);
      taken = true;
      break;
    }
    if (!taken) argv[kept++] = argv[i];
  }
  if (kept < argc) argv[kept] = nullptr;
  argc = kept;
  return options;
}

LaunchOptions resolve_launch_options(LaunchOptions options) {
  const int processes = launcher_of_environment().processes;
  if (options.transport.empty()) options.transport = processes > 0 || (mpi_available() && options.ranks == 0) ? "mpi" : "threads";
  if (options.transport == "mpi") {
    require(mpi_available(),
            "[launch] this build has no MPI: install MPICH and configure with -Dmpi=enabled, or use "
            "--transport threads --ranks P without mpiexec");
    require(options.ranks <= 1 || processes > 0, "[launch] --ranks {0} with mpi: start the program with mpiexec -n {0}",
            options.ranks);
  } else {
    require(processes <= 1 || singletons_allowed(),
            "[launch] --transport threads makes its ranks itself, but {} started {} processes: leave out one of the two",
            launcher_of_environment().name, processes);
    if (options.ranks == 0) options.ranks = 1;
  }
  if (options.device.empty()) options.device = "cpu";
  require(options.device == "cpu" || cuda::available(), "[launch] --device cuda: {}", cuda::unavailable());
  return options;
}

int gpu_of_rank(const Transport& transport, int gpus) {
  require(gpus > 0, "[launch] there is no GPU for rank {}", transport.rank());
  return transport.node_rank() % gpus;
}

int launch(int& argc, char** argv, const Body& body, double watchdog) {
  keep_standard_streams(), name_memory_errors();
  LaunchOptions options;
  std::string problem;
  if (const auto text = address_space_problem(); !text.empty()) {
    print_launch_error(text.c_str());
    std::_Exit(2);  // the destructors of libraries would hang
  }
  try {
    options = resolve_launch_options(take_launch_options(argc, argv));
    // Invalid values are refused here.
    if (checks_of_environment().memory) detail::check_foreign_memory(true);
    default_summation_mode(), cuda_aware_mpi(), require_threads_that_fit();
    require_switch("MPIGRAD_GPU_POISON"), require_switch("MPIGRAD_ALLOW_SINGLETONS");
    for (const auto& warning : mistyped_variables())
      if (first_of_launch()) print_error(0, 1, warning.c_str());
  } catch (const std::exception& error) {
    // A process that ends before MPI is initialised leaves the others waiting for it: the error is reported after that.
    if (!mpi_available() || launcher_of_environment().processes <= 1) return print_launch_error(error.what());
    problem = error.what();
  }
  if (problem.empty() && options.transport == "threads") return launch_threads(options, body, watchdog);
  return launch_mpi(options, problem, argc, argv, body, watchdog);
}

}  // namespace mpigrad
