#pragma once
// Parts of the transport that watches another one. Used inside comm only.

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/transport/watch/call_board.h"
#include "comm/transport/watch/checks.h"

namespace mpigrad::detail {

// The ranks that hold equal values, the largest group first, ties in the order of ranks: the same on every rank.
template <class T>
std::vector<std::pair<T, std::vector<int>>> groups_of(const std::vector<T>& all) {
  std::vector<std::pair<T, std::vector<int>>> groups;
  for (std::size_t r = 0; r < all.size(); ++r) {
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == all[r]; });
    if (found == groups.end()) groups.push_back({all[r], {static_cast<int>(r)}});
    else found->second.push_back(static_cast<int>(r));
  }
  std::stable_sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  return groups;
}

inline std::string plural(const std::vector<int>& ranks) { return ranks.size() > 1 ? "ranks " : "rank "; }

inline void print_line(const std::string& line) {
  std::fwrite(line.data(), 1, line.size(), stderr);
}  // one write: lines do not mix

// Reports a call to the board while it runs, and prints its duration.
class Watch {
 public:
  Watch(const CheckOptions& options, CallBoard* board, const Signature& call, const Transport& transport)
      : options_(options), board_(board), call_(call), rank_(transport.rank()), size_(transport.size()) {}

  template <class Describe, class Call>
  void operator()(const Describe& describe, const Call& call) const {
    const auto start = std::chrono::steady_clock::now();
    {
      const Inside inside(board_, call_, size_);
      call();
    }
    if (!options_.trace) return;
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
    print_line(fmt::format("[rank {} of {}] {}, {:.3f} ms\n", rank_, size_, describe(), elapsed.count()));
  }

 private:
  struct Inside {
    Inside(CallBoard* b, const Signature& call, int size) : board(b) {
      if (board) board->begin(call, size);
    }
    ~Inside() {
      if (board) board->end();
    }
    CallBoard* board;
  };

  CheckOptions options_;
  CallBoard* board_;
  Signature call_;
  int rank_, size_;
};

class WatchedPending final : public PendingWork {
 public:
  // `agreed` and `paired` are comparisons of the calls that the ranks have started; they may be empty.
  WatchedPending(Pending operation, Pending agreed, Pending paired, const Watch& watch, std::string what,
                 std::shared_ptr<CallBoard> board)
      : operation_(std::move(operation)), agreed_(std::move(agreed)), paired_(std::move(paired)), watch_(watch),
        what_(std::move(what)), board_(std::move(board)) {}
  void wait() override {
    watch_([&] { return "wait for " + what_; },
           [&] {
             try {
               agreed_.wait();
               paired_.wait();
             } catch (...) {
               operation_.cancel();  // the others will never answer
               throw;
             }
             operation_.wait();
           });
  }
  bool test() override { return agreed_.test() && paired_.test() && operation_.test(); }
  void drop() noexcept override {
    operation_.cancel();
    agreed_.cancel();
    paired_.cancel();
  }
  Status status() const override { return operation_.status(); }

 private:
  Pending operation_, agreed_, paired_;
  Watch watch_;
  std::string what_;
  std::shared_ptr<CallBoard> board_;  // kept alive
};

// An allgather under way whose result is checked at the wait.
template <class T>
class Comparison final : public PendingWork {
 public:
  // Gathers `mine` of every rank, of equal lengths.
  Comparison(Transport& control, std::vector<T> mine, std::function<void(const std::vector<T>& all)> judge)
      : mine_(std::move(mine)), all_(mine_.size() * static_cast<std::size_t>(control.size())), judge_(std::move(judge)) {
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(control.size()),
                                           static_cast<std::int64_t>(mine_.size() * sizeof(T)));
    operation_ = control.start(
        {.kind = CollectiveKind::allgather, .in = mine_.data(), .out = all_.data(), .type = DType::uint8, .counts = counts});
  }
  void wait() override {
    operation_.wait();
    judge_(all_);
  }
  bool test() override { return operation_.test(); }
  void drop() noexcept override { operation_.cancel(); }

 private:
  std::vector<T> mine_, all_;
  std::function<void(const std::vector<T>&)> judge_;
  Pending operation_;  // destroyed before the buffers
};

}  // namespace mpigrad::detail
