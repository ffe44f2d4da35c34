// A rank runs until it needs something that another rank has not given yet; then an exception unwinds it and ends its turn. Its
// next turn starts from the beginning of the body. Calls are counted, so that nothing is sent twice, and data that arrived in
// earlier turns are returned again. The bodies of ranks are deterministic: each turn repeats the last one, and continues for some
// more calls.

#include "examples/site/browser/turns.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/collectives/collectives.h"
#include "comm/transport/threads/rank_transport.h"
#include "framework/base/error.h"

namespace mpigrad::threads {
namespace {

using namespace transport_checks;

// Not an Error, so that handlers of errors do not catch it.
struct TurnEnds {};

// A rank's contribution to a collective call, and its result.
struct Contribution {
  Call call;
  std::vector<std::int64_t> counts, receive_counts;
  std::vector<std::byte> in, out;
};

// One collective call of all ranks of a room.
struct Meeting {
  std::vector<std::optional<Contribution>> ranks;
  int arrived = 0;
  std::string problem;
  bool complete() const { return arrived == static_cast<int>(ranks.size()); }
};

// The data that ranks of one communicator have given each other so far; it outlives turns.
struct Room {
  Room(std::shared_ptr<World> world, std::vector<int> members_)
      : members(std::move(members_)), group(std::make_shared<Group>(std::move(world), members)), sent(members.size()),
        posted(members.size()) {}

  std::vector<int> members;
  std::shared_ptr<Group> group;                                // for its mailboxes
  std::map<std::pair<bool, std::uint64_t>, Meeting> meetings;  // blocking or not, and the ordinal
  std::vector<std::uint64_t> sent;
  std::vector<std::vector<std::shared_ptr<Group::Posted>>> posted;
  std::map<std::pair<std::vector<int>, std::uint64_t>, std::shared_ptr<Room>> children;
};

// The turns of all ranks, and their progress.
struct Turns {
  std::shared_ptr<World> world;
  std::uint64_t given = 0;           // progress of all ranks together
  std::vector<std::string> waiting;  // by world rank, what it waits for; empty: nothing
  // By rank: the answers to its calls of test(), and the number of these calls in this turn.
  std::vector<std::vector<bool>> answers;
  std::vector<std::size_t> asked;
  // The answer "no" is repeated in all later turns; this turn ends, so that other ranks can do what is asked for.
  bool ask(int world_rank, bool done, const std::string& what) {
    check(world_rank);
    auto& known = answers[index(world_rank)];
    if (asked[index(world_rank)] < known.size()) return known[asked[index(world_rank)]++];
    known.push_back(done);
    ++asked[index(world_rank)];
    if (!done) end(world_rank, fmt::format("asks whether {} is done", what));
    return true;
  }
  [[noreturn]] void end(int world_rank, std::string why) {
    waiting[index(world_rank)] = std::move(why);
    throw TurnEnds();
  }
  // A destructor that waits must not throw; the turn is over nevertheless.
  void check(int world_rank) const {
    if (!waiting[index(world_rank)].empty()) throw TurnEnds();
  }
};

// Copies the result of a collective call to this rank, or ends its turn.
void take_out(Turns& turns, const Room& room, int rank, const Meeting& meeting, void* out) {
  const int me = room.members[index(rank)];
  turns.check(me);
  const auto& mine = *meeting.ranks[index(rank)];
  if (!meeting.complete()) {
    std::string missing;
    for (std::size_t r = 0; r < meeting.ranks.size(); ++r)
      if (!meeting.ranks[r]) missing += fmt::format("{}{}", missing.empty() ? "" : ",", room.members[r]);
    turns.end(me,
              fmt::format("{} waits for rank{} {}", describe(mine.call), missing.find(',') == missing.npos ? "" : "s", missing));
  }
  if (!meeting.problem.empty()) throw Error(meeting.problem);
  if (!mine.out.empty() && out) std::memcpy(out, mine.out.data(), mine.out.size());
}

class TurnsTransport final : public RankTransport {
 public:
  TurnsTransport(std::shared_ptr<Turns> turns, std::shared_ptr<Room> room, int rank)
      : RankTransport(rank, static_cast<int>(room->members.size()), false), turns_(std::move(turns)), room_(std::move(room)) {}

