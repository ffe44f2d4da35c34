#include "comm/transport/summation_mode.h"

#include <atomic>
#include <cstdlib>
#include <vector>

#include "comm/transport/device/device_memory.h"
#include "comm/transport/fixed_order.h"
#include "comm/transport/forwarding.h"
#include "comm/transport/words.h"
#include "framework/base/error.h"

namespace mpigrad {
namespace {

// A collective under way whose result is processed after its end.
class Finished final : public PendingWork {
 public:
  Finished(Pending operation, std::function<void()> finish) : finish_(std::move(finish)), operation_(std::move(operation)) {}
  void wait() override {
    operation_.wait();
    finish_();
  }
  bool test() override { return operation_.test(); }
  void drop() noexcept override { operation_.cancel(); }

 private:
  std::function<void()> finish_;  // holds the buffers, and is destroyed after the operation
  Pending operation_;
};

// Applies the mode of sums to calls. Temporary buffers are allocated in `memory`.
class ModeTransport final : public ForwardingTransport {
 public:
  ModeTransport(std::shared_ptr<Transport> inner, const SummationMode& mode, std::shared_ptr<DeviceMemory> memory)
      : ForwardingTransport(std::move(inner)), mode_(mode), memory_(std::move(memory)) {}

  const SummationMode& mode() const { return mode_; }

  void perform(const Collective& call) override {
    if (!changes(call)) return inner().perform(call);
    const bool blocks_only = traits_of(call.kind).out == BufferPart::own;  // the rest of its input belongs to other ranks
    const auto mine = moved_elements(call, rank()).out;
    if (widens(call.type)) {
      const auto elements = moved_elements(call, rank()).in;
      const auto in = widened(call.in, elements, call.type);
      const auto out = blocks_only ? memory_->allocate(mine * size_of(DType::float32)) : in;
      Collective wide = call;
      wide.in = in.get(), wide.out = out.get(), wide.type = DType::float32;
      perform(wide);
      return memory_->convert(out.get(), DType::float32, call.out, call.type, mine);
    }
    if (blocks_only) return memory_->copy(call.out, reduced(call, call.counts).get(), mine * size_of(call.type));
    // Each rank adds up one block.
    const auto parts = blocks(call.count);
    const auto block = reduced(call, parts);
    const bool all = call.kind == CollectiveKind::allreduce;
    inner().perform({.kind = all ? CollectiveKind::allgather : CollectiveKind::gather,
                     .in = block.get(),
                     .out = all || rank() == call.root ? call.out : nullptr,
                     .type = call.type,
                     .root = call.root,
                     .counts = parts});
  }

  Pending begin(const Collective& call) override {
    if (!changes(call)) return inner().begin(call);
    const auto [elements, mine] = moved_elements(call, rank());
    const auto first = sent_slice(call, rank(), rank()).first;  // of the elements that this rank adds up
    if (widens(call.type)) {
      const auto in = widened(call.in, elements, call.type);
      const auto out = memory_->allocate(mine * size_of(DType::float32));
      Collective wide = call;
      wide.in = in.get(), wide.out = out.get(), wide.type = DType::float32;
      return pending<Finished>(begin(wide), [in, out, memory = memory_, mine = mine, to = call.out, type = call.type] {
        memory->convert(out.get(), DType::float32, to, type, mine);
      });
    }
    // The wait may need no second message, because each rank waits in its own order.
    const auto item = size_of(call.type);
    const auto all = memory_->allocate(elements * item * size());
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(size()), elements);
    auto gathering =
        inner().begin({.kind = CollectiveKind::allgather, .in = call.in, .out = all.get(), .type = call.type, .counts = counts});
    return pending<Finished>(std::move(gathering),
                             [all, memory = memory_, to = static_cast<std::byte*>(call.out), mine = mine, first,
                              elements = elements, item, type = call.type, op = call.op, ranks = size()] {
                               if (mine == 0) return;
                               memory->copy(to, all.get() + first * item, mine * item);
                               for (int r = 1; r < ranks; ++r)
                                 memory->combine(to, all.get() + (r * elements + first) * item, mine, type, op);
                             });
  }

