#include "comm/transport/threads/group.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "framework/base/error.h"

namespace mpigrad::threads {

// ---- World

World::World(int size) : ended_(static_cast<std::size_t>(size)) {
  static const unsigned cores = std::thread::hardware_concurrency();  // a file is read for it
  spins_ = static_cast<unsigned>(size) <= cores;
}

void World::fail(int rank, std::string message) {
  {
    std::lock_guard lock(mutex_);
    if (failed()) return;
    failed_rank_ = rank;
    message_ = std::move(message);
    failed_.store(true, std::memory_order_release);
  }
  wake_all();
}

void World::end(int rank) {
  ended_[static_cast<std::size_t>(rank)].store(true, std::memory_order_release);
  wake_all();
}

std::string World::failure() const { return fmt::format("rank {} of {} failed: {}", failed_rank_, ended_.size(), message_); }

void World::add(const std::shared_ptr<Group>& group) {
  std::lock_guard lock(mutex_);
  std::erase_if(groups_, [](const auto& old) { return old.expired(); });
  groups_.push_back(group);
}

void World::wake_all() {
  std::vector<std::shared_ptr<Group>> live;
  {
    std::lock_guard lock(mutex_);
    for (const auto& group : groups_)
      if (auto held = group.lock()) live.push_back(std::move(held));
  }
  for (const auto& group : live) group->wake();
}

// ---- calls

Bytes copy_of(const void* data, std::int64_t bytes) {
  auto copy = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(bytes));
  if (bytes > 0) std::memcpy(copy.get(), data, static_cast<std::size_t>(bytes));
  return copy;
}

// ---- Group: entering and leaving

Group::Group(std::shared_ptr<World> world, std::vector<int> members)
    : world_(std::move(world)), members_(std::move(members)), calls_(members_.size()), present_(members_.size()),
      mailboxes_(members_.size()) {}

void Group::check_alive(std::string_view call, const std::vector<bool>& present) const {
  if (world_->failed()) fail("[{}] {}", call, world_->failure());
  for (std::size_t r = 0; r < members_.size(); ++r)
    if (!present[r] && world_->ended(members_[r])) fail("[{}] rank {} has ended without taking part", call, members_[r]);
}

// Polls, and returns true if `done` becomes true meanwhile. Where there are more ranks than cores, polling yields the core to the
// ranks that are waited for, which is faster than sleeping and being woken.
template <class Done>
bool World::seen(Done done) const {
  for (int i = 0; i < (spins_ ? 4000 : 64); ++i) {
    if (done()) return true;
    if (!spins_) sched_yield();
#if defined(__x86_64__)
    else __builtin_ia32_pause();
#elif defined(__aarch64__)
    else __asm__ volatile("isb");  // waits longer than `yield`, which most Arm processors ignore
#endif
  }
  return false;
}

bool Group::spin(std::uint64_t generation) const {
  return world_->seen([&] { return generation_.load(std::memory_order_acquire) != generation; });
}

std::span<const Call* const> Group::enter(int rank, const Call& call) {
  const auto r = static_cast<std::size_t>(rank);
  std::unique_lock lock(mutex_);
  check_alive(call.name, present_);
  calls_[r] = &call;
  const auto generation = generation_.load(std::memory_order_relaxed);
  if (++arrived_ == size()) {
    arrived_ = 0;
    present_.assign(present_.size(), false);
    generation_.store(generation + 1, std::memory_order_release);
    lock.unlock();
    changed_.notify_all();
    return calls_;
  }
  present_[r] = true;
  lock.unlock();
  if (spin(generation)) return calls_;
  lock.lock();
  while (generation_.load(std::memory_order_relaxed) == generation) {
    try {
      check_alive(call.name, present_);
    } catch (...) {
      // Withdraws the entry, so that the others can never complete a call whose memory has been released.
      --arrived_;
      present_[r] = false;
      throw;
    }
    changed_.wait(lock);
  }
  return calls_;
}

void Group::leave() noexcept {
  std::unique_lock lock(mutex_);
  const auto generation = generation_.load(std::memory_order_relaxed);
  if (++arrived_ == size()) {
    arrived_ = 0;
    generation_.store(generation + 1, std::memory_order_release);
    lock.unlock();
    changed_.notify_all();
    return;
  }
  lock.unlock();
  if (spin(generation)) return;
  lock.lock();
  while (generation_.load(std::memory_order_relaxed) == generation) changed_.wait(lock);
}

