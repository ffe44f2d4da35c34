// MPI, through a private duplicate of the communicator whose errors are returned.

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <utility>

#include "comm/transport/environment.h"
#include "comm/transport/mpi/call.h"
#include "comm/transport/mpi/mpi_comm.h"
#include "comm/transport/mpi/requests.h"
#include "comm/transport/transport_checks.h"

namespace mpigrad {
namespace mpi {
namespace {

using namespace transport_checks;

class MpiTransport final : public Transport {
 public:
  // Takes over `communicator`. nodes[r] is equal for ranks r that share memory.
  MpiTransport(MPI_Comm communicator, std::vector<int> nodes)
      : Transport(place(communicator, nodes)), communicator_(communicator), nodes_(std::move(nodes)) {
    check(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "communicator");
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
    const auto type = type_of(c.type);
    const auto count = checked(c.count, call);
    const Layout send(c.counts, call), receive(c.receive_counts, call);
    const auto own = c.counts.empty() ? Count{0} : send.counts[index(rank())];
    const bool root = rank() == c.root;
    int code = MPI_SUCCESS;
    switch (c.kind) {
      case CollectiveKind::barrier: code = MPI_Barrier(communicator_); break;
      case CollectiveKind::bcast: code = MPIGRAD_MPI(MPI_Bcast)(c.out, count, type, c.root, communicator_); break;
      case CollectiveKind::reduce: {
        // A copy instead of MPI_IN_PLACE: MPICH 4.0.2 reads a longer message from that constant as if it were an
        // address unless root is 0.
        const void* in = c.in;
        std::vector<std::byte> copy;
        if (root && in == c.out && c.count > 0) {
          const auto* bytes = static_cast<const std::byte*>(in);
          copy.assign(bytes, bytes + c.count * size_of(c.type));
          in = copy.data();
        }
        code = MPIGRAD_MPI(MPI_Reduce)(in, root ? c.out : nullptr, count, type, op_of(c.op, c.type), c.root, communicator_);
        break;
      }
      case CollectiveKind::allreduce:
        code = MPIGRAD_MPI(MPI_Allreduce)(c.in == c.out ? MPI_IN_PLACE : c.in, c.out, count, type, op_of(c.op, c.type),
                                          communicator_);
        break;
      case CollectiveKind::gather:
        code = MPIGRAD_MPI(MPI_Gatherv)(root && c.in == own_part(c.out, c) ? MPI_IN_PLACE : c.in, own, type, c.out,
                                        send.counts.data(), send.displacements.data(), type, c.root, communicator_);
        break;
      case CollectiveKind::scatter:
        code = MPIGRAD_MPI(MPI_Scatterv)(c.in, send.counts.data(), send.displacements.data(), type,
                                         root && c.out == own_part(c.in, c) ? MPI_IN_PLACE : c.out, own, type, c.root,
                                         communicator_);
        break;
      case CollectiveKind::allgather:
        code = MPIGRAD_MPI(MPI_Allgatherv)(c.in == own_part(c.out, c) ? MPI_IN_PLACE : c.in, own, type, c.out, send.counts.data(),
                                           send.displacements.data(), type, communicator_);
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

  Pending begin(const Collective& c) override {
    const auto call = traits_of(c.kind).nonblocking;
    auto [result, requests] = requested(call, c.type, {});
    for (const auto counts : {c.counts, c.receive_counts}) requests.layouts.emplace_back(counts, call);
    const auto &send = requests.layouts[0], &receive = requests.layouts[1];
    const auto own = c.counts.empty() ? Count{0} : send.counts[index(rank())];
    const auto type = type_of(c.type);
    const auto count = checked(c.count, call);
    MPI_Request* request = requests.add();
    int code = MPI_SUCCESS;
    switch (c.kind) {
      case CollectiveKind::barrier: code = MPI_Ibarrier(communicator_, request); break;
      case CollectiveKind::bcast: code = MPIGRAD_MPI(MPI_Ibcast)(c.out, count, type, c.root, communicator_, request); break;
      case CollectiveKind::reduce:
        code = MPIGRAD_MPI(MPI_Ireduce)(c.in, rank() == c.root ? c.out : nullptr, count, type, op_of(c.op, c.type), c.root,
                                        communicator_, request);
        break;
      case CollectiveKind::allreduce:
        code = MPIGRAD_MPI(MPI_Iallreduce)(c.in == c.out ? MPI_IN_PLACE : c.in, c.out, count, type, op_of(c.op, c.type),
                                           communicator_, request);
        break;
      case CollectiveKind::gather:
        code = MPIGRAD_MPI(MPI_Igatherv)(c.in, own, type, c.out, send.counts.data(), send.displacements.data(), type, c.root,
                                         communicator_, request);
        break;
      case CollectiveKind::scatter:
        code = MPIGRAD_MPI(MPI_Iscatterv)(c.in, send.counts.data(), send.displacements.data(), type, c.out, own, type, c.root,
                                          communicator_, request);
        break;
      case CollectiveKind::allgather:
        code = MPIGRAD_MPI(MPI_Iallgatherv)(c.in, own, type, c.out, send.counts.data(), send.displacements.data(), type,
                                            communicator_, request);
        break;
      case CollectiveKind::reduce_scatter:
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

  Pending start_exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    check_messages(sends, size(), max_tag_);
    check_messages(receives, size(), max_tag_);
    auto [result, requests] = requested("exchange", type, receives);
    for (const auto& message : receives)
      check(MPIGRAD_MPI(MPI_Irecv)(message.data, checked(message.count, "exchange"), type_of(type), message.peer, message.tag,
                                   communicator_, requests.add()),
            "exchange");
    for (const auto& message : sends)
      check(MPIGRAD_MPI(MPI_Isend)(message.data, checked(message.count, "exchange"), type_of(type), message.peer, message.tag,
                                   communicator_, requests.add()),
            "exchange");
    return std::move(result);
  }

  Pending start_receive(const Message& message, DType type) override {
    check_receive(message, size(), max_tag_);
    auto [result, requests] = requested("receive", type, std::span(&message, 1));
    check(MPIGRAD_MPI(MPI_Irecv)(message.data, checked(message.count, "receive"), type_of(type),
                                 message.peer == any_source ? MPI_ANY_SOURCE : message.peer,
                                 message.tag == any_tag ? MPI_ANY_TAG : message.tag, communicator_, requests.add()),
          "receive");
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
    std::vector<int> nodes;
    for (int rank : ranks) nodes.push_back(nodes_[index(rank)]);
    return std::make_shared<MpiTransport>(made, std::move(nodes));
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
    std::vector<int> theirs(index(size)), ours(index(size)), nodes;
    std::iota(theirs.begin(), theirs.end(), 0);
    check(MPI_Group_translate_ranks(chosen, size, theirs.data(), all, ours.data()), "split");
    MPI_Group_free(&chosen);
    MPI_Group_free(&all);
    for (int rank : ours) nodes.push_back(nodes_[index(rank)]);
    return std::make_shared<MpiTransport>(made, std::move(nodes));
  }

  std::shared_ptr<Transport> duplicate() override {
    MPI_Comm made = MPI_COMM_NULL;
    check(MPI_Comm_dup(communicator_, &made), "duplicate");
    return std::make_shared<MpiTransport>(made, nodes_);
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

  // Already pending: what has been posted is given up where a later post fails.
  std::pair<Pending, Requests&> requested(std::string_view call, DType type, std::span<const Message> receives) const {
    auto made = std::make_unique<Requests>(call, rank(), type, receives);
    auto& requests = *made;
    return {Pending(std::move(made)), requests};
  }

  // Where this rank's elements lie in the concatenation of all ranks'; null if there is none.
  const void* own_part(const void* all, const Collective& c) const {
    return all == nullptr ? nullptr : static_cast<const std::byte*>(all) + offset(c.counts, index(rank())) * size_of(c.type);
  }

  MPI_Comm communicator_;
  std::vector<int> nodes_;
  int max_tag_ = 32767;  // what the standard guarantees
};

// For every rank, the lowest rank that it shares memory with.
std::vector<int> nodes_of(MPI_Comm communicator) {
  int rank = 0, size = 0;
  check(MPI_Comm_rank(communicator, &rank), "communicator");
  check(MPI_Comm_size(communicator, &size), "communicator");
  MPI_Comm node = MPI_COMM_NULL;
  check(MPI_Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node), "communicator");
  int lowest = rank;  // rank 0 of `node` is it
  const int code = MPI_Bcast(&lowest, 1, MPI_INT, 0, node);
  MPI_Comm_free(&node);
  check(code, "communicator");
  std::vector<int> nodes(static_cast<std::size_t>(size));
  check(MPI_Allgather(&lowest, 1, MPI_INT, nodes.data(), 1, MPI_INT, communicator), "communicator");
  return nodes;
}

}  // namespace
}  // namespace mpi

std::shared_ptr<Transport> mpi_transport(MPI_Comm communicator) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  require(initialized && !mpi::finalized(), "[mpi_transport] MPI must be initialised and not yet finalised");
  require(communicator != MPI_COMM_NULL, "[mpi_transport] the communicator is MPI_COMM_NULL");
  MPI_Comm own = MPI_COMM_NULL;
  mpi::check(MPI_Comm_dup(communicator, &own), "mpi_transport");
  MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
  auto made = std::make_shared<mpi::MpiTransport>(own, mpi::nodes_of(own));
  require_same_environment(*made);  // before anything is wrapped as the environment asks for
  return made;
}

MPI_Comm mpi_communicator(const Transport& transport) {
  const auto* mpi = dynamic_cast<const mpi::MpiTransport*>(&transport.underlying());
  require(mpi != nullptr, "[mpi_communicator] the {} transport has no MPI communicator", transport.name());
  return mpi->communicator();
}

}  // namespace mpigrad
