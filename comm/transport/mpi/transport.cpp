// MPI, through a private duplicate of the communicator whose errors are returned.

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>

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
  MpiTransport(MPI_Comm communicator, std::vector<int> nodes) : communicator_(communicator), nodes_(std::move(nodes)) {
    check(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "communicator");
    check(MPI_Comm_rank(communicator_, &rank_), "communicator");
    check(MPI_Comm_size(communicator_, &size_), "communicator");
    for (int r = 0; r < size_; ++r) {
      if (nodes_[index(r)] != nodes_[index(rank_)]) continue;
      ++node_size_;
      if (r < rank_) ++node_rank_;
    }
    void* bound = nullptr;
    int found = 0;
    check(MPI_Comm_get_attr(communicator_, MPI_TAG_UB, &bound, &found), "communicator");
    if (found) max_tag_ = *static_cast<int*>(bound);
  }

  ~MpiTransport() override {
    if (!finalized()) MPI_Comm_free(&communicator_);
  }

  MPI_Comm communicator() const { return communicator_; }

  std::string_view name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int node_rank() const override { return node_rank_; }
  int node_size() const override { return node_size_; }
  int max_tag() const override { return max_tag_; }
  bool any_thread() const override {
    int level = 0;
    return MPI_Query_thread(&level) == MPI_SUCCESS && level == MPI_THREAD_MULTIPLE;
  }

  void barrier() override { check(MPI_Barrier(communicator_), "barrier"); }

  void broadcast(void* data, std::int64_t count, DType type, int root) override {
    check_count("broadcast", count);
    check_rank("broadcast", "root", root, size_);
    check(MPIGRAD_MPI(MPI_Bcast)(data, checked(count, "broadcast"), type_of(type), root, communicator_), "broadcast");
  }

  void allreduce(const void* in, void* out, std::int64_t count, DType type, Reduction op) override {
    check_count("allreduce", count);
    check_reduction("allreduce", type, op);
    check(MPIGRAD_MPI(MPI_Allreduce)(in == out ? MPI_IN_PLACE : in, out, checked(count, "allreduce"), type_of(type),
                                     op_of(op, type), communicator_),
          "allreduce");
  }

  void reduce(const void* in, void* out, std::int64_t count, DType type, Reduction op, int root) override {
    check_count("reduce", count);
    check_reduction("reduce", type, op);
    check_rank("reduce", "root", root, size_);
    // A copy instead of MPI_IN_PLACE: MPICH 4.0.2 reads a longer message from that constant as if it were an
    // address unless root is 0.
    std::vector<std::byte> copy;
    if (rank_ == root && in == out && count > 0) {
      const auto* bytes = static_cast<const std::byte*>(in);
      copy.assign(bytes, bytes + count * size_of(type));
      in = copy.data();
    }
    check(MPIGRAD_MPI(MPI_Reduce)(in, rank_ == root ? out : nullptr, checked(count, "reduce"), type_of(type), op_of(op, type),
                                  root, communicator_),
          "reduce");
  }

  void gather(const void* in, void* out, std::span<const std::int64_t> counts, DType type, int root) override {
    check_counts("gather", counts, size_);
    check_rank("gather", "root", root, size_);
    const Layout layout(counts, "gather");
    const bool in_place = rank_ == root && in == own_part(out, counts, type);
    check(MPIGRAD_MPI(MPI_Gatherv)(in_place ? MPI_IN_PLACE : in, layout.counts[index(rank_)], type_of(type), out,
                                   layout.counts.data(), layout.displacements.data(), type_of(type), root, communicator_),
          "gather");
  }

  void scatter(const void* in, void* out, std::span<const std::int64_t> counts, DType type, int root) override {
    check_counts("scatter", counts, size_);
    check_rank("scatter", "root", root, size_);
    const Layout layout(counts, "scatter");
    const bool in_place = rank_ == root && out == own_part(in, counts, type);
    check(
        MPIGRAD_MPI(MPI_Scatterv)(in, layout.counts.data(), layout.displacements.data(), type_of(type),
                                  in_place ? MPI_IN_PLACE : out, layout.counts[index(rank_)], type_of(type), root, communicator_),
        "scatter");
  }

  void allgather(const void* in, void* out, std::span<const std::int64_t> counts, DType type) override {
    check_counts("allgather", counts, size_);
    const Layout layout(counts, "allgather");
    const bool in_place = in == own_part(out, counts, type);
    check(MPIGRAD_MPI(MPI_Allgatherv)(in_place ? MPI_IN_PLACE : in, layout.counts[index(rank_)], type_of(type), out,
                                      layout.counts.data(), layout.displacements.data(), type_of(type), communicator_),
          "allgather");
  }

  void reduce_scatter(const void* in, void* out, std::span<const std::int64_t> counts, DType type, Reduction op) override {
    check_counts("reduce_scatter", counts, size_);
    check_reduction("reduce_scatter", type, op);
    const Layout layout(counts, "reduce_scatter");
    check(MPIGRAD_MPI(MPI_Reduce_scatter)(in, out, layout.counts.data(), type_of(type), op_of(op, type), communicator_),
          "reduce_scatter");
  }

  void alltoall(const void* in, std::span<const std::int64_t> send_counts, void* out,
                std::span<const std::int64_t> receive_counts, DType type) override {
    check_counts("alltoall", send_counts, size_);
    check_counts("alltoall", receive_counts, size_);
    const Layout send(send_counts, "alltoall");
    const Layout receive(receive_counts, "alltoall");
    check(MPIGRAD_MPI(MPI_Alltoallv)(in, send.counts.data(), send.displacements.data(), type_of(type), out, receive.counts.data(),
                                     receive.displacements.data(), type_of(type), communicator_),
          "alltoall");
  }

  void exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    start_exchange(sends, receives, type)->wait();
  }

  std::unique_ptr<PendingOperation> start_exchange(std::span<const Message> sends, std::span<const Message> receives,
                                                   DType type) override {
    check_messages(sends, size_, max_tag_);
    check_messages(receives, size_, max_tag_);
    auto pending = std::make_unique<Requests>("exchange", rank_, type, receives);
    for (const auto& message : receives)
      check(MPIGRAD_MPI(MPI_Irecv)(message.data, checked(message.count, "exchange"), type_of(type), message.peer, message.tag,
                                   communicator_, pending->add()),
            "exchange");
    for (const auto& message : sends)
      check(MPIGRAD_MPI(MPI_Isend)(message.data, checked(message.count, "exchange"), type_of(type), message.peer, message.tag,
                                   communicator_, pending->add()),
            "exchange");
    return pending;
  }

  std::unique_ptr<PendingReceive> start_receive(const Message& message, DType type) override {
    check_receive(message, size_, max_tag_);
    auto pending = std::make_unique<Requests>("receive", rank_, type, std::span(&message, 1));
    check(MPIGRAD_MPI(MPI_Irecv)(message.data, checked(message.count, "receive"), type_of(type),
                                 message.peer == any_source ? MPI_ANY_SOURCE : message.peer,
                                 message.tag == any_tag ? MPI_ANY_TAG : message.tag, communicator_, pending->add()),
          "receive");
    return pending;
  }

  std::unique_ptr<PendingOperation> start(const Collective& c) override {
    check_collective(c, size_);
    const auto call = name_of(c.kind);
    auto pending = std::make_unique<Requests>(call, rank_, c.type, std::span<const Message>{});
    for (const auto counts : {c.counts, c.receive_counts}) pending->layouts.emplace_back(counts, call);
    const auto &send = pending->layouts[0], &receive = pending->layouts[1];
    const auto type = type_of(c.type);
    const auto count = c.count < 0 ? Count{0} : checked(c.count, call);
    MPI_Request* request = pending->add();
    int code = MPI_SUCCESS;
    switch (c.kind) {
      case CollectiveKind::broadcast: code = MPIGRAD_MPI(MPI_Ibcast)(c.out, count, type, c.root, communicator_, request); break;
      case CollectiveKind::reduce:
        code = MPIGRAD_MPI(MPI_Ireduce)(c.in, rank_ == c.root ? c.out : nullptr, count, type, op_of(c.op, c.type), c.root,
                                        communicator_, request);
        break;
      case CollectiveKind::allreduce:
        code = MPIGRAD_MPI(MPI_Iallreduce)(c.in == c.out ? MPI_IN_PLACE : c.in, c.out, count, type, op_of(c.op, c.type),
                                           communicator_, request);
        break;
      case CollectiveKind::allgather:
        code = MPIGRAD_MPI(MPI_Iallgatherv)(c.in, send.counts[index(rank_)], type, c.out, send.counts.data(),
                                            send.displacements.data(), type, communicator_, request);
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
    return pending;
  }

  std::shared_ptr<Transport> subgroup(std::span<const int> ranks) override {
    check_subgroup(ranks, rank_, size_);
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
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  // Where this rank's elements lie in the concatenation of all ranks'; null if there is none.
  const void* own_part(const void* all, std::span<const std::int64_t> counts, DType type) const {
    return all == nullptr ? nullptr : static_cast<const std::byte*>(all) + offset(counts, index(rank_)) * size_of(type);
  }

  MPI_Comm communicator_;
  std::vector<int> nodes_;
  int rank_ = 0;
  int size_ = 0;
  int node_rank_ = 0;
  int node_size_ = 0;
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
