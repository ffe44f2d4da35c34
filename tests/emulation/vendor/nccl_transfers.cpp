#include "tests/emulation/vendor/nccl_transfers.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include <fmt/format.h>

#include "tests/emulation/vendor/numbers.h"
#include "tests/emulation/vendor/options.h"
#include "tests/emulation/vendor/stream.h"

namespace mpigrad::emulation::vendor {

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64: return 8;
    default: return 0;
  }
}

namespace {

using Bytes = std::vector<std::byte>;

// One end of one direction.
struct Transfer {
  Header header;
  const std::byte* from = nullptr;  // source of a send
  std::byte* to = nullptr;          // destination of a receive
  std::size_t bytes = 0, done = 0;
  bool waits = false;  // a piece is in the mailbox and has not been taken
};
struct Way {
  Segment* segment;
  int peer;
  Segment::Lane lane;
  bool sends;
  auto operator<=>(const Way&) const = default;
};

// Continues the transfer as far as possible; true if it is finished.
bool advance(const Way& way, Transfer& t) {
  auto& segment = *way.segment;
  auto& box =
      way.sends ? segment.mailbox(segment.rank(), way.peer, way.lane) : segment.mailbox(way.peer, segment.rank(), way.lane);
  if (way.sends) {
    while (box.full == 0) {
      if (t.waits && t.done == t.bytes) return true;
      box.bytes = static_cast<std::uint32_t>(std::min(Mailbox::room, t.bytes - t.done));
      box.header = t.header;
      std::memcpy(box.data, t.from + t.done, box.bytes);
      t.done += box.bytes, t.waits = true;
      box.full = 1;
    }
    return false;
  }
  while (box.full == 1) {
    if (box.header != t.header)
      die(fmt::format("{} expects {} of rank {}, which sends {}", segment.who(), to_string(t.header), way.peer,
                      to_string(box.header)));
    std::memcpy(t.to + t.done, box.data, box.bytes);
    t.done += box.bytes;
    box.full = 0;
    if (t.done == t.bytes) return true;
  }
  return false;
}

// Compares the calls of all ranks: the second rank to arrive finds a mismatch.
void announce(Segment& segment, const Header& header) {
  auto& own = segment.member(segment.rank());
  own.log[header.number % Member::calls] = header;
  own.announced = header.number + 1;
  for (int r = 0; r < segment.ranks(); ++r) {
    auto& other = segment.member(r);
    const auto there = other.announced.load();
    if (there <= header.number || there - header.number > Member::calls / 2) continue;
    const auto theirs = other.log[header.number % Member::calls];
    if (theirs != header)
      die(fmt::format("{} calls {}, rank {} calls {}", segment.who(), to_string(header), r, to_string(theirs)));
  }
}

template <class T>
T reduced(T a, T b, ncclRedOp_t op) {
  const auto as_float = [&](auto x, auto y) {
    switch (op) {
      case ncclSum: return x + y;
      case ncclProd: return x * y;
      case ncclMax: return std::fmax(x, y);  // ignores NaN
      default: return std::fmin(x, y);
    }
  };
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    return T(as_float(static_cast<float>(a), static_cast<float>(b)));
  } else if constexpr (std::is_floating_point_v<T>) {
    return as_float(a, b);
  } else {
    using U = std::make_unsigned_t<T>;
    switch (op) {
      case ncclSum: return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
      case ncclProd: return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
      case ncclMax: return std::max(a, b);
      default: return std::min(a, b);
    }
  }
}
template <class T>
void reduce_as(Bytes& sum, const Bytes& part, ncclRedOp_t op) {
  for (std::size_t at = 0; at < sum.size(); at += sizeof(T)) {
    T a, b;
    std::memcpy(&a, sum.data() + at, sizeof a);
    std::memcpy(&b, part.data() + at, sizeof b);
    a = reduced(a, b, op);
    std::memcpy(sum.data() + at, &a, sizeof a);
  }
}
void reduce_into(Bytes& sum, const Bytes& part, const Header& h) {
  const auto op = static_cast<ncclRedOp_t>(h.op);
  switch (static_cast<ncclDataType_t>(h.type)) {
    case ncclInt8: return reduce_as<std::int8_t>(sum, part, op);
    case ncclUint8: return reduce_as<std::uint8_t>(sum, part, op);
    case ncclInt32: return reduce_as<std::int32_t>(sum, part, op);
    case ncclUint32: return reduce_as<std::uint32_t>(sum, part, op);
    case ncclInt64: return reduce_as<std::int64_t>(sum, part, op);
    case ncclUint64: return reduce_as<std::uint64_t>(sum, part, op);
    case ncclFloat16: return reduce_as<Float16>(sum, part, op);
    case ncclBfloat16: return reduce_as<BFloat16>(sum, part, op);
    case ncclFloat32: return reduce_as<float>(sum, part, op);
    case ncclFloat64: return reduce_as<double>(sum, part, op);
    default: die("an unknown type");
  }
}

// A running call: the data of each rank, with this rank's own in its place.
struct Work {
  Call call;
  std::vector<Bytes> parts;
};

