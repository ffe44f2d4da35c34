#include "models/train/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "framework/base/error.h"

namespace mpigrad {

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Standard error may be a stream without a descriptor of its own (comm/process/standard_streams.h).
int descriptor_of(std::FILE* stream) { return stream == stderr ? STDERR_FILENO : fileno(stream); }

std::size_t columns_of(std::FILE* stream) {
  winsize size{};
  return ioctl(descriptor_of(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

int digits(std::int64_t n) { return static_cast<int>(std::to_string(n).size()); }

}  // namespace

std::string format_duration(double seconds) {
  const auto all = static_cast<std::int64_t>(std::llround(std::clamp(seconds, 0.0, 1e9)));
  const auto hours = all / 3600, minutes = all / 60 % 60, rest = all % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, rest) : fmt::format("{}:{:02}", minutes, rest);
}

Progress::Progress(std::int64_t epochs, std::int64_t steps_per_epoch, const ProgressOptions& options)
    : epochs_(epochs), steps_(steps_per_epoch), options_(options), shown_(options.rank == 0 && !options.quiet),
      terminal_(options.terminal.value_or(isatty(descriptor_of(options.stream)) != 0)), start_(Clock::now()),
      epoch_start_(start_), last_(start_) {}

// If an exception is thrown, its message starts on a new line.
Progress::~Progress() {
  if (drawn_) std::fputc('\n', options_.stream);
}

double Progress::samples_per_second() const {
  const double seconds = seconds_since(epoch_start_);
  return seconds > 0 ? samples_ / seconds : 0;
}

double Progress::seconds_left() const {
  const auto here = done_ - std::max<std::int64_t>(0, first_);
  return here == 0 ? 0 : seconds_since(start_) / static_cast<double>(here) * static_cast<double>(epochs_ * steps_ - done_);
}

std::string Progress::line(bool bar) const {
  auto text = fmt::format("epoch {:>{}}/{} ", epoch_ + 1, digits(epochs_), epochs_);
  if (bar) {
    constexpr std::int64_t width = 20;
    const auto filled = static_cast<std::size_t>(steps_ > 0 ? width * step_ / steps_ : width);
    std::string inside(filled, '=');
    if (filled < width) inside += '>';
    inside.resize(width, ' ');
    text += "[" + inside + "] ";
  }
  text += fmt::format("{:>{}}/{}", step_, digits(steps_), steps_);
  if (loss_.weight() > 0) text += fmt::format("  loss {:.4g}  {:.1f} samples/s", loss_.mean(), samples_per_second());
  if (done_ < epochs_ * steps_ && done_ > std::max<std::int64_t>(0, first_))
    text += fmt::format("  {} left", format_duration(seconds_left()));
  return text;
}

void Progress::clear() {
  if (drawn_) fmt::print(options_.stream, "\r\033[K");
  drawn_ = false;
}

void Progress::redraw() {
  if (!shown_) return;
  const double wait = terminal_ ? options_.redraw_seconds : options_.line_seconds;
  if (seconds_since(last_) < wait) return;
  last_ = Clock::now();
  if (terminal_) {
    fmt::print(options_.stream, "\r{}\033[K", line(true).substr(0, columns_of(options_.stream) - 1));
    drawn_ = true;
  } else if (step_ < steps_) {
    fmt::print(options_.stream, "{}\n", line(false));
  }
  std::fflush(options_.stream);
}

void Progress::begin_epoch(std::int64_t epoch, std::int64_t steps_behind) {
  epoch_ = epoch, step_ = steps_behind, done_ = epoch * steps_ + steps_behind, samples_ = 0;
  loss_.reset();
  epoch_start_ = Clock::now();
  if (first_ < 0) start_ = epoch_start_, first_ = done_;
}

void Progress::step(std::int64_t samples, double loss) {
  ++step_, ++done_;
  samples_ += static_cast<double>(samples);
  loss_.add(loss, static_cast<double>(samples));
  redraw();
}

void Progress::end_epoch(const std::string& text) {
  if (!shown_) return;
  clear();
  fmt::print(options_.stream, "{}{}{}\n", line(false), text.empty() ? "" : "  ", text);
  std::fflush(options_.stream);
  last_ = Clock::now();
}

void Progress::print(const std::string& line) {
  if (!shown_) return;
  clear();
  fmt::print(options_.stream, "{}\n", line);
  std::fflush(options_.stream);
}

}  // namespace mpigrad
