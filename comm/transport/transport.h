#ifndef MPIGRAD_COMM_TRANSPORT_TRANSPORT_H
#define MPIGRAD_COMM_TRANSPORT_TRANSPORT_H
// What moves bytes between ranks. Four transports implement this interface: mpi, nccl, threads, dry. Buffers lie in host memory;
// those of nccl on the rank's GPU, and comm/transport/device/device_transport.h tells what serves them otherwise.
// Nothing here knows tensors, tapes or adjoints; counts are in elements and 64-bit.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/transport/collective.h"
#include "comm/transport/pending.h"
#include "framework/tensor/dtype.h"

namespace mpigrad {

// One message: `count` elements of a contiguous buffer, to or from rank `peer` of the same communicator.
struct Message {
  int peer = 0;
  int tag = 0;
  void* data = nullptr;  // never written through when sending
  std::int64_t count = 0;
};

// One rank's end of one communicator. Collective calls are made by all its ranks in the same order; buffers of length zero
// may be null. Buffers must not overlap, except that `in == out` is allowed where the doc says so (MPI_IN_PLACE). One thread at
// a time uses a communicator. Errors: misuse seen by one rank (a negative count, a rank that does not exist) throws there;
// `threads` also compares the calls of all ranks and throws the same Error on each of them when they differ.
//
// All virtual functions are pure, and stay so: what moves data itself has the defaults of BasicTransport (basic_transport.h),
// what wraps another transport hands on all of them (ForwardingTransport of forwarding.h). A function that ForwardingTransport
// does not hand on does not compile.
class Transport {
 public:
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport();

  std::string_view name() const { return place_.name; }  // "mpi", "threads", "dry", "nccl"
  int rank() const { return place_.rank; }
  int size() const { return place_.size; }
  // Ranks that share this rank's memory (its node), and this rank's place among them.
  int node_rank() const { return place_.node_rank; }
  int node_size() const { return place_.node_size; }
  // Whether what ranks send arrives: where it does not (the dry transport) nobody can be asked for anything.
  bool can_ask() const { return place_.can_ask; }
  // Whether the ranks are threads of one process, which read each other's memory.
  bool in_one_process() const { return place_.in_one_process; }
  // Tags are 0 ... max_tag().
  virtual int max_tag() const = 0;

  void barrier();
  void bcast(void* data, std::int64_t count, DType type, int root);
  // in == out allowed, on all ranks or none; for reduce, at the root, which alone uses `out`.
  void allreduce(const void* in, void* out, std::int64_t count, DType type, CombineOp op);
  void reduce(const void* in, void* out, std::int64_t count, DType type, CombineOp op, int root);
  // counts[r] elements come from (go to) rank r, concatenated in rank order without gaps; every rank passes the same counts.
  // gather, scatter (at the root) and allgather: the smaller buffer may be this rank's own part of the larger one.
  void gather(const void* in, void* out, std::span<const std::int64_t> counts, DType type, int root);
  void scatter(const void* in, void* out, std::span<const std::int64_t> counts, DType type, int root);
  void allgather(const void* in, void* out, std::span<const std::int64_t> counts, DType type);
  void reduce_scatter(const void* in, void* out, std::span<const std::int64_t> counts, DType type, CombineOp op);
  // send_counts[s] elements go to rank s, receive_counts[s] come from it; each send has the count its receiver names.
  void alltoall(const void* in, std::span<const std::int64_t> send_counts, void* out,
                std::span<const std::int64_t> receive_counts, DType type);
  // Each of these as data. `start` returns at once; non-blocking collectives match by the order in which they are started, the
  // spans are copied, and of the places where buffers may overlap only allreduce's in == out is allowed.
  void run(const Collective& call);
  Pending start(const Collective& call);
  Pending start_allreduce(const void* in, void* out, std::int64_t count, DType type, CombineOp op);

