#include "tests/emulation/vendor/nccl_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>
#include <thread>

#include <fmt/format.h>

namespace mpigrad::emulation::vendor {
namespace {

constexpr int magic = 0x6d70676e;

}  // namespace

void die(const std::string& text) {
  const auto line = fmt::format("[emulated NCCL] {}\n", text);
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::signal(SIGABRT, SIG_DFL);  // not a user's handler, which several threads might enter
  std::abort();
}

void wait_until(const std::function<bool()>& done, const std::function<std::string()>& what) {
  using Clock = std::chrono::steady_clock;
  const char* limit = std::getenv("MPIGRAD_EMULATED_NCCL_SECONDS");
  const auto most = std::chrono::seconds(limit ? std::atoi(limit) : 60);
  const auto begin = Clock::now();
  for (int turn = 0; !done(); ++turn) {
    if (turn < 200) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(turn < 2000 ? 20 : 200));
    if (Clock::now() - begin > most) die("NCCL would hang: " + what());
  }
}

std::string to_string(const Header& h) {
  static constexpr std::string_view names[] = {"nothing",       "a message",     "ncclBroadcast",    "ncclReduce",
                                               "ncclAllReduce", "ncclAllGather", "ncclReduceScatter"};
  auto text = fmt::format("{} #{}: {} elements of type {}", names[h.kind], h.number, h.count, h.type);
  if (h.op >= 0) text += fmt::format(", operation {}", h.op);
  if (h.root >= 0) text += fmt::format(", root {}", h.root);
  return text;
}

struct Segment::Head {
  std::atomic<int> state{0};
  int ranks = 0;
  std::atomic<int> joined{0}, left{0};
};

std::string Segment::create() {
  static std::atomic<int> next{0};
  const auto name = fmt::format("/mpigrad-nccl-{}-{}", getpid(), next++);
  create(name);
  return name;
}
void Segment::create(const std::string& name) {
  const int file = shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
  if (file < 0) die("shm_open cannot make " + name);
  close(file);
}

Segment::Segment(const std::string& name, int ranks, int rank, const std::string& place)
    : name_(name), ranks_(ranks), rank_(rank) {
  const auto count = static_cast<std::size_t>(ranks);
  bytes_ = sizeof(Head) + 64 + count * sizeof(Member) + count * count * 2 * sizeof(Mailbox);
  int file = -1;
  // The new communicators of a split wait for their first rank.
  wait_until([&] { return (file = shm_open(name.c_str(), O_RDWR, 0600)) >= 0; },
             [&] { return who() + " got an id that no rank created, or one that was used before: " + name; });
  // Has the same size on all ranks, and is zero at first.
  if (ftruncate(file, static_cast<off_t>(bytes_)) != 0) die("no shared memory");
  void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (at == MAP_FAILED) die("no shared memory");
  memory_ = static_cast<std::byte*>(at);
  auto& head = *reinterpret_cast<Head*>(memory_);
  int expected = 0;
  if (head.state.compare_exchange_strong(expected, 1)) {
    head.ranks = ranks;
    for (int r = 0; r < ranks; ++r) {
      new (&member(r)) Member;
      for (int to = 0; to < ranks; ++to)
        for (const auto lane : {Lane::messages, Lane::collectives}) {
          auto& box = mailbox(r, to, lane);
          box.full = 0;
        }
    }
    head.state = magic;
  }
  wait_until([&] { return head.state == magic; }, [&] { return who() + " waits for the first rank"; });
  if (head.ranks != ranks) die(fmt::format("{}: another rank says that there are {}", who(), head.ranks));
  auto& own = member(rank);
  if (place.size() >= sizeof own.place) die("the name of this place is too long");
  std::memcpy(own.place, place.data(), place.size());
  if (own.joined.exchange(1) != 0) die(who() + " is there twice");
  ++head.joined;
  wait_until([&] { return head.joined == ranks; },
             [&] { return fmt::format("{}: only {} ranks have come to a communicator", who(), head.joined.load()); });
  if (rank == 0) shm_unlink(name.c_str());
}

Segment::~Segment() {
  auto& head = *reinterpret_cast<Head*>(memory_);
  ++head.left;
  if (!aborted_)
    wait_until([&] { return head.left == ranks_; },
               [&] { return who() + " waits in ncclCommDestroy for ranks that do not come"; });
  munmap(memory_, bytes_);
}

Member& Segment::member(int rank) {
  const std::size_t begin = (sizeof(Head) + 63) / 64 * 64;
  return *reinterpret_cast<Member*>(memory_ + begin + static_cast<std::size_t>(rank) * sizeof(Member));
}
Mailbox& Segment::mailbox(int from, int to, Lane lane) {
  const auto count = static_cast<std::size_t>(ranks_);
  auto* boxes = reinterpret_cast<Mailbox*>(&member(ranks_));
  return boxes[(static_cast<std::size_t>(from) * count + static_cast<std::size_t>(to)) * 2 + static_cast<std::size_t>(lane)];
}

std::string Segment::who() const { return fmt::format("rank {} of {} of {}", rank_, ranks_, name_); }

}  // namespace mpigrad::emulation::vendor
