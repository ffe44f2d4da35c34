// The functions of cuda.h in a build without CUDA. No GPU is ever available, so only queries can be reached.

#include <utility>

#include "framework/base/error.h"
#include "framework/cuda/cuda.h"
#include "framework/cuda/graph.h"
#include "framework/cuda/staging.h"

namespace mpigrad::cuda {
namespace {

[[noreturn]] void refuse(const char* what) { fail("[cuda] {}: {}", what, unavailable()); }

}  // namespace

bool available() { return false; }
std::string unavailable() { return "this build has no CUDA backend: install the CUDA toolkit and configure with -Dcuda=enabled"; }
int devices() { return 0; }
void select(int) { refuse("no GPU can be selected"); }
int selected() { return 0; }
std::string name() { refuse("there is no GPU to name"); }
std::int64_t total_memory() { refuse("there is no GPU to ask for its memory"); }

Stream compute_stream() { refuse("there are no streams"); }
Stream halo_stream() { refuse("there are no streams"); }
Stream bucket_stream() { refuse("there are no streams"); }
Stream copy_stream() { refuse("there are no streams"); }
void wait(Stream, Stream) { refuse("there are no streams"); }
void synchronise(Stream) { refuse("there are no streams"); }

Event::Event() { refuse("there are no events"); }
Event::~Event() = default;
Event::Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
Event& Event::operator=(Event&& other) noexcept {
  std::swap(event_, other.event_);
  return *this;
}
void Event::record(Stream) { refuse("there are no events"); }
void Event::hold(Stream) const { refuse("there are no events"); }
bool Event::reached() const { refuse("there are no events"); }
void Event::synchronise() const { refuse("there are no events"); }
void Event::throttle() const { refuse("there are no events"); }

Statistics statistics() { return {}; }

void* allocate(std::int64_t) { refuse("no memory can be allocated"); }
void release(void*) noexcept {}
AllocatorStatistics memory() { return {}; }
AllocatorStatistics memory_of_process() { return {}; }
void reset_peak_memory() {}
std::int64_t trim_memory() { return 0; }

PinnedBuffer::PinnedBuffer(std::int64_t) { refuse("no memory can be pinned"); }
PinnedBuffer::~PinnedBuffer() = default;
PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void copy(void*, const void*, std::int64_t, Stream) { refuse("nothing can be copied"); }
void copy_from_pinned(void*, const void*, std::int64_t, Stream) { refuse("nothing can be copied"); }
void look_up(const Tensor&, const Tensor&, Tensor&) { refuse("there are no kernels"); }
void copy_to_device(void*, const void*, std::int64_t) { refuse("nothing can be copied"); }
void copy_to_host(void*, const void*, std::int64_t) { refuse("nothing can be copied"); }
void copy_on_device(void*, const void*, std::int64_t) { refuse("nothing can be copied"); }
void zero(void*, std::int64_t) { refuse("there is no memory to fill"); }
void fill(void*, std::int64_t, std::int64_t, const void*) { refuse("there is no memory to fill"); }
void copy_strided(void*, const void*, std::int64_t, const StridedArrays<2>&, Stream) { refuse("nothing can be copied"); }
void add_strided(void*, const void*, DType, const StridedArrays<2>&, Stream) { refuse("nothing can be added"); }
struct CapturedGraph::State {};
CapturedGraph::CapturedGraph(const std::function<void()>&) { refuse("nothing can be captured"); }
CapturedGraph::~CapturedGraph() = default;
std::size_t CapturedGraph::nodes() const { refuse("nothing is captured"); }
void CapturedGraph::launch(const StepScalars&) { refuse("nothing can be repeated"); }
bool capturing() { return false; }
const StepScalars* live_scalars() { return nullptr; }
Fault* fault_record() { refuse("there are no kernels"); }

}  // namespace mpigrad::cuda
