#include "comm/transport/watch/whereabouts.h"

#include <cxxabi.h>
#include <dlfcn.h>
#if __has_include(<execinfo.h>)  // not every C library has it
#include <execinfo.h>
#define MPIGRAD_HAS_BACKTRACE
#endif
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

namespace mpigrad::detail {
namespace {

constexpr int deepest = 64;

// Written by the signal handler; one request at a time. The handler that answers resets `wanted`: a handler that runs too late
// finds it reset, or set for another thread.
std::array<void*, deepest> noted;
std::atomic<int> noted_count{-1};
std::atomic<bool> wanted{false};
pthread_t wanted_of;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

extern "C" void note_stack(int) {
#ifdef MPIGRAD_HAS_BACKTRACE
  const int before = errno;
  if (wanted && pthread_equal(wanted_of, pthread_self()) != 0 && wanted.exchange(false))
    noted_count = backtrace(noted.data(), deepest);
  errno = before;
#endif
}

struct Frame {
  std::string object;  // file
  std::uintptr_t offset = 0;
  std::string function, line;  // "train.cpp:42"; empty: unknown
  bool library = false;        // belongs to the file of this library, if it is a shared one
  bool program = false;
};

std::string demangled(const char* symbol) {
  int status = 0;
  char* name = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
  std::string text = status == 0 && name ? name : symbol;
  std::free(name);
  return text;
}

// Sets functions and lines of the frames in file `object` by addr2line. It prints one line per inlined function, the innermost
// first; the last one is the function that was called.
void look_up(std::vector<Frame>& frames, const std::string& object) {
  if (object.find('\'') != std::string::npos) return;
  std::string command = fmt::format("timeout 1 addr2line -afCpi -e '{}'", object);
  for (const auto& frame : frames)
    if (frame.object == object) command += fmt::format(" {:#x}", frame.offset);
  std::FILE* output = popen((command + " 2>/dev/null").c_str(), "r");
  if (!output) return;
  std::string text;
  std::array<char, 4096> part{};
  for (std::size_t n = 0; (n = std::fread(part.data(), 1, part.size(), output)) > 0;) text.append(part.data(), n);
  pclose(output);
  // "0x00000000000011f0: main at /src/train.cpp:42", then " (inlined by) ... at ...".
  auto frame = frames.end();
  for (std::size_t at = 0; at < text.size();) {
    auto end = text.find('\n', at);
    if (end == std::string::npos) end = text.size();
    std::string_view line(text.data() + at, end - at);
    at = end + 1;
    constexpr std::string_view inlined = " (inlined by) ";
    if (line.starts_with(inlined)) {
      line.remove_prefix(inlined.size());
    } else {
      const auto colon = line.find(": ");
      if (colon == std::string_view::npos) continue;
      const auto from = frame == frames.end() ? frames.begin() : frame + 1;
      frame = std::find_if(from, frames.end(), [&](const Frame& f) { return f.object == object; });
      line.remove_prefix(colon + 2);
    }
    if (frame == frames.end()) return;
    const auto place = line.rfind(" at ");
    if (place == std::string_view::npos) continue;
    const auto function = line.substr(0, place);
    auto where = line.substr(place + 4);
    if (const auto more = where.find(" (discriminator"); more != std::string_view::npos) where = where.substr(0, more);
    if (function != "??") frame->function = function;
    if (!where.starts_with("??") && !where.ends_with(":?")) frame->line = std::filesystem::path(where).filename().string();
  }
}

// The function's name without arguments; the last part of a lambda's name is removed, because it only says that it is a lambda.
std::string short_name(std::string_view function) {
  if (function.starts_with("void ")) function.remove_prefix(5);
  int depth = 0;
  std::size_t begin = 0, end = 0;
  for (; end < function.size(); ++end) {
    if (function[end] == ' ' && depth == 0 && !function.substr(0, end).ends_with("operator"))
      begin = end + 1;  // after the result's type
    if (function.substr(end).starts_with("(anonymous namespace)")) end += 20;
    if (function[end] == '<' || function[end] == '{') ++depth;
    if ((function[end] == '>' || function[end] == '}') && depth > 0) --depth;
    else if (function[end] == '(' && depth == 0) break;
  }
  std::string name(function.substr(begin, end - begin));
  if (name.ends_with("operator")) name += "()";
  if (const auto lambda = name.find("::{lambda"); lambda != std::string::npos && lambda > 0) name.resize(lambda);
  return name;
}

// True if the frame's file belongs to the system, not to the user's program.
bool of_system(const Frame& frame) {
  const auto& object = frame.object;
  return object.starts_with("/lib") || object.starts_with("/usr/lib") || object.starts_with("linux-vdso");
}

}  // namespace

std::string describe_stack(void* const* addresses, int count) {
  Dl_info own{}, info{};
  if (dladdr(reinterpret_cast<void*>(&describe_stack), &own) == 0) own.dli_fname = "";
  std::error_code unreadable;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", unreadable);  // for addr2line "self" would be addr2line
  const bool shared = !std::filesystem::equivalent(program, own.dli_fname, unreadable) && !unreadable;
  std::uintptr_t program_base = 0;  // the first object that the loader lists
  dl_iterate_phdr(
      [](dl_phdr_info* found, std::size_t, void* base) {
        *static_cast<std::uintptr_t*>(base) = found->dlpi_addr;
        return 1;
      },
      &program_base);
  std::vector<Frame> frames;
  for (int i = 0; i < count; ++i) {
    if (dladdr(addresses[i], &info) == 0 || !info.dli_fname) continue;
    // Return addresses lie after the call. Programs with a fixed address have no base to subtract; they are recognised by a base
    // of at most 16 MiB.
    const auto address = reinterpret_cast<std::uintptr_t>(addresses[i]) - 1,
               base = reinterpret_cast<std::uintptr_t>(info.dli_fbase);
    Frame frame;
    frame.object = info.dli_fname, frame.offset = base > 0x1000000 ? address - base : address;
    frame.program = base == program_base || (program_base == 0 && base <= 0x1000000);
    frame.library = shared && frame.object == own.dli_fname;
    if (frame.program) frame.object = program.string();  // the loader has only the name by which the program was called
    if (info.dli_sname) frame.function = demangled(info.dli_sname);
    frames.push_back(std::move(frame));
  }
  std::vector<std::string> objects;
  for (const auto& frame : frames)
    if (!of_system(frame) && std::find(objects.begin(), objects.end(), frame.object) == objects.end())
      objects.push_back(frame.object);
  for (const auto& object : objects) look_up(frames, object);
  // From the innermost frame outwards, after the handler: the last function of this library is the one that the program called,
  // and the next frame of the program itself is the caller. Libraries of MPI may lie below, wherever they are installed.
  const Frame *called = nullptr, *caller = nullptr, *other = nullptr;
  for (const auto& frame : frames) {
    const auto name = short_name(frame.function);
    if (name.empty() || name == "note_stack" || of_system(frame) || name.starts_with("std::")) continue;
    if (frame.library || (!shared && name.starts_with("mpigrad::"))) {
      called = &frame, other = nullptr;
    } else if (frame.program) {
      caller = &frame;
      break;
    } else if (called && !other) {
      other = &frame;
    }
  }
  if (!caller) caller = other;
  std::string text;
  if (called) text = "in " + short_name(called->function);
  if (caller) {
    text += fmt::format("{} {}", text.empty() ? "in" : ", called by", short_name(caller->function));
    if (!caller->line.empty()) text += " at " + caller->line;
  }
  return text;
}

Whereabouts::Whereabouts() : thread_(pthread_self()) {
#ifdef MPIGRAD_HAS_BACKTRACE
  static const bool installed = [] {
    std::array<void*, 2> first{};
    backtrace(first.data(), 2);  // loads libraries that it needs, which a handler must not do
    struct sigaction action {};
    action.sa_handler = note_stack;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGURG, &action, nullptr) == 0;
  }();
  static_cast<void>(installed);
#endif
}

std::string Whereabouts::find() const {
  static std::mutex mutex;
  std::array<void*, deepest> addresses{};
  int count = -1;
  {
    const std::lock_guard lock(mutex);
    noted_count = -1, wanted_of = thread_, wanted = true;
    if (pthread_kill(thread_, SIGURG) != 0) return {};
    for (int tries = 0; tries < 200 && (count = noted_count) < 0; ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (wanted.exchange(false) || count < 0) return {};
    std::copy_n(noted.begin(), count, addresses.begin());
  }
  return describe_stack(addresses.data(), count);
}

}  // namespace mpigrad::detail
