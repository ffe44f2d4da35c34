// The mpi transport, on a private duplicate of the communicator that returns errors.

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <numeric>
#include <string>
#include <utility>

#include "comm/transport/basic_transport.h"
#include "comm/transport/environment.h"
#include "comm/transport/mpi/call.h"
#include "comm/transport/mpi/mpi_comm.h"
#include "comm/transport/mpi/pieces.h"
#include "comm/transport/mpi/requests.h"
#include "comm/transport/transport_checks.h"

namespace mpigrad {
namespace mpi {
namespace {

using namespace transport_checks;

// Where the ranks run.
struct Home {
  using Nodes = std::shared_ptr<const std::vector<int>>;
  Nodes nodes;  // equal for ranks that share memory; duplicates of a communicator have one list
  // The same for some of the ranks.
  Home of(std::span<const int> ranks) const {
    std::vector<int> chosen;
    chosen.reserve(ranks.size());
    for (const int rank : ranks) chosen.push_back((*nodes)[static_cast<std::size_t>(rank)]);
    return {std::make_shared<const std::vector<int>>(std::move(chosen)), crowded};
  }
  // True if on some node there are as many ranks as cores, or more, of all ranks for which this transport was made. Collectives
  // are then non-blocking ones that are waited for, because MPI's own waiting would keep the awaited ranks from running.
  bool crowded = false;
};

class MpiTransport final : public BasicTransport {
 public:
  // Takes over `communicator`.
  MpiTransport(MPI_Comm communicator, Home home)
      : BasicTransport(place(communicator, *home.nodes)), communicator_(communicator), home_(std::move(home)) {
    check(MPI_Comm_set_errhandler(communicator_, errors_return()), "communicator");
    void* bound = nullptr;
    int found = 0;
    check(MPI_Comm_get_attr(communicator_, MPI_TAG_UB, &bound, &found), "communicator");
    if (found) max_tag_ = *static_cast<int*>(bound);
  }

  ~MpiTransport() override {
    if (!finalized()) MPI_Comm_free(&communicator_);
  }

  MPI_Comm communicator() const { return communicator_; }

  int max_tag() const override { return max_tag_; }
  bool any_thread() const override {
    int level = 0;
    return MPI_Query_thread(&level) == MPI_SUCCESS && level == MPI_THREAD_MULTIPLE;
  }

  void perform(const Collective& c) override {
    const auto call = name_of(c.kind);
    if (home_.crowded) return begin(c, call).wait();
    const auto type = type_of(c.type);
    const auto count = checked(c.count, call);
    const Layout send(c.counts, call), receive(c.receive_counts, call);
    const auto own = c.counts.empty() ? Count{0} : send.counts[index(rank())];
    std::vector<std::byte> copy;
    const void* in = input_of(c, copy);
    int code = MPI_SUCCESS;
    switch (c.kind) {
      case CollectiveKind::barrier: code = MPI_Barrier(communicator_); break;
      case CollectiveKind::bcast: code = MPIGRAD_MPI(MPI_Bcast)(c.out, count, type, c.root, communicator_); break;
      case CollectiveKind::reduce:
        code = MPIGRAD_MPI(MPI_Reduce)(in, output_of(c), count, type, op_of(c.op, c.type), c.root, communicator_);
        break;
      case CollectiveKind::allreduce:
        for (const auto& piece : pieces_of(c, in))
          if (code == MPI_SUCCESS)
            code = MPIGRAD_MPI(MPI_Allreduce)(piece.in, piece.out, piece.count, type, op_of(c.op, c.type), communicator_);
        break;
      case CollectiveKind::gather:
        code = MPIGRAD_MPI(MPI_Gatherv)(in, own, type, c.out, send.counts.data(), send.displacements.data(), type, c.root,
                                        communicator_);
        break;
      case CollectiveKind::scatter:
        code = MPIGRAD_MPI(MPI_Scatterv)(c.in, send.counts.data(), send.displacements.data(), type, output_of(c), own, type,
                                         c.root, communicator_);
        break;
      case CollectiveKind::allgather:
        code =
            MPIGRAD_MPI(MPI_Allgatherv)(in, own, type, c.out, send.counts.data(), send.displacements.data(), type, communicator_);
        break;
      case CollectiveKind::reduce_scatter:
        code = MPIGRAD_MPI(MPI_Reduce_scatter)(c.in, c.out, send.counts.data(), type, op_of(c.op, c.type), communicator_);
        break;
      case CollectiveKind::alltoall:
        code = MPIGRAD_MPI(MPI_Alltoallv)(c.in, send.counts.data(), send.displacements.data(), type, c.out, receive.counts.data(),
                                          receive.displacements.data(), type, communicator_);
        break;
    }
    check(code, call);
  }

