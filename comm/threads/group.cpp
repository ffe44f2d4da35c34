#include "comm/threads/group.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "framework/error.h"

namespace mpigrad::threads {

// ---- World

World::World(int size)
    : ended_(static_cast<std::size_t>(size)), spins_(static_cast<unsigned>(size) <= std::thread::hardware_concurrency()) {}

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

namespace {

// "1, 2, 3"; fmt::join makes g++ 12 warn inside fmt 9.
template <class Values>
std::string listed(const Values& values, const char* between = ", ") {
  std::string text;
  for (const auto& value : values) text += fmt::format("{}{}", text.empty() ? "" : between, value);
  return text;
}

}  // namespace

std::string describe(const Call& call) {
  std::vector<std::string> parts;
  if (call.count >= 0) parts.push_back(fmt::format("{} {}", call.count, name_of(call.type)));
  if (!call.counts.empty()) parts.push_back(fmt::format("[{}] {}", listed(call.counts), name_of(call.type)));
  if (!call.receive_counts.empty()) parts.push_back(fmt::format("receiving [{}]", listed(call.receive_counts)));
  if (call.name == "allreduce" || call.name == "reduce" || call.name == "reduce_scatter" || call.name == "start_allreduce")
    parts.emplace_back(name_of(call.op));
  if (call.root >= 0) parts.push_back(fmt::format("root {}", call.root));
  return fmt::format("{}({})", call.name, listed(parts));
}

std::string disagreement(std::span<const Call* const> calls) noexcept {
  const Call& first = *calls[0];
  const bool pairwise = first.name == "alltoall";
  const auto agrees = [&](const Call& a) {
    return a.name == first.name && a.type == first.type && a.op == first.op && a.root == first.root && a.count == first.count &&
           (pairwise || std::equal(a.counts.begin(), a.counts.end(), first.counts.begin(), first.counts.end()));
  };
  for (std::size_t r = 1; r < calls.size(); ++r) {
    if (agrees(*calls[r])) continue;
    std::map<std::string, std::vector<std::size_t>> kinds;
    for (std::size_t q = 0; q < calls.size(); ++q) kinds[describe(*calls[q])].push_back(q);
    std::vector<std::string> parts;
    for (const auto& [what, ranks] : kinds)
      parts.push_back(fmt::format("{} {} {}", ranks.size() == 1 ? "rank" : "ranks", listed(ranks), what));
    std::sort(parts.begin(), parts.end());
    return fmt::format("[{}] the ranks' calls differ: {}", first.name, listed(parts, "; "));
  }
  for (std::size_t r = 0; pairwise && r < calls.size(); ++r)
    for (std::size_t s = 0; s < calls.size(); ++s)
      if (calls[r]->counts[s] != calls[s]->receive_counts[r])
        return fmt::format("[alltoall] rank {} sends {} {} to rank {}, which expects {}", r, calls[r]->counts[s],
                           name_of(first.type), s, calls[s]->receive_counts[r]);
  return {};
}

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

bool Group::spin(std::uint64_t generation) const {
  for (int i = 0; world_->spins() && i < 4000; ++i) {
    if (generation_.load(std::memory_order_acquire) != generation) return true;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  return false;
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
      // Taken back, so that the others can never complete an entry whose memory is gone.
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
  // Taking the lock orders this after the check of anyone who is about to wait.
  { std::lock_guard lock(mutex_); }
  changed_.notify_all();
  for (auto& mailbox : mailboxes_) {
    { std::lock_guard lock(mailbox.mutex); }
    mailbox.changed.notify_all();
  }
}

// ---- Group: messages

void Group::deliver(int source, int destination, int tag, Envelope envelope) {
  if (world_->failed()) fail("[exchange] {}", world_->failure());
  auto& mailbox = mailboxes_[static_cast<std::size_t>(destination)];
  {
    std::lock_guard lock(mailbox.mutex);
    auto& channel = mailbox.channels[{source, tag}];
    channel.waiting.emplace(channel.sent++, std::move(envelope));
  }
  mailbox.changed.notify_all();
}

std::uint64_t Group::post_receive(int source, int destination, int tag) {
  auto& mailbox = mailboxes_[static_cast<std::size_t>(destination)];
  std::lock_guard lock(mailbox.mutex);
  return mailbox.channels[{source, tag}].posted++;
}

Group::Envelope Group::take(int source, int destination, int tag, std::uint64_t ticket) {
  auto& mailbox = mailboxes_[static_cast<std::size_t>(destination)];
  std::unique_lock lock(mailbox.mutex);
  const auto found = mailbox.channels.find({source, tag});
  auto& channel = found->second;
  for (;;) {
    if (auto message = channel.waiting.find(ticket); message != channel.waiting.end()) {
      Envelope envelope = std::move(message->second);
      channel.waiting.erase(message);
      // Nothing outstanding: forget the counters, or rotating tags would fill the map.
      if (channel.waiting.empty() && channel.sent == channel.posted) mailbox.channels.erase(found);
      return envelope;
    }
    if (world_->failed()) fail("[exchange] {}", world_->failure());
    const int sender = members_[static_cast<std::size_t>(source)];
    if (world_->ended(sender))
      fail("[exchange] rank {} has ended without sending the message with tag {} that rank {} waits for", sender, tag,
           members_[static_cast<std::size_t>(destination)]);
    mailbox.changed.wait(lock);
  }
}

// ---- Group: non-blocking reductions

std::shared_ptr<Group::Started> Group::start(int rank, std::uint64_t ordinal, const Call& call) {
  const auto r = static_cast<std::size_t>(rank);
  std::shared_ptr<Started> started;
  {
    std::lock_guard lock(mutex_);
    if (world_->failed()) fail("[{}] {}", call.name, world_->failure());
    auto& slot = started_[ordinal];
    if (!slot) {
      slot = std::make_shared<Started>();
      slot->calls.resize(members_.size());
      slot->present.resize(members_.size());
    }
    started = slot;
    started->calls[r] = call;
    started->present[r] = true;
    if (++started->arrived == size()) started_.erase(ordinal);  // each rank holds it by now
  }
  changed_.notify_all();
  return started;
}

void Group::complete(Started& started, ReducePart reduce_part) {
  constexpr std::int64_t part = 32768;
  std::unique_lock lock(mutex_);
  while (started.arrived < size()) {
    check_alive("start_allreduce", started.present);
    changed_.wait(lock);
  }
  std::vector<const Call*> calls;
  for (const auto& call : started.calls) calls.push_back(&call);
  if (auto problem = disagreement(calls); !problem.empty()) throw Error(problem);
  const std::int64_t count = calls[0]->count;
  while (started.next_part * part < count) {
    const std::int64_t first = part * started.next_part++;
    ++started.active;
    lock.unlock();
    reduce_part(calls, first, std::min(first + part, count));
    lock.lock();
    if (--started.active == 0) changed_.notify_all();
  }
  while (started.active > 0) changed_.wait(lock);
}

void Group::abandon(Started& started, int rank, ReducePart reduce_part) noexcept {
  {
    std::lock_guard lock(mutex_);
    if (started.arrived < size()) {
      Call& call = started.calls[static_cast<std::size_t>(rank)];
      started.kept.push_back(copy_of(call.in, call.count * size_of(call.type)));
      call.in = call.out = started.kept.back().get();
      return;
    }
  }
  try {
    complete(started, reduce_part);
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

}  // namespace mpigrad::threads
