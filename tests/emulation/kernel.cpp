#include "tests/emulation/kernel.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <mutex>

#include "tests/emulation/fiber.h"

constinit thread_local uint3 threadIdx{}, blockIdx{};
constinit thread_local dim3 blockDim{}, gridDim{};

namespace mpigrad::emulation {
namespace {

constexpr unsigned warp_lanes = 32;

// Alternates between two exchanges: while some lanes still read the values of the last one, others may write those of the next.
struct Warp {
  std::uint64_t bits[2][warp_lanes];
  unsigned side = 0, arrived = 0, mask = 0;
  int kind = 0;
};

// Runs one kernel. A fiber runs thread after thread, block after block; another fiber takes over only if a thread waits, so that
// a thread that never waits costs one call.
class Engine {
 public:
  static constinit thread_local Engine* current;

  std::string run(dim3 grid, dim3 block, const KernelCall& call, bool backwards) {
    call_ = &call, backwards_ = backwards;
    gridDim = grid, blockDim = block;
    blocks_ = std::uint64_t{grid.x} * grid.y * grid.z, threads_ = block.x * block.y * block.z;
    block_ = 0, error_.clear();
    warps_.resize((threads_ + warp_lanes - 1) / warp_lanes);
    waiting_.assign(threads_, nullptr);
    begin_block();
    Engine* outer = current;
    current = this;
    idle_fiber().resume(host_);
    current = outer;
    if (!error_.empty()) {  // waiting threads will never continue
      for (auto& each : fibers_) each.fiber.restart(work);
      idle_.clear();
      for (auto& each : fibers_) idle_.push_back(&each.fiber);
      ready_.clear();
    }
    return error_;
  }

  void synchronise_block() {
    waiting_[thread_] = running_;
    at_barrier_ = true;
    if (++arrived_ == threads_) {
      arrived_ = 0, at_barrier_ = false;
      for (unsigned i = 0; i < threads_; ++i) make_ready(backwards_ ? threads_ - 1 - i : i);
    }
    wait();
  }

  // The values of the lanes; valid until the exchange after the next one.
  const std::uint64_t* exchange(unsigned mask, std::uint64_t bits, int kind, int source) {
    auto& warp = warps_[thread_ / warp_lanes];
    const unsigned own = thread_ % warp_lanes, side = warp.side;
    if (warp.arrived == 0) warp.mask = mask, warp.kind = kind;
    if (warp.mask != mask || warp.kind != kind || (mask >> own & 1) == 0)
      fail("lanes of a warp call different functions, or with different masks");
    if (source >= 0 && (mask >> source & 1) == 0) fail("a lane reads from one that is not in the mask");
    warp.bits[side][own] = bits;
    warp.arrived |= 1U << own;
    waiting_[thread_] = running_;
    if (warp.arrived == mask) {
      warp.arrived = 0, warp.side = 1 - side;
      for (unsigned i = 0; i < warp_lanes; ++i) {
        const unsigned at = backwards_ ? warp_lanes - 1 - i : i;
        if (mask >> at & 1) make_ready(thread_ / warp_lanes * warp_lanes + at);
      }
    }
    const unsigned thread = thread_;
    wait();
    return warps_[thread / warp_lanes].bits[side];
  }

  int lane() const { return static_cast<int>(thread_ % warp_lanes); }

 private:
  struct Worker {
    Fiber fiber{work};
  };

  static void work() {
    for (;;) current->step();
  }

  // The work of a fiber without a thread: starts the next thread, or resumes a fiber that can continue. Fibers without a thread
  // may resume on another host thread, which has other thread_local variables: no address of these may be kept over a switch.
  // Therefore this is not inlined, and a switch is its last action.
  [[gnu::noinline]] void step() {
    if (!ready_.empty()) {
      const auto thread = take_ready();
      idle_.push_back(running_);
      go_on(thread, *running_);
    } else if (started_ < threads_) {
      const unsigned thread = backwards_ ? threads_ - 1 - started_ : started_;
      ++started_;
      enter(thread);
      call_->run(call_->arguments.get());
      ++finished_;
    } else if (finished_ == threads_ && ++block_ < blocks_) {
      begin_block();
    } else {
      if (finished_ < threads_) describe_deadlock();
      idle_.push_back(running_);
      host_.resume(*running_);
    }
  }

