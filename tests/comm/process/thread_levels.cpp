// A library for LD_PRELOAD: MPI with fewer threads than the program asks for, and a judge of its calls. MPIGRAD_TEST_THREAD_LEVEL
// is single, funneled or serialized: MPI_Init_thread asks MPI for this level and reports it. A call that the level forbids ends
// the process with a line and exit code 97: on another thread than that of MPI_Init_thread (single and funneled), or while
// another thread is in a call (serialized). The functions are those that the library and parallel HDF5 call.

#include <dlfcn.h>
#include <mpi.h>
#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

int allowed() {
  static const int level = [] {
    const char* value = std::getenv("MPIGRAD_TEST_THREAD_LEVEL");
    const std::string_view name = value ? value : "";
    return name == "single"       ? MPI_THREAD_SINGLE
           : name == "funneled"   ? MPI_THREAD_FUNNELED
           : name == "serialized" ? MPI_THREAD_SERIALIZED
                                  : MPI_THREAD_MULTIPLE;
  }();
  return level;
}

pthread_t first;
std::atomic<bool> started = false;
std::atomic<int> inside = 0;  // threads in calls
thread_local int depth = 0;   // calls of a call, as those of MPI's own functions, are one call

class Inside {
 public:
  explicit Inside(const char* name) {
    if (depth++ > 0 || !started) return;
    if (allowed() < MPI_THREAD_SERIALIZED && !pthread_equal(pthread_self(), first)) refuse(name, "another thread");
    if (++inside > 1 && allowed() < MPI_THREAD_MULTIPLE) refuse(name, "two threads at a time");
    counted_ = true;
  }
  ~Inside() {
    --depth;
    if (counted_) --inside;
  }

 private:
  [[noreturn]] static void refuse(const char* name, const char* why) {
    std::fprintf(stderr, "[thread_levels] %s on %s\n", name, why);
    std::_Exit(97);
  }
  bool counted_ = false;
};

using Word = long;
using Function = int (*)(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word);

Function next_of(const char* name) {
  auto* found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) std::fprintf(stderr, "[thread_levels] no %s\n", name), std::_Exit(98);
  return reinterpret_cast<Function>(found);
}

}  // namespace

// All arguments are addresses or integers, which x86-64 and Arm pass as words; no function has more than twelve.
#define WATCH(name)                                                                                                     \
  extern "C" int watched_##name(Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i, Word j, Word k, \
                                Word l) __asm__(#name);                                                                 \
  extern "C" int watched_##name(Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i, Word j, Word k, \
                                Word l) {                                                                               \
    static const Function next = next_of(#name);                                                                        \
    const Inside call(#name);                                                                                           \
    return next(a, b, c, d, e, f, g, h, i, j, k, l);                                                                    \
  }

// clang-format off
WATCH(MPI_Allgather) WATCH(MPI_Allgatherv) WATCH(MPI_Allgatherv_c) WATCH(MPI_Allreduce) WATCH(MPI_Allreduce_c) WATCH(MPI_Alltoallv_c)
WATCH(MPI_Barrier) WATCH(MPI_Bcast) WATCH(MPI_Bcast_c) WATCH(MPI_Cancel) WATCH(MPI_Comm_create_group) WATCH(MPI_Comm_dup)
WATCH(MPI_Comm_free) WATCH(MPI_Comm_get_attr) WATCH(MPI_Comm_group) WATCH(MPI_Comm_split) WATCH(MPI_Comm_split_type) WATCH(MPI_Gather)
WATCH(MPI_Gatherv) WATCH(MPI_Gatherv_c) WATCH(MPI_Iallgatherv_c) WATCH(MPI_Iallreduce_c) WATCH(MPI_Ialltoallv_c) WATCH(MPI_Ibarrier)
WATCH(MPI_Ibcast_c) WATCH(MPI_Igatherv_c) WATCH(MPI_Irecv_c) WATCH(MPI_Ireduce_c) WATCH(MPI_Ireduce_scatter_c) WATCH(MPI_Iscatterv_c)
WATCH(MPI_Isend) WATCH(MPI_Isend_c) WATCH(MPI_Reduce_c) WATCH(MPI_Reduce_scatter_c) WATCH(MPI_Request_get_status) WATCH(MPI_Scatterv)
WATCH(MPI_Scatterv_c) WATCH(MPI_Test) WATCH(MPI_Type_commit) WATCH(MPI_Type_free) WATCH(MPI_Wait) WATCH(MPI_Waitall)
WATCH(MPI_Alltoallv) WATCH(MPI_Iallgatherv) WATCH(MPI_Iallreduce) WATCH(MPI_Ialltoallv) WATCH(MPI_Ibcast) WATCH(MPI_Igatherv)
WATCH(MPI_Irecv) WATCH(MPI_Ireduce) WATCH(MPI_Ireduce_scatter) WATCH(MPI_Iscatterv) WATCH(MPI_Reduce) WATCH(MPI_Reduce_scatter)
WATCH(MPI_File_open) WATCH(MPI_File_close) WATCH(MPI_File_get_size) WATCH(MPI_File_read_at) WATCH(MPI_File_read_at_all)
WATCH(MPI_File_set_size) WATCH(MPI_File_set_view) WATCH(MPI_File_sync) WATCH(MPI_File_write_at) WATCH(MPI_File_write_at_all)
    // clang-format on

    extern "C" int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  using Init = int (*)(int*, char***, int, int*);
  const auto next = reinterpret_cast<Init>(dlsym(RTLD_NEXT, "MPI_Init_thread"));
  const int code = next(argc, argv, required < allowed() ? required : allowed(), provided);
  if (*provided > allowed()) *provided = allowed();
  first = pthread_self(), started = true;
  return code;
}

extern "C" int MPI_Query_thread(int* provided) {
  using Query = int (*)(int*);
  const int code = reinterpret_cast<Query>(dlsym(RTLD_NEXT, "MPI_Query_thread"))(provided);
  if (*provided > allowed()) *provided = allowed();
  return code;
}

extern "C" int MPI_Finalize() {
  started = false;  // the library's barrier before this call was watched; MPI may call itself from its own threads
  using Finalize = int (*)();
  return reinterpret_cast<Finalize>(dlsym(RTLD_NEXT, "MPI_Finalize"))();
}
