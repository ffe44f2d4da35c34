#include "comm/transport/watched_transport.h"

#include <string>
#include <vector>

#include "comm/transport/call_board.h"
#include "comm/transport/forwarding.h"
#include "comm/transport/transport_checks.h"
#include "comm/transport/watch.h"
#include "framework/error.h"
#include "framework/op.h"

namespace mpigrad::detail {
namespace {

using transport_checks::total;

std::uint64_t hash(std::span<const std::int64_t> counts) {
  std::uint64_t value = 1469598103934665603ULL;  // FNV-1a
  for (const auto count : counts) value = (value ^ static_cast<std::uint64_t>(count)) * 1099511628211ULL;
  return value;
}
std::uint64_t hash(std::span<const std::byte> data) {
  return std::hash<std::string_view>{}({reinterpret_cast<const char*>(data.data()), data.size()});
}

class WatchedTransport final : public ForwardingTransport {
 public:
  WatchedTransport(std::shared_ptr<Transport> inner, const CheckOptions& options)
      : ForwardingTransport(std::move(inner)), options_(options), board_(board_of_this_thread()) {
    if (options_.signatures > 0 || options_.same > 0) control_ = this->inner().control();
  }

  int same() const { return options_.same; }

  // Repetitions would not be checked. The watchdog that nobody has asked for is no reason to do without them.
  bool capturable() override { return (size() == 1 || !options_) && inner().capturable(); }

  void barrier() override {
    watch(signature("barrier"), 0, [&] { inner().barrier(); });
  }
  void broadcast(void* data, std::int64_t count, DType type, int root) override {
    watch(signature("bcast", count, type, -1, root), count * size_of(type), [&] { inner().broadcast(data, count, type, root); });
  }
  void allreduce(const void* in, void* out, std::int64_t count, DType type, Reduction op) override {
    watch(signature("allreduce", count, type, static_cast<int>(op)), count * size_of(type),
          [&] { inner().allreduce(in, out, count, type, op); });
  }
  void reduce(const void* in, void* out, std::int64_t count, DType type, Reduction op, int root) override {
    watch(signature("reduce", count, type, static_cast<int>(op), root), count * size_of(type),
          [&] { inner().reduce(in, out, count, type, op, root); });
  }
  void gather(const void* in, void* out, std::span<const std::int64_t> counts, DType type, int root) override {
    watch(signature("gather", counts, type, -1, root), own(counts, type), [&] { inner().gather(in, out, counts, type, root); });
  }
  void scatter(const void* in, void* out, std::span<const std::int64_t> counts, DType type, int root) override {
    watch(signature("scatter", counts, type, -1, root), own(counts, type), [&] { inner().scatter(in, out, counts, type, root); });
  }
  void allgather(const void* in, void* out, std::span<const std::int64_t> counts, DType type) override {
    watch(signature("allgather", counts, type), own(counts, type), [&] { inner().allgather(in, out, counts, type); });
  }
  void reduce_scatter(const void* in, void* out, std::span<const std::int64_t> counts, DType type, Reduction op) override {
    watch(signature("reduce_scatter", counts, type, static_cast<int>(op)), total(counts) * size_of(type),
          [&] { inner().reduce_scatter(in, out, counts, type, op); });
  }
  void alltoall(const void* in, std::span<const std::int64_t> send_counts, void* out,
                std::span<const std::int64_t> receive_counts, DType type) override {
    auto call = signature("alltoall");
    call.type = static_cast<int>(type);
    watch(call, total(send_counts) * size_of(type), [&] {
      if (compares(call.number)) pairs("alltoall", send_counts, receive_counts)->wait();
      inner().alltoall(in, send_counts, out, receive_counts, type);
    });
  }

  std::unique_ptr<PendingOperation> start(const Collective& c) override {
    auto call = signature(name_of(c.kind));
    const bool reduces =
        c.kind == CollectiveKind::allreduce || c.kind == CollectiveKind::reduce || c.kind == CollectiveKind::reduce_scatter;
    call.type = static_cast<int>(c.type), call.root = c.root, call.reduction = reduces ? static_cast<int>(c.op) : -1;
    call.count = c.count >= 0 ? c.count : 0;
    if (!c.counts.empty() && c.kind != CollectiveKind::alltoall) call.count = total(c.counts), call.counts = hash(c.counts);
    // Compared at the wait: a start that waited for the others would not be one.
    std::unique_ptr<PendingOperation> pending, agreed;
    Watch(options_, board(), call, *this)(
        [&] {
          const auto bytes = (c.count >= 0 ? c.count : total(c.counts)) * size_of(c.type);
          return fmt::format("#{} {}: {} bytes", call.number, to_string(call), bytes);
        },
        [&] {
          if (compares(call.number))
            agreed = std::make_unique<Both>(
                signatures(call), c.kind == CollectiveKind::alltoall ? pairs("ialltoall", c.counts, c.receive_counts) : nullptr);
          pending = inner().start(c);
        });
    return later(std::move(pending), call, fmt::format("#{} {}", call.number, to_string(call)), std::move(agreed));
  }