  Pending begin(const Collective& call) override {
    auto& meeting = hand_in({call, traits_of(call.kind).nonblocking}, false, started_++);
    return pending<Started>(*this, meeting, call.out);
  }

  Pending start_receive(const Message& message, DType type) override {
    check_receive(message, size(), max_tag());
    turns_->check(me());
    auto& posted = room_->posted[index(rank())];
    if (posted_ < posted.size()) {
      same_as_before(message_name(message.peer, message.tag), message_name(posted[posted_]->source, posted[posted_]->tag));
    } else {
      posted.push_back(room_->group->post_receive(message.peer, rank(), message.tag));
      ++turns_->given;
    }
    return pending<Receive>(*this, posted[posted_++], message, type);
  }

 private:
  int me() const { return room_->members[index(rank())]; }

  void meet(const Call& call) override { take_out(*turns_, *room_, rank(), hand_in(call, true, met_++), call.out); }
  void send(const Message& message, DType type) override {
    turns_->check(me());
    if (sent_++ < room_->sent[index(rank())]) return;  // already sent in an earlier turn
    room_->sent[index(rank())] = sent_;
    ++turns_->given;
    room_->group->deliver(message.peer, envelope(message, type));
  }
  std::shared_ptr<Transport> child(std::span<const int> ranks, std::uint64_t ordinal, int place) override {
    auto& child = room_->children[{{ranks.begin(), ranks.end()}, ordinal}];
    if (!child) {
      std::vector<int> members;
      for (const int r : ranks) members.push_back(room_->members[index(r)]);
      child = std::make_shared<Room>(turns_->world, std::move(members));
    }
    return std::make_shared<TurnsTransport>(turns_, child, place);
  }

  // Data that arrived before would otherwise go to a different call.
  static void same_as_before(const std::string& now, const std::string& before) {
    require(now == before, "[run_in_turns] a rank does {} where it did {} before: its program must do the same in every turn",
            now, before);
  }
  static std::string message_name(int source, int tag) { return fmt::format("a receive from rank {} with tag {}", source, tag); }

  Meeting& hand_in(const Call& call, bool blocking, std::uint64_t ordinal) {
    turns_->check(me());
    auto& meeting = room_->meetings[{blocking, ordinal}];
    meeting.ranks.resize(index(size()));
    auto& mine = meeting.ranks[index(rank())];
    if (mine) {
      same_as_before(describe(call), describe(mine->call));
      return meeting;
    }
    ++turns_->given;
    mine.emplace(Contribution{
        call, {call.counts.begin(), call.counts.end()}, {call.receive_counts.begin(), call.receive_counts.end()}, {}, {}});
    const auto bytes = [&](std::int64_t elements) { return static_cast<std::size_t>(elements * size_of(call.type)); };
    const auto moved = moved_elements(call, rank());
    const bool holds = block_traits_of(call.kind).in_place;  // the root's data are in `out`
    mine->in.resize(holds ? 0 : bytes(moved.in));
    mine->out.resize(bytes(holds ? call.count : moved.out));
    if (!mine->in.empty()) std::memcpy(mine->in.data(), call.in, mine->in.size());
    if (holds && call.root == rank() && !mine->out.empty()) std::memcpy(mine->out.data(), call.out, mine->out.size());
    mine->call.in = mine->in.data(), mine->call.out = mine->out.data();
    mine->call.counts = mine->counts, mine->call.receive_counts = mine->receive_counts;
    if (++meeting.arrived < size()) return meeting;
    std::vector<const Call*> calls;
    for (const auto& each : meeting.ranks) calls.push_back(&each->call);
    meeting.problem = disagreement(calls);
    for (int r = 0; r < size() && meeting.problem.empty(); ++r) do_share(calls, r);
    return meeting;
  }