  Pending begin(const Collective& c) override { return begin(c, traits_of(c.kind).nonblocking); }

  Pending start_exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    check_messages(sends, size(), max_tag_);
    check_messages(receives, size(), max_tag_);
    auto [result, requests] = requested("exchange", type, receives);
    for (const auto messages : {sends, receives})
      for (const auto& message : messages) requests.bytes += message.count * size_of(type);
    for (const auto& message : receives) post_receive(message, type, message.peer, message.tag, requests, "exchange");
    for (const auto& message : sends)
      check(MPIGRAD_MPI(MPI_Isend)(message.data, checked(message.count, "exchange"), type_of(type), message.peer, message.tag,
                                   communicator_, requests.add()),
            "exchange");
    return std::move(result);
  }

  Pending start_receive(const Message& message, DType type) override {
    check_receive(message, size(), max_tag_);
    auto [result, requests] = requested("receive", type, std::span(&message, 1));
    requests.bytes = message.count * size_of(type);
    post_receive(message, type, message.peer == any_source ? MPI_ANY_SOURCE : message.peer,
                 message.tag == any_tag ? MPI_ANY_TAG : message.tag, requests, "receive");
    return std::move(result);
  }

  std::shared_ptr<Transport> subgroup(std::span<const int> ranks) override {
    check_subgroup(ranks, rank(), size());
    MPI_Group all = MPI_GROUP_NULL, chosen = MPI_GROUP_NULL;
    MPI_Comm made = MPI_COMM_NULL;
    check(MPI_Comm_group(communicator_, &all), "subgroup");
    int code = MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &chosen);
    if (code == MPI_SUCCESS) code = MPI_Comm_create_group(communicator_, chosen, 0, &made);
    if (chosen != MPI_GROUP_NULL) MPI_Group_free(&chosen);
    MPI_Group_free(&all);
    check(code, "subgroup");
    return std::make_shared<MpiTransport>(made, home_.of(ranks));
  }

  std::shared_ptr<Transport> split(int color, int key) override {
    MPI_Comm made = MPI_COMM_NULL;
    check(MPI_Comm_split(communicator_, color < 0 ? MPI_UNDEFINED : color, key, &made), "split");
    if (made == MPI_COMM_NULL) return nullptr;
    MPI_Group all = MPI_GROUP_NULL, chosen = MPI_GROUP_NULL;
    check(MPI_Comm_group(communicator_, &all), "split");
    check(MPI_Comm_group(made, &chosen), "split");
    int size = 0;
    check(MPI_Group_size(chosen, &size), "split");
    std::vector<int> theirs(index(size)), ours(index(size));
    std::iota(theirs.begin(), theirs.end(), 0);
    check(MPI_Group_translate_ranks(chosen, size, theirs.data(), all, ours.data()), "split");
    MPI_Group_free(&chosen);
    MPI_Group_free(&all);
    return std::make_shared<MpiTransport>(made, home_.of(ours));
  }