void Group::wake() {
  // Taking the lock orders this after the check of any rank that is about to wait.
  { std::lock_guard lock(mutex_); }
  changed_.notify_all();
  for (auto& mailbox : mailboxes_) {
    { std::lock_guard lock(mailbox.mutex); }
    mailbox.changed.notify_all();
  }
}

// ---- Group: messages

namespace {

bool takes(const Group::Posted& posted, const Group::Envelope& envelope) {
  return (posted.source == any_source || posted.source == envelope.source) &&
         (posted.tag == any_tag || posted.tag == envelope.tag);
}

}  // namespace

void Group::deliver(int destination, Envelope envelope) {
  if (world_->failed()) fail("[exchange] {}", world_->failure());
  auto& mailbox = mailboxes_[static_cast<std::size_t>(destination)];
  {
    std::lock_guard lock(mailbox.mutex);
    // The first posted receive among those that match.
    auto first = mailbox.posted.end();
    for (const int source : {envelope.source, any_source}) {
      for (const int tag : {envelope.tag, any_tag}) {
        const auto next = mailbox.posted.lower_bound({source, tag, 0});
        if (next == mailbox.posted.end() || next->second->source != source || next->second->tag != tag) continue;
        if (first == mailbox.posted.end() || next->second->place < first->second->place) first = next;
      }
    }
    if (first == mailbox.posted.end()) {
      auto& queue = mailbox.arrived[{envelope.source, envelope.tag}];
      queue.emplace_back(mailbox.arrivals++, std::move(envelope));
      return;
    }
    first->second->envelope = std::move(envelope);
    first->second->filled = true;
    mailbox.posted.erase(first);
  }
  mailbox.changed.notify_all();
}

std::shared_ptr<Group::Posted> Group::post_receive(int source, int destination, int tag) {
  auto& mailbox = mailboxes_[static_cast<std::size_t>(destination)];
  auto posted = std::make_shared<Posted>();
  posted->source = source, posted->tag = tag;
  std::lock_guard lock(mailbox.mutex);
  auto first = mailbox.arrived.find({source, tag});
  if (source == any_source || tag == any_tag) {
    for (auto queue = mailbox.arrived.begin(); queue != mailbox.arrived.end(); ++queue)
      if (takes(*posted, queue->second.front().second) &&
          (first == mailbox.arrived.end() || queue->second.front().first < first->second.front().first))
        first = queue;
  }
  if (first == mailbox.arrived.end()) {
    posted->place = mailbox.posts++;
    mailbox.posted.emplace(std::tuple(source, tag, posted->place), posted);
    return posted;
  }
  posted->envelope = std::move(first->second.front().second);
  posted->filled = true;
  first->second.pop_front();
  if (first->second.empty()) mailbox.arrived.erase(first);
  return posted;
}

void Group::check_sender(const Posted& posted, int destination) const {
  if (world_->failed()) fail("[exchange] {}", world_->failure());
  const int receiver = members_[static_cast<std::size_t>(destination)];
  const auto tag = posted.tag == any_tag ? std::string("any tag") : fmt::format("tag {}", posted.tag);
  if (posted.source != any_source) {
    const int sender = members_[static_cast<std::size_t>(posted.source)];
    require(!world_->ended(sender), "[exchange] rank {} has ended without sending the message with {} that rank {} waits for",
            sender, tag, receiver);
    return;
  }
  const bool any = std::any_of(members_.begin(), members_.end(), [&](int m) { return m != receiver && !world_->ended(m); });
  require(any, "[exchange] all others have ended without sending the message with {} that rank {} waits for", tag, receiver);
}

Group::Envelope Group::take(int destination, const std::shared_ptr<Posted>& posted) {
  auto& mailbox = mailboxes_[static_cast<std::size_t>(destination)];
  world_->seen([&] { return filled(*posted); });
  std::unique_lock lock(mailbox.mutex);
  while (!posted->filled) {
    check_sender(*posted, destination);
    mailbox.changed.wait(lock);
  }
  return std::move(posted->envelope);
}

void Group::cancel(int destination, const std::shared_ptr<Posted>& posted) noexcept {
  auto& mailbox = mailboxes_[static_cast<std::size_t>(destination)];
  std::lock_guard lock(mailbox.mutex);
  if (!posted->filled) mailbox.posted.erase({posted->source, posted->tag, posted->place});
}

