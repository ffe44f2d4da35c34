// Versions, processor, devices and hosts.

#include <unistd.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "comm/process/threads.h"
#include "comm/together.h"
#include "comm/transport/launcher.h"
#include "examples/tools/selftest/selftest.h"
#include "framework/cuda/cuda.h"
#include "models/trainer/recipe/version.h"
#ifdef MPIGRAD_SELFTEST_MPI
#include "comm/transport/mpi/mpi_comm.h"
#endif

namespace mpigrad::selftest {
namespace {

std::string host() {
  char name[256] = "";
  return gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

// As the library says it at run time, which may be another one than that of the build.
std::string mpi_version() {
#ifdef MPIGRAD_SELFTEST_MPI
  int initialised = 0, length = 0;
  MPI_Initialized(&initialised);
  if (initialised == 0) return "not used";
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  MPI_Get_library_version(text, &length);
  const std::string version(text);  // Open MPI counts the zero at the end
  std::string line;                 // MPICH's has a line for each option of its build
  for (const char c : version.substr(0, version.find("\n", version.find('\n') + 1))) line += c == '\n' || c == '\t' ? ' ' : c;
  return line;
#else
  return "none in this build";
#endif
}

}  // namespace

nlohmann::ordered_json describe_environment(const Communicator& world) {
  const int threads = threads_of_rank(world.transport());
  nlohmann::ordered_json d{
      {"version", trainer::version()}, {"commit", trainer::commit()}, {"built_with", MPIGRAD_SELFTEST_FOUND}};
  d["mpi"] = mpi_version();
  d["ranks"] = world.size();
  std::map<std::string, int> hosts;
  for (int r = 0; r < world.size(); ++r) ++hosts[text_of_rank(world.transport(), host(), r)];
  for (const auto& [name, count] : hosts) d["hosts"][name] = count;
  const auto launcher = launcher_of_environment();
  d["launcher"] = launcher.name.empty() ? "none" : std::string(launcher.name);
  d["processor"] = text_of_rank(world.transport(), processor());
  d["cores"] = sysconf(_SC_NPROCESSORS_ONLN);
  d["threads_of_a_rank"] = threads;
  d["memory_bytes"] = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  d["device"] = name_of(current_device());
  d["gpu"] = current_device() == DeviceKind::cuda ? cuda::name()
             : cuda::available()                  ? cuda::name() + ", not used"
                                                  : "none: " + cuda::unavailable();
  return d;
}

std::string to_text(const nlohmann::ordered_json& d) {
  std::string hosts;
  for (const auto& [name, count] : d["hosts"].items()) {
    if (hosts.size() > 100) {
      hosts += ", ...";
      break;
    }
    hosts += fmt::format("{}{} x {}", hosts.empty() ? "" : ", ", name, count.get<int>());
  }
  const auto text = [&](const char* key) { return d[key].get<std::string>(); };
  return fmt::format(
      "mpigrad {} ({})\nbuilt with   {}\nMPI          {}\nranks        {}: {}; launcher: {}\nprocessor    {}, {} cores, {:.1f} "
      "GiB; {} threads a rank\n"
      "device       {}; GPU: {}\n",
      text("version"), text("commit"), text("built_with"), text("mpi"), d["ranks"].get<int>(), hosts, text("launcher"),
      text("processor"), d["cores"].get<long>(), static_cast<double>(d["memory_bytes"].get<std::int64_t>()) / (1 << 30),
      d["threads_of_a_rank"].get<int>(), text("device"), text("gpu"));
}

}  // namespace mpigrad::selftest
