#pragma once
// What the ranks of an emulated NCCL communicator share: memory that each of them maps, be they processes or threads.

#include <nccl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace mpigrad::emulation::vendor {

// Prints, and ends the process: what NCCL forbids without noticing, and what it would hang at.
[[noreturn]] void die(const std::string& text);

// Until done() or too long; then dies with what `what` says. MPIGRAD_EMULATED_NCCL_SECONDS, 60 if not given.
void wait_until(const std::function<bool()>& done, const std::function<std::string()>& what);

// What two ends of a transfer must agree on.
struct Header {
  enum Kind : std::uint32_t { none, message, broadcast, reduce, all_reduce, all_gather, reduce_scatter };
  Kind kind = none;
  std::int32_t type = 0, op = -1, root = -1;
  std::uint64_t count = 0, number = 0;  // of the collective calls of the communicator, or of the messages between two ranks
  bool operator==(const Header&) const = default;
};
std::string to_string(const Header&);

// One way between two ranks: empty, or with a piece.
struct Mailbox {
  static constexpr std::size_t room = 64 << 10;
  std::atomic<std::uint32_t> full{0};
  std::uint32_t bytes = 0;
  Header header;
  std::byte data[room];
};

struct Member {
  static constexpr std::size_t calls = 64;
  std::atomic<int> joined{0}, left{0};
  char place[288] = {};                     // host and GPU
  std::atomic<std::uint64_t> announced{0};  // collective calls begun; what they were:
  Header log[calls];
  // Splits of this communicator that the rank has asked for, and those whose answers it has read.
  std::atomic<std::uint64_t> asked{0}, read{0};
  int color = 0, key = 0;
};

class Segment {
 public:
  enum class Lane : std::uint8_t { messages, collectives };

  // A name that no other process has, and the empty memory of that name, which the first rank of the communicator fills.
  static std::string create();
  static void create(const std::string& name);
  // All ranks come together. `place` is the host and GPU of this one.
  Segment(const std::string& name, int ranks, int rank, const std::string& place);
  // Waits until all have come so far, unless aborted.
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  void abort() { aborted_ = true; }
  const std::string& name() const { return name_; }
  int ranks() const { return ranks_; }
  int rank() const { return rank_; }
  Member& member(int rank);
  Mailbox& mailbox(int from, int to, Lane lane);
  std::string who() const;

 private:
  struct Head;
  std::string name_;
  int ranks_, rank_;
  bool aborted_ = false;
  std::size_t bytes_ = 0;
  std::byte* memory_ = nullptr;
};

}  // namespace mpigrad::emulation::vendor
