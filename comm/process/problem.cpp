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
  OutOfMemory(double used, double available, double limit) {
    constexpr double gib = 0x1p30;
    const int length = std::snprintf(text_, sizeof(text_),
                                     "[memory] out of memory: this process has %.2f GiB of addresses, and %.2f GiB are available",
                                     used / gib, available / gib);
    if (limit > 0 && length > 0 && static_cast<std::size_t>(length) < sizeof(text_))
      std::snprintf(text_ + length, sizeof(text_) - static_cast<std::size_t>(length), " under its limit of %.2f GiB (ulimit -v)",
                    limit / gib);
  }
  const char* what() const noexcept override { return text_; }

 private:
  char text_[200] = {};
};

// The address space of this process in bytes; limit 0: no limit.
struct AddressSpace {
  double used = 0, limit = 0;
};

AddressSpace address_space() {
  AddressSpace result;
  rlimit addresses{};
  if (getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY)
    result.limit = static_cast<double>(addresses.rlim_cur);
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    long pages = 0;
    if (std::fscanf(file, "%ld", &pages) == 1)
      result.used = static_cast<double>(pages) * static_cast<double>(sysconf(_SC_PAGESIZE));
    std::fclose(file);
  }
  return result;
}

// The new handler, called by `new` when there is no memory.
void throw_out_of_memory() {
  static thread_local bool asking = false;
  if (asking) throw std::bad_alloc();  // asking takes some memory, too
  asking = true;
  const auto [used, limit] = address_space();
  double available = 0;
  try {
    available = static_cast<double>(available_host_bytes());
  } catch (const std::bad_alloc&) {  // then 0 is reported
  }
  asking = false;
  throw OutOfMemory(used, available, limit);
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
  const auto limit = address_space().limit;
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
