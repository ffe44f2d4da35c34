#include "comm/transport/reduction_mode.h"

#include <cstdlib>
#include <vector>

#include "comm/transport/device/device_memory.h"
#include "comm/transport/forwarding.h"
#include "comm/transport/transport_checks.h"
#include "comm/transport/words.h"
#include "framework/error.h"

namespace mpigrad {
namespace {

using transport_checks::offset;
using transport_checks::total;

// A collective under way whose result is worked on after it.
class Finished final : public PendingOperation {
 public:
  Finished(std::unique_ptr<PendingOperation> operation, std::function<void()> finish)
      : operation_(std::move(operation)), finish_(std::move(finish)) {}
  ~Finished() override {
    if (!finish_ || std::uncaught_exceptions() > exceptions_) return;
    try {
      wait();
    } catch (...) {  // the next call meets the same failure
    }
  }
  Finished(const Finished&) = delete;
  Finished& operator=(const Finished&) = delete;
  void wait() override {
    operation_->wait();
    if (auto finish = std::exchange(finish_, nullptr)) finish();
  }
  bool test() override { return operation_->test(); }

 private:
  std::unique_ptr<PendingOperation> operation_;
  std::function<void()> finish_;
  int exceptions_ = std::uncaught_exceptions();
};

// What it works on lies in `memory`.
class ModeTransport final : public ForwardingTransport {
 public:
  ModeTransport(std::shared_ptr<Transport> inner, const ReductionMode& mode, std::shared_ptr<DeviceMemory> memory)
      : ForwardingTransport(std::move(inner)), mode_(mode), memory_(std::move(memory)) {}

  void allreduce(const void* in, void* out, std::int64_t count, DType type, Reduction op) override {
    if (widens(type)) {
      const auto wide = widened(in, count, type);
      allreduce(wide.get(), wide.get(), count, DType::float32, op);
      return memory_->convert(wide.get(), DType::float32, out, type, count);
    }
    if (!orders(type, op)) return inner().allreduce(in, out, count, type, op);
    const auto parts = blocks(count);
    const auto mine = reduced(in, parts, type, op);
    inner().allgather(mine.get(), out, parts, type);
  }

  void reduce(const void* in, void* out, std::int64_t count, DType type, Reduction op, int root) override {
    if (widens(type)) {
      const auto wide = widened(in, count, type);
      reduce(wide.get(), wide.get(), count, DType::float32, op, root);
      if (rank() == root) memory_->convert(wide.get(), DType::float32, out, type, count);
      return;
    }
    if (!orders(type, op)) return inner().reduce(in, out, count, type, op, root);
    transport_checks::check_rank("reduce", "root", root, size());
    const auto parts = blocks(count);
    const auto mine = reduced(in, parts, type, op);
    inner().gather(mine.get(), rank() == root ? out : nullptr, parts, type, root);
  }

  void reduce_scatter(const void* in, void* out, std::span<const std::int64_t> counts, DType type, Reduction op) override {
    transport_checks::check_counts("reduce_scatter", counts, size());
    const auto own = counts[index()];
    if (widens(type)) {
      const auto wide = widened(in, total(counts), type);
      const auto mine = memory_->allocate(own * size_of(DType::float32));
      reduce_scatter(wide.get(), mine.get(), counts, DType::float32, op);
      return memory_->convert(mine.get(), DType::float32, out, type, own);
    }
    if (!orders(type, op)) return inner().reduce_scatter(in, out, counts, type, op);
    const auto mine = reduced(in, counts, type, op);
    memory_->copy(out, mine.get(), own * size_of(type));
  }

