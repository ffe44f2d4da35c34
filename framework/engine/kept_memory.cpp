#include "framework/engine/kept_memory.h"

#include <atomic>

#include "framework/tensor/content_hash.h"

namespace mpigrad::detail {
namespace {

#ifdef __OPTIMIZE__
std::atomic<bool> hashes_foreign{false};
#else
std::atomic<bool> hashes_foreign{true};
#endif

bool hashed(const Tensor& x) { return x.device() == DeviceKind::cpu && x.storage()->foreign(); }

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

// A hash of the program's memory that is kept; 0 if there is none.
std::uint64_t contents_of(const Tape::Entry& entry) {
  std::uint64_t sum = 0;
  for_kept(entry, [&](const Tensor& x) {
    if (hashed(x) && x.raw()) sum = sum * 3 + content_hash(x.dtype(), x.raw(), x.elements());
  });
  return sum;
}

}  // namespace

void check_foreign_memory(bool check) { hashes_foreign = check; }

void note_kept_memory(Tape::Entry& entry) {
  entry.writes = writes_of(entry);
  entry.contents = hashes_foreign ? contents_of(entry) : 0;
}

void require_kept_memory(const Tape::Entry& entry) {
  const bool written = writes_of(entry) != entry.writes;
  if (!written && (entry.contents == 0 || contents_of(entry) == entry.contents)) return;
  for_kept(entry, [&](const Tensor& x) {
    if (written ? x.storage()->foreign() && x.storage()->writes() > 0 : hashed(x))
      fail(
          "[{}] memory of the program (Tensor::over) has changed since this op was recorded, and its vjp reads it: call "
          "gradient() "
          "before the memory is used again, or copy it: {}",
          entry.name, x);
  });
  for_kept(entry, [&](const Tensor& x) {
    if (x.storage()->writes() > 0)
      fail(
          "[{}] an optimizer has made a step since this op was recorded, and the parameters that its vjp reads have changed: "
          "call gradient() before step(): {}",
          entry.name, x);
  });
}

}  // namespace mpigrad::detail
