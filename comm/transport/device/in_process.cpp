#include "comm/transport/device/in_process.h"

#include <atomic>
#include <mutex>
#include <numeric>
#include <utility>

#include "comm/transport/forwarding.h"
#include "comm/transport/transport_checks.h"

namespace mpigrad {
namespace {

using namespace transport_checks;
using Lengths = std::vector<std::int64_t>;

// The contribution of a rank to a call: its arguments and a copy of its data, complete at `ready`. The address of the Post
// travels through the host transport, and each of the `readers` releases it once. The posts of a failed rank are never deleted,
// because others may read them.
struct Post {
  Call call;  // for a message: the count, its sender as `root`, its tag in `counts`
  Lengths counts, receive_counts;
  std::int64_t bytes = 0;
  DeviceMemory::Bytes data;
  int place = 0;
  std::shared_ptr<DeviceEvent> ready;
  std::atomic<int> readers{1};
  std::mutex mutex;
  std::vector<std::shared_ptr<DeviceEvent>> done;  // events of the readers that have released it
};
static_assert(sizeof(Post*) == sizeof(std::int64_t));

// Posts that this rank reads, until its device has read them: the last reader deletes a post after the device work of all
// readers.
class Reading {
 public:
  Reading(std::shared_ptr<DeviceMemory> memory, std::vector<Post*> posts) : memory_(std::move(memory)), posts_(std::move(posts)) {
    for (const auto* post : posts_) post->ready->hold();  // also for posts that are then refused and released
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
    } catch (...) {  // a device has failed: the remaining posts are not deleted
    }
  }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;
  std::size_t size() const { return posts_.size(); }
  const Post& operator[](int i) const { return *posts_[static_cast<std::size_t>(i)]; }

 private:
  std::shared_ptr<DeviceMemory> memory_;
  std::vector<Post*> posts_;
};

// Does each rank's share of a collective: from all posts into its own `out`.
class Share {
 public:
  Share(std::shared_ptr<DeviceMemory> memory, int rank) : memory_(std::move(memory)), rank_(rank) {}

  void operator()(const Reading& posts) const {
    const int size = static_cast<int>(posts.size());
    std::vector<const Call*> calls;
    for (int r = 0; r < size; ++r) calls.push_back(&posts[r].call);
    if (const auto problem = disagreement(calls); !problem.empty()) throw Error(problem);
    const auto& call = posts[rank_].call;
    const auto item = size_of(call.type);
    DeviceMemory::Bytes near;  // data on another GPU are fetched before they are combined
    for (int r = 0; r < size; ++r) {
      const auto to = received_slice(call, rank_, r), from = sent_slice(posts[r].call, r, rank_);
      if (to.count == 0 || (call.kind == CollectiveKind::bcast && r == rank_)) continue;
      auto* out = static_cast<std::byte*>(call.out) + to.first * item;
      const std::byte* in = posts[r].data.get() + from.first * item;
      if (r == 0 || !traits_of(call.kind).reduces) {
        memory_->copy(out, in, to.count * item);
        continue;
      }
      if (posts[r].place != memory_->place()) {
        if (!near) near = memory_->allocate(to.count * item);
        memory_->copy(near.get(), in, to.count * item);
        in = near.get();
      }
      memory_->combine(out, in, to.count, call.type, call.op);
    }
  }

 private:
  std::shared_ptr<DeviceMemory> memory_;
  int rank_;
};

// A collective under way: exchanges the addresses of all posts, then does this rank's share. The host transport writes into
// `posts`.
struct Posts {
  Post* mine = nullptr;
  std::vector<Post*> all;
};
class StartedPosts final : public PendingWork {
 public:
  StartedPosts(std::shared_ptr<DeviceMemory> memory, int rank, std::unique_ptr<Posts> posts, Pending operation)
      : memory_(std::move(memory)), rank_(rank), posts_(std::move(posts)), operation_(std::move(operation)) {}
  void wait() override {
    operation_.wait();
    Share(memory_, rank_)(Reading(memory_, posts_->all));
  }
  bool test() override { return operation_.test(); }
  void drop() noexcept override { operation_.cancel(); }

 private:
  std::shared_ptr<DeviceMemory> memory_;
  int rank_;
  std::unique_ptr<Posts> posts_;
  Pending operation_;  // destroyed before the buffers that it writes
};

// Messages under way: sends are complete at once, receives when the posts have arrived.
struct PostedMessages {
  std::vector<Post*> arriving, sent;
};
class ReceivedPosts final : public PendingWork {
 public:
  ReceivedPosts(std::shared_ptr<DeviceMemory> memory, int rank, DType type, std::span<const Message> receives,
                std::unique_ptr<PostedMessages> posts, Pending operation)
      : memory_(std::move(memory)), rank_(rank), type_(type), receives_(receives.begin(), receives.end()),
        posts_(std::move(posts)), operation_(std::move(operation)) {}
  void wait() override {
    operation_.wait();
    const Reading arrived(memory_, posts_->arriving);
    for (std::size_t i = 0; i < receives_.size(); ++i) {
      const auto& post = arrived[static_cast<int>(i)];
      require(post.call.count == receives_[i].count && post.call.type == type_,
              "[exchange] rank {} sent {} {} with tag {} to rank {}, which expects {} {}", post.call.root, post.call.count,
              name_of(post.call.type), post.counts[0], rank_, receives_[i].count, name_of(type_));
      if (post.bytes > 0) memory_->copy(receives_[i].data, post.data.get(), post.bytes);
    }
  }
  bool test() override { return operation_.test(); }
  void drop() noexcept override { operation_.cancel(); }
  Status status() const override { return operation_.status(); }