  std::unique_ptr<PendingOperation> start(const Collective& call) override {
    const bool reduces = call.kind == CollectiveKind::allreduce || call.kind == CollectiveKind::reduce ||
                         call.kind == CollectiveKind::reduce_scatter;
    if (!reduces || !(widens(call.type) || orders(call.type, call.op))) return inner().start(call);
    transport_checks::check_collective(call, size());
    const bool scatters = call.kind == CollectiveKind::reduce_scatter;
    const auto elements = scatters ? total(call.counts) : call.count;
    const auto mine = scatters                                                     ? call.counts[index()]
                      : call.kind == CollectiveKind::reduce && rank() != call.root ? 0
                                                                                   : call.count;
    const auto first = scatters ? offset(call.counts, index()) : 0;
    if (widens(call.type)) {
      const auto in = widened(call.in, elements, call.type);
      const auto out = memory_->allocate(mine * size_of(DType::float32));
      Collective wide = call;
      wide.in = in.get(), wide.out = out.get(), wide.type = DType::float32;
      return std::make_unique<Finished>(start(wide), [in, out, memory = memory_, mine, to = call.out, type = call.type] {
        memory->convert(out.get(), DType::float32, to, type, mine);
      });
    }
    // No second message may be needed at the wait, whose order is each rank's own.
    const auto item = size_of(call.type);
    const auto all = memory_->allocate(elements * item * size());
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(size()), elements);
    auto gathering =
        inner().start({.kind = CollectiveKind::allgather, .in = call.in, .out = all.get(), .type = call.type, .counts = counts});
    return std::make_unique<Finished>(std::move(gathering),
                                      [all, memory = memory_, to = static_cast<std::byte*>(call.out), mine, first, elements, item,
                                       type = call.type, op = call.op, ranks = size()] {
                                        if (mine == 0) return;
                                        memory->copy(to, all.get() + first * item, mine * item);
                                        for (int r = 1; r < ranks; ++r)
                                          memory->combine(to, all.get() + (r * elements + first) * item, mine, type, op);
                                      });
  }

  std::shared_ptr<Transport> subgroup(std::span<const int> ranks) override { return wrap(inner().subgroup(ranks)); }
  std::shared_ptr<Transport> split(int color, int key) override { return wrap(inner().split(color, key)); }
  std::shared_ptr<Transport> duplicate() override { return wrap(inner().duplicate()); }

 private:
  std::shared_ptr<Transport> wrap(std::shared_ptr<Transport> made) const { return with_mode(std::move(made), mode_, memory_); }
  bool widens(DType type) const { return is_half(type) && !mode_.sixteen_bit; }
  bool orders(DType type, Reduction op) const {
    const bool extreme = is_floating(type) && (op == Reduction::max || op == Reduction::min);
    return size() > 1 && (mode_.fixed_order || (extreme && inner().loses_nan()));
  }
  std::size_t index() const { return static_cast<std::size_t>(rank()); }

  DeviceMemory::Bytes widened(const void* in, std::int64_t count, DType type) const {
    transport_checks::check_count("allreduce", count);
    auto wide = memory_->allocate(count * size_of(DType::float32));
    memory_->convert(in, type, wide.get(), DType::float32, count);
    return wide;
  }

  std::vector<std::int64_t> blocks(std::int64_t count) const {
    transport_checks::check_count("allreduce", count);
    std::vector<std::int64_t> parts(static_cast<std::size_t>(size()), count / size());
    for (std::int64_t r = 0; r < count % size(); ++r) ++parts[static_cast<std::size_t>(r)];
    return parts;
  }

  // This rank's block of all ranks' inputs, combined in the order of ranks.
  DeviceMemory::Bytes reduced(const void* in, std::span<const std::int64_t> parts, DType type, Reduction op) {
    transport_checks::check_reduction("allreduce", type, op);
    const auto n = parts[index()], bytes = n * size_of(type);
    const std::vector<std::int64_t> arriving(parts.size(), n);
    auto all = memory_->allocate(bytes * size());
    inner().alltoall(in, parts, all.get(), arriving, type);
    for (int r = 1; r < size(); ++r) memory_->combine(all.get(), all.get() + r * bytes, n, type, op);
    return all;
  }

  ReductionMode mode_;
  std::shared_ptr<DeviceMemory> memory_;
};

}  // namespace

ReductionMode parse_reduction_mode(std::string_view text) {
  ReductionMode mode;
  for (const auto word : detail::words_of(text)) {
    require(word == "fixed" || word == "16bit", "[reductions] MPIGRAD_REDUCTIONS knows fixed and 16bit, got '{}'", word);
    (word == "fixed" ? mode.fixed_order : mode.sixteen_bit) = true;
  }
  return mode;
}

ReductionMode default_reduction_mode() {
  const char* text = std::getenv("MPIGRAD_REDUCTIONS");
  return parse_reduction_mode(text ? text : "");
}

std::shared_ptr<Transport> with_mode(std::shared_ptr<Transport> transport, const ReductionMode& mode,
                                     std::shared_ptr<DeviceMemory> memory) {
  if (!transport || transport->name() == "dry") return transport;
  return std::make_shared<ModeTransport>(std::move(transport), mode, memory ? std::move(memory) : host_memory());
}

}  // namespace mpigrad
