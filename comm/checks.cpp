#include "comm/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "comm/call_board.h"
#include "comm/forwarding.h"
#include "comm/transport_checks.h"
#include "comm/words.h"
#include "framework/error.h"
#include "framework/op.h"

namespace mpigrad {
namespace {

using detail::CallBoard;
using detail::Signature;
using transport_checks::total;

std::uint64_t hash(std::span<const std::int64_t> counts) {
  std::uint64_t value = 1469598103934665603ULL;  // FNV-1a
  for (const auto count : counts) value = (value ^ static_cast<std::uint64_t>(count)) * 1099511628211ULL;
  return value;
}
std::uint64_t hash(std::span<const std::byte> data) {
  return std::hash<std::string_view>{}({reinterpret_cast<const char*>(data.data()), data.size()});
}

// The ranks that hold equal values, the largest group first, ties in the order of ranks: the same on every rank.
template <class T>
std::vector<std::pair<T, std::vector<int>>> groups_of(const std::vector<T>& all) {
  std::vector<std::pair<T, std::vector<int>>> groups;
  for (std::size_t r = 0; r < all.size(); ++r) {
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == all[r]; });
    if (found == groups.end()) groups.push_back({all[r], {static_cast<int>(r)}});
    else found->second.push_back(static_cast<int>(r));
  }
  std::stable_sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  return groups;
}

std::string plural(const std::vector<int>& ranks) { return ranks.size() > 1 ? "ranks " : "rank "; }

void print_line(const std::string& line) { std::fwrite(line.data(), 1, line.size(), stderr); }  // one write: lines do not mix

// Tells the board while a call runs, and prints what it took.
class Watch {
 public:
  Watch(const CheckOptions& options, CallBoard* board, const Signature& call, const Transport& transport)
      : options_(options), board_(board), call_(call), rank_(transport.rank()), size_(transport.size()) {}

  template <class Describe, class Call>
  void operator()(const Describe& describe, const Call& call) const {
    const auto start = std::chrono::steady_clock::now();
    {
      const Inside inside(board_, call_, size_);
      call();
    }
    if (!options_.trace) return;
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
    print_line(fmt::format("[rank {} of {}] {}, {:.3f} ms\n", rank_, size_, describe(), elapsed.count()));
  }

 private:
  struct Inside {
    Inside(CallBoard* b, const Signature& call, int size) : board(b) {
      if (board) board->begin(call, size);
    }
    ~Inside() {
      if (board) board->end();
    }
    CallBoard* board;
  };

  CheckOptions options_;
  CallBoard* board_;
  Signature call_;
  int rank_, size_;
};

class WatchedPending final : public PendingReceive {
 public:
  WatchedPending(std::unique_ptr<PendingOperation> operation, const Watch& watch, std::string what,
                 std::shared_ptr<CallBoard> board)
      : operation_(std::move(operation)), watch_(watch), what_(std::move(what)), board_(std::move(board)) {}
  void wait() override {
    watch_([&] { return "wait for " + what_; }, [&] { operation_->wait(); });
  }
  bool test() override { return operation_->test(); }
  void cancel() override {
    if (auto* receive = dynamic_cast<PendingReceive*>(operation_.get())) receive->cancel();
  }
  Status status() const override {
    const auto* receive = dynamic_cast<const PendingReceive*>(operation_.get());
    return receive ? receive->status() : Status();
  }

 private:
  std::unique_ptr<PendingOperation> operation_;
  Watch watch_;
  std::string what_;
  std::shared_ptr<CallBoard> board_;  // kept alive
};

class WatchedTransport final : public ForwardingTransport {
 public:
  WatchedTransport(std::shared_ptr<Transport> inner, const CheckOptions& options)
      : ForwardingTransport(std::move(inner)), options_(options), board_(detail::board_of_this_thread()) {
    if (options_.signatures > 0 || options_.same > 0) control_ = this->inner().control();
  }

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
      if (compares(call.number)) compare_pairs("alltoall", send_counts, receive_counts);
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
    std::unique_ptr<PendingOperation> pending;
    watch(call, (c.count >= 0 ? c.count : total(c.counts)) * size_of(c.type), [&] {
      if (c.kind == CollectiveKind::alltoall && compares(call.number)) compare_pairs("ialltoall", c.counts, c.receive_counts);
      pending = inner().start(c);
    });
    return later(std::move(pending), call, fmt::format("#{} {}", call.number, to_string(call)));
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
      text += fmt::format("{}{}{} {:016x}", text.empty() ? "" : "; ", plural(ranks), detail::ranges(ranks), value);
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
  CallBoard* board() const { return options_.watchdog > 0 ? board_.get() : nullptr; }

