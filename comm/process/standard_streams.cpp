#include "comm/process/standard_streams.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <iostream>
#include <mutex>

#ifdef __GLIBCXX__
#include <ext/stdio_sync_filebuf.h>
#endif

namespace mpigrad {
namespace {

std::atomic<int> output_error{0};  // errno of the first print to standard output that was not written

void open_closed_descriptors() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor)  // each open() takes the lowest free descriptor
    if (fcntl(descriptor, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDWR) < 0) return;
}

// A handler instead of SIG_IGN, because programs that this one starts would inherit SIG_IGN.
extern "C" void nothing_to_do(int) {}

void outlive_readers() {
  struct sigaction before = {}, action = {};
  if (sigaction(SIGPIPE, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) return;  // the program has its own handler
  action.sa_handler = nothing_to_do;
  action.sa_flags = SA_RESTART;
  sigaction(SIGPIPE, &action, nullptr);
}

#ifdef __GLIBC__
// The write function of a stream: always reports that all bytes were written, because a short count would be an error of the
// print.
template <int Descriptor>
ssize_t write_or_drop(void*, const char* bytes, std::size_t size) {
  for (std::size_t done = 0; done < size;) {
    const auto written = write(Descriptor, bytes + done, size - done);
    if (written >= 0) {
      done += static_cast<std::size_t>(written);
    } else if (errno == EAGAIN) {  // a terminal that another program has made non-blocking
      pollfd ready{.fd = Descriptor, .events = POLLOUT, .revents = 0};
      poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      int none = 0;
      if (errno != EPIPE && Descriptor == STDOUT_FILENO) output_error.compare_exchange_strong(none, errno);
      break;
    }
  }
  return static_cast<ssize_t>(size);
}

template <int Descriptor>
void replace_stream(std::FILE*& stream, std::initializer_list<std::ostream*> followers, int buffering) {
  std::fflush(stream);
  std::FILE* const other =
      fopencookie(nullptr, "w", {.read = nullptr, .write = write_or_drop<Descriptor>, .seek = nullptr, .close = nullptr});
  if (other == nullptr) return;
  std::setvbuf(other, nullptr, buffering, BUFSIZ);
#ifdef __GLIBCXX__
  // Keeps the output of C++ streams in order with the rest.
  using Synchronised = __gnu_cxx::stdio_sync_filebuf<char>;
  for (auto* each : followers)
    if (auto* buffer = dynamic_cast<Synchronised*>(each->rdbuf()); buffer != nullptr && buffer->file() == stream)
      each->rdbuf(new Synchronised(other));  // for as long as the process lives
#endif
  stream = other;
}

void replace_streams() {
  replace_stream<STDOUT_FILENO>(stdout, {&std::cout}, isatty(STDOUT_FILENO) != 0 ? _IOLBF : _IOFBF);
  replace_stream<STDERR_FILENO>(stderr, {&std::cerr, &std::clog}, _IONBF);
}
#else
void replace_streams() {}
#endif

}  // namespace

void keep_standard_streams() {
  static std::once_flag once;
  std::call_once(once, [] { open_closed_descriptors(), outlive_readers(), replace_streams(); });
}

std::string output_problem() {
  // Only the first of several ranks that are threads gets the reason, because the unwritten bytes are discarded.
  static std::mutex mutex;
  static int reason = 0;
  const std::lock_guard lock(mutex);
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  if (!flushed) reason = errno;
  if (const int error = output_error; error != 0) reason = error;
  else if (flushed && std::ferror(stdout) == 0) return {};
  return fmt::format("[output] standard output could not be written completely{}{}", reason != 0 ? ": " : "",
                     reason != 0 ? std::strerror(reason) : "");
}

}  // namespace mpigrad
