#include "comm/transport/device/in_process.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>

#include "comm/transport/forwarding.h"
#include "comm/transport/transport_checks.h"
#include "framework/joined.h"

namespace mpigrad {
namespace {

using namespace transport_checks;
using Counts = std::vector<std::int64_t>;

// What a rank hands in: its arguments and a copy of its data, complete at `ready`. Its address travels through the host
// transport, and each of the `readers` lets go of it once; what a failed rank leaves behind is never released, because others may
// read it.
struct Post {
  std::string_view call;
  DType type = DType::uint8;
  Reduction op = Reduction::sum;
  int root = -1;
  std::int64_t count = -1;
  Counts counts, receive_counts;
  std::int64_t bytes = 0;
  DeviceMemory::Bytes data;
  int place = 0;
  std::shared_ptr<DeviceEvent> ready;
  std::atomic<int> readers{1};
  std::mutex mutex;
  std::vector<std::shared_ptr<DeviceEvent>> done;  // of those who have let go

  bool agrees(const Post& other) const {
    // Of alltoall each rank has counts of its own.
    return call == other.call && type == other.type && op == other.op && root == other.root && count == other.count &&
           (call.find("alltoall") != std::string_view::npos || counts == other.counts);
  }
};
static_assert(sizeof(Post*) == sizeof(std::int64_t));

// Posts that this rank reads, until its device has done so: the last reader releases the memory after the work of all of them.
class Reading {
 public:
  Reading(std::shared_ptr<DeviceMemory> memory, std::vector<Post*> posts) : memory_(std::move(memory)), posts_(std::move(posts)) {
    for (const auto* post : posts_) post->ready->hold();  // also for what is then refused and released
  }
  ~Reading() {
    try {
      const auto done = memory_->mark();
      for (auto* post : posts_) {
        {
          const std::lock_guard lock(post->mutex);
          post->done.push_back(done);
        }
        if (post->readers.fetch_sub(1) != 1) continue;
        for (const auto& other : post->done) other->hold();
        delete post;
      }
    } catch (...) {  // a device that has failed: what is left is not released
    }
  }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;
  std::size_t size() const { return posts_.size(); }
  const Post& operator[](std::size_t i) const { return *posts_[i]; }

 private:
  std::shared_ptr<DeviceMemory> memory_;
  std::vector<Post*> posts_;
};

std::string describe(const Post& post) {
  std::string text = fmt::format("{}(", post.call);
  if (post.counts.empty()) text += fmt::format("{} {}", post.count, name_of(post.type));
  else text += fmt::format("[{}] {}", joined(post.counts, ", "), name_of(post.type));
  if (post.call.find("reduce") != std::string_view::npos) text += fmt::format(", {}", name_of(post.op));
  if (post.root >= 0) text += fmt::format(", root {}", post.root);
  return text + ")";
}

// Each rank's share of a collective: from all posts into its own `out`.
class Share {
 public:
  Share(std::shared_ptr<DeviceMemory> memory, CollectiveKind kind, bool rooted, int rank, void* out)
      : memory_(std::move(memory)), kind_(kind), rooted_(rooted), rank_(rank), out_(static_cast<std::byte*>(out)) {}

  void operator()(const Reading& posts) const {
    for (std::size_t r = 0; r < posts.size(); ++r)
      require(posts[r].agrees(posts[0]), "[{}] the ranks' calls differ: rank 0 {}; rank {} {}", posts[0].call, describe(posts[0]),
              r, describe(posts[r]));
    const Post& mine = posts[index(rank_)];
    if (kind_ == CollectiveKind::alltoall) require_pairs(posts);
    const auto item = size_of(mine.type);
    const bool at_root = !rooted_ || rank_ == mine.root;
    switch (kind_) {
      case CollectiveKind::broadcast:
        if (mine.counts.empty()) {
          if (rank_ != mine.root) copy(0, posts[index(mine.root)], 0, mine.count * item);
        } else {  // scatter
          copy(0, posts[index(mine.root)], offset(mine.counts, index(rank_)) * item, mine.counts[index(rank_)] * item);
        }
        return;
      case CollectiveKind::reduce:
      case CollectiveKind::allreduce:
        if (at_root) add_up(posts, 0, mine.count);
        return;
      case CollectiveKind::reduce_scatter: return add_up(posts, offset(mine.counts, index(rank_)), mine.counts[index(rank_)]);
      case CollectiveKind::allgather:
        for (std::size_t r = 0; at_root && r < posts.size(); ++r)
          copy(offset(mine.counts, r) * item, posts[r], 0, mine.counts[r] * item);
        return;
      case CollectiveKind::alltoall: {
        std::int64_t to = 0;
        for (std::size_t r = 0; r < posts.size(); ++r) {
          copy(to * item, posts[r], offset(posts[r].counts, index(rank_)) * item, mine.receive_counts[r] * item);
          to += mine.receive_counts[r];
        }
        return;
      }
    }
  }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  void copy(std::int64_t to, const Post& from, std::int64_t first, std::int64_t bytes) const {
    if (bytes > 0) memory_->copy(out_ + to, from.data.get() + first, bytes);
  }

