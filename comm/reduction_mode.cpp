#include "comm/reduction_mode.h"

#include <cstdlib>
#include <cstring>
#include <vector>

#include "comm/forwarding.h"
#include "comm/reduce_into.h"
#include "comm/transport_checks.h"
#include "comm/words.h"
#include "framework/error.h"

namespace mpigrad {
namespace {

using transport_checks::offset;
using transport_checks::total;

std::vector<float> widened(const void* in, std::int64_t count, DType type) {
  std::vector<float> wide(static_cast<std::size_t>(count));
  const auto convert = [&](const auto* values) {
    for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = values[i];
  };
  type == DType::bfloat16 ? convert(static_cast<const BFloat16*>(in)) : convert(static_cast<const Float16*>(in));
  return wide;
}

void narrow(const std::vector<float>& wide, void* out, DType type) {
  const auto convert = [&](auto* values) {
    using T = std::remove_pointer_t<decltype(values)>;
    for (std::size_t i = 0; i < wide.size(); ++i) values[i] = T(wide[i]);
  };
  type == DType::bfloat16 ? convert(static_cast<BFloat16*>(out)) : convert(static_cast<Float16*>(out));
}

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

class ModeTransport final : public ForwardingTransport {
 public:
  ModeTransport(std::shared_ptr<Transport> inner, const ReductionMode& mode)
      : ForwardingTransport(std::move(inner)), mode_(mode) {}

  void allreduce(const void* in, void* out, std::int64_t count, DType type, Reduction op) override {
    if (widens(type)) {
      auto wide = widened(in, count, type);
      allreduce(wide.data(), wide.data(), count, DType::float32, op);
      return narrow(wide, out, type);
    }
    if (!orders()) return inner().allreduce(in, out, count, type, op);
    const auto parts = blocks(count);
    const auto mine = reduced(in, parts, type, op);
    inner().allgather(mine.data(), out, parts, type);
  }

  void reduce(const void* in, void* out, std::int64_t count, DType type, Reduction op, int root) override {
    if (widens(type)) {
      auto wide = widened(in, count, type);
      reduce(wide.data(), wide.data(), count, DType::float32, op, root);
      if (rank() == root) narrow(wide, out, type);
      return;
    }
    if (!orders()) return inner().reduce(in, out, count, type, op, root);
    transport_checks::check_rank("reduce", "root", root, size());
    const auto parts = blocks(count);
    const auto mine = reduced(in, parts, type, op);
    inner().gather(mine.data(), rank() == root ? out : nullptr, parts, type, root);
  }

  void reduce_scatter(const void* in, void* out, std::span<const std::int64_t> counts, DType type, Reduction op) override {
    transport_checks::check_counts("reduce_scatter", counts, size());
    if (widens(type)) {
      const auto wide = widened(in, total(counts), type);
      std::vector<float> mine(static_cast<std::size_t>(counts[index()]));
      reduce_scatter(wide.data(), mine.data(), counts, DType::float32, op);
      return narrow(mine, out, type);
    }
    if (!orders()) return inner().reduce_scatter(in, out, counts, type, op);
    const auto mine = reduced(in, counts, type, op);
    if (!mine.empty()) std::memcpy(out, mine.data(), mine.size());
  }

  std::unique_ptr<PendingOperation> start(const Collective& call) override {
    const bool reduces = call.kind == CollectiveKind::allreduce || call.kind == CollectiveKind::reduce ||
                         call.kind == CollectiveKind::reduce_scatter;
    if (!reduces || !(widens(call.type) || orders())) return inner().start(call);
    transport_checks::check_collective(call, size());
    const bool scatters = call.kind == CollectiveKind::reduce_scatter;
    const auto elements = scatters ? total(call.counts) : call.count;
    const auto mine = scatters                                                     ? call.counts[index()]
                      : call.kind == CollectiveKind::reduce && rank() != call.root ? 0
                                                                                   : call.count;
    const auto first = scatters ? offset(call.counts, index()) : 0;
    if (widens(call.type)) {
      auto in = std::make_shared<std::vector<float>>(widened(call.in, elements, call.type));
      auto out = std::make_shared<std::vector<float>>(static_cast<std::size_t>(mine));
      Collective wide = call;
      wide.in = in->data(), wide.out = out->data(), wide.type = DType::float32;
      return std::make_unique<Finished>(start(wide), [in, out, to = call.out, type = call.type] { narrow(*out, to, type); });
    }
    // No second message may be needed at the wait, whose order is each rank's own.
    const auto item = size_of(call.type);
    auto all = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(elements * item * size()));
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(size()), elements);
    auto gathering = inner().start(
        {.kind = CollectiveKind::allgather, .in = call.in, .out = all->data(), .type = call.type, .counts = counts});
    return std::make_unique<Finished>(std::move(gathering), [all, to = static_cast<std::byte*>(call.out), mine, first, elements,
                                                             item, type = call.type, op = call.op, ranks = size()] {
      if (mine == 0) return;
      std::memcpy(to, all->data() + first * item, static_cast<std::size_t>(mine * item));
      for (int r = 1; r < ranks; ++r) reduce_into(to, all->data() + (r * elements + first) * item, mine, type, op);
    });
  }

  std::shared_ptr<Transport> subgroup(std::span<const int> ranks) override { return with_mode(inner().subgroup(ranks), mode_); }
  std::shared_ptr<Transport> split(int color, int key) override { return with_mode(inner().split(color, key), mode_); }
  std::shared_ptr<Transport> duplicate() override { return with_mode(inner().duplicate(), mode_); }

 private:
  bool widens(DType type) const { return is_half(type) && !mode_.sixteen_bit; }
  bool orders() const { return mode_.fixed_order && size() > 1; }
  std::size_t index() const { return static_cast<std::size_t>(rank()); }

  std::vector<std::int64_t> blocks(std::int64_t count) const {
    transport_checks::check_count("allreduce", count);
    std::vector<std::int64_t> parts(static_cast<std::size_t>(size()), count / size());
    for (std::int64_t r = 0; r < count % size(); ++r) ++parts[static_cast<std::size_t>(r)];
    return parts;
  }

  // This rank's block of all ranks' inputs, combined in the order of ranks.
  std::vector<std::byte> reduced(const void* in, std::span<const std::int64_t> parts, DType type, Reduction op) {
    transport_checks::check_reduction("allreduce", type, op);
    const auto n = parts[index()], bytes = n * size_of(type);
    const std::vector<std::int64_t> arriving(parts.size(), n);
    std::vector<std::byte> all(static_cast<std::size_t>(bytes) * parts.size());
    inner().alltoall(in, parts, all.data(), arriving, type);
    for (std::size_t r = 1; r < parts.size(); ++r)
      reduce_into(all.data(), all.data() + static_cast<std::int64_t>(r) * bytes, n, type, op);
    all.resize(static_cast<std::size_t>(bytes));
    return all;
  }

  ReductionMode mode_;
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

std::shared_ptr<Transport> with_mode(std::shared_ptr<Transport> transport, const ReductionMode& mode) {
  if (!transport || transport->name() == "dry") return transport;
  return std::make_shared<ModeTransport>(std::move(transport), mode);
}

}  // namespace mpigrad
