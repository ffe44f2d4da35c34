#pragma once
// Memory shared by the ranks of an emulated NCCL communicator; each rank maps it, as a process or as a thread.

#include <nccl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace mpigrad::emulation::vendor {

// Prints the text and ends the process: for calls that NCCL forbids without a check, and calls that would hang.
[[noreturn]] void die(const std::string& text);

// Waits until done() is true; after MPIGRAD_EMULATED_NCCL_SECONDS (default 60) dies with the text of `what`.
void wait_until(const std::function<bool()>& done, const std::function<std::string()>& what);

// Properties on which two ends of a transfer must agree.
struct Header {
  enum Kind : std::uint32_t { none, message, broadcast, reduce, all_reduce, all_gather, reduce_scatter };
  Kind kind = none;
  std::int32_t type = 0, op = -1, root = -1;
  std::uint64_t count = 0, number = 0;  // number of the collective call of the communicator, or of the message between two ranks
  bool operator==(const Header&) const = default;
};
std::string to_string(const Header&);

// One direction between two ranks: empty, or with a piece of data.
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
  std::atomic<std::uint64_t> announced{0};  // started collective calls, which are:
  Header log[calls];
  // The number of splits of this communicator that the rank has requested, and the number of answers that it has read.
  std::atomic<std::uint64_t> asked{0}, read{0};
  int color = 0, key = 0;
};

class Segment {
 public:
  enum class Lane : std::uint8_t { messages, collectives };

  // Creates empty memory with a unique name, which the first rank of the communicator fills; returns the name.
  static std::string create();
  static void create(const std::string& name);
  // Waits for all ranks. `place` is this rank's host and GPU.
  Segment(const std::string& name, int ranks, int rank, const std::string& place);
  // Waits for all ranks, unless aborted.
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
