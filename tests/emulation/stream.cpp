// Streams, events, copies and launches of the emulator.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "tests/emulation/capture.h"
#include "tests/emulation/kernel.h"
#include "tests/emulation/runtime.h"
#include "tests/emulation/stream.h"

using namespace mpigrad::emulation;

namespace {

// If streams have no threads, one host thread at a time works through the queues, and a waiting thread also does the work of
// others.
struct Order {
  std::recursive_mutex mutex;
  std::condition_variable_any changed;  // notified when some work is done
  std::set<CUstream_st*> streams;       // never deleted, because events point to them
  std::set<CUevent_st*> events;
};
Order& order() {
  static auto* instance = new Order;
  return *instance;
}

void do_one(CUstream_st& stream) {
  stream.queue.front().run();
  stream.queue.pop_front();
  ++stream.done;
}
// Does the work up to `number`, with the lock held.
void do_until(CUstream_st& stream, std::uint64_t number) {
  if (settings().mode == Mode::concurrent) order().changed.wait(order().mutex, [&] { return stream.done >= number; });
  else
    while (stream.done < number) do_one(stream);
}
// Runs on a stream's own thread, which ends with the stream or the process.
void serve(CUstream_st& stream) {
  std::unique_lock lock(order().mutex);
  for (;;) {
    stream.came.wait(lock, [&] { return !stream.queue.empty() || stream.destroyed; });
    if (stream.queue.empty()) return;
    auto& work = stream.queue.front();
    lock.unlock();
    work.run();
    lock.lock();
    stream.queue.pop_front();
    ++stream.done;
    order().changed.notify_all();
  }
}

cudaError_t state() { return failed_for_good() ? fail_for_good({}) : cudaSuccess; }

bool known(cudaEvent_t event) {
  const std::lock_guard lock(order().mutex);
  return order().events.contains(event);
}
cudaError_t no_stream() {
  return refuse(cudaErrorInvalidResourceHandle, "not a stream that is there; the default one is not emulated");
}
// Querying or waiting for captured work ends the capture.
cudaError_t captured(const CapturePtr& capture, const char* call) {
  if (capture) capture->invalid = std::string(call) + " on a stream that is captured";
  return refuse(cudaErrorStreamCaptureUnsupported, capture ? capture->invalid : call);
}
cudaError_t captured_event() {
  return refuse(cudaErrorCapturedEvent, "the event was last recorded on a stream that was captured");
}
cudaError_t no_event() { return refuse(cudaErrorInvalidResourceHandle, "not an event that is there"); }

}  // namespace

