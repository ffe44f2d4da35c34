#pragma once
// The state shared by the rank threads of one communicator. In a collective call each rank publishes its pointers, enters (all
// have published), reads the others' memory, and leaves (all have read).

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/transport/transport.h"

namespace mpigrad::threads {

class Group;

// One run_threads() call: which of its ranks failed or ended. Shared by all groups made inside it.
class World {
 public:
  explicit World(int size);

  // Records the first failure only; wakes every rank that waits.
  void fail(int rank, std::string message);
  void end(int rank);
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  bool ended(int rank) const { return ended_[static_cast<std::size_t>(rank)].load(std::memory_order_acquire); }
  // "rank 2 of 4 failed: ...", once failed() is true.
  std::string failure() const;
  void add(const std::shared_ptr<Group>& group);
  template <class Done>
  bool seen(Done done) const;

 private:
  void wake_all();

  std::mutex mutex_;
  std::vector<std::weak_ptr<Group>> groups_;
  std::vector<std::atomic<bool>> ended_;
  std::atomic<bool> failed_ = false;
  int failed_rank_ = -1;
  std::string message_;
  bool spins_ = false;  // every rank has a core
};

// A rank's call lives on its stack until leave(). do_share() does one rank's share of the work in all ranks' memory; all shares
// together are the collective. The calls must agree.
void do_share(std::span<const Call* const> calls, int rank) noexcept;

using Bytes = std::unique_ptr<std::byte[]>;
Bytes copy_of(const void* data, std::int64_t bytes);

class Group {
 public:
  // members: world ranks, in order of the group's ranks.
  Group(std::shared_ptr<World> world, std::vector<int> members);

  int size() const { return static_cast<int>(members_.size()); }
  World& world() const { return *world_; }

  // Waits until all ranks are here; returns their calls. Throws if one of them has failed or ended.
  std::span<const Call* const> enter(int rank, const Call& call);
  // Waits until all ranks have read. Never throws: a rank that has entered must read and leave, because a rank that left early
  // would release memory that others still read.
  void leave() noexcept;

  // A message in the receiver's mailbox.
  struct Envelope {
    int source = 0, tag = 0;
    Bytes data;
    std::int64_t count = 0;
    DType type = DType::uint8;
  };
  void deliver(int destination, Envelope envelope);
  // As in MPI, a message goes to the first posted receive that matches it, and a receive takes the first matching message that
  // has arrived.
  struct Posted {
    int source = 0, tag = 0;  // or any_source, any_tag
    std::uint64_t place = 0;  // position in the order of posting
    Envelope envelope = {};
    std::atomic<bool> filled = false;
  };
  std::shared_ptr<Posted> post_receive(int source, int destination, int tag);
  // Waits until the receive is filled.
  Envelope take(int destination, const std::shared_ptr<Posted>& posted);
  bool filled(const Posted& posted) const { return posted.filled.load(std::memory_order_acquire) || world_->failed(); }
  void cancel(int destination, const std::shared_ptr<Posted>& posted) noexcept;

  // One non-blocking collective. Once all ranks have started it, any rank may read and write the buffers of all, until all ranks'
  // shares of the work are done.
  struct Started {
    std::string_view name;
    std::vector<Call> calls;
    std::vector<std::vector<std::int64_t>> counts;  // the spans of the calls refer to these
    std::vector<bool> present;
    std::atomic<int> arrived = 0;
    int next_share = 0, active = 0;
    std::vector<Bytes> kept;
  };
  std::shared_ptr<Started> start(int rank, std::uint64_t ordinal, const Call& call);
  // Waits until all ranks have started the call and all shares are done; each waiting rank does the next share itself. Throws if
  // the ranks disagree, or one of them has failed or ended.
  void complete(Started& started);
  bool all_started(const Started& started) const {
    return started.arrived.load(std::memory_order_acquire) == size() || world_->failed();
  }
  // The rank's buffers are about to be released: helps to complete a call that all have started, else leaves a copy to the
  // others.
  void abandon(Started& started, int rank) noexcept;

  // The group made by the ordinal-th such call of these ranks (of this group).
  std::shared_ptr<Group> child(std::span<const int> ranks, std::uint64_t ordinal);

  void wake();

 private:
  struct Mailbox {
    std::mutex mutex;
    std::condition_variable changed;
    // Both are ordered by source and tag, so that a match among thousands is found as fast as among a few. Each entry has its
    // place in the order of posting or arrival, for any_source and any_tag. Keys of receives: source, tag and place.
    std::map<std::tuple<int, int, std::uint64_t>, std::shared_ptr<Posted>> posted;
    std::map<std::pair<int, int>, std::deque<std::pair<std::uint64_t, Envelope>>> arrived;
    std::uint64_t posts = 0, arrivals = 0;
  };
  struct Child {
    std::shared_ptr<Group> group;
    std::size_t taken = 0;
  };

  // Throws if the world has failed, or if a rank of this group that is not `present` has ended.
  void check_alive(std::string_view call, const std::vector<bool>& present) const;
  // Throws if no rank is left that could send the message.
  void check_sender(const Posted& posted, int destination) const;
  bool spin(std::uint64_t generation) const;

  std::shared_ptr<World> world_;
  std::vector<int> members_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<const Call*> calls_;
  std::vector<bool> present_;
  int arrived_ = 0;
  std::atomic<std::uint64_t> generation_ = 0;

  std::vector<Mailbox> mailboxes_;
  std::map<std::uint64_t, std::shared_ptr<Started>> started_;
  std::map<std::pair<std::vector<int>, std::uint64_t>, Child> children_;
};

// Copies a received message into the memory of its receive; an Error if it does not match what the receive expects.
Status read_envelope(const Group::Envelope& envelope, const Message& message, DType type, int rank);

// Several receives as one.
class Receives final : public PendingWork {
 public:
  explicit Receives(std::vector<Pending> all) : all_(std::move(all)) {}
  void wait() override;
  bool test() override;
  void drop() noexcept override;

 private:
  std::vector<Pending> all_;
};

}  // namespace mpigrad::threads
