#ifndef MPIGRAD_COMM_TRANSPORT_TRANSPORT_H
#define MPIGRAD_COMM_TRANSPORT_TRANSPORT_H
// The interface of transports, which move bytes between ranks. Four transports implement it: mpi, nccl, threads, dry. Buffers lie
// in host memory; those of nccl lie on the rank's GPU, for which comm/transport/device/device_transport.h describes the
// alternatives. Transports do not know tensors, tapes or adjoints; counts are in elements and 64-bit.

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
// may be null. Buffers must not overlap, except that `in == out` is allowed where a function's comment says so (MPI_IN_PLACE).
// One thread at a time uses a communicator. Errors: misuse seen by one rank (a negative count, a rank that does not exist) throws
// there; `threads` also compares the calls of all ranks and throws the same Error on each of them when they differ.
//
// All virtual functions are pure, and must stay so: BasicTransport (basic_transport.h) has the defaults for transports that move
// data themselves, and ForwardingTransport (forwarding.h) forwards all of them for transports that wrap another one. A function
// that ForwardingTransport does not forward does not compile.
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
  // True if data that ranks send arrive; false for the dry transport, on which ranks cannot ask each other for anything.
  bool can_ask() const { return place_.can_ask; }
  // True if the ranks are threads of one process, which read each other's memory.
  bool in_one_process() const { return place_.in_one_process; }
  // Tags are 0 ... max_tag().
  virtual int max_tag() const = 0;

  void barrier();
  void bcast(void* data, std::int64_t count, DType type, int root);
  // in == out is allowed, on all ranks or none; for reduce at the root, the only rank that uses `out`.
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
  // Any of these calls as data. `start` returns at once; non-blocking collectives match by the order in which they are started,
  // the spans are copied, and buffers may overlap only as allreduce's in == out.
  void run(const Collective& call);
  Pending start(const Collective& call);
  Pending start_allreduce(const void* in, void* out, std::int64_t count, DType type, CombineOp op);
  Pending start_sum_of_blocks(const void* in, void* out, std::span<const std::int64_t> counts, DType type);  // reduce_scatter
  Pending start_allgather(const void* in, void* out, std::span<const std::int64_t> counts, DType type);

  // Point to point: all sends and receives of one call are posted together and all are complete on return. A message matches
  // by (source, tag) in posting order, and its count and type are those of its receive. Not collective: a rank with no
  // messages need not call. Messages to oneself are allowed.
  virtual void exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) = 0;
  // The same without waiting.
  virtual Pending start_exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) = 0;
  // One round of messages: all ranks call it at the same place among their collective calls, also those without messages, and
  // each message is sent and received in the same round. Therefore a transport may match the messages without tags. For buffers
  // on a GPU.
  virtual Pending start_round(std::span<const Message> sends, std::span<const Message> receives, DType type) = 0;
  // A receive whose peer may be any_source and whose tag any_tag. It matches as in MPI: messages in the order of their arrival,
  // receives in the order of posting.
  virtual Pending start_receive(const Message& message, DType type) = 0;

  // Collective over the listed ranks (of this communicator; the new rank is the place in the list); the caller is one of them.
  virtual std::shared_ptr<Transport> subgroup(std::span<const int> ranks) = 0;
  // Collective. Ranks of equal colour form a communicator, ordered by (key, rank); a negative colour gets nullptr. Error on the
  // dry transport, which cannot ask the other ranks: use subgroup.
  virtual std::shared_ptr<Transport> split(int color, int key) = 0;
  virtual std::shared_ptr<Transport> duplicate() = 0;
  // Collective. A duplicate whose buffers lie in host memory, also where this one's are on a GPU.
  virtual std::shared_ptr<Transport> control() = 0;

  // True if max and min of this transport ignore NaN (fmax and fmin semantics).
  virtual bool loses_nan() const = 0;

  // True if calls with buffers on a GPU only add work to this rank's streams, which a CUDA graph captures
  // (framework/cuda/graph.h). Collective: ranks may first have to choose the engine.
  virtual bool capturable() = 0;

  // True if several threads may call at a time, each on its own communicator.
  virtual bool any_thread() const = 0;
  // Ends the whole job: all ranks, non-zero exit. The caller has printed the message.
  virtual void abort(int code) = 0;

  // The transport that really moves the data, if this one watches or changes calls (comm/transport/watch/checks.h,
  // comm/transport/summation_mode.h).
  virtual const Transport& underlying() const = 0;
  // Collective: an Error on all ranks if the bytes, in host memory, differ between them. Does nothing, and does not call `data`,
  // unless the check `same` is on (comm/transport/watch/checks.h).
  using HostBytes = std::function<std::span<const std::byte>()>;
  virtual void require_same(std::string_view what, const HostBytes& data) = 0;

  // Implementations of run() and start(), whose arguments have been checked; for transports and their wrappers.
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