  std::shared_ptr<Transport> duplicate() override {
    MPI_Comm made = MPI_COMM_NULL;
    check(MPI_Comm_dup(communicator_, &made), "duplicate");
    return std::make_shared<MpiTransport>(made, home_);
  }

  void abort(int code) override { abort_job(code == 0 ? 1 : code); }

 private:
  static Place place(MPI_Comm communicator, const std::vector<int>& nodes) {
    Place result{.name = "mpi", .node_size = 0};
    check(MPI_Comm_rank(communicator, &result.rank), "communicator");
    check(MPI_Comm_size(communicator, &result.size), "communicator");
    for (int r = 0; r < result.size; ++r) {
      if (nodes[index(r)] != nodes[index(result.rank)]) continue;
      ++result.node_size;
      if (r < result.rank) ++result.node_rank;
    }
    return result;
  }

  // A receive of no elements has room for one: Intel MPI 2021.19 reports nothing if such a receive without room gets a message.
  void post_receive(const Message& message, DType type, int source, int tag, Requests& requests, std::string_view call) {
    const bool empty = message.count == 0;
    check(MPIGRAD_MPI(MPI_Irecv)(empty ? requests.spare.data() : message.data, empty ? Count{1} : checked(message.count, call),
                                 type_of(type), source, tag, communicator_, requests.add()),
          call);
  }

  // `call` is the name used in errors.
  Pending begin(const Collective& c, std::string_view call) {
    auto [result, requests] = requested(call, c.type, {});
    const auto moved = moved_elements(c, rank());
    requests.bytes = (moved.in + moved.out) * size_of(c.type);
    for (const auto counts : {c.counts, c.receive_counts}) requests.layouts.emplace_back(counts, call);
    const auto &send = requests.layouts[0], &receive = requests.layouts[1];
    const auto own = c.counts.empty() ? Count{0} : send.counts[index(rank())];
    const auto type = type_of(c.type);
    const auto count = checked(c.count, call);
    const void* in = input_of(c, requests.copy);
    MPI_Request* request = requests.add();
    int code = MPI_SUCCESS;
    switch (c.kind) {
      case CollectiveKind::barrier: code = MPI_Ibarrier(communicator_, request); break;
      case CollectiveKind::bcast: code = MPIGRAD_MPI(MPI_Ibcast)(c.out, count, type, c.root, communicator_, request); break;
      case CollectiveKind::reduce:
        code = MPIGRAD_MPI(MPI_Ireduce)(in, output_of(c), count, type, op_of(c.op, c.type), c.root, communicator_, request);
        break;
      case CollectiveKind::allreduce:
        for (const auto& piece : pieces_of(c, in)) {
          if (code != MPI_SUCCESS) break;
          if (piece.first > 0) request = requests.add();
          code = MPIGRAD_MPI(MPI_Iallreduce)(piece.in, piece.out, piece.count, type, op_of(c.op, c.type), communicator_, request);
        }
        break;
      case CollectiveKind::gather:
        code = MPIGRAD_MPI(MPI_Igatherv)(in, own, type, c.out, send.counts.data(), send.displacements.data(), type, c.root,
                                         communicator_, request);
        break;
      case CollectiveKind::scatter:
        code = MPIGRAD_MPI(MPI_Iscatterv)(c.in, send.counts.data(), send.displacements.data(), type, output_of(c), own, type,
                                          c.root, communicator_, request);
        break;
      case CollectiveKind::allgather: {
        const auto pieces = blocks_of(c);
        for (std::int64_t p = 0; p < pieces.pieces() && code == MPI_SUCCESS; ++p) {
          if (p > 0) request = requests.add();
          const auto& part = requests.layouts.emplace_back(pieces.layout(p, call));
          const void* from = in == MPI_IN_PLACE || in == nullptr
                                 ? in
                                 : static_cast<const std::byte*>(in) + pieces.first(p, rank()) * size_of(c.type);
          code = MPIGRAD_MPI(MPI_Iallgatherv)(from, part.counts[index(rank())], type, c.out, part.counts.data(),
                                              part.displacements.data(), type, communicator_, request);
        }
        break;
      }
      case CollectiveKind::reduce_scatter:
        if (in_memory()) {
          start_exchange_of_blocks(c, blocks_of(c), communicator_, rank(), requests);
          break;
        }
        code =
            MPIGRAD_MPI(MPI_Ireduce_scatter)(c.in, c.out, send.counts.data(), type, op_of(c.op, c.type), communicator_, request);
        break;
      case CollectiveKind::alltoall:
        code = MPIGRAD_MPI(MPI_Ialltoallv)(c.in, send.counts.data(), send.displacements.data(), type, c.out,
                                           receive.counts.data(), receive.displacements.data(), type, communicator_, request);
        break;
    }
    check(code, call);
    return std::move(result);
  }

