#include "comm/transport/watch/call_board.h"

#include <fmt/format.h>

namespace mpigrad::detail {

std::string to_string(const Signature& s) {
  auto text = std::string(s.call.data());
  if (s.type >= 0) text += fmt::format(" of {} {}", s.count, name_of(static_cast<DType>(s.type)));
  if (s.reduction >= 0) text += fmt::format(", {}", name_of(static_cast<CombineOp>(s.reduction)));
  const char* peer = s.number > 0 ? "root" : "from rank";  // messages have no number
  if (s.root >= 0) text += fmt::format(", {} {}", peer, s.root);
  if (s.root == any_source) text += ", from any rank";
  if (s.counts != 0) text += fmt::format(", counts #{:04x}", s.counts & 0xffff);
  return text;
}

std::string ranges(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    auto last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", ranks[i]);
    if (last > i) text += fmt::format("-{}", ranks[last]);
    i = last + 1;
  }
  return text;
}

void CallBoard::begin(const Signature& call, int ranks) {
  std::lock_guard lock(mutex_);
  if (++depth_ > 1) return;
  state_ = {.call = call, .milliseconds = 0, .waiting = 1, .ranks = ranks};
  since_ = std::chrono::steady_clock::now();
}
void CallBoard::end() {
  std::lock_guard lock(mutex_);
  if (--depth_ > 0) return;
  state_.waiting = 0;
  since_ = std::chrono::steady_clock::now();
}
void CallBoard::end_program() {
  std::lock_guard lock(mutex_);
  state_.waiting = 0, state_.ended = 1;
  since_ = std::chrono::steady_clock::now();
}
CallBoard::State CallBoard::state() const {
  std::lock_guard lock(mutex_);
  State result = state_;
  result.milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - since_).count();
  const std::int64_t gpu_since = activity_->gpu_since;
  if (!result.waiting && gpu_since != 0) {
    const auto now = std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
    result.waiting = result.gpu = 1, result.milliseconds = (now - gpu_since) / 1000000;
  }
  result.counts = activity_->trains && activity_->slow_phases == 0 ? 1 : 0;
  result.leaves = end_asked && result.waiting && activity_->checkpoints == 0 ? 1 : 0;
  return result;
}

std::shared_ptr<CallBoard>& board_of_this_thread() {
  static thread_local std::shared_ptr<CallBoard> board;
  return board;
}

}  // namespace mpigrad::detail
