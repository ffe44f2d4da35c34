#include "models/c/handles.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace mpigrad::capi {
namespace {

// A handle: 32 bits for the place, counted from 1, 24 for the generation, 8 for the kind.
constexpr std::uint32_t last_generation = (1U << 24) - 1;

struct Place {
  std::shared_ptr<void> object;
  std::thread::id owner;
  std::uint32_t generation = 0;
  Kind kind = Kind::none;
};

struct Handles {
  std::mutex mutex;
  std::deque<Place> places;
  std::vector<std::size_t> free;
};

// Never destroyed: objects that a program leaves may refer to an MPI that has been finalised.
Handles& handles() {
  static auto* table = new Handles;
  return *table;
}

// The handles that this thread has made in each of its scopes; the first list is outside of all scopes. The stack ends in the
// list that new handles enter.
struct Made {
  std::uint64_t number = 0;  // 0: a callback, or outside
  bool of_callback = false;
  std::vector<std::uint64_t> handles{};
};
thread_local std::vector<Made> made_here;
std::vector<Made>& made() {
  if (made_here.empty()) made_here.emplace_back();
  return made_here;
}

std::size_t place_of(std::uint64_t handle) { return static_cast<std::size_t>(handle & 0xffffffff) - 1; }
std::uint32_t generation_of(std::uint64_t handle) { return static_cast<std::uint32_t>(handle >> 32) & last_generation; }
Kind kind_of(std::uint64_t handle) { return static_cast<Kind>(handle >> 56); }

// Removes an object from the table and returns it, to be destroyed without the lock; null if it is gone already. A place whose
// generations are used up is not used again.
std::shared_ptr<void> remove(std::uint64_t handle) {
  auto& table = handles();
  const std::lock_guard lock(table.mutex);
  auto& place = table.places[place_of(handle)];
  if (!place.object || place.generation != generation_of(handle) || place.kind != kind_of(handle)) return nullptr;
  auto object = std::exchange(place.object, nullptr);
  if (++place.generation <= last_generation) table.free.push_back(place_of(handle));
  return object;
}

// In reverse order, as objects on a stack.
void remove_all(std::vector<std::uint64_t> list) {
  for (auto handle = list.rbegin(); handle != list.rend(); ++handle) remove(*handle);
}

// Lists keep handles that are destroyed one by one; without this a loop outside of all scopes would make them grow.
void forget_destroyed(std::vector<std::uint64_t>& list) {
  auto& table = handles();
  const std::lock_guard lock(table.mutex);
  std::erase_if(list, [&](std::uint64_t handle) {
    const auto& place = table.places[place_of(handle)];
    return !place.object || place.generation != generation_of(handle);
  });
}

}  // namespace

std::string_view name_of(Kind kind) {
  constexpr std::array names{"null handle", "communicator", "tensor",    "tape",  "request", "op",
                             "topology",    "halo",         "optimizer", "scope", "grid",    "network"};
  const auto i = static_cast<std::size_t>(kind);
  return i < names.size() ? names[i] : "unknown object";
}

std::uint64_t enter(Kind kind, std::shared_ptr<void> object) {
  auto& list = made().back().handles;
  if (list.size() >= 64 && list.size() == list.capacity()) {
    forget_destroyed(list);
    list.reserve(2 * list.size() + 64);
  }
  auto& table = handles();
  std::uint64_t handle = 0;
  {
    const std::lock_guard lock(table.mutex);
    std::size_t i = table.places.size();
    if (!table.free.empty()) i = table.free.back(), table.free.pop_back();
    else table.places.emplace_back();
    auto& place = table.places[i];
    place.object = std::move(object), place.owner = std::this_thread::get_id(), place.kind = kind;
    handle = static_cast<std::uint64_t>(kind) << 56 | static_cast<std::uint64_t>(place.generation) << 32 | (i + 1);
  }
  list.push_back(handle);
  return handle;
}

