// The functions of libnccl that the library uses (comm/transport/nccl), between processes or threads of one machine. Calls that
// NCCL forbids without a check, and calls that would hang, end the process with a line that names the waiting ranks.
// MPIGRAD_EMULATED_NCCL (options.h): version-2.25 emulates a library that does not order launches.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>

#include "tests/emulation/vendor/nccl_transfers.h"
#include "tests/emulation/vendor/options.h"
#include "tests/emulation/vendor/stream.h"

extern "C" {
[[gnu::weak]] cudaError_t cudaGetDevice(int* device);
}

namespace mpigrad::emulation::vendor {
namespace {

thread_local std::string last_error;
ncclResult_t refuse(ncclResult_t code, std::string text, ncclComm_t communicator = nullptr) {
  if (communicator) communicator->last_error = text;
  last_error = std::move(text);
  return code;
}

int current_device() {
  int device = 0;
  if (cudaGetDevice != nullptr) cudaGetDevice(&device);
  return device;
}
std::uintptr_t this_thread() { return std::hash<std::thread::id>{}(std::this_thread::get_id()) | 1; }

std::string place() {
  const char* named = std::getenv("NCCL_HOSTID");
  char host[200] = {};
  gethostname(host, sizeof host - 1);
  // Without a CUDA runtime every thread has a GPU.
  const auto gpu = cudaGetDevice == nullptr ? this_thread() : static_cast<std::uintptr_t>(current_device());
  return fmt::format("{} GPU {}", named ? named : host, gpu);
}

// From the first call of a group to its end only one thread may use a communicator, and only one may use a GPU (NCCL's manual,
// "Thread Safety").
class Users {
 public:
  static void enter(ncclComm_t c) {
    std::uintptr_t user = 0;
    const auto me = this_thread();
    if (!c->user.compare_exchange_strong(user, me) && user != me) die(c->segment->who() + " is used by two threads at once");
  }
  static void leave(ncclComm_t c) { c->user = 0; }
};

class Launch {
 public:
  explicit Launch(std::intptr_t device) : device_(device) {
    const std::lock_guard lock(mutex());
    if (!busy().insert(device).second) die(fmt::format("two threads launch on GPU {} at once", device));
  }
  ~Launch() {
    const std::lock_guard lock(mutex());
    busy().erase(device_);
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

 private:
  static std::mutex& mutex() {
    static auto* one = new std::mutex;
    return *one;
  }
  static std::set<std::intptr_t>& busy() {
    static auto* all = new std::set<std::intptr_t>;
    return *all;
  }
  std::intptr_t device_;
};

thread_local int depth = 0;
thread_local std::vector<Call> pending;
thread_local ncclResult_t group_error = ncclSuccess;

ncclResult_t end_of_group() {
  auto calls = std::exchange(pending, {});
  const auto error = std::exchange(group_error, ncclSuccess);
  std::set<ncclComm_t> communicators;
  for (const auto& call : calls) communicators.insert(call.communicator);
  if (error == ncclSuccess && !calls.empty()) {
    const Launch launch(cudaGetDevice == nullptr ? static_cast<std::intptr_t>(this_thread()) : calls[0].communicator->device);
    perform(std::move(calls));
  }
  for (auto* c : communicators) Users::leave(c);
  return error;
}

bool overlap(const void* x, std::size_t size_x, const void* y, std::size_t size_y) {
  const auto *a = static_cast<const std::byte*>(x), *b = static_cast<const std::byte*>(y);
  return a < b + size_y && b < a + size_x;
}

// The mistake in a call, or empty.
std::string mistake(const Call& call, std::size_t in_blocks, std::size_t out_blocks) {
  const auto& h = call.header;
  const auto& segment = *call.communicator->segment;
  const auto width = size_of(static_cast<ncclDataType_t>(h.type));
  if (width == 0) return fmt::format("type {} is not known", h.type);
  if (h.op != -1 && (h.op < 0 || h.op > ncclMin)) return fmt::format("operation {} is not emulated", h.op);
  if (h.root != -1 && (h.root < 0 || h.root >= segment.ranks())) return fmt::format("root {} does not exist", h.root);
  if (h.kind == Header::message && (call.peer < 0 || call.peer >= segment.ranks()))
    return fmt::format("rank {} does not exist", call.peer);
  if (call.communicator->device != current_device()) return "the current GPU is not that of the communicator";
  const bool reads = h.kind == Header::message ? call.sends : h.kind != Header::broadcast || segment.rank() == h.root;
  const bool writes = h.kind == Header::message ? !call.sends : h.kind != Header::reduce || segment.rank() == h.root;
  const auto in_bytes = call.bytes() * in_blocks, out_bytes = call.bytes() * out_blocks;
  for (const auto& [used, pointer, bytes] : {std::tuple(reads, call.in, in_bytes), {writes, call.out, out_bytes}}) {
    if (!used || bytes == 0) continue;
    if (!pointer) return "a buffer is null";
    if (reinterpret_cast<std::uintptr_t>(pointer) % width != 0) return "a buffer is not aligned to its elements";
    if (const auto why = unreachable(pointer, static_cast<std::int64_t>(bytes)); !why.empty()) return "a buffer is " + why;
  }
  if (!reads || !writes || h.kind == Header::message || call.bytes() == 0) return {};
  // In place, or without overlap.
  const auto own = call.bytes() * static_cast<std::size_t>(segment.rank());
  const auto* in = static_cast<const std::byte*>(call.in);
  const auto* out = static_cast<const std::byte*>(call.out);
  const bool in_place = h.kind == Header::all_gather       ? in == out + own
                        : h.kind == Header::reduce_scatter ? out == in + own
                                                           : in == out;
  return in_place || !overlap(in, in_bytes, out, out_bytes) ? std::string() : "buffers overlap and are not in place";
}

ncclResult_t post(Call call, std::size_t in_blocks = 1, std::size_t out_blocks = 1) {
  if (!call.communicator) return refuse(ncclInvalidArgument, "no communicator");
  auto& c = *call.communicator;
  Users::enter(&c);
  if (const auto why = mistake(call, in_blocks, out_blocks); !why.empty()) {
    if (depth == 0) Users::leave(&c);
    else group_error = ncclInvalidArgument;
    return refuse(ncclInvalidArgument, why, &c);
  }
  auto& h = call.header;
  if (h.kind == Header::message) h.number = (call.sends ? c.sent : c.received)[static_cast<std::size_t>(call.peer)]++;
  else h.number = c.collectives++;
  pending.push_back(call);
  return depth > 0 ? ncclSuccess : end_of_group();
}

ncclResult_t join(ncclComm_t* made, const std::string& name, int ranks, int rank) {
  auto c = std::make_unique<ncclComm>();
  c->device = current_device();
  const auto here = place();
  c->segment = std::make_unique<Segment>(name, ranks, rank, here);
  c->sent.resize(static_cast<std::size_t>(ranks));
  c->received.resize(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r)
    if (r != rank && c->segment->member(r).place == here)
      return refuse(ncclInvalidUsage, fmt::format("Duplicate GPU detected : rank {} and rank {} both on {}", rank, r, here));
  *made = c.release();
  return ncclSuccess;
}

ncclResult_t check(const ncclConfig_t* config) {
  if (!config) return ncclSuccess;
  if (config->size != sizeof(ncclConfig_t) || config->magic != 0xcafebeef || config->version != NCCL_VERSION_CODE)
    return refuse(ncclInvalidArgument, "the configuration was not initialised");
  if (config->blocking == 0) return refuse(ncclInvalidArgument, "non-blocking communicators are not emulated");
  if (config->splitShare != NCCL_CONFIG_UNDEF_INT && config->splitShare != 0 && config->splitShare != 1)
    return refuse(ncclInvalidArgument, "splitShare is 0 or 1");
  return ncclSuccess;
}

}  // namespace
}  // namespace mpigrad::emulation::vendor

using namespace mpigrad::emulation::vendor;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = Options("MPIGRAD_EMULATED_NCCL").has("version-2.25") ? 22500 : NCCL_VERSION_CODE;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t code) {
  switch (code) {
    case ncclSuccess: return "no error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    default: return "another failure";
  }
}
const char* ncclGetLastError(ncclComm_t c) { return c ? c->last_error.c_str() : last_error.c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (!id) return refuse(ncclInvalidArgument, "no place for an id");
  *id = {};
  const auto name = Segment::create();
  std::memcpy(id->internal, name.data(), name.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* c, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (!c || ranks < 1 || rank < 0 || rank >= ranks) return refuse(ncclInvalidArgument, "no such rank");
  if (depth > 0) return refuse(ncclInvalidUsage, "initialisation within a group is not emulated");
  if (const auto code = check(config); code != ncclSuccess) return code;
  id.internal[NCCL_UNIQUE_ID_BYTES - 1] = '\0';
  return join(c, id.internal, ranks, rank);
}
ncclResult_t ncclCommInitRank(ncclComm_t* c, int ranks, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(c, ranks, id, rank, nullptr);
}

ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t* made, ncclConfig_t* config) {
  if (!c || !made) return refuse(ncclInvalidArgument, "no communicator");
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR) return refuse(ncclInvalidArgument, "a colour is not negative", c);
  if (depth > 0) return refuse(ncclInvalidUsage, "splits within a group are not emulated", c);
  if (const auto code = check(config); code != ncclSuccess) return code;
  Users::enter(c);
  *made = nullptr;
  auto& s = *c->segment;
  const auto number = ++c->splits;
  const auto all = [&](std::atomic<std::uint64_t> Member::*what, std::uint64_t least) {
    wait_until(
        [&] {
          for (int r = 0; r < s.ranks(); ++r)
            if ((s.member(r).*what).load() < least) return false;
          return true;
        },
        [&] { return fmt::format("{} waits in ncclCommSplit #{}", s.who(), number); });
  };
  auto& own = s.member(s.rank());
  all(&Member::read, number - 1);  // all ranks have read the last answers
  own.color = color, own.key = key;
  own.asked = number;
  all(&Member::asked, number);
  std::vector<std::pair<int, int>> members;  // key and rank
  for (int r = 0; r < s.ranks(); ++r)
    if (s.member(r).color == color) members.emplace_back(s.member(r).key, r);
  std::sort(members.begin(), members.end());
  auto result = ncclSuccess;
  const auto rank = std::find(members.begin(), members.end(), std::pair(key, s.rank())) - members.begin();
  if (color != NCCL_SPLIT_NOCOLOR) {
    const auto name = fmt::format("{}.{}.{}", s.name(), number, color);
    if (rank == 0) Segment::create(name);
    result = join(made, name, static_cast<int>(members.size()), static_cast<int>(rank));
  }
  own.read = number;
  Users::leave(c);
  return result;
}

