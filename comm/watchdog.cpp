#include "comm/watchdog.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "framework/error.h"

namespace mpigrad {
namespace {

using detail::CallBoard;
using namespace std::chrono;

constexpr int alarm_tag = 1, question_tag = 2, answer_tag = 3;
constexpr auto answer_patience = seconds(5), question_patience = seconds(10);
constexpr auto to_be_read = milliseconds(500);  // launchers may drop what a job prints just before it is aborted

Message message_of(int peer, int tag, CallBoard::State& state) { return {peer, tag, &state, sizeof(state)}; }

std::string describe(const CallBoard::State& state) {
  if (state.call.call[0] == '\0') return "no communication call yet";
  const auto call = to_string(state.call) +
                    (state.call.number > 0 ? fmt::format(", call {}", state.call.number) : std::string()) +
                    fmt::format(" on a communicator of {}", state.ranks);
  return state.waiting ? "in " + call : "not in a call; the last was " + call;
}

// Equal lines of many ranks become one.
std::string grouped(const std::vector<CallBoard::State>& states, const std::vector<bool>& answered) {
  struct Line {
    std::string what;
    std::vector<int> ranks;
    std::int64_t shortest, longest;
  };
  std::vector<Line> lines;
  for (std::size_t r = 0; r < states.size(); ++r) {
    const auto what = answered[r] ? describe(states[r]) : std::string("no answer");
    const auto time = answered[r] ? states[r].milliseconds : -1;
    const auto found = std::find_if(lines.begin(), lines.end(), [&](const Line& line) { return line.what == what; });
    if (found == lines.end()) {
      lines.push_back({what, {static_cast<int>(r)}, time, time});
      continue;
    }
    found->ranks.push_back(static_cast<int>(r));
    found->shortest = std::min(found->shortest, time), found->longest = std::max(found->longest, time);
  }
  std::string text;
  for (const auto& line : lines) {
    text += fmt::format("  {} {}: {}", line.ranks.size() > 1 ? "ranks" : "rank", detail::ranges(line.ranks), line.what);
    const double from = 1e-3 * static_cast<double>(line.shortest), to = 1e-3 * static_cast<double>(line.longest);
    if (line.shortest >= 0)
      text += to - from < 0.05 ? fmt::format(", for {:.1f} s", to) : fmt::format(", for {:.1f} to {:.1f} s", from, to);
    text += '\n';
  }
  return text;
}

void print(const std::string& text) {
  std::fflush(stdout);
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

Watchdog::Watchdog(Transport& world, std::shared_ptr<CallBoard> board, double limit)
    : messages_(world.duplicate()), farewell_(world.duplicate()), board_(std::move(board)), seconds_(limit) {
  require(world.any_thread(), "[watchdog] it needs MPI_THREAD_MULTIPLE, which this MPI library does not give");
  thread_ = std::thread([this] {
    try {
      watch();
    } catch (const std::exception& error) {
      print(fmt::format("[watchdog] rank {} is no longer watched: {}\n", messages_->rank(), error.what()));
    }
  });
}

Watchdog::~Watchdog() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::finish() {
  board_->begin({"end of the program", 0}, messages_->size());
  board_->end();
  std::int64_t all = 0;
  const auto pending = farewell_->start_allreduce(&all, &all, 1, DType::int64, Reduction::sum);
  while (!pending->test()) std::this_thread::sleep_for(milliseconds(5));
  pending->wait();
}

bool Watchdog::late() const {
  const auto state = board_->state();
  return state.waiting && static_cast<double>(state.milliseconds) > 1e3 * seconds_;
}

void Watchdog::watch() {
  const int rank = messages_->rank();
  const auto interval = duration<double>(std::clamp(seconds_ / 4, 0.005, 0.1));
  CallBoard::State incoming, mine, alarm;
  const auto expected = rank == 0 ? message_of(any_source, alarm_tag, incoming) : message_of(0, question_tag, incoming);
  auto receive = messages_->start_receive(expected, DType::uint8);
  std::unique_ptr<PendingOperation> told, answer;
  auto told_at = steady_clock::now();
  for (std::unique_lock lock(mutex_); !changed_.wait_for(lock, interval, [&] { return stop_; });) {
    if (rank == 0) {
      if (receive->test() || late()) report();
    } else if (!answer && receive->test()) {
      mine = board_->state();
      const auto message = message_of(0, answer_tag, mine);
      answer = messages_->start_exchange({&message, 1}, {}, DType::uint8);
    } else if (!told && late()) {
      alarm = board_->state(), told_at = steady_clock::now();
      const auto message = message_of(0, alarm_tag, alarm);
      told = messages_->start_exchange({&message, 1}, {}, DType::uint8);
    } else if (told && !answer && steady_clock::now() - told_at > question_patience) {
      print(fmt::format("[watchdog] a call has taken longer than {} s, and rank 0 does not answer\n  rank {}: {}\n", seconds_,
                        rank, describe(board_->state())));
      std::this_thread::sleep_for(to_be_read);
      messages_->abort(1);
    }
  }
  receive->cancel();
}

void Watchdog::report() {
  const auto size = static_cast<std::size_t>(messages_->size());
  std::vector<CallBoard::State> states(size);
  std::vector<bool> answered(size);
  states[0] = board_->state(), answered[0] = true;
  CallBoard::State question;
  std::vector<std::unique_ptr<PendingOperation>> questions;
  std::vector<std::unique_ptr<PendingReceive>> answers(size);
  for (std::size_t r = 1; r < size; ++r) {
    answers[r] = messages_->start_receive(message_of(static_cast<int>(r), answer_tag, states[r]), DType::uint8);
    const auto message = message_of(static_cast<int>(r), question_tag, question);
    questions.push_back(messages_->start_exchange({&message, 1}, {}, DType::uint8));
  }
  const auto start = steady_clock::now();
  for (bool all = false; !all && steady_clock::now() - start < answer_patience; std::this_thread::sleep_for(milliseconds(5))) {
    all = true;
    for (std::size_t r = 1; r < size; ++r) {
      if (!answered[r] && answers[r]->test()) answers[r]->wait(), answered[r] = true;
      all = all && answered[r];
    }
  }
  print(fmt::format("[watchdog] a call has taken longer than {} s; what the {} ranks are doing:\n{}", seconds_, size,
                    grouped(states, answered)));
  std::this_thread::sleep_for(to_be_read);
  messages_->abort(1);
}

}  // namespace mpigrad
