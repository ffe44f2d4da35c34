// Messages between any ranks, several between the same two, self messages and proc_null: posted and waited for in orders that
// differ between ranks, by every kind of wait, with wildcards and persistent requests.

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <thread>
#include <tuple>

#include "comm/messages/point_to_point.h"
#include "tests/comm/fuzz/adjoint_fuzz.h"

namespace mpigrad::testing {
namespace {

enum class Style : std::uint8_t { nonblocking, blocking_receives, blocking_sends };
enum class Wild : std::uint8_t { no, source, tag, both };
enum class Completion : std::uint8_t { one_by_one, all, any, some, test };

struct Sent {
  int source = 0, dest = 0, tag = 0;
};

// The calls of one rank.
struct Part {
  std::vector<std::size_t> sends, receives;  // messages in posting order; a receive is named by the message that it gets
  int null_sends = 0, null_receives = 0;
  Wild wild = Wild::no;
  Completion completion = Completion::one_by_one;
  std::vector<std::size_t> order;  // order of waits, by index in posting order
  bool persistent = false;
};

struct Plan {
  std::vector<Sent> messages;
  std::vector<Part> parts;
  Style style = Style::nonblocking;
  std::vector<std::int64_t> rows;  // per message
  std::int64_t width = 1;
  DType dtype = DType::float64;

