#include "framework/engine/kept_memory.h"

#include <atomic>

#include "framework/tensor/content_hash.h"

namespace mpigrad::detail {
namespace {

#ifdef __OPTIMIZE__
std::atomic<bool> hashes_wrapped{false};
#else
std::atomic<bool> hashes_wrapped{true};
#endif

bool wrapped(const Tensor& x) { return x.device() == DeviceKind::cpu && x.storage()->foreign(); }

// Calls visit(x) for each tensor whose elements are kept.
template <class Visit>
void for_kept(const Tape::Entry& entry, const Visit& visit) {
  for (const auto* list : {&entry.inputs, &entry.outputs})
    for (const auto& x : *list)
      if (x && x.storage()) visit(x);
}

std::uint64_t writes_of(const Tape::Entry& entry) {
  std::uint64_t sum = 0;
  for_kept(entry, [&](const Tensor& x) { sum += x.storage()->writes(); });
  return sum;
}

// A hash of the kept wrapped memory; 0 if there is none.
std::uint64_t contents_of(const Tape::Entry& entry) {
  std::uint64_t sum = 0;
  for_kept(entry, [&](const Tensor& x) {
    if (wrapped(x) && x.raw()) sum = sum * 3 + content_hash(x.dtype(), x.raw(), x.elements());
  });
  return sum;
}

}  // namespace

void check_wrapped_memory(bool check) { hashes_wrapped = check; }

void note_kept_memory(Tape::Entry& entry) {
  entry.writes = writes_of(entry);
  entry.contents = hashes_wrapped ? contents_of(entry) : 0;
}

void require_kept_memory(const Tape::Entry& entry) {
  if (writes_of(entry) != entry.writes)
    for_kept(entry, [&](const Tensor& x) {
      if (x.storage()->writes() > 0)
        fail(
            "[{}] an optimizer has made a step since this op was recorded, and the parameters that its vjp reads have changed: "
            "call gradient() before step(): {}",
            entry.name, x);
    });
  if (entry.contents != 0 && contents_of(entry) != entry.contents)
    for_kept(entry, [&](const Tensor& x) {
      if (wrapped(x))
        fail(
            "[{}] wrapped memory has changed since this op was recorded, and its vjp reads it: call gradient() before the "
            "memory is used again, or copy it: {}",
            entry.name, x);
    });
}

}  // namespace mpigrad::detail