  // Point to point: nothing that all ranks would agree on.
  void exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    const auto call = messages("exchange", sends, receives, type);
    Watch(options_, board(), call, *this)([&] { return peers(call, sends, receives); },
                                          [&] { inner().exchange(sends, receives, type); });
  }
  std::unique_ptr<PendingOperation> start_exchange(std::span<const Message> sends, std::span<const Message> receives,
                                                   DType type) override {
    const auto call = messages("start_exchange", sends, receives, type);
    std::unique_ptr<PendingOperation> pending;
    Watch(options_, board(), call, *this)([&] { return peers(call, sends, receives); },
                                          [&] { pending = inner().start_exchange(sends, receives, type); });
    return later(std::move(pending), messages("wait for exchange", sends, receives, type), peers(call, sends, receives));
  }
  std::unique_ptr<PendingOperation> start_round(std::span<const Message> sends, std::span<const Message> receives,
                                                DType type) override {
    const auto call = messages("start_round", sends, receives, type);
    std::unique_ptr<PendingOperation> pending;
    Watch(options_, board(), call, *this)([&] { return peers(call, sends, receives); },
                                          [&] { pending = inner().start_round(sends, receives, type); });
    return later(std::move(pending), messages("wait for round", sends, receives, type), peers(call, sends, receives));
  }
  std::unique_ptr<PendingReceive> start_receive(const Message& message, DType type) override {
    const auto call = messages("start_receive", {}, {&message, 1}, type);
    std::unique_ptr<PendingReceive> pending;
    Watch(options_, board(), call, *this)(
        [&] {
          return peers(call, {}, {&message, 1});
        },
        [&] { pending = inner().start_receive(message, type); });
    return later(std::move(pending), messages("wait for receive", {}, {&message, 1}, type), peers(call, {}, {&message, 1}));
  }

  void require_same(std::string_view what, const HostBytes& data) override {
    if (options_.same == 0 || ++compared_ % options_.same != 0) return;
    const auto bytes = data();
    const std::uint64_t mine = hash(bytes) ^ static_cast<std::uint64_t>(bytes.size()) << 56;
    std::vector<std::uint64_t> all(static_cast<std::size_t>(size()));
    const std::vector<std::int64_t> one(all.size(), 1);
    control_->allgather(&mine, all.data(), one, DType::int64);
    const auto groups = groups_of(all);
    if (groups.size() == 1) return;
    std::string text;
    for (const auto& [value, ranks] : groups)
      text += fmt::format("{}{}{} {:016x}", text.empty() ? "" : "; ", plural(ranks), ranges(ranks), value);
    fail("[checks] {} is said to be the same on all {} ranks and is not; hashes: {}", what, size(), text);
  }

  std::shared_ptr<Transport> subgroup(std::span<const int> ranks) override { return wrap(inner().subgroup(ranks)); }
  std::shared_ptr<Transport> split(int color, int key) override {
    watch(signature("split"), 0, [] {});
    return wrap(inner().split(color, key));
  }
  std::shared_ptr<Transport> duplicate() override {
    watch(signature("duplicate"), 0, [] {});
    return wrap(inner().duplicate());
  }

 private:
  std::shared_ptr<Transport> wrap(std::shared_ptr<Transport> made) const {
    return made ? std::make_shared<WatchedTransport>(std::move(made), options_) : nullptr;
  }
  CallBoard* board() const { return board_.get(); }