  void add_up(const Reading& posts, std::int64_t first, std::int64_t count) const {
    const Post& mine = posts[index(rank_)];
    const auto at = first * size_of(mine.type), bytes = count * size_of(mine.type);
    if (bytes == 0) return;
    memory_->copy(out_, posts[0].data.get() + at, bytes);
    DeviceMemory::Bytes near;  // what another GPU holds is fetched first
    for (std::size_t r = 1; r < posts.size(); ++r) {
      const std::byte* part = posts[r].data.get() + at;
      if (posts[r].place != memory_->place()) {
        if (!near) near = memory_->allocate(bytes);
        memory_->copy(near.get(), part, bytes);
        part = near.get();
      }
      memory_->combine(out_, part, count, mine.type, mine.op);
    }
  }

  static void require_pairs(const Reading& posts) {
    for (std::size_t r = 0; r < posts.size(); ++r)
      for (std::size_t s = 0; s < posts.size(); ++s)
        require(posts[r].counts[s] == posts[s].receive_counts[r], "[alltoall] rank {} sends {} {} to rank {}, which expects {}",
                r, posts[r].counts[s], name_of(posts[r].type), s, posts[s].receive_counts[r]);
  }

  std::shared_ptr<DeviceMemory> memory_;
  CollectiveKind kind_;
  bool rooted_;
  int rank_;
  std::byte* out_;
};

// A collective under way: the addresses of all posts on their way, then this rank's share.
class StartedPosts final : public PendingOperation {
 public:
  StartedPosts(std::shared_ptr<DeviceMemory> memory, Share share, int ranks)
      : posts(static_cast<std::size_t>(ranks)), memory_(std::move(memory)), share_(std::move(share)) {}
  ~StartedPosts() override {
    if (done_ || !operation || std::uncaught_exceptions() > exceptions_) return;
    try {
      wait();
    } catch (...) {  // the next call meets the same failure
    }
  }
  StartedPosts(const StartedPosts&) = delete;
  StartedPosts& operator=(const StartedPosts&) = delete;

  void wait() override {
    if (std::exchange(done_, true)) return;
    operation->wait();
    share_(Reading(memory_, posts));
  }
  bool test() override { return done_ || operation->test(); }

  Post* mine = nullptr;
  std::vector<Post*> posts;

 private:
  std::shared_ptr<DeviceMemory> memory_;
  Share share_;
  bool done_ = false;
  int exceptions_ = std::uncaught_exceptions();

 public:
  std::unique_ptr<PendingOperation> operation;  // writes into posts, and is destroyed before them
};

// Messages under way: sends are complete at once, receives when the posts have come.
class PostedMessages final : public PendingReceive {
 public:
  PostedMessages(std::shared_ptr<DeviceMemory> memory, int rank, DType type, std::span<const Message> receives)
      : posts(receives.size()), memory_(std::move(memory)), rank_(rank), type_(type),
        receives_(receives.begin(), receives.end()) {}
  ~PostedMessages() override {
    if (done_ || !operation || std::uncaught_exceptions() > exceptions_) return;
    try {
      wait();
    } catch (...) {  // the next call meets the same failure
    }
  }
  PostedMessages(const PostedMessages&) = delete;
  PostedMessages& operator=(const PostedMessages&) = delete;