  class Started final : public PendingWork {
   public:
    Started(TurnsTransport& transport, Meeting& meeting, void* out)
        : turns_(transport.turns_), room_(transport.room_), rank_(transport.rank()), meeting_(meeting), out_(out) {}
    void wait() override { take_out(*turns_, *room_, rank_, meeting_, out_); }
    bool test() override {
      return turns_->ask(room_->members[index(rank_)], meeting_.complete(), describe(meeting_.ranks[index(rank_)]->call));
    }

   private:
    std::shared_ptr<Turns> turns_;
    std::shared_ptr<Room> room_;
    int rank_;
    Meeting& meeting_;
    void* out_;
  };

  class Receive final : public PendingWork {
   public:
    Receive(TurnsTransport& transport, std::shared_ptr<Group::Posted> posted, const Message& message, DType type)
        : turns_(transport.turns_), me_(transport.me()), rank_(transport.rank()), posted_(std::move(posted)), message_(message),
          type_(type) {}
    void wait() override {
      turns_->check(me_);
      if (!posted_->filled)
        turns_->end(me_, fmt::format("receive of {} {} with tag {} waits for {}", message_.count, name_of(type_), message_.tag,
                                     message_.peer == any_source ? "anybody" : fmt::format("rank {}", message_.peer)));
      status_ = read_envelope(posted_->envelope, message_, type_, rank_);
    }
    bool test() override { return turns_->ask(me_, posted_->filled, "a receive"); }
    Status status() const override { return status_; }

   private:
    std::shared_ptr<Turns> turns_;
    int me_, rank_;
    std::shared_ptr<Group::Posted> posted_;
    Message message_;
    DType type_;
    Status status_;
  };

  std::shared_ptr<Turns> turns_;
  std::shared_ptr<Room> room_;
  // Numbers of calls in this turn.
  std::uint64_t met_ = 0, started_ = 0, sent_ = 0;
  std::size_t posted_ = 0;
};

}  // namespace
}  // namespace mpigrad::threads

namespace mpigrad {

void run_in_turns(int ranks, const std::function<void(std::shared_ptr<Transport>)>& body) {
  require(ranks >= 1, "[run_in_turns] at least one rank is needed, got {}", ranks);
  const auto turns = std::make_shared<threads::Turns>();
  turns->world = std::make_shared<threads::World>(ranks);
  turns->waiting.resize(static_cast<std::size_t>(ranks));
  turns->answers.resize(static_cast<std::size_t>(ranks));
  constexpr int most_questions = 1000;  // unsuccessful ones in a row
  int in_vain = 0;
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  const auto room = std::make_shared<threads::Room>(turns->world, members);
  std::vector<bool> ended(static_cast<std::size_t>(ranks));
  while (std::find(ended.begin(), ended.end(), false) != ended.end()) {
    const auto before = turns->given;
    bool someone_ended = false, someone_asked = false;
    turns->asked.assign(static_cast<std::size_t>(ranks), 0);
    for (int r = 0; r < ranks; ++r) {
      const auto i = static_cast<std::size_t>(r);
      if (ended[i]) continue;
      turns->waiting[i].clear();
      const auto questions = turns->answers[i].size();
      try {
        body(std::make_shared<threads::TurnsTransport>(turns, room, r));
      } catch (...) {
        // If a destructor swallowed the end of a turn, the rank ran on with buffers that hold no data; errors after that are
        // ignored.
        if (turns->waiting[i].empty()) throw;
      }
      someone_asked = someone_asked || turns->answers[i].size() > questions;
      if (turns->waiting[i].empty()) ended[i] = someone_ended = true;
    }
    if (someone_ended || turns->given != before) {
      in_vain = 0;
      continue;
    }
    if (someone_asked && ++in_vain < most_questions) continue;
    std::string all;
    for (std::size_t r = 0; r < ended.size(); ++r)
      if (!ended[r]) all += fmt::format("{}rank {}: {}", all.empty() ? "" : "; ", r, turns->waiting[r]);
    fail("[run_in_turns] no rank can go on: {}", all);
  }
}

}  // namespace mpigrad