  Signature signature(std::string_view name) {
    Signature call(name, ++calls_);
    call.recorded = detail::recorded_call() ? 1 : 0;
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

  std::unique_ptr<PendingReceive> later(std::unique_ptr<PendingOperation> pending, const Signature& call, std::string what) {
    return std::make_unique<WatchedPending>(std::move(pending), Watch(options_, board(), call, *this), std::move(what), board_);
  }

  bool compares(std::int64_t number) const { return options_.signatures > 0 && number % options_.signatures == 0; }

  template <class Call>
  void watch(const Signature& mine, std::int64_t bytes, const Call& call) {
    Watch(options_, board(), mine, *this)([&] { return fmt::format("#{} {}: {} bytes", mine.number, to_string(mine), bytes); },
                                          [&] {
                                            if (compares(mine.number)) compare(mine);
                                            call();
                                          });
  }

  void compare(const Signature& mine) {
    std::vector<Signature> all(static_cast<std::size_t>(size()));
    const std::vector<std::int64_t> counts(all.size(), sizeof(Signature));
    control_->allgather(&mine, all.data(), counts, DType::uint8);
    const auto groups = groups_of(all);
    if (groups.size() == 1) return;
    const auto differs = [&](auto member) {
      return std::any_of(all.begin(), all.end(), [&](const Signature& s) { return s.*member != all[0].*member; });
    };
    const bool numbers = differs(&Signature::number), recorded = differs(&Signature::recorded);
    std::string text;
    for (const auto& [call, ranks] : groups) {
      text += fmt::format("{}{}{}: {}", text.empty() ? "" : "; ", plural(ranks), detail::ranges(ranks), to_string(call));
      if (numbers) text += fmt::format(", as its call {}", call.number);
      if (recorded) text += call.recorded ? ", recorded on a tape" : ", not recorded (no tape, or a constant)";
    }
    fail("[checks] the ranks of a communicator of {} do not make the same call: {}", size(), text);
  }

  // What rank r sends to s is what s expects of r.
  void compare_pairs(std::string_view name, std::span<const std::int64_t> send_counts,
                     std::span<const std::int64_t> receive_counts) {
    const auto size = static_cast<std::size_t>(this->size());
    transport_checks::check_counts(name, send_counts, this->size());
    transport_checks::check_counts(name, receive_counts, this->size());
    std::vector<std::int64_t> mine(send_counts.begin(), send_counts.end()), all(2 * size * size);
    mine.insert(mine.end(), receive_counts.begin(), receive_counts.end());
    control_->allgather(mine.data(), all.data(), std::vector<std::int64_t>(size, static_cast<std::int64_t>(2 * size)),
                        DType::int64);
    for (std::size_t r = 0; r < size; ++r)
      for (std::size_t s = 0; s < size; ++s) {
        const auto sent = all[2 * size * r + s], expected = all[2 * size * s + size + r];
        require(sent == expected, "[checks] in {} rank {} sends {} elements to rank {}, which expects {}", name, r, sent, s,
                expected);
      }
  }

  CheckOptions options_;
  std::shared_ptr<CallBoard> board_;
  std::shared_ptr<Transport> control_;
  std::int64_t calls_ = 0, compared_ = 0;
};

}  // namespace

CheckOptions parse_checks(std::string_view text) {
  CheckOptions options;
  for (const auto word : detail::words_of(text)) {
    const auto equals = word.find('=');
    const auto name = word.substr(0, equals);
    std::optional<double> value;
    if (equals != std::string_view::npos) {
      const auto digits = word.substr(equals + 1);
      double number = 0;
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
      if (error == std::errc{} && end == digits.data() + digits.size() && number > 0 && number < 1e9) value = number;
      else value = -1;
    }
    const bool count = value.value_or(1) >= 1 && value.value_or(1) == static_cast<int>(value.value_or(1));
    if (name == "trace" && !value) options.trace = true;
    else if (name == "signatures" && count) options.signatures = static_cast<int>(value.value_or(1));
    else if (name == "same" && count) options.same = static_cast<int>(value.value_or(1));
    else if (name == "watchdog" && value.value_or(-1) > 0) options.watchdog = *value;
    else fail("[checks] MPIGRAD_CHECKS knows signatures, signatures=K, same, same=K, trace and watchdog=SECONDS, got '{}'", word);
  }
  return options;
}

CheckOptions checks_of_environment() {
  const char* text = std::getenv("MPIGRAD_CHECKS");
  return parse_checks(text ? text : "");
}

std::shared_ptr<Transport> watched(std::shared_ptr<Transport> transport, const CheckOptions& options) {
  if (!options || !transport || transport->name() == "dry" || &transport->underlying() != transport.get()) return transport;
  return std::make_shared<WatchedTransport>(std::move(transport), options);
}

}  // namespace mpigrad
