#include "comm/transport/watch/watchdog.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "framework/base/error.h"

namespace mpigrad {
namespace {

using detail::CallBoard;
using namespace std::chrono;

constexpr int alarm_tag = 1, question_tag = 2, answer_tag = 3, verdict_tag = 4, heard_tag = 5;
constexpr auto verdict_patience = seconds(15);  // limit for rank 0's verdict after its question
// Of a rank that was asked to end: seconds in one call, time for answers, and time for rank 0's question.
constexpr double leaving_limit = 5;
constexpr Watchdog::Clock::duration leaving_answers = seconds(5), leaving_question = seconds(6);
constexpr auto rank_0_aborts = seconds(3);           // after its verdict
constexpr auto others_give_up = milliseconds(1500);  // ranks whose rank 0 is silent notice it one after the other
constexpr auto to_be_read = milliseconds(500);       // launchers may drop output that a job prints just before it is aborted

Message message_of(int peer, int tag, CallBoard::State& state) { return {peer, tag, &state, sizeof(state)}; }

std::string describe(const CallBoard::State& state) {
  if (state.call.call[0] == '\0') return "no communication call yet";
  const auto call = to_string(state.call) +
                    (state.call.number > 0 ? fmt::format(", call {}", state.call.number) : std::string()) +
                    fmt::format(" on a communicator of {}", state.ranks);
  if (state.ended) return "at the end of the program; the last call was " + call;
  if (state.gpu) return "waiting for its GPU; the last call was " + call;
  return state.waiting ? "in " + call : "not in a call; the last was " + call;
}

struct Line {
  std::string what;
  std::vector<int> ranks;
  std::int64_t shortest, longest;
  bool waits;