// ---- Group: non-blocking collectives

std::shared_ptr<Group::Started> Group::start(int rank, std::uint64_t ordinal, const Call& call) {
  const auto r = static_cast<std::size_t>(rank);
  std::shared_ptr<Started> started;
  {
    std::lock_guard lock(mutex_);
    if (world_->failed()) fail("[{}] {}", call.name, world_->failure());
    auto& slot = started_[ordinal];
    if (!slot) {
      slot = std::make_shared<Started>();
      slot->name = call.name;
      slot->calls.resize(members_.size());
      slot->counts.resize(2 * members_.size());
      slot->present.resize(members_.size());
    }
    started = slot;
    auto& own = started->calls[r];
    own = call;
    for (auto [list, kept] :
         {std::pair{&own.counts, &started->counts[2 * r]}, {&own.receive_counts, &started->counts[2 * r + 1]}}) {
      kept->assign(list->begin(), list->end());
      *list = *kept;
    }
    started->present[r] = true;
    if (++started->arrived < size()) return started;
    started_.erase(ordinal);  // each rank holds a reference by now
  }
  changed_.notify_all();
  return started;
}

void Group::complete(Started& started) {
  world_->seen([&] { return all_started(started); });
  std::unique_lock lock(mutex_);
  while (started.arrived < size()) {
    check_alive(started.name, started.present);
    changed_.wait(lock);
  }
  std::vector<const Call*> calls;
  for (const auto& call : started.calls) calls.push_back(&call);
  if (auto problem = disagreement(calls); !problem.empty()) throw Error(problem);
  while (started.next_share < size()) {
    const int share = started.next_share++;
    ++started.active;
    lock.unlock();
    do_share(calls, share);
    lock.lock();
    if (--started.active == 0) changed_.notify_all();
  }
  while (started.active > 0) changed_.wait(lock);
}

void Group::abandon(Started& started, int rank) noexcept {
  {
    std::lock_guard lock(mutex_);
    if (started.arrived < size()) {
      Call& call = started.calls[static_cast<std::size_t>(rank)];
      const auto item = size_of(call.type);
      // A broadcast's buffer is an input on the root, and an output on the others.
      const bool broadcast = call.kind == CollectiveKind::bcast;
      const auto moved = moved_elements(call, rank);
      const auto in = moved.in * item, out = broadcast ? call.count * item : moved.out * item;
      started.kept.push_back(copy_of(broadcast ? call.out : call.in, in));
      if (!broadcast || moved.in == 0) started.kept.push_back(std::make_unique<std::byte[]>(static_cast<std::size_t>(out)));
      call.in = started.kept[started.kept.size() - (broadcast && moved.in > 0 ? 1 : 2)].get();
      call.out = started.kept.back().get();
      return;
    }
  }
  try {
    complete(started);
  } catch (const Error&) {  // the calls differ, and no buffer has been touched
  }
}

// ---- Group: communicators

std::shared_ptr<Group> Group::child(std::span<const int> ranks, std::uint64_t ordinal) {
  std::vector<int> members;
  for (int rank : ranks) members.push_back(members_[static_cast<std::size_t>(rank)]);
  std::lock_guard lock(mutex_);
  const std::pair key(std::vector<int>(ranks.begin(), ranks.end()), ordinal);
  auto& child = children_[key];
  if (!child.group) {
    child.group = std::make_shared<Group>(world_, std::move(members));
    world_->add(child.group);
  }
  auto group = child.group;
  if (++child.taken == ranks.size()) children_.erase(key);
  return group;
}

// ---- receives

Status read_envelope(const Group::Envelope& envelope, const Message& message, DType type, int rank) {
  require(envelope.count == message.count && envelope.type == type,
          "[exchange] rank {} sent {} {} with tag {} to rank {}, which expects {} {}", envelope.source, envelope.count,
          name_of(envelope.type), envelope.tag, rank, message.count, name_of(type));
  if (message.count > 0) std::memcpy(message.data, envelope.data.get(), static_cast<std::size_t>(message.count * size_of(type)));
  return {envelope.source, envelope.tag};
}

void Receives::wait() {
  for (auto& receive : all_) receive.wait();
}
bool Receives::test() {
  return std::all_of(all_.begin(), all_.end(), [](auto& receive) { return receive.test(); });
}
void Receives::drop() noexcept {
  for (auto& receive : all_) receive.cancel();
}

}  // namespace mpigrad::threads
