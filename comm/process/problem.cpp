#include "comm/process/problem.h"

#include <cxxabi.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <new>
#include <system_error>
#include <typeinfo>

#include "comm/transport/watch/whereabouts.h"
#include "framework/base/error.h"
#include "framework/base/host_memory.h"

namespace mpigrad {
namespace {

// Holds its text in a member, because no memory is left to allocate one.
class OutOfMemory : public std::bad_alloc {
 public:
  OutOfMemory(double used, double available, double limit, const char* option) {
    constexpr double gib = 0x1p30;
    const int length = std::snprintf(text_, sizeof(text_),
                                     "[memory] out of memory: this process has %.2f GiB of addresses, and %.2f GiB are available",
                                     used / gib, available / gib);
    if (limit > 0 && length > 0 && static_cast<std::size_t>(length) < sizeof(text_))
      std::snprintf(text_ + length, sizeof(text_) - static_cast<std::size_t>(length), " under its limit of %.2f GiB (ulimit %s)",
                    limit / gib, option);
  }
  const char* what() const noexcept override { return text_; }

 private:
  char text_[200] = {};
};

// A limit of this process in bytes, 0: none.
double limit_of(int resource) {
  rlimit limit{};
  return getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY ? static_cast<double>(limit.rlim_cur) : 0;
}

// The bytes of this process that count for RLIMIT_AS and for RLIMIT_DATA.
struct Used {
  double addresses = 0, data = 0;
};
Used used_here() {
  Used result;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    long pages = 0, data = 0;
    const auto page = static_cast<double>(sysconf(_SC_PAGESIZE));
    if (std::fscanf(file, "%ld %*d %*d %*d %*d %ld", &pages, &data) == 2)
      result = {static_cast<double>(pages) * page, static_cast<double>(data) * page};
    std::fclose(file);
  }
  return result;
}

// The new handler, called by `new` when there is no memory.
void throw_out_of_memory() {
  static thread_local bool asking = false;
  if (asking) throw std::bad_alloc();  // asking takes some memory, too
  asking = true;
  const auto used = used_here();
  const double space = limit_of(RLIMIT_AS), data = limit_of(RLIMIT_DATA);
  const bool is_data = data > 0 && (space == 0 || data - used.data < space - used.addresses);
  double available = 0;
  try {
    available = static_cast<double>(available_host_bytes());
  } catch (const std::bad_alloc&) {  // then 0 is reported
  }
  asking = false;
  throw OutOfMemory(used.addresses, available, is_data ? data : space, is_data ? "-d" : "-v");
}

}  // namespace

std::string problem_of(const std::exception& error) {
  if (dynamic_cast<const Error*>(&error) != nullptr || dynamic_cast<const OutOfMemory*>(&error) != nullptr ||
      dynamic_cast<const std::filesystem::filesystem_error*>(&error) != nullptr)
    return error.what();
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  if (system != nullptr && system->code() == std::errc::resource_unavailable_try_again)
    return fmt::format("[system] no thread can be made: {} (limits on processes, ulimit -u, and on memory, ulimit -v)",
                       error.what());
  const std::unique_ptr<char, void (*)(void*)> kind(abi::__cxa_demangle(typeid(error).name(), nullptr, nullptr, nullptr),
                                                    std::free);
  return fmt::format("[{}] {}", kind ? kind.get() : typeid(error).name(), error.what());
}

std::string place_of(const std::exception& error) {
  const auto* own = dynamic_cast<const Error*>(&error);
  if (own == nullptr) return {};
  const auto note = own->note();
  std::string text = note.empty() ? note : "\n  " + note;
  const auto place = detail::describe_stack(own->stack().data(), static_cast<int>(own->stack().size()));
  // Programs of this project are in namespace mpigrad, too: the stack would name only their main(), so the place is left out.
  for (const auto* whole_program : {"in mpigrad::launch,", "in mpigrad::run", "in mpigrad::detail::run_on_ranks"})
    if (place.starts_with(whole_program)) return text;
  if (place.find(" at ") != std::string::npos) text += "\n  " + place;
  return text;
}

std::string address_space_problem() {
  // Programs have 0.36 to 0.48 GiB at their start. With 0.3 GiB more MPICH 4.0 hung in MPI_Finalize, UCX 1.13 aborted and oneDNN
  // 2.6 failed with segmentation faults.
  constexpr double least = 1, gib = 0x1p30;
  const auto limit = limit_of(RLIMIT_AS);
  if (limit == 0 || limit >= least * gib) return {};
  return fmt::format(
      "[launch] the limit on address space (ulimit -v) is {:.2f} GiB: libraries such as MPI and oneDNN need up to {} GiB "
      "by themselves; raise "
      "the limit to that plus the memory for your data",
      limit / gib, least);
}

void name_memory_errors() {
  if (std::get_new_handler() == nullptr) std::set_new_handler(throw_out_of_memory);
}

}  // namespace mpigrad