namespace mpigrad::emulation {

bool valid(cudaStream_t stream) {
  const std::lock_guard lock(order().mutex);
  return order().streams.contains(stream);
}
int device_of(cudaStream_t stream) { return stream->device; }

cudaError_t give(cudaStream_t stream, std::function<void()> work, const void* host, std::size_t bytes) {
  if (failed_for_good()) return fail_for_good({});
  if (stream->capture) {
    stream->capture->add(stream, std::move(work));
    return cudaSuccess;
  }
  if (settings().mode == Mode::at_once) {
    work();
    return state();
  }
  const std::lock_guard lock(order().mutex);
  stream->queue.push_back({std::move(work), static_cast<const std::byte*>(host), bytes});
  ++stream->given;
  if (settings().mode == Mode::concurrent) {
    if (!std::exchange(stream->has_thread, true)) std::thread([stream] { serve(*stream); }).detach();
    stream->came.notify_one();
  }
  return cudaSuccess;
}

bool give_if_captured(cudaStream_t stream, const std::function<void()>& work, bool in_order) {
  if (!stream->capture) return false;
  if (in_order) stream->capture->add_in_order(stream, work);
  else stream->capture->add(stream, work);
  return true;
}

void finish(int device) {
  const std::lock_guard lock(order().mutex);
  const auto streams = order().streams;  // others may add streams meanwhile
  for (auto* stream : streams)
    if (stream->device == device) do_until(*stream, stream->given);
}

bool host_memory_in_use(const void* host, std::size_t bytes) {
  const auto* first = static_cast<const std::byte*>(host);
  const std::lock_guard lock(order().mutex);
  for (const auto* stream : order().streams)
    for (const auto& work : stream->queue)
      if (work.bytes > 0 && work.host < first + bytes && first < work.host + work.bytes) return true;
  return false;
}

cudaError_t launch(const cudaLaunchConfig_t& c, KernelCall call) {
  const auto &g = c.gridDim, &b = c.blockDim;
  const auto threads = std::uint64_t{b.x} * b.y * b.z;
  if (!valid(c.stream)) return no_stream();
  if (c.stream->device != current_device())
    return refuse(cudaErrorInvalidResourceHandle, "the stream is of another GPU than the current one");
  if (threads == 0 || threads > 1024 || b.z > 64)
    return refuse(cudaErrorInvalidConfiguration, "a block of " + std::to_string(threads) + " threads");
  if (g.x == 0 || g.y == 0 || g.z == 0 || g.x > 0x7FFFFFFF || g.y > 65535 || g.z > 65535)
    return refuse(cudaErrorInvalidConfiguration,
                  "a grid of " + std::to_string(g.x) + " x " + std::to_string(g.y) + " x " + std::to_string(g.z) + " blocks");
  if (c.dynamicSmemBytes > 0 || c.numAttrs > 0)
    return refuse(cudaErrorInvalidConfiguration, "dynamic shared memory and attributes are not emulated");
  for (const auto* pointer : call.pointers) {
    if (!pointer) continue;
    if (const auto why = unreachable(pointer, 0, c.stream->device); !why.empty())
      return fail_for_good("a kernel is given " + why);
  }
  return give(c.stream, [g, b, call = std::move(call)] {
    const auto why = run_kernel(g, b, call, settings().mode == Mode::late);
    if (!why.empty()) fail_for_good(why);
  });
}

}  // namespace mpigrad::emulation

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  if (flags > cudaStreamNonBlocking || priority > 0 || priority < -5) return refuse(cudaErrorInvalidValue);
  const std::lock_guard lock(order().mutex);
  *stream = new CUstream_st;
  (*stream)->device = current_device();
  order().streams.insert(*stream);
  return state();
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
// Enqueued work is still done.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (!valid(stream)) return no_stream();
  if (stream->capture) return captured(stream->capture, "cudaStreamDestroy");
  const std::lock_guard lock(order().mutex);
  do_until(*stream, stream->given);
  order().streams.erase(stream);
  stream->destroyed = true;
  stream->came.notify_one();
  return state();
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (!valid(stream)) return no_stream();
  if (stream->capture) return captured(stream->capture, "cudaStreamSynchronize");
  const std::lock_guard lock(order().mutex);
  do_until(*stream, stream->given);
  return state();
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (!valid(stream)) return no_stream();
  if (stream->capture) return captured(stream->capture, "cudaStreamQuery");
  const std::lock_guard lock(order().mutex);
  if (stream->done == stream->given) return state();
  if (settings().mode == Mode::late) do_one(*stream);
  return refuse(cudaErrorNotReady);
}
cudaError_t cudaDeviceSynchronize() {
  if (const auto why = forbidden_by_capture(true); !why.empty()) return refuse(cudaErrorStreamCaptureUnsupported, why);
  finish(current_device());
  return state();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (!valid(stream)) return no_stream();
  if (!known(event)) return no_event();
  const std::lock_guard lock(order().mutex);
  if (event->capture) {
    if (!event->capture->ends.contains(event->capture->origin)) return captured_event();  // the capture has ended
    if (stream->capture && stream->capture != event->capture) {
      stream->capture->invalid = event->capture->invalid = "two captures are to become one";
      return refuse(cudaErrorStreamCaptureMerge, stream->capture->invalid);
    }
    stream->capture = event->capture;
    event->capture->join(stream, event->points);
    return state();
  }
  if (stream->capture && event->stream) {
    stream->capture->invalid = "captured work waits for what is not";
    return refuse(cudaErrorStreamCaptureIsolation, stream->capture->invalid);
  }
  if (!event->stream || event->stream->done >= event->number) return state();
  return give(stream, [on = event->stream, number = event->number] {
    const std::lock_guard lock(order().mutex);
    do_until(*on, number);
  });
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  if (!valid(stream)) return no_stream();
  return give(stream, [function, data] { function(data); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const std::lock_guard lock(order().mutex);
  *event = new CUevent_st;
  (*event)->device = current_device();
  (*event)->timed = (flags & cudaEventDisableTiming) == 0;
  order().events.insert(*event);
  return state();
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }
// Waiting work still waits for the point that the event marked.
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard lock(order().mutex);
  if (order().events.erase(event) == 0) return no_event();
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (!valid(stream)) return no_stream();
  if (!known(event)) return no_event();
  const std::lock_guard lock(order().mutex);
  if (event->device != stream->device)
    return refuse(cudaErrorInvalidResourceHandle, "the event is of another GPU than the stream");
  event->capture = stream->capture;
  if (stream->capture) {
    event->points = stream->capture->ends[stream], event->stream = nullptr;
    return state();
  }
  event->stream = stream, event->number = stream->given;
  event->time = std::chrono::steady_clock::now();
  return state();
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(order().mutex);
  if (!known(event)) return no_event();
  if (event->capture) return captured_event();
  if (!event->stream || event->stream->done >= event->number) return state();
  if (settings().mode == Mode::late) do_one(*event->stream);  // repeated queries eventually succeed
  return refuse(cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const std::lock_guard lock(order().mutex);
  if (!known(event)) return no_event();
  if (event->capture) return captured_event();
  if (event->stream) do_until(*event->stream, event->number);
  return state();
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const std::lock_guard lock(order().mutex);
  if (!known(begin) || !known(end)) return no_event();
  if (!begin->timed || !end->timed || !begin->stream || !end->stream || begin->device != end->device)
    return refuse(cudaErrorInvalidResourceHandle, "an event that was not recorded, or without time, or of another GPU");
  for (const auto* each : {begin, end})
    if (each->stream->done < each->number) return refuse(cudaErrorNotReady);
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  return state();
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (!valid(stream)) return no_stream();
  const std::lock_guard lock(order().mutex);
  if (stream->capture || capture_of_this_thread()) return captured(stream->capture, "cudaStreamBeginCapture");
  stream->capture = std::make_shared<Capture>();
  stream->capture->origin = stream, stream->capture->relaxed = mode == cudaStreamCaptureModeRelaxed;
  stream->capture->ends[stream] = {};
  capture_of_this_thread() = stream->capture.get();
  return state();
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (!valid(stream)) return no_stream();
  const std::lock_guard lock(order().mutex);
  const auto capture = stream->capture;
  if (!capture || capture->origin != stream)
    return refuse(cudaErrorStreamCaptureUnmatched, "no capture was begun on this stream");
  const bool joined = capture->joined();
  for (const auto& [each, end] : capture->ends) each->capture = nullptr;
  capture->ends.clear();
  capture_of_this_thread() = nullptr;
  if (!capture->invalid.empty()) return refuse(cudaErrorStreamCaptureInvalidated, capture->invalid);
  if (!joined) return refuse(cudaErrorStreamCaptureUnjoined, "work of another stream was never waited for");
  *graph = new CUgraph_st{std::move(capture->nodes)};
  return state();
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return state();
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  if (!graph || nodes) return refuse(cudaErrorInvalidValue, "no graph, or more than the number of nodes is asked for");
  *count = graph->nodes.size();
  return state();
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  if (!graph || (flags & ~static_cast<unsigned long long>(cudaGraphInstantiateFlagUseNodePriority)) != 0)
    return refuse(cudaErrorInvalidValue, "no graph, or flags");
  *executable = new CUgraphExec_st{std::make_shared<const std::vector<Node>>(graph->nodes)};
  return state();
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  if (!valid(stream)) return no_stream();
  if (stream->capture) return captured(stream->capture, "cudaGraphLaunch");
  return give(stream, [nodes = executable->nodes] { run_nodes(*nodes, settings().mode == Mode::late); });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return state();
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (!valid(stream)) return no_stream();
  if (bytes == 0) return state();
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  // A copy may access the memory of any GPU.
  for (const auto& [address, on_device] : {std::pair<const void*, bool>{to, to_device}, {from, from_device}})
    if (const auto why = unreachable(address, bytes, -1, on_device); !why.empty())
      return refuse(cudaErrorInvalidValue,
                    "a copy of " + std::to_string(bytes) + " bytes " + (address == to ? "to " : "from ") + why);
  const auto is_host = [&](const void* address) { return unreachable(address, bytes, -1, true) == "memory of the host"; };
  if ((kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost) && !is_host(from))
    return refuse(cudaErrorInvalidValue, "a copy from the host of what is on a GPU");
  if ((kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost) && !is_host(to))
    return refuse(cudaErrorInvalidValue, "a copy to the host of what is on a GPU");
  const auto *a = static_cast<const std::byte*>(from), *b = static_cast<const std::byte*>(to);
  if (a < b + bytes && b < a + bytes) return refuse(cudaErrorInvalidValue, "a copy onto itself");
  const void* host = is_host(from) ? from : is_host(to) ? to : nullptr;
  return give(
      stream, [=] { std::memcpy(to, from, bytes); }, host, host ? bytes : 0);
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  if (!valid(stream)) return no_stream();
  if (bytes == 0) return state();
  if (const auto why = unreachable(memory, bytes, stream->device); !why.empty())
    return refuse(cudaErrorInvalidValue, "setting " + why);
  return give(stream, [=] { std::memset(memory, value, bytes); });
}

}  // extern "C"