class Progress {
 public:
  // Repetitions of a captured call have its number.
  void add(Work& work, bool repeats) {
    const auto& call = work.call;
    auto& segment = *call.communicator->segment;
    const int me = segment.rank(), ranks = segment.ranks();
    const auto& h = call.header;
    const auto bytes = call.bytes();
    const auto* in = static_cast<const std::byte*>(call.in);
    work.parts.resize(static_cast<std::size_t>(ranks));
    const auto part = [&](int rank) -> Bytes& { return work.parts[static_cast<std::size_t>(rank)]; };
    const auto send = [&](int peer, Segment::Lane lane, const std::byte* from) {
      if (bytes > 0) ways_[{&segment, peer, lane, true}].push_back({h, from, nullptr, bytes, 0, false});
    };
    const auto receive = [&](int peer, Segment::Lane lane) {
      part(peer).resize(bytes);
      if (bytes > 0) ways_[{&segment, peer, lane, false}].push_back({h, nullptr, part(peer).data(), bytes, 0, false});
    };
    const auto keep = [&](const std::byte* from) { part(me).assign(from, from + bytes); };
    if (h.kind == Header::message) {
      if (call.sends) send(call.peer, Segment::Lane::messages, in);
      else receive(call.peer, Segment::Lane::messages);
      return;
    }
    if (!repeats) announce(segment, h);
    const auto lane = Segment::Lane::collectives;
    const auto others = [&](auto&& each) {
      for (int r = 0; r < ranks; ++r)
        if (r != me) each(r);
    };
    switch (h.kind) {
      case Header::broadcast:
        if (me != h.root) return receive(h.root, lane);
        keep(in);
        return others([&](int r) { send(r, lane, in); });
      case Header::reduce:
        if (me != h.root) return send(h.root, lane, in);
        keep(in);
        return others([&](int r) { receive(r, lane); });
      case Header::all_reduce:
      case Header::all_gather: keep(in); return others([&](int r) { send(r, lane, in), receive(r, lane); });
      case Header::reduce_scatter: {
        const auto block = [&](int r) { return in + static_cast<std::size_t>(r) * bytes; };
        keep(block(me));
        return others([&](int r) { send(r, lane, block(r)), receive(r, lane); });
      }
      default: die("an unknown call");
    }
  }

  void run() {
    wait_until(
        [&] {
          for (auto at = ways_.begin(); at != ways_.end();) {
            auto& queue = at->second;
            while (!queue.empty() && advance(at->first, queue.front())) queue.pop_front();
            at = queue.empty() ? ways_.erase(at) : std::next(at);
          }
          return ways_.empty();
        },
        [&] {
          const auto& [way, queue] = *ways_.begin();
          return fmt::format("{} waits {} rank {}: {}", way.segment->who(), way.sends ? "to be received by" : "for", way.peer,
                             to_string(queue.front().header));
        });
  }

 private:
  std::map<Way, std::deque<Transfer>> ways_;
};

// The result, and the memory to which it is written.
Bytes result_of(Work& work) {
  const auto& h = work.call.header;
  const auto me = static_cast<std::size_t>(work.call.communicator->segment->rank());
  auto& parts = work.parts;
  switch (h.kind) {
    case Header::message: return work.call.sends ? Bytes() : std::move(parts[static_cast<std::size_t>(work.call.peer)]);
    case Header::broadcast: return std::move(parts[static_cast<std::size_t>(h.root)]);
    case Header::reduce:
      if (static_cast<std::size_t>(h.root) != me) return {};
      [[fallthrough]];
    case Header::all_reduce:
    case Header::reduce_scatter: {
      auto sum = std::move(parts[0]);
      for (std::size_t r = 1; r < parts.size(); ++r) reduce_into(sum, parts[r], h);
      return sum;
    }
    case Header::all_gather: {
      Bytes all;
      for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
      return all;
    }
    default: return {};
  }
}

}  // namespace

namespace {

std::vector<Work> performed(const std::vector<Call>& calls, bool repeats) {
  std::vector<Work> work(calls.size());
  Progress progress;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    work[i].call = calls[i];
    progress.add(work[i], repeats);
  }
  progress.run();
  return work;
}

}  // namespace

void perform(std::vector<Call> calls) {
  std::set<cudaStream_t> streams;
  for (const auto& call : calls) streams.insert(call.stream);
  // From version 2.26 on NCCL can also keep the order of the host's calls within a graph, on request.
  const char* implicit = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  const bool in_order = !Options("MPIGRAD_EMULATED_NCCL").has("version-2.25") && implicit && std::string_view(implicit) == "1";
  const auto repeated = [calls] {
    for (auto& one : performed(calls, true))
      if (const auto result = result_of(one); !result.empty()) std::memcpy(one.call.out, result.data(), result.size());
  };
  if (streams.size() == 1 && enqueue_if_captured(*streams.begin(), repeated, in_order)) return;
  for (auto* stream : streams) wait_for(stream);
  auto work = performed(calls, false);
  for (auto& one : work) {
    auto result = result_of(one);
    if (result.empty()) continue;
    enqueue(one.call.stream, [to = one.call.out, bytes = std::move(result)] { std::memcpy(to, bytes.data(), bytes.size()); });
  }
}

}  // namespace mpigrad::emulation::vendor