// True if a transport of several ranks exists in this process.
bool has_several_ranks();

// One communication call as the dry transport logs it; ranks are those of the dry world.
struct DryRecord {
  enum class What : std::uint8_t { send, receive, collective };
  What what = What::collective;
  CollectiveKind kind = CollectiveKind::barrier;  // of a collective
  int peer = -1;                                  // of send and receive, root of rooted collectives; else -1
  int tag = 0;
  std::int64_t bytes = 0;     // of this message, or contributed by this rank (bcast and scatter: at the root only)
  std::uint64_t members = 0;  // hash of the members' world ranks
  // Their world ranks, in order of the communicator's ranks.
  std::shared_ptr<const std::vector<int>> ranks{};
  bool started = false;  // non-blocking, waited for later; false: the caller blocks

  bool is_message() const { return what != What::collective; }
  // "send", "receive", "allreduce", ...
  std::string_view name() const { return is_message() ? what == What::send ? "send" : "receive" : name_of(kind); }
};

// ---- making transports; each function is defined in its own folder, or in that folder's absent.cpp

// comm/transport/threads: runs body(transport) on `ranks` new threads of this process. The first exception poisons all groups
// (the other ranks' pending and later calls throw an Error that names the failed rank) and is rethrown here when all threads have
// ended. A rank that waits for one whose body has returned throws too. Sets nothing global, and may be nested.
void run_threads(int ranks, const std::function<void(std::shared_ptr<Transport>)>& body);

// comm/transport/mpi: calls MPI_Init_thread on the first call (unless MPI is already initialised), and MPI_Finalize at exit if we
// initialised it. Collective: each call makes a private duplicate of MPI_COMM_WORLD. For an existing communicator see
// comm/transport/mpi/mpi_comm.h.
bool mpi_available();
std::shared_ptr<Transport> mpi_world(int* argc, char*** argv);

// comm/transport/dry: rank `rank` of `size`; moves nothing and appends to `log` (shared by all communicators made from it; may be
// null). Every rank counts as a node of its own.
std::shared_ptr<Transport> dry_world(int rank, int size, std::shared_ptr<std::vector<DryRecord>> log);

// comm/transport/nccl: buffers on this thread's GPU; each rank has a GPU. `host` makes the connection and remains its control
// communicator; no other code may use it. Calls are issued to the halo stream or to the bucket stream and return at once: results
// are available to work given to the compute stream after the call, or after wait(). The host never waits for a GPU. Collective,
// also its destruction, except after an error. start_exchange is refused: messages have no tags here (start_round), and receives
// take no wildcards.
enum class Lane : std::uint8_t { halos, buckets };
bool nccl_available();
std::shared_ptr<Transport> nccl_transport(std::shared_ptr<Transport> host, Lane lane);
// The PCI bus of this thread's GPU, by which NCCL tells the GPUs of a host apart (but not MIG instances); empty without NCCL.
std::string nccl_gpu();

}  // namespace mpigrad

#endif