ncclResult_t ncclCommDestroy(ncclComm_t c) {
  if (!c) return ncclSuccess;
  Users::enter(c);
  delete c;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t c) {
  if (!c) return ncclSuccess;
  c->segment->abort();
  delete c;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t* error) {
  if (!c || !error) return refuse(ncclInvalidArgument, "no communicator");
  *error = ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (depth == 0) return refuse(ncclInvalidUsage, "a group ends that was not begun");
  return --depth > 0 ? ncclSuccess : end_of_group();
}

ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root, ncclComm_t c,
                           cudaStream_t stream) {
  return post({.header = {.kind = Header::broadcast, .type = type, .root = root, .count = count},
               .communicator = c,
               .stream = stream,
               .in = in,
               .out = out});
}
ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t c,
                        cudaStream_t stream) {
  return post({.header = {.kind = Header::reduce, .type = type, .op = op, .root = root, .count = count},
               .communicator = c,
               .stream = stream,
               .in = in,
               .out = out});
}
ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t c,
                           cudaStream_t stream) {
  return post({.header = {.kind = Header::all_reduce, .type = type, .op = op, .count = count},
               .communicator = c,
               .stream = stream,
               .in = in,
               .out = out});
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t c, cudaStream_t stream) {
  if (!c) return refuse(ncclInvalidArgument, "no communicator");
  return post({.header = {.kind = Header::all_gather, .type = type, .count = count},
               .communicator = c,
               .stream = stream,
               .in = in,
               .out = out},
              1, static_cast<std::size_t>(c->segment->ranks()));
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t c,
                               cudaStream_t stream) {
  if (!c) return refuse(ncclInvalidArgument, "no communicator");
  return post({.header = {.kind = Header::reduce_scatter, .type = type, .op = op, .count = count},
               .communicator = c,
               .stream = stream,
               .in = in,
               .out = out},
              static_cast<std::size_t>(c->segment->ranks()), 1);
}
ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t stream) {
  return post({.header = {.kind = Header::message, .type = type, .count = count},
               .communicator = c,
               .stream = stream,
               .in = in,
               .peer = peer,
               .sends = true});
}
ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t stream) {
  return post({.header = {.kind = Header::message, .type = type, .count = count},
               .communicator = c,
               .stream = stream,
               .out = out,
               .peer = peer});
}

}  // extern "C"
