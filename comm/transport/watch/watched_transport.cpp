#include "comm/transport/watch/watched_transport.h"

#include <string>
#include <vector>

#include "comm/transport/forwarding.h"
#include "comm/transport/transport_checks.h"
#include "comm/transport/watch/call_board.h"
#include "comm/transport/watch/watch.h"
#include "framework/base/error.h"
#include "framework/base/fnv.h"
#include "framework/engine/op.h"

namespace mpigrad::detail {
namespace {

using transport_checks::total;

std::uint64_t hash(std::span<const std::int64_t> counts) {
  auto value = fnv_start;
  for (const auto count : counts) value = fnv1a(value, static_cast<std::uint64_t>(count));
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

  // A replayed graph would not be checked. The default watchdog must not switch graphs off.
  bool capturable() override { return (size() == 1 || !options_) && inner().capturable(); }

  void perform(const Collective& c) override {
    const auto call = signature(name_of(c.kind), c);
    Watch(options_, board(), call, *this)([&] { return traced(call, c); },
                                          [&] {
                                            if (compares(call.number)) {
                                              // Compared by a non-blocking call, so that blocking and non-blocking calls meet.
                                              signatures(call).wait();
                                              if (c.kind == CollectiveKind::alltoall) pairs(name_of(c.kind), c).wait();
                                            }
                                            inner().perform(c);
                                          });
  }

  Pending begin(const Collective& c) override {
    const auto name = traits_of(c.kind).nonblocking;
    const auto call = signature(name, c);
    // Compared at the wait, because a start must not wait for the other ranks.
    Pending started, agreed, paired;
    Watch(options_, board(), call, *this)([&] { return traced(call, c); },
                                          [&] {
                                            if (compares(call.number)) {
                                              agreed = signatures(call);
                                              if (c.kind == CollectiveKind::alltoall) paired = pairs(name, c);
                                            }
                                            started = inner().begin(c);
                                          });
    return later(std::move(started), call, fmt::format("#{} {}", call.number, to_string(call)), std::move(agreed),
                 std::move(paired));
  }

  // Point-to-point calls are not compared, because ranks need not make the same ones.
  void exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    const auto call = messages("exchange", sends, receives, type);
    Watch(options_, board(), call, *this)([&] { return peers(call, sends, receives); },
                                          [&] { inner().exchange(sends, receives, type); });
  }
  Pending start_exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    const auto call = messages("start_exchange", sends, receives, type);
    Pending pending;
    Watch(options_, board(), call, *this)([&] { return peers(call, sends, receives); },
                                          [&] { pending = inner().start_exchange(sends, receives, type); });
    return later(std::move(pending), messages("wait for exchange", sends, receives, type), peers(call, sends, receives));
  }
  Pending start_round(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    const auto call = messages("start_round", sends, receives, type);
    Pending pending;
    Watch(options_, board(), call, *this)([&] { return peers(call, sends, receives); },
                                          [&] { pending = inner().start_round(sends, receives, type); });
    return later(std::move(pending), messages("wait for round", sends, receives, type), peers(call, sends, receives));
  }
  Pending start_receive(const Message& message, DType type) override {
    const auto call = messages("start_receive", {}, {&message, 1}, type);
    Pending pending;
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
    fail("[checks] {} must be the same on all {} ranks and is not; hashes: {}", what, size(), text);
  }

  std::shared_ptr<Transport> split(int color, int key) override {
    meet("split");
    return ForwardingTransport::split(color, key);
  }
  std::shared_ptr<Transport> duplicate() override {
    meet("duplicate");
    return ForwardingTransport::duplicate();
  }

 private:
  std::shared_ptr<Transport> wrap(std::shared_ptr<Transport> made) const override {
    return std::make_shared<WatchedTransport>(std::move(made), options_);
  }
  CallBoard* board() const { return board_.get(); }

  Signature signature(std::string_view name) {
    Signature call(name, ++calls_);
    call.recorded = recorded_call() ? 1 : 0;
    return call;
  }
  Signature signature(std::string_view name, const Collective& c) {
    auto call = signature(name);
    const auto traits = traits_of(c.kind);
    if (c.kind == CollectiveKind::barrier) return call;
    call.type = static_cast<int>(c.type);
    if (traits.reduces) call.reduction = static_cast<int>(c.op);
    if (traits.rooted()) call.root = c.root;
    if (!traits.counts()) call.count = c.count;
    else if (c.kind != CollectiveKind::alltoall) call.count = total(c.counts), call.counts = hash(c.counts);
    return call;
  }
  std::string traced(const Signature& call, const Collective& c) const {
    const auto moved = moved_elements(c, rank());
    const auto elements = c.kind == CollectiveKind::bcast ? c.count : c.kind == CollectiveKind::scatter ? moved.out : moved.in;
    return fmt::format("#{} {}: {} bytes", call.number, to_string(call), elements * size_of(c.type));
  }
  // Messages are not numbered, because they do not count among the collective calls.
  static Signature messages(std::string_view name, std::span<const Message> sends, std::span<const Message> receives,
                            DType type) {
    Signature call(name, 0);
    call.type = static_cast<int>(type);
    for (const auto& m : sends) call.count += m.count;
    for (const auto& m : receives) call.count += m.count, call.root = m.peer;  // for messages to the user: the rank it waits for
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

  Pending later(Pending operation, const Signature& call, std::string what, Pending agreed = {}, Pending paired = {}) {
    return pending<WatchedPending>(std::move(operation), std::move(agreed), std::move(paired),
                                   Watch(options_, board(), call, *this), std::move(what), board_);
  }

  bool compares(std::int64_t number) const { return options_.signatures > 0 && number % options_.signatures == 0; }

  // Checks a call that all ranks make and that moves no data.
  void meet(std::string_view name) {
    const auto call = signature(name);
    Watch(options_, board(), call, *this)([&] { return fmt::format("#{} {}: 0 bytes", call.number, to_string(call)); },
                                          [&] {
                                            if (compares(call.number)) signatures(call).wait();
                                          });
  }

  Pending signatures(const Signature& mine) { return pending<Comparison<Signature>>(*control_, std::vector{mine}, agree); }
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

  // Compares the counts that each rank r sends to s with the counts that s expects from r.
  Pending pairs(std::string_view name, const Collective& c) {
    std::vector<std::int64_t> mine(c.counts.begin(), c.counts.end());
    mine.insert(mine.end(), c.receive_counts.begin(), c.receive_counts.end());
    const auto fit = [name, n = c.counts.size()](const std::vector<std::int64_t>& all) {
      for (std::size_t r = 0; r < n; ++r)
        for (std::size_t s = 0; s < n; ++s) {
          const auto sent = all[2 * n * r + s], expected = all[2 * n * s + n + r];
          require(sent == expected, "[checks] in {} rank {} sends {} elements to rank {}, which expects {}", name, r, sent, s,
                  expected);
        }
    };
    return pending<Comparison<std::int64_t>>(*control_, std::move(mine), fit);
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