  std::string text() const {
    auto line = fmt::format("{} {}: {}", ranks.size() > 1 ? "ranks" : "rank", detail::ranges(ranks), what);
    const double from = 1e-3 * static_cast<double>(shortest), to = 1e-3 * static_cast<double>(longest);
    if (shortest >= 0)
      line += to - from < 0.05 ? fmt::format(", for {:.1f} s", to) : fmt::format(", for {:.1f} to {:.1f} s", from, to);
    return line;
  }
};

// Merges equal lines of many ranks.
std::vector<Line> grouped(const std::vector<CallBoard::State>& states, const std::vector<bool>& answered) {
  std::vector<Line> lines;
  for (std::size_t r = 0; r < states.size(); ++r) {
    const auto what = answered[r] ? describe(states[r]) : std::string("no answer");
    const auto time = answered[r] ? states[r].milliseconds : -1;
    const auto found = std::find_if(lines.begin(), lines.end(), [&](const Line& line) { return line.what == what; });
    if (found == lines.end()) {
      lines.push_back({what, {static_cast<int>(r)}, time, time, answered[r] && states[r].waiting != 0});
      continue;
    }
    found->ranks.push_back(static_cast<int>(r));
    found->shortest = std::min(found->shortest, time), found->longest = std::max(found->longest, time);
  }
  return lines;
}

// The ranks that keep the others waiting: those that are in no call or do not answer; if all wait, the smallest groups.
std::string missing(const std::vector<Line>& lines) {
  std::string text;
  const auto add = [&](const Line& line) { text += (text.empty() ? "" : "; ") + line.text(); };
  for (const auto& line : lines)
    if (!line.waits) add(line);
  if (!text.empty()) return "missing: " + text;
  if (lines.size() == 1) return "all wait";
  for (const auto& line : lines) add(line);
  return "all wait: " + text;
}

void print(const std::string& text) {
  std::fflush(stdout);
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

Watchdog::Watchdog(Transport& world, std::shared_ptr<CallBoard> board, double limit, Patience patience)
    : messages_(world.duplicate()), farewell_(world.duplicate()), board_(std::move(board)), seconds_(limit), patience_(patience) {
  require(world.any_thread(), "[watchdog] it needs MPI_THREAD_MULTIPLE, which this MPI library does not provide");
  const auto half = duration_cast<Clock::duration>(duration<double>(limit / 2));
  answer_patience_ = patience == Patience::none ? seconds(3) : half;
  question_patience_ = patience == Patience::none ? seconds(4) : half;
  if (patience == Patience::ends) answer_patience_ = question_patience_ = hours(1000000);  // a debugger may stop a rank
  thread_ = std::thread([this] {
    try {
      watch();
    } catch (const std::exception& error) {
      print(fmt::format("[watchdog] rank {} is no longer watched: {}\n", messages_->rank(), error.what()));
      try {
        receive_.cancel(), judged_.cancel();  // the message may never be sent
      } catch (const std::exception&) {       // then the destructor does not wait either
      }
    }
  });
}

Watchdog::~Watchdog() {
  stop_ = true;  // read also by a report that is under way and holds the mutex
  { std::lock_guard lock(mutex_); }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::finish(int code) {
  constexpr auto patience = seconds(1);  // finalize_at_exit() waits, too
  board_->end_program();
  struct Farewell {
    std::int64_t all = 0;
    Pending pending{};
  };
  auto farewell = std::make_unique<Farewell>();
  auto* all = &farewell->all;
  farewell->pending = farewell_->start_allreduce(all, all, 1, DType::int64, CombineOp::sum);
  const auto start = Clock::now();
  while (!farewell->pending.test()) {
    std::this_thread::sleep_for(milliseconds(5));
    if (code == 0 || Clock::now() - start < patience) continue;
    farewell.release();  // NOLINT: it must not be waited for, and its buffer is in use
    return;
  }
  farewell->pending.wait();
}

bool Watchdog::late(const CallBoard::State& state) const {
  if (static_cast<double>(state.milliseconds) <= 1e3 * seconds_) return false;
  switch (patience_) {
    case Patience::none: return state.waiting != 0;
    case Patience::training: return state.ended || (state.waiting && state.counts);
    case Patience::ends: return state.ended || (state.waiting && !state.gpu);
  }
  return false;
}

// True if this rank must raise the alarm.
bool Watchdog::late() const {
  const auto state = board_->state();
  return late(state) && (patience_ != Patience::ends || state.ended);
}

bool Watchdog::leaves() const {
  const auto state = board_->state();
  return state.leaves && static_cast<double>(state.milliseconds) > 1e3 * leaving_limit;
}

bool Watchdog::again(double seconds) const { return !asked_ || Clock::now() - asked_at_ > duration<double>(seconds); }

void Watchdog::expect() {
  const auto message =
      messages_->rank() == 0 ? message_of(any_source, alarm_tag, incoming_) : message_of(0, question_tag, incoming_);
  receive_ = messages_->start_receive(message, DType::uint8);
}

void Watchdog::watch() {
  const auto interval = duration<double>(patience_ == Patience::ends ? 0.5 : std::clamp(seconds_ / 4, 0.005, 0.1));
  expect();
  if (messages_->rank() != 0)
    judged_ =
        messages_->start_receive({0, verdict_tag, verdict_.data(), static_cast<std::int64_t>(verdict_.size())}, DType::uint8);
  for (std::unique_lock lock(mutex_); !changed_.wait_for(lock, interval, [&] { return stop_.load(); });) {
    if (messages_->rank() == 0) serve();
    else answer_or_tell();
  }
  receive_.cancel();
  judged_.cancel();
}

void Watchdog::serve() {
  const bool told = receive_.test(), mine = late() && again(seconds_), leaving = leaves() && again(leaving_limit);
  if (!told && !mine && !leaving) return;
  bool only_leaves = !mine;
  if (told) receive_.wait(), only_leaves = only_leaves && incoming_.leaves != 0, expect();
  report(only_leaves);
  asked_ = true, asked_at_ = Clock::now();
  // Discards further alarms, because all ranks have been asked.
  while (receive_.test()) receive_.wait(), expect();
}

void Watchdog::answer_or_tell() {
  if (heard_) {  // the verdict has been printed, and rank 0 aborts the job; Slurm does not pass that on in a step that it ends
    if (Clock::now() - judged_at_ > rank_0_aborts) messages_->abort(1);
  } else if (judged_.test()) {
    judged_.wait(), judged_at_ = Clock::now();
    print_own_line(verdict_.data());
    const Message heard{0, heard_tag, verdict_.data(), 1};
    heard_ = messages_->start_exchange({&heard, 1}, {}, DType::uint8);
  } else if (receive_.test()) {
    receive_.wait();
    doomed_ = patience_ == Patience::none && incoming_.leaves == 0;  // otherwise the job may continue
    expect();
    asked_ = true, asked_at_ = Clock::now();
    told_ = {}, answer_ = {};  // rank 0 has received both messages, or has stored them
    mine_ = board_->state();
    const auto message = message_of(0, answer_tag, mine_);
    answer_ = messages_->start_exchange({&message, 1}, {}, DType::uint8);
  } else if (doomed_ && Clock::now() - asked_at_ > verdict_patience) {
    give_up();
  } else if (const bool hangs = late() && again(seconds_); !told_ && !doomed_ && (hangs || (leaves() && again(leaving_limit)))) {
    alarm_ = board_->state(), told_at_ = Clock::now();
    alarm_.leaves = !hangs;
    const auto message = message_of(0, alarm_tag, alarm_);
    told_ = messages_->start_exchange({&message, 1}, {}, DType::uint8);
  } else if (told_ &&
             Clock::now() - told_at_ > (leaves() ? std::min(question_patience_, leaving_question) : question_patience_)) {
    give_up();
  }
}

std::string Watchdog::reason(bool leaves) const {
  return fmt::format("{}a call has taken longer than {} s", leaves ? "SIGTERM has asked this job to end, but " : "",
                     leaves ? leaving_limit : seconds_);
}

void Watchdog::give_up() {
  print(fmt::format("[watchdog] {}, and rank 0 does not answer\n", reason(leaves())));
  print_own_line("missing: rank 0: no answer");
  std::this_thread::sleep_for(others_give_up);
  messages_->abort(1);
}

// Returns if a job in training, or one that was asked to end (`leaving`), continues or ends.
void Watchdog::report(bool leaving) {
  const auto size = static_cast<std::size_t>(messages_->size());
  std::vector<CallBoard::State> states(size);
  std::vector<bool> answered(size);
  states[0] = board_->state(), answered[0] = true;
  CallBoard::State question;
  question.leaves = leaving;
  std::vector<Pending> questions, answers(size);
  for (std::size_t r = 1; r < size; ++r) {
    answers[r] = messages_->start_receive(message_of(static_cast<int>(r), answer_tag, states[r]), DType::uint8);
    const auto message = message_of(static_cast<int>(r), question_tag, question);
    questions.push_back(messages_->start_exchange({&message, 1}, {}, DType::uint8));
  }
  // A thread or a machine that stands still must not cut the others' time to answer.
  constexpr Clock::duration longest_turn = milliseconds(250);
  const auto limit = [&] { return leaving || leaves() ? std::min(answer_patience_, leaving_answers) : answer_patience_; };
  Clock::duration waited{};
  for (bool all = false; !all && waited < limit();) {
    const auto begin = Clock::now();
    all = true;
    for (std::size_t r = 1; r < size; ++r) {
      if (!answered[r] && answers[r].test()) answers[r].wait(), answered[r] = true;
      all = all && answered[r];
    }
    if (stop_ && !all) {  // all ranks have met at the end of the program: there is no hang
      for (std::size_t r = 1; r < size; ++r)
        if (!answered[r]) answers[r].cancel();
      return;
    }
    std::this_thread::sleep_for(milliseconds(5));
    waited += std::min<Clock::duration>(Clock::now() - begin, longest_turn);
  }
  if (leaving || patience_ != Patience::none) {
    bool somebody_goes_on = std::find(answered.begin(), answered.end(), false) == answered.end();
    if (somebody_goes_on && !leaving)
      somebody_goes_on = std::any_of(states.begin(), states.end(), [&](const auto& state) { return !late(state); });
    if (somebody_goes_on) return;
  }
  std::string table;
  for (const auto& line : grouped(states, answered)) table += "  " + line.text() + "\n";
  const auto ended = std::any_of(states.begin(), states.end(), [](const auto& state) { return state.ended != 0; });
  print(fmt::format("[watchdog] {}{}; what the {} ranks are doing:\n{}", reason(leaving),
                    ended ? ", and a rank that has ended will not take part" : "", size, table));
  tell_verdict(states, answered);
  std::this_thread::sleep_for(to_be_read);
  messages_->abort(1);
}

// Sends rank 0's verdict to all ranks that have answered, because their output files may be different ones; returns when they
// have printed it.
void Watchdog::tell_verdict(const std::vector<CallBoard::State>& states, const std::vector<bool>& answered) {
  constexpr auto patience = milliseconds(1500);
  const auto text = missing(grouped(states, answered));
  text.copy(verdict_.data(), verdict_.size() - 1);
  told_all_.resize(states.size());
  std::vector<Pending> verdicts, ends;
  for (std::size_t r = 1; r < states.size(); ++r) {
    if (!answered[r]) continue;
    const int rank = static_cast<int>(r);
    ends.push_back(messages_->start_receive({rank, heard_tag, &told_all_[r], 1}, DType::uint8));
    const Message verdict{rank, verdict_tag, verdict_.data(), static_cast<std::int64_t>(verdict_.size())};
    verdicts.push_back(messages_->start_exchange({&verdict, 1}, {}, DType::uint8));
  }
  const auto start = Clock::now();
  print_own_line(text);
  while (Clock::now() - start < patience && !std::all_of(ends.begin(), ends.end(), [](Pending& end) { return end.test(); }))
    std::this_thread::sleep_for(milliseconds(5));
  for (auto* pending : {&verdicts, &ends})
    for (auto& each : *pending)
      if (!each.test()) each.cancel();
}

void Watchdog::print_own_line(const std::string& missing) {
  const auto state = board_->state();
  const auto where = where_.find();
  const double waited = 1e-3 * static_cast<double>(state.milliseconds), after = waited - seconds_;
  print(fmt::format("[watchdog] rank {} of {}: {}, for {:.1f} s{}{}{}; {}\n", messages_->rank(), messages_->size(),
                    describe(state), waited, state.waiting && after > 0 ? fmt::format(", {:.1f} s after the limit", after) : "",
                    where.empty() ? "" : "; ", where, missing));
}

}  // namespace mpigrad