  BlockPieces blocks_of(const Collective& c) const {
    const auto longest = *std::max_element(c.counts.begin(), c.counts.end());
    return {c.counts, elements_of_piece(longest, size_of(c.type), in_memory())};
  }

  struct Piece {
    std::int64_t first = 0;  // element
    const void* in = nullptr;
    void* out = nullptr;
    Count count = 0;
  };
  bool in_memory() const { return size() > 1 && node_size() == size(); }
  // An allreduce, cut into pieces.
  std::vector<Piece> pieces_of(const Collective& c, const void* in) const {
    const auto item = size_of(c.type);
    const auto most = elements_of_piece(c.count, item, in_memory());
    std::vector<Piece> pieces;
    for (std::int64_t first = 0; first < c.count || pieces.empty(); first += most) {
      Piece piece{first, in, c.out, static_cast<Count>(std::min(most, c.count - first))};
      if (first > 0) {
        if (in != MPI_IN_PLACE) piece.in = static_cast<const std::byte*>(in) + first * item;
        piece.out = static_cast<std::byte*>(c.out) + first * item;
      }
      pieces.push_back(piece);
    }
    return pieces;
  }

  // The input argument for MPI of a call whose buffer may be input and output at once.
  const void* input_of(const Collective& c, std::vector<std::byte>& copy) const {
    const bool root = rank() == c.root;
    switch (c.kind) {
      case CollectiveKind::reduce: {
        // A copy instead of MPI_IN_PLACE: MPICH 4.0.2 reads longer messages from that constant as if it were an address
        // unless root is 0.
        if (!root || c.in != c.out || c.count == 0) return c.in;
        const auto* bytes = static_cast<const std::byte*>(c.in);
        copy.assign(bytes, bytes + c.count * size_of(c.type));
        return copy.data();
      }
      case CollectiveKind::allreduce: return c.in == c.out ? MPI_IN_PLACE : c.in;
      case CollectiveKind::gather: return root && c.in == own_part(c.out, c) ? MPI_IN_PLACE : c.in;
      case CollectiveKind::allgather: return c.in == own_part(c.out, c) ? MPI_IN_PLACE : c.in;
      case CollectiveKind::barrier:
      case CollectiveKind::bcast:
      case CollectiveKind::scatter:
      case CollectiveKind::reduce_scatter:
      case CollectiveKind::alltoall: break;
    }
    return c.in;
  }
  void* output_of(const Collective& c) const {
    const bool root = rank() == c.root;
    if (c.kind == CollectiveKind::reduce) return root ? c.out : nullptr;
    return c.kind == CollectiveKind::scatter && root && c.out == own_part(c.in, c) ? MPI_IN_PLACE : c.out;
  }

  // Returned as a Pending already: operations that have been posted are abandoned if a later post fails.
  std::pair<Pending, Requests&> requested(std::string_view call, DType type, std::span<const Message> receives) const {
    auto made = std::make_unique<Requests>(call, rank(), type, receives);
    auto& requests = *made;
    return {Pending(std::move(made)), requests};
  }