  // Point to point: all sends and receives of one call are posted together and all are complete on return. A message matches
  // by (source, tag) in posting order, and its count and type are those of its receive. Not collective: a rank with no
  // messages need not call. Messages to oneself are allowed.
  virtual void exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) = 0;
  // The same, returning at once.
  virtual Pending start_exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) = 0;
  // One round of messages: all ranks call it at the same place among their collective calls, also those without messages, and
  // each message is sent and received in the same round. So a transport may match them without tags. For buffers on a GPU.
  virtual Pending start_round(std::span<const Message> sends, std::span<const Message> receives, DType type) = 0;
  // A receive whose peer may be any_source and whose tag any_tag. It matches as MPI's do: messages in the order of their arrival,
  // receives in the order of posting.
  virtual Pending start_receive(const Message& message, DType type) = 0;

  // Collective over the listed ranks (of this communicator; the new rank is the place in the list); the caller is one of them.
  virtual std::shared_ptr<Transport> subgroup(std::span<const int> ranks) = 0;
  // Collective. Ranks of equal colour form a communicator, ordered by (key, rank); a negative colour gets nullptr. The dry
  // transport, which cannot ask the others, refuses: use subgroup.
  virtual std::shared_ptr<Transport> split(int color, int key) = 0;
  virtual std::shared_ptr<Transport> duplicate() = 0;
  // Collective. A duplicate whose buffers lie in host memory, also where this one's are on a GPU.
  virtual std::shared_ptr<Transport> control() = 0;

  // Whether max and min of this transport let a number win over NaN.
  virtual bool loses_nan() const = 0;

  // Whether what it does with buffers on a GPU is work of this rank's streams alone, which a graph of them captures
  // (framework/cuda/graph.h). Collective: ranks may have to find out first what serves them.
  virtual bool capturable() = 0;

  // Whether several threads may call at a time, each on a communicator of its own.
  virtual bool any_thread() const = 0;
  // Ends the whole job: all ranks, non-zero exit. The message has been printed.
  virtual void abort(int code) = 0;

  // What really moves the data, where this one watches or changes calls (comm/transport/watch/checks.h,
  // comm/transport/summation_mode.h).
  virtual const Transport& underlying() const = 0;
  // Collective: an Error on all ranks if the bytes, in host memory, differ between them. Does nothing, and does not ask for them,
  // unless that check is on (comm/transport/watch/checks.h).
  using HostBytes = std::function<std::span<const std::byte>()>;
  virtual void require_same(std::string_view what, const HostBytes& data) = 0;

  // What run() and start() do with arguments that have been checked, for transports and for what wraps one.
  virtual void perform(const Collective& call) = 0;
  virtual Pending begin(const Collective& call) = 0;

 protected:
  struct Place {
    std::string_view name;
    int rank = 0, size = 1, node_rank = 0, node_size = 1;
    bool can_ask = true, in_one_process = false;
  };
  explicit Transport(const Place& place);
  static const Place& place_of(const Transport& other) { return other.place_; }

 private:
  Place place_;
};

// Whether a transport of several ranks is alive in this process.
bool has_several_ranks();

// One communication call as the dry transport logs it; ranks are those of the dry world.
struct DryRecord {
  enum class What : std::uint8_t { send, receive, collective };
  What what = What::collective;
  CollectiveKind kind = CollectiveKind::barrier;  // of a collective
  int peer = -1;                                  // of send and receive, root of rooted collectives; else -1
  int tag = 0;
  std::int64_t bytes = 0;     // of this message, or what this rank hands in (bcast and scatter: at the root only)
  std::uint64_t members = 0;  // hash of the members' world ranks
  // These, in order of the communicator's ranks.
  std::shared_ptr<const std::vector<int>> ranks{};
  bool started = false;  // and waited for later; else the caller stands still meanwhile

  bool is_message() const { return what != What::collective; }
  // "send", "receive", "allreduce", ...
  std::string_view name() const { return is_message() ? what == What::send ? "send" : "receive" : name_of(kind); }
};

// ---- how the transports are made; each function is defined in its own folder, or in that folder's absent.cpp

// comm/transport/threads: runs body(transport) on `ranks` new threads of this process. The first exception poisons all groups
// (the other ranks' pending and later calls throw an Error that names the failed rank) and is rethrown here when all threads have
// ended. A rank that waits for one whose body has returned throws too. Sets nothing global, and may be nested.
void run_threads(int ranks, const std::function<void(std::shared_ptr<Transport>)>& body);

// comm/transport/mpi. MPI_Init_thread on the first call (not if MPI is already initialised), MPI_Finalize at exit if we
// initialised it. Collective: each call makes a private duplicate of MPI_COMM_WORLD. An existing communicator:
// comm/transport/mpi/mpi_comm.h.
bool mpi_available();
std::shared_ptr<Transport> mpi_world(int* argc, char*** argv);

// comm/transport/dry: rank `rank` of `size`, moves nothing, appends to `log` (shared by all communicators made from it; may be
// null). Every rank counts as a node of its own.
std::shared_ptr<Transport> dry_world(int rank, int size, std::shared_ptr<std::vector<DryRecord>> log);

// comm/transport/nccl: buffers on this thread's GPU; one for each rank. `host` makes the connection and stays for control; it is
// not used by others. Calls are issued to the halo stream or to the bucket stream and return at once: results are there for what
// the compute stream is given after the call, or after wait(). No host waits for a GPU. Collective, also its end, except after an
// error. start_exchange is refused: messages have no tags here (start_round), and receives take no wildcards.
enum class Lane : std::uint8_t { halos, buckets };
bool nccl_available();
std::shared_ptr<Transport> nccl_transport(std::shared_ptr<Transport> host, Lane lane);
// The PCI bus of this thread's GPU, by which NCCL tells GPUs of a host apart (and MIG instances not); empty without NCCL.
std::string nccl_gpu();

}  // namespace mpigrad

#endif