std::shared_ptr<void> find(std::uint64_t handle, Kind kind, const char* function, const char* argument) {
  const auto name = name_of(kind);
  if (handle == 0) refuse(MPIGRAD_INVALID_HANDLE, "[{}] the {} {} is a null handle", function, name, argument);
  auto& table = handles();
  const std::lock_guard lock(table.mutex);
  const auto i = place_of(handle);
  if (i >= table.places.size() || generation_of(handle) > table.places[i].generation)
    refuse(MPIGRAD_INVALID_HANDLE, "[{}] the {} {} is a number that is no handle", function, name, argument);
  const auto& place = table.places[i];
  if (generation_of(handle) < place.generation || !place.object)
    refuse(MPIGRAD_INVALID_HANDLE, "[{}] the {} {} has been destroyed", function, name_of(kind_of(handle)), argument);
  if (place.kind != kind_of(handle))
    refuse(MPIGRAD_INVALID_HANDLE, "[{}] the {} {} is a number that is no handle", function, name, argument);
  if (place.kind != kind)
    refuse(MPIGRAD_WRONG_KIND, "[{}] {} must be a {}, but is a {}", function, argument, name, name_of(place.kind));
  if (place.owner != std::this_thread::get_id())
    refuse(MPIGRAD_WRONG_THREAD, "[{}] the {} {} belongs to another thread: only the thread that made a handle can use it",
           function, name, argument);
  return place.object;
}

void erase(std::uint64_t handle, Kind kind, const char* function) {
  if (handle == 0) return;
  find(handle, kind, function, "given");
  remove(handle);
}

CallbackScope::CallbackScope() : depth_(made().size()) { made_here.push_back({.number = 0, .of_callback = true}); }
CallbackScope::~CallbackScope() {
  while (made_here.size() > depth_) {
    auto list = std::move(made_here.back().handles);
    made_here.pop_back();
    remove_all(std::move(list));
  }
}

std::shared_ptr<Scope> begin_scope() {
  static std::atomic<std::uint64_t> begun{0};
  auto scope = std::make_shared<Scope>(Scope{++begun});
  // The handle of the scope belongs to the scope around it; run() enters it after this call, see end_scope().
  made();
  made_here.push_back({.number = scope->number, .of_callback = false});
  return scope;
}

void end_scope(mpigrad_scope handle, const std::vector<std::uint64_t>& kept) {
  constexpr const char* function = "mpigrad_scope_end";
  const auto scope = std::static_pointer_cast<Scope>(find(handle.value, Kind::scope, function, "s"));
  for (const auto each : kept) find(each, Kind::tensor, function, "kept");
  if (made().back().number != scope->number)
    refuse(MPIGRAD_INVALID_ARGUMENT, "[{}] a scope that began later has not ended, or this callback did not begin the scope",
           function);
  auto list = std::move(made_here.back().handles);
  made_here.pop_back();
  const auto first_kept = std::stable_partition(
      list.begin(), list.end(), [&](std::uint64_t each) { return std::find(kept.begin(), kept.end(), each) == kept.end(); });
  auto& around = made_here.back().handles;
  around.insert(around.end(), first_kept, list.end());
  list.erase(first_kept, list.end());
  remove_all(std::move(list));
}

void destroy_all() {
  for (const auto& each : made())
    if (each.of_callback) refuse(MPIGRAD_INVALID_ARGUMENT, "[mpigrad_destroy_all] a callback runs, whose call uses handles");
  while (!made_here.empty()) {
    auto list = std::move(made_here.back().handles);
    made_here.pop_back();
    remove_all(std::move(list));
  }
}

std::int64_t live_handles() {
  std::int64_t count = 0;
  for (auto& each : made()) {
    forget_destroyed(each.handles);
    count += static_cast<std::int64_t>(each.handles.size());
  }
  return count;
}

}  // namespace mpigrad::capi