  // The place of this rank's elements in the concatenation of all ranks' elements; null if `all` is null.
  const void* own_part(const void* all, const Collective& c) const {
    return all == nullptr ? nullptr : static_cast<const std::byte*>(all) + offset(c.counts, index(rank())) * size_of(c.type);
  }

  MPI_Comm communicator_;
  Home home_;
  int max_tag_ = 32767;  // the minimum that the MPI standard guarantees
};

std::string_view waits_asked_for() {
  const char* value = std::getenv("MPIGRAD_MPI_WAITS");
  return value ? value : "";
}

// Determines where the ranks run. A node is identified by the lowest of its ranks.
Home home_of(MPI_Comm communicator) {
  int rank = 0, size = 0;
  check(MPI_Comm_rank(communicator, &rank), "communicator");
  check(MPI_Comm_size(communicator, &size), "communicator");
  MPI_Comm node = MPI_COMM_NULL;
  check(MPI_Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node), "communicator");
  int lowest = rank, here = 0;  // rank 0 of `node` is the lowest
  MPI_Comm_size(node, &here);
  // A launcher may bind each rank to some cores. sched_getaffinity fails if there are more cores than a cpu_set_t has bits: then
  // there are enough cores.
  cpu_set_t own, cores;
  CPU_ZERO(&own);
  CPU_ZERO(&cores);
  const bool known = sched_getaffinity(0, sizeof(own), &own) == 0;
  int code = MPI_Bcast(&lowest, 1, MPI_INT, 0, node);
  if (code == MPI_SUCCESS) code = MPI_Allreduce(&own, &cores, sizeof(cores), MPI_UINT8_T, MPI_BOR, node);
  MPI_Comm_free(&node);
  check(code, "communicator");
  std::vector<int> nodes(static_cast<std::size_t>(size));
  check(MPI_Allgather(&lowest, 1, MPI_INT, nodes.data(), 1, MPI_INT, communicator), "communicator");
  Home home{.nodes = std::make_shared<const std::vector<int>>(std::move(nodes))};
  // The same result on all ranks, whatever their settings: a non-blocking collective does not match a blocking one.
  const auto asked = waits_asked_for();
  int crowded = asked.empty() ? known && here >= CPU_COUNT(&cores) : asked == "yielding";
  check(MPI_Allreduce(MPI_IN_PLACE, &crowded, 1, MPI_INT, MPI_MAX, communicator), "communicator");
  home.crowded = crowded != 0;
  return home;
}

}  // namespace
}  // namespace mpi

std::shared_ptr<Transport> mpi_transport(MPI_Comm communicator) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  require(initialized && !mpi::finalized(), "[mpi_transport] MPI must be initialised and not yet finalised");
  if (const auto problem = mpi::second_library(); !problem.empty()) throw SettingsError(problem);
  require(communicator != MPI_COMM_NULL, "[mpi_transport] the communicator is MPI_COMM_NULL");
  MPI_Comm own = MPI_COMM_NULL;
  mpi::check(MPI_Comm_dup(communicator, &own), "mpi_transport");
  MPI_Comm_set_errhandler(own, mpi::errors_return());
  auto made = std::make_shared<mpi::MpiTransport>(own, mpi::home_of(own));
  require_same_environment(*made);  // before the transport is wrapped as the environment requests
  if (const auto asked = mpi::waits_asked_for(); !asked.empty() && asked != "yielding" && asked != "blocking")
    throw SettingsError(fmt::format("[mpi_transport] MPIGRAD_MPI_WAITS is yielding or blocking, got '{}'", asked));
  return made;
}

MPI_Comm mpi_communicator(const Transport& transport) {
  const auto* mpi = dynamic_cast<const mpi::MpiTransport*>(&transport.underlying());
  require(mpi != nullptr, "[mpi_communicator] the {} transport has no MPI communicator", transport.name());
  return mpi->communicator();
}

}  // namespace mpigrad