 private:
  std::shared_ptr<Transport> wrap(std::shared_ptr<Transport> made) const override {
    return with_mode(std::move(made), mode_, memory_);
  }
  bool changes(const Collective& call) const {
    return traits_of(call.kind).reduces && (widens(call.type) || orders(call.type, call.op));
  }
  bool widens(DType type) const { return is_half(type) && !mode_.sixteen_bit; }
  bool orders(DType type, CombineOp op) const {
    const bool extreme = is_floating(type) && (op == CombineOp::max || op == CombineOp::min);
    return size() > 1 && (mode_.fixed_order || (extreme && inner().loses_nan()));
  }

  DeviceMemory::Bytes widened(const void* in, std::int64_t count, DType type) const {
    auto wide = memory_->allocate(count * size_of(DType::float32));
    memory_->convert(in, type, wide.get(), DType::float32, count);
    return wide;
  }

  std::vector<std::int64_t> blocks(std::int64_t count) const {
    std::vector<std::int64_t> parts(static_cast<std::size_t>(size()), count / size());
    for (std::int64_t r = 0; r < count % size(); ++r) ++parts[static_cast<std::size_t>(r)];
    return parts;
  }

  // This rank's block, combined from all ranks' inputs in the order of ranks.
  DeviceMemory::Bytes reduced(const Collective& call, std::span<const std::int64_t> parts) {
    const auto n = parts[static_cast<std::size_t>(rank())], bytes = n * size_of(call.type);
    const std::vector<std::int64_t> arriving(parts.size(), n);
    auto all = memory_->allocate(bytes * size());
    inner().perform({.kind = CollectiveKind::alltoall,
                     .in = call.in,
                     .out = all.get(),
                     .type = call.type,
                     .counts = parts,
                     .receive_counts = arriving});
    for (int r = 1; r < size(); ++r) memory_->combine(all.get(), all.get() + r * bytes, n, call.type, call.op);
    return all;
  }

  SummationMode mode_;
  std::shared_ptr<DeviceMemory> memory_;
};

}  // namespace

SummationMode parse_summation_mode(std::string_view text) {
  SummationMode mode;
  for (const auto word : detail::words_of(text)) {
    require(word == "fixed" || word == "16bit", "[reductions] MPIGRAD_REDUCTIONS knows fixed and 16bit, got '{}'", word);
    (word == "fixed" ? mode.fixed_order : mode.sixteen_bit) = true;
  }
  return mode;
}

namespace {
std::atomic<bool> fixed_in_process{false};
}

void set_fixed_order(bool fixed) { fixed_in_process = fixed; }

SummationMode default_summation_mode() {
  const char* text = std::getenv("MPIGRAD_REDUCTIONS");
  auto mode = parse_summation_mode(text ? text : "");
  mode.fixed_order = mode.fixed_order || fixed_in_process;
  return mode;
}

SummationMode mode_of(const Transport& transport) {
  const auto* own = dynamic_cast<const ModeTransport*>(&transport);
  return own ? own->mode() : default_summation_mode();
}

SummationMode inherited_mode(const Transport& transport) {
  auto mode = mode_of(transport);
  mode.fixed_order = mode.fixed_order || fixed_in_process;
  return mode;
}

std::shared_ptr<Transport> with_mode(std::shared_ptr<Transport> transport, const SummationMode& mode,
                                     std::shared_ptr<DeviceMemory> memory) {
  if (!transport || !transport->can_ask()) return transport;
  if (const auto* before = dynamic_cast<const ModeTransport*>(transport.get()))
    return with_mode(before->shared_inner(), mode, std::move(memory));
  return std::make_shared<ModeTransport>(std::move(transport), mode, memory ? std::move(memory) : host_memory());
}

}  // namespace mpigrad