 private:
  std::shared_ptr<DeviceMemory> memory_;
  int rank_;
  DType type_;
  std::vector<Message> receives_;
  std::unique_ptr<PostedMessages> posts_;
  Pending operation_;
};

class InProcessTransport final : public ForwardingTransport {
 public:
  InProcessTransport(std::shared_ptr<Transport> host, std::shared_ptr<DeviceMemory> memory)
      : ForwardingTransport(std::move(host)), memory_(std::move(memory)) {}

  const Transport& underlying() const override { return *this; }
  // The data to compare lie in host memory.
  std::shared_ptr<Transport> control() override { return inner().duplicate(); }

  void perform(const Collective& call) override {
    if (call.kind == CollectiveKind::barrier) return inner().perform(call);
    meet(name_of(call.kind), call).wait();
  }
  Pending begin(const Collective& call) override {
    if (call.kind == CollectiveKind::barrier) return inner().begin(call);
    return meet(traits_of(call.kind).nonblocking, call);
  }

  void exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    start_exchange(sends, receives, type).wait();
  }
  Pending start_round(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    return start_exchange(sends, receives, type);
  }
  Pending start_exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    check_messages(sends, size(), max_tag());
    check_messages(receives, size(), max_tag());
    auto posts = std::make_unique<PostedMessages>();
    posts->arriving.resize(receives.size());
    posts->sent.reserve(sends.size());
    std::vector<Message> out(sends.begin(), sends.end()), in(receives.begin(), receives.end());
    for (std::size_t i = 0; i < out.size(); ++i) {
      auto post = posted(sends[i].data, sends[i].count * size_of(type));
      post->call.type = type;
      post->call.root = rank(), post->call.count = sends[i].count, post->counts = {sends[i].tag};
      posts->sent.push_back(post.release());
      out[i].data = &posts->sent.back(), out[i].count = 1;
    }
    for (std::size_t i = 0; i < in.size(); ++i) in[i].data = &posts->arriving[i], in[i].count = 1;
    auto operation = inner().start_exchange(out, in, DType::int64);
    return pending<ReceivedPosts>(memory_, rank(), type, receives, std::move(posts), std::move(operation));
  }
  Pending start_receive(const Message& message, DType type) override {
    check_receive(message, size(), max_tag());
    auto posts = std::make_unique<PostedMessages>();
    posts->arriving.resize(1);
    Message ticket = message;
    ticket.data = posts->arriving.data(), ticket.count = 1;
    auto operation = inner().start_receive(ticket, DType::int64);
    return pending<ReceivedPosts>(memory_, rank(), type, std::span(&message, 1), std::move(posts), std::move(operation));
  }

 private:
  std::shared_ptr<Transport> wrap(std::shared_ptr<Transport> made) const override { return in_process(std::move(made), memory_); }

  std::unique_ptr<Post> posted(const void* data, std::int64_t bytes) {
    auto post = std::make_unique<Post>();
    post->bytes = bytes;
    if (bytes > 0) {
      post->data = memory_->allocate(bytes);
      post->place = memory_->place();
      memory_->copy(post->data.get(), data, bytes);
    }
    post->ready = memory_->mark();
    return post;
  }

  Pending meet(std::string_view name, const Collective& call) {
    const void* from = call.kind == CollectiveKind::bcast ? call.out : call.in;
    auto post = posted(from, moved_elements(call, rank()).in * size_of(call.type));
    post->call = {call, name}, post->readers = size();
    post->counts.assign(call.counts.begin(), call.counts.end());
    post->receive_counts.assign(call.receive_counts.begin(), call.receive_counts.end());
    post->call.counts = post->counts, post->call.receive_counts = post->receive_counts;
    auto posts = std::make_unique<Posts>();
    posts->all.resize(static_cast<std::size_t>(size()));
    posts->mine = post.release();
    const Lengths one(posts->all.size(), 1);
    auto operation = inner().begin(
        {.kind = CollectiveKind::allgather, .in = &posts->mine, .out = posts->all.data(), .type = DType::int64, .counts = one});
    return pending<StartedPosts>(memory_, rank(), std::move(posts), std::move(operation));
  }

  std::shared_ptr<DeviceMemory> memory_;
};

}  // namespace

std::shared_ptr<Transport> in_process(std::shared_ptr<Transport> host, std::shared_ptr<DeviceMemory> memory) {
  return std::make_shared<InProcessTransport>(std::move(host), std::move(memory));
}

}  // namespace mpigrad