  TensorType type(std::size_t m) const { return {Shape{rows[m], width}, dtype}; }
  TensorType nothing() const { return {Shape{1, width}, dtype}; }
  // The messages that rank r gets, ordered by source, tag and the order in which they were sent.
  std::vector<std::size_t> arriving(std::size_t r) const {
    std::vector<std::size_t> result;
    for (const auto& part : parts)
      for (const auto m : part.sends)
        if (messages[m].dest == static_cast<int>(r)) result.push_back(m);
    std::stable_sort(result.begin(), result.end(), [&](auto a, auto b) {
      return std::pair(messages[a].source, messages[a].tag) < std::pair(messages[b].source, messages[b].tag);
    });
    return result;
  }
};

Plan random_plan(FuzzContext& f) {
  constexpr int tags[] = {0, 1, 7};
  const auto p = f.ranks();
  Plan plan;
  plan.dtype = f.dtype, plan.width = f.dice(1, 2);
  const auto style = f.below(5);
  plan.style = style == 3 ? Style::blocking_receives : style == 4 ? Style::blocking_sends : Style::nonblocking;
  plan.parts.resize(p);
  for (auto& part : plan.parts) {
    part.wild = f.one_in(3) ? static_cast<Wild>(1 + f.below(3)) : Wild::no;
    part.completion = static_cast<Completion>(f.below(5));
    // waitall does not report the sources of messages.
    if (part.wild != Wild::no && part.completion == Completion::all) part.completion = Completion::any;
    part.null_sends = f.one_in(5), part.null_receives = f.one_in(5);
    part.persistent = f.one_in(3);
  }
  std::map<std::tuple<int, int, int>, std::int64_t> rows;  // equal sizes for messages that may be confused
  const auto n = f.below(static_cast<int>(2 * p) + 2);
  for (int i = 0; i < n; ++i) {
    const Sent m{f.below(f.size()), f.below(f.size()), tags[f.below(3)]};
    const bool wild = plan.parts[static_cast<std::size_t>(m.dest)].wild != Wild::no;
    const auto drawn = f.rows();
    plan.rows.push_back(
        rows.emplace(wild ? std::tuple(-1, m.dest, 0) : std::tuple(m.source, m.dest, m.tag), drawn).first->second);
    plan.parts[static_cast<std::size_t>(m.source)].sends.push_back(plan.messages.size());
    plan.parts[static_cast<std::size_t>(m.dest)].receives.push_back(plan.messages.size());
    plan.messages.push_back(m);
  }
  for (auto& part : plan.parts) {
    f.shuffle(part.sends), f.shuffle(part.receives);
    part.order.resize(part.sends.size() + part.receives.size() + static_cast<std::size_t>(part.null_sends + part.null_receives));
    std::iota(part.order.begin(), part.order.end(), 0);
    f.shuffle(part.order);
  }
  return plan;
}

// A posted operation: a send, or a receive and the received data.
struct Posted {
  Request request{};
  bool receives = false, null = false;
  Tensor value{};
  Status status{};
};

// Operations completed by a blocking call have no request any more.
void complete(std::vector<Posted>& posted, Completion how, const std::vector<std::size_t>& order) {
  std::vector<Request> requests;
  for (const auto i : order) requests.push_back(std::move(posted[i].request));
  const auto take = [&](std::size_t at, Tensor value, Status status) {
    posted[order[at]].value = std::move(value), posted[order[at]].status = status;
  };
  switch (how) {
    case Completion::one_by_one:
      for (std::size_t i = 0; i < requests.size(); ++i) {
        if (!requests[i]) continue;
        Status status;
        auto value = wait(requests[i], &status);
        take(i, value, status);
      }
      break;
    case Completion::all: {
      const auto values = waitall(requests);
      for (std::size_t i = 0; i < values.size(); ++i)
        if (values[i]) posted[order[i]].value = values[i];
      break;
    }
    case Completion::any:
      for (auto done = waitany(requests); done.index >= 0; done = waitany(requests))
        take(static_cast<std::size_t>(done.index), done.value, done.status);
      break;
    case Completion::some:
      for (auto some = waitsome(requests); !some.empty(); some = waitsome(requests))
        for (auto& done : some) take(static_cast<std::size_t>(done.index), done.value, done.status);
      break;
    case Completion::test:
      for (bool some = true; some; std::this_thread::yield()) {
        some = false;
        for (std::size_t i = 0; i < requests.size(); ++i) {
          if (!requests[i]) continue;
          Status status;
          if (const auto value = test(requests[i], &status)) take(i, *value, status);
          else some = true;
        }
      }
      break;
  }
  for (const auto& request : requests) require(!request, "a request is left over");
}

Tensors run(const Plan& plan, const Communicator& comm, const Tensors& x) {
  const auto& part = plan.parts[static_cast<std::size_t>(comm.rank())];
  const auto source = [&](std::size_t m) {
    return part.wild == Wild::source || part.wild == Wild::both ? any_source : plan.messages[m].source;
  };
  const auto tag = [&](std::size_t m) {
    return part.wild == Wild::tag || part.wild == Wild::both ? any_tag : plan.messages[m].tag;
  };
  std::vector<Posted> posted;
  const auto post_sends = [&] {
    for (std::size_t k = 0; k < part.sends.size(); ++k) {
      const auto& m = plan.messages[part.sends[k]];
      posted.emplace_back();
      if (plan.style == Style::blocking_sends) send(x[k], comm, m.dest, m.tag);
      else if (part.persistent) posted.back().request = send_init(comm, m.dest, m.tag).start(x[k]);
      else posted.back().request = isend(x[k], comm, m.dest, m.tag);
    }
    for (int i = 0; i < part.null_sends; ++i)
      posted.push_back({.request = isend(x[part.sends.size() + static_cast<std::size_t>(i)], comm, proc_null, 3), .null = true});
  };
  const auto post_receives = [&] {
    for (const auto m : part.receives) {
      posted.push_back({.receives = true});
      auto& last = posted.back();
      if (plan.style == Style::blocking_receives) last.value = recv(plan.type(m), comm, source(m), tag(m), &last.status);
      else if (part.persistent) last.request = recv_init(plan.type(m), comm, source(m), tag(m)).start();
      else last.request = irecv(plan.type(m), comm, source(m), tag(m));
    }
    for (int i = 0; i < part.null_receives; ++i)
      posted.push_back({.request = irecv(plan.nothing(), comm, proc_null, 3), .receives = true, .null = true});
  };
  // Blocking receives need sends posted before them, and blocking sends need receives.
  if (plan.style == Style::blocking_sends || (plan.style == Style::nonblocking && part.persistent)) post_receives(), post_sends();
  else post_sends(), post_receives();
  complete(posted, part.completion, part.order);
  // The next call's messages must not be confused with those of this one.
  comm.transport().barrier();

  // By source and tag, in the order of posting, which is the order of the messages.
  std::map<std::pair<int, int>, Tensors> arrived;
  Tensors nothing, y;
  std::size_t k = 0;
  for (auto& p : posted) {
    if (!p.receives) continue;
    if (p.null) {
      nothing.push_back(p.value);
      continue;
    }
    const auto& like = plan.messages[part.receives[k++]];
    const bool told = part.completion != Completion::all || plan.style == Style::blocking_receives;
    if (!told) p.status = {like.source, like.tag};
    if (part.wild != Wild::source && part.wild != Wild::both)
      require(p.status.source == like.source, "a message from {} instead of {}", p.status.source, like.source);
    if (part.wild != Wild::tag && part.wild != Wild::both)
      require(p.status.tag == like.tag, "a message with tag {} instead of {}", p.status.tag, like.tag);
    arrived[{p.status.source, p.status.tag}].push_back(p.value);
  }
  for (const auto& [from, list] : arrived) y.insert(y.end(), list.begin(), list.end());
  y.insert(y.end(), nothing.begin(), nothing.end());
  return y;
}

FuzzCase make_messages(FuzzContext& f) {
  const auto plan = random_plan(f);
  FuzzCase c;
  std::string list;
  for (const auto& m : plan.messages) list += fmt::format(" {}->{} tag {},", m.source, m.dest, m.tag);
  constexpr std::string_view styles[] = {"non-blocking", "blocking receives", "blocking sends"};
  c.name = fmt::format("messages ({}){}", styles[static_cast<std::size_t>(plan.style)], list);
  for (const auto& part : plan.parts) {
    c.shapes.emplace_back();
    for (const auto m : part.sends) c.shapes.back().push_back(plan.type(m).shape);
    for (int i = 0; i < part.null_sends; ++i) c.shapes.back().push_back(plan.nothing().shape);
  }
  c.run = [plan, comm = f.comm](const Tensors& x) { return run(plan, comm, x); };
  c.expected = [plan](const All& x) {
    All y(x.size());
    for (std::size_t r = 0; r < x.size(); ++r) {
      for (const auto m : plan.arriving(r)) {
        const auto from = static_cast<std::size_t>(plan.messages[m].source);
        const auto& sends = plan.parts[from].sends;
        y[r].push_back(x[from][static_cast<std::size_t>(std::find(sends.begin(), sends.end(), m) - sends.begin())]);
      }
      for (int i = 0; i < plan.parts[r].null_receives; ++i) y[r].emplace_back(static_cast<std::size_t>(plan.width));
    }
    return y;
  };
  return c;
}

// Listed several times, because messages are error-prone.
constexpr std::array makers{FuzzMaker{"messages", make_messages}, FuzzMaker{"messages", make_messages},
                            FuzzMaker{"messages", make_messages}};

}  // namespace

std::span<const FuzzMaker> message_makers() { return makers; }

}  // namespace mpigrad::testing