  void wait() override {
    if (std::exchange(done_, true)) return;
    operation->wait();
    if (const auto* receive = dynamic_cast<const PendingReceive*>(operation.get())) status_ = receive->status();
    const Reading arrived(memory_, posts);
    for (std::size_t i = 0; i < arrived.size(); ++i) {
      const auto& post = arrived[i];
      require(post.count == receives_[i].count && post.type == type_,
              "[exchange] rank {} sent {} {} with tag {} to rank {}, which expects {} {}", post.root, post.count,
              name_of(post.type), post.counts[0], rank_, receives_[i].count, name_of(type_));
      if (post.bytes > 0) memory_->copy(receives_[i].data, post.data.get(), post.bytes);
    }
  }
  bool test() override { return done_ || operation->test(); }
  void cancel() override {
    if (std::exchange(done_, true)) return;
    if (auto* receive = dynamic_cast<PendingReceive*>(operation.get())) receive->cancel();
  }
  Status status() const override { return status_; }

  std::vector<Post*> posts, sent;

 private:
  std::shared_ptr<DeviceMemory> memory_;
  int rank_;
  DType type_;
  std::vector<Message> receives_;
  Status status_;
  bool done_ = false;
  int exceptions_ = std::uncaught_exceptions();

 public:
  std::unique_ptr<PendingOperation> operation;
};

class InProcessTransport final : public ForwardingTransport {
 public:
  InProcessTransport(std::shared_ptr<Transport> host, std::shared_ptr<DeviceMemory> memory)
      : ForwardingTransport(std::move(host)), memory_(std::move(memory)) {}

  const Transport& underlying() const override { return *this; }
  // What is compared lies in host memory.
  std::shared_ptr<Transport> control() override { return inner().duplicate(); }

  void broadcast(void* data, std::int64_t count, DType type, int root) override {
    check_count("broadcast", count);
    check_rank("broadcast", "root", root, size());
    collective("broadcast", {.kind = CollectiveKind::broadcast, .out = data, .type = type, .root = root, .count = count});
  }
  void allreduce(const void* in, void* out, std::int64_t count, DType type, Reduction op) override {
    check_count("allreduce", count);
    check_reduction("allreduce", type, op);
    collective("allreduce", {.kind = CollectiveKind::allreduce, .in = in, .out = out, .type = type, .op = op, .count = count});
  }
  void reduce(const void* in, void* out, std::int64_t count, DType type, Reduction op, int root) override {
    check_count("reduce", count);
    check_reduction("reduce", type, op);
    check_rank("reduce", "root", root, size());
    collective("reduce",
               {.kind = CollectiveKind::reduce, .in = in, .out = out, .type = type, .op = op, .root = root, .count = count});
  }
  void gather(const void* in, void* out, std::span<const std::int64_t> counts, DType type, int root) override {
    check_counts("gather", counts, size());
    check_rank("gather", "root", root, size());
    collective("gather", {.kind = CollectiveKind::allgather, .in = in, .out = out, .type = type, .root = root, .counts = counts});
  }
  void scatter(const void* in, void* out, std::span<const std::int64_t> counts, DType type, int root) override {
    check_counts("scatter", counts, size());
    check_rank("scatter", "root", root, size());
    collective("scatter",
               {.kind = CollectiveKind::broadcast, .in = in, .out = out, .type = type, .root = root, .counts = counts});
  }
  void allgather(const void* in, void* out, std::span<const std::int64_t> counts, DType type) override {
    check_counts("allgather", counts, size());
    collective("allgather", {.kind = CollectiveKind::allgather, .in = in, .out = out, .type = type, .counts = counts});
  }
  void reduce_scatter(const void* in, void* out, std::span<const std::int64_t> counts, DType type, Reduction op) override {
    check_counts("reduce_scatter", counts, size());
    check_reduction("reduce_scatter", type, op);
    collective("reduce_scatter",
               {.kind = CollectiveKind::reduce_scatter, .in = in, .out = out, .type = type, .op = op, .counts = counts});
  }
  void alltoall(const void* in, std::span<const std::int64_t> send_counts, void* out,
                std::span<const std::int64_t> receive_counts, DType type) override {
    check_counts("alltoall", send_counts, size());
    check_counts("alltoall", receive_counts, size());
    collective("alltoall", {.kind = CollectiveKind::alltoall,
                            .in = in,
                            .out = out,
                            .type = type,
                            .counts = send_counts,
                            .receive_counts = receive_counts});
  }
  std::unique_ptr<PendingOperation> start(const Collective& call) override {
    check_collective(call, size());
    return begin(name_of(call.kind), call);
  }