  void enter(unsigned thread) {
    thread_ = thread;
    if (thread < blockDim.x) threadIdx = {thread, 0, 0};
    else threadIdx = {thread % blockDim.x, thread / blockDim.x % blockDim.y, thread / blockDim.x / blockDim.y};
  }

  void begin_block() {
    const auto at = backwards_ ? blocks_ - 1 - block_ : block_;
    const auto row = at / gridDim.x;
    blockIdx = {static_cast<unsigned>(at % gridDim.x), static_cast<unsigned>(row % gridDim.y),
                static_cast<unsigned>(row / gridDim.y)};
    started_ = finished_ = arrived_ = 0, at_barrier_ = false;
    for (auto& warp : warps_) warp.arrived = 0;
  }

  void make_ready(unsigned thread) { ready_.push_back(thread); }
  unsigned take_ready() {
    const unsigned thread = ready_.front();
    ready_.pop_front();
    return thread;
  }

  // The running thread has been entered in waiting_, and perhaps made ready again.
  void wait() {
    const unsigned thread = thread_;
    Fiber* mine = running_;
    if (!ready_.empty()) {
      const auto next = take_ready();
      if (next != thread) go_on(next, *mine);
    } else if (started_ < threads_) {
      idle_fiber().resume(*mine);
    } else {
      describe_deadlock();
      host_.resume(*mine);
    }
    running_ = mine;
    enter(thread);
  }
  void go_on(unsigned thread, Fiber& from) { std::exchange(waiting_[thread], nullptr)->resume(from); }

  Fiber& idle_fiber() {
    if (idle_.empty()) idle_.push_back(&fibers_.emplace_back().fiber);
    running_ = idle_.back();
    idle_.pop_back();
    return *running_;
  }

  void fail(const char* why) {
    error_ = std::string(why) + place();
    host_.resume(*running_);  // never returns
  }
  void describe_deadlock() {
    error_ = std::to_string(threads_ - finished_) + " of " + std::to_string(threads_) + " threads wait " +
             (at_barrier_ ? "at __syncthreads" : "for lanes of their warp") + " for others, which " +
             (finished_ > 0 ? "have left" : "wait elsewhere") + place();
  }
  std::string place() const {
    return ", block " + std::to_string(blockIdx.x) + ", " + std::to_string(blockIdx.y) + ", " + std::to_string(blockIdx.z);
  }

  const KernelCall* call_ = nullptr;
  bool backwards_ = false, at_barrier_ = false;
  std::uint64_t blocks_ = 0, block_ = 0;
  unsigned threads_ = 0, started_ = 0, finished_ = 0, arrived_ = 0;
  unsigned thread_ = 0;       // the running thread
  Fiber* running_ = nullptr;  // and its fiber
  std::vector<Warp> warps_;
  std::vector<Fiber*> waiting_;  // indexed by thread
  std::deque<unsigned> ready_;
  std::deque<Worker> fibers_;
  std::vector<Fiber*> idle_;
  Fiber host_;
  std::string error_;
};
constinit thread_local Engine* Engine::current = nullptr;

// Keeps engines with their fibers, because ranks are threads that start and end.
struct Engines {
  std::mutex mutex;
  std::vector<std::unique_ptr<Engine>> idle;
};
Engines& engines() {
  static auto* instance = new Engines;
  return *instance;
}

}  // namespace

std::string run_kernel(dim3 grid, dim3 block, const KernelCall& call, bool backwards) {
  auto& known = engines();
  std::unique_ptr<Engine> engine;
  {
    const std::lock_guard lock(known.mutex);
    if (!known.idle.empty()) {
      engine = std::move(known.idle.back());
      known.idle.pop_back();
    }
  }
  if (!engine) engine = std::make_unique<Engine>();
  auto error = engine->run(grid, block, call, backwards);
  const std::lock_guard lock(known.mutex);
  known.idle.push_back(std::move(engine));
  return error;
}

void synchronise_block() { Engine::current->synchronise_block(); }
std::uint64_t exchange(unsigned mask, std::uint64_t bits, int kind, int source) {
  const auto* all = Engine::current->exchange(mask, bits, kind, source);
  return source < 0 ? 0 : all[source];
}
void gather(unsigned mask, std::uint64_t bits, int kind, std::uint64_t (&all)[32]) {
  std::copy_n(Engine::current->exchange(mask, bits, kind, -1), warp_lanes, all);
}
int lane() { return Engine::current->lane(); }

}  // namespace mpigrad::emulation