  Signature signature(std::string_view name) {
    Signature call(name, ++calls_);
    call.recorded = recorded_call() ? 1 : 0;
    return call;
  }
  Signature signature(std::string_view name, std::int64_t count, DType type, int reduction = -1, int root = -1) {
    auto call = signature(name);
    call.count = count, call.type = static_cast<int>(type), call.reduction = reduction, call.root = root;
    return call;
  }
  Signature signature(std::string_view name, std::span<const std::int64_t> counts, DType type, int reduction = -1,
                      int root = -1) {
    auto call = signature(name, total(counts), type, reduction, root);
    call.counts = hash(counts);
    return call;
  }
  std::int64_t own(std::span<const std::int64_t> counts, DType type) const {
    const auto r = static_cast<std::size_t>(rank());
    return r < counts.size() ? counts[r] * size_of(type) : 0;
  }
  // Not numbered: they do not count among the collective calls.
  static Signature messages(std::string_view name, std::span<const Message> sends, std::span<const Message> receives,
                            DType type) {
    Signature call(name, 0);
    call.type = static_cast<int>(type);
    for (const auto& m : sends) call.count += m.count;
    for (const auto& m : receives) call.count += m.count, call.root = m.peer;  // for people: whom it waits for
    return call;
  }
  static std::string peers(const Signature& call, std::span<const Message> sends, std::span<const Message> receives) {
    std::string text = call.call.data();
    for (const auto& m : sends) text += fmt::format(" to {} tag {}", m.peer, m.tag);
    for (const auto& m : receives)
      text += fmt::format(" from {} tag {}", m.peer == any_source ? "any" : std::to_string(m.peer),
                          m.tag == any_tag ? "any" : std::to_string(m.tag));
    return text + fmt::format(": {} bytes", call.count * size_of(static_cast<DType>(call.type)));
  }

  std::unique_ptr<PendingReceive> later(std::unique_ptr<PendingOperation> pending, const Signature& call, std::string what,
                                        std::unique_ptr<PendingOperation> agreed = {}) {
    return std::make_unique<WatchedPending>(std::move(pending), std::move(agreed), Watch(options_, board(), call, *this),
                                            std::move(what), board_);
  }

  bool compares(std::int64_t number) const { return options_.signatures > 0 && number % options_.signatures == 0; }

  template <class Call>
  void watch(const Signature& mine, std::int64_t bytes, const Call& call) {
    Watch(options_, board(), mine, *this)([&] { return fmt::format("#{} {}: {} bytes", mine.number, to_string(mine), bytes); },
                                          [&] {
                                            if (compares(mine.number)) signatures(mine)->wait();
                                            call();
                                          });
  }

  // Also of blocking calls by a non-blocking one, so that the two kinds meet.
  std::unique_ptr<PendingOperation> signatures(const Signature& mine) {
    return std::make_unique<Comparison<Signature>>(*control_, std::vector{mine}, agree);
  }
  static void agree(const std::vector<Signature>& all) {
    const auto groups = groups_of(all);
    if (groups.size() == 1) return;
    const auto differs = [&](auto member) {
      return std::any_of(all.begin(), all.end(), [&](const Signature& s) { return s.*member != all[0].*member; });
    };
    const bool numbers = differs(&Signature::number), recorded = differs(&Signature::recorded);
    std::string text;
    for (const auto& [call, ranks] : groups) {
      text += fmt::format("{}{}{}: {}", text.empty() ? "" : "; ", plural(ranks), ranges(ranks), to_string(call));
      if (numbers) text += fmt::format(", as its call {}", call.number);
      if (recorded) text += call.recorded ? ", recorded on a tape" : ", not recorded (no tape, or a constant)";
    }
    fail("[checks] the ranks of a communicator of {} do not make the same call: {}", all.size(), text);
  }

  // What rank r sends to s is what s expects of r.
  std::unique_ptr<PendingOperation> pairs(std::string_view name, std::span<const std::int64_t> send_counts,
                                          std::span<const std::int64_t> receive_counts) {
    transport_checks::check_counts(name, send_counts, size());
    transport_checks::check_counts(name, receive_counts, size());
    std::vector<std::int64_t> mine(send_counts.begin(), send_counts.end());
    mine.insert(mine.end(), receive_counts.begin(), receive_counts.end());
    const auto fit = [name, n = send_counts.size()](const std::vector<std::int64_t>& all) {
      for (std::size_t r = 0; r < n; ++r)
        for (std::size_t s = 0; s < n; ++s) {
          const auto sent = all[2 * n * r + s], expected = all[2 * n * s + n + r];
          require(sent == expected, "[checks] in {} rank {} sends {} elements to rank {}, which expects {}", name, r, sent, s,
                  expected);
        }
    };
    return std::make_unique<Comparison<std::int64_t>>(*control_, std::move(mine), fit);
  }

  CheckOptions options_;
  std::shared_ptr<CallBoard> board_;
  std::shared_ptr<Transport> control_;
  std::int64_t calls_ = 0, compared_ = 0;
};

}  // namespace

std::shared_ptr<Transport> watched_transport(std::shared_ptr<Transport> inner, const CheckOptions& options) {
  return std::make_shared<WatchedTransport>(std::move(inner), options);
}

int same_every(const Transport& transport) {
  if (const auto* watched = dynamic_cast<const WatchedTransport*>(&transport)) return watched->same();
  const auto* forwarding = dynamic_cast<const ForwardingTransport*>(&transport);
  return forwarding ? same_every(forwarding->inner()) : 0;
}

}  // namespace mpigrad::detail