  void exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    start_exchange(sends, receives, type)->wait();
  }
  std::unique_ptr<PendingOperation> start_round(std::span<const Message> sends, std::span<const Message> receives,
                                                DType type) override {
    return start_exchange(sends, receives, type);
  }
  std::unique_ptr<PendingOperation> start_exchange(std::span<const Message> sends, std::span<const Message> receives,
                                                   DType type) override {
    check_messages(sends, size(), max_tag());
    check_messages(receives, size(), max_tag());
    auto pending = std::make_unique<PostedMessages>(memory_, rank(), type, receives);
    pending->sent.reserve(sends.size());
    std::vector<Message> out(sends.begin(), sends.end()), in(receives.begin(), receives.end());
    for (std::size_t i = 0; i < out.size(); ++i) {
      auto post = posted("exchange", type, sends[i].data, sends[i].count * size_of(type), 1);
      post->root = rank(), post->count = sends[i].count, post->counts = {sends[i].tag};
      pending->sent.push_back(post.release());
      out[i].data = &pending->sent.back(), out[i].count = 1;
    }
    for (std::size_t i = 0; i < in.size(); ++i) in[i].data = &pending->posts[i], in[i].count = 1;
    pending->operation = inner().start_exchange(out, in, DType::int64);
    return pending;
  }
  std::unique_ptr<PendingReceive> start_receive(const Message& message, DType type) override {
    check_receive(message, size(), max_tag());
    auto pending = std::make_unique<PostedMessages>(memory_, rank(), type, std::span(&message, 1));
    Message ticket = message;
    ticket.data = pending->posts.data(), ticket.count = 1;
    pending->operation = inner().start_receive(ticket, DType::int64);
    return pending;
  }

  std::shared_ptr<Transport> subgroup(std::span<const int> ranks) override { return wrap(inner().subgroup(ranks)); }
  std::shared_ptr<Transport> split(int color, int key) override { return wrap(inner().split(color, key)); }
  std::shared_ptr<Transport> duplicate() override { return wrap(inner().duplicate()); }

 private:
  std::shared_ptr<Transport> wrap(std::shared_ptr<Transport> made) const {
    return made ? in_process(std::move(made), memory_) : nullptr;
  }

  std::unique_ptr<Post> posted(std::string_view call, DType type, const void* data, std::int64_t bytes, int readers) {
    auto post = std::make_unique<Post>();
    post->call = call, post->type = type, post->bytes = bytes, post->readers = readers;
    if (bytes > 0) {
      post->data = memory_->allocate(bytes);
      post->place = memory_->place();
      memory_->copy(post->data.get(), data, bytes);
    }
    post->ready = memory_->mark();
    return post;
  }

  std::unique_ptr<PendingOperation> begin(std::string_view name, const Collective& call) {
    const auto me = static_cast<std::size_t>(rank());
    const bool scatters = call.kind == CollectiveKind::broadcast && !call.counts.empty();
    const auto all = call.counts.empty() ? 0 : total(call.counts), own = call.counts.empty() ? 0 : call.counts[me];
    const bool at_root = rank() == call.root;
    std::int64_t in = call.count;
    switch (call.kind) {
      case CollectiveKind::broadcast: in = !at_root ? 0 : scatters ? all : call.count; break;
      case CollectiveKind::allgather: in = own; break;
      case CollectiveKind::reduce_scatter:
      case CollectiveKind::alltoall: in = all; break;
      default: break;
    }
    const void* from = call.kind == CollectiveKind::broadcast && !scatters ? call.out : call.in;
    auto post = posted(name, call.type, from, in * size_of(call.type), size());
    post->op = call.op, post->root = call.root, post->count = call.count;
    post->counts.assign(call.counts.begin(), call.counts.end());
    post->receive_counts.assign(call.receive_counts.begin(), call.receive_counts.end());
    auto pending = std::make_unique<StartedPosts>(memory_, Share(memory_, call.kind, call.root >= 0, rank(), call.out), size());
    pending->mine = post.release();
    const Counts one(static_cast<std::size_t>(size()), 1);
    pending->operation = inner().start({.kind = CollectiveKind::allgather,
                                        .in = &pending->mine,
                                        .out = pending->posts.data(),
                                        .type = DType::int64,
                                        .counts = one});
    return pending;
  }
  void collective(std::string_view name, const Collective& call) { begin(name, call)->wait(); }

  std::shared_ptr<DeviceMemory> memory_;
};

}  // namespace

std::shared_ptr<Transport> in_process(std::shared_ptr<Transport> host, std::shared_ptr<DeviceMemory> memory) {
  return std::make_shared<InProcessTransport>(std::move(host), std::move(memory));
}

}  // namespace mpigrad
