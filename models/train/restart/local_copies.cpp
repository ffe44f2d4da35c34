#include "models/train/restart/local_copies.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <utility>

#include "comm/together.h"
#include "framework/base/new_file.h"
#include "framework/engine/activity.h"
#include "models/train/checkpoint/checkpoint.h"
#include "models/train/checkpoint/file.h"

namespace mpigrad {
namespace {

namespace fs = std::filesystem;
constexpr std::int64_t piece = 8 << 20, ends = -1;
constexpr int header_tag = 1, data_tag = 2, answer_tag = 3;
constexpr std::string_view part_prefix = "part-";

struct Header {
  std::int64_t length = ends, step = 0;
};

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

File open_copy(const fs::path& path) {
  File file(std::fopen(path.c_str(), "rbe"));
  require(file != nullptr, "[checkpoint] {}: {}", path.string(), std::strerror(errno));
  return file;
}

void read_copy(const File& file, const fs::path& path, std::vector<std::byte>& data, std::int64_t bytes) {
  require(std::fread(data.data(), 1, static_cast<std::size_t>(bytes), file.get()) == static_cast<std::size_t>(bytes),
          "[checkpoint] {} has become shorter", path.string());
}
std::span<const std::byte> first_of(const std::vector<std::byte>& data, std::int64_t bytes) {
  return std::span(data).first(static_cast<std::size_t>(bytes));
}

// Waits by polling, with sleeps: the other side may take any time.
void wait(std::mutex& calls, Pending pending) {
  for (;;) {
    {
      const std::lock_guard lock(calls);
      if (pending.test()) return pending.wait();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

fs::path file_in(const fs::path& folder) { return folder / newest_checkpoint; }
fs::path part_in(const fs::path& folder, std::int64_t step, std::int64_t rank, std::int64_t ranks) {
  return folder / fmt::format("{}{}-{}-of-{}.h5", part_prefix, step, rank, ranks);
}
std::vector<fs::path> parts_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const auto name = entry.path().filename().string();
    if (name.starts_with(part_prefix) && name.ends_with(".h5")) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Sets the mode independently of the umask at creation.
void close_to_others(const fs::path& path) { fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write); }

// For each rank a partner on another node: a rank with the same place among the ranks of its node.
std::vector<int> partners_of(const Communicator& world) {
  const auto size = static_cast<std::size_t>(world.size());
  const std::array<std::int64_t, 2> mine{world.transport().node_rank(), world.transport().node_size()};
  std::vector<std::array<std::int64_t, 2>> all(size);
  world.transport().allgather(mine.data(), all.data(), std::vector<std::int64_t>(size, 2), DType::int64);
  std::vector<int> partners(size, -1);
  for (std::size_t rank = 0; rank < size; ++rank)
    for (std::size_t i = 1; i < size && partners[rank] < 0; ++i) {
      const auto other = (rank + i) % size;
      const auto place = all[rank][0];
      // If no other node has so many ranks: a rank of a node with fewer.
      if (all[other][0] == place || (all[other][0] == 0 && all[other][1] <= place)) partners[rank] = static_cast<int>(other);
    }
  return partners;
}

}  // namespace

LocalCopies::LocalCopies(const Communicator& world, fs::path folder, const TrainingName& training, LocalCopiesOptions options)
    : folder_(std::move(folder)), transport_(world.transport().control()), parts_(options.parts), rank_(world.rank()),
      partners_(options.partners.empty() ? partners_of(world) : std::move(options.partners)) {
  if (!parts_) partners_.resize(1);
  partners_.resize(static_cast<std::size_t>(world.size()), -1);
  std::vector<int> kept;
  for (int rank = 0; rank < world.size(); ++rank)
    if (partners_[static_cast<std::size_t>(rank)] == rank_ && rank != rank_) kept.push_back(rank);
  together(world, [&] {
    const bool any = std::any_of(partners_.begin(), partners_.end(), [](int partner) { return partner >= 0; });
    require(!any || transport_->any_thread(),
            "[checkpoint] copies on another node need MPI_THREAD_MULTIPLE, which this MPI library does not support");
    if (parts_ || rank_ == 0 || !kept.empty()) used_.emplace(folder_, training);
  });
  for (const int rank : kept) threads_.emplace_back([this, rank] { receive(rank); });
}

LocalCopies::~LocalCopies() {
  // After an error on this rank only, the others do not reach this point.
  const bool fails = std::uncaught_exceptions() > exceptions_;
  if (partner() >= 0 && partner() != rank_ && !fails) try {
      Header end;
      send(partner(), header_tag, &end, sizeof(end));
    } catch (const std::exception&) {  // the job ends with its own error
    }
  stop_ = fails;
  for (auto& thread : threads_) thread.join();
}

fs::path LocalCopies::file_of(int rank, std::int64_t step) const {
  return parts_ ? part_in(folder_, step, rank, static_cast<std::int64_t>(partners_.size())) : file_in(folder_);
}
fs::path LocalCopies::file(std::int64_t step) const { return file_of(rank_, step); }

void LocalCopies::send(int to, int tag, void* data, std::int64_t bytes) {
  const Message message{to, tag, data, bytes};
  Pending pending;
  {
    const std::lock_guard lock(calls_);
    pending = transport_->start_exchange({&message, 1}, {}, DType::uint8);
  }
  wait(calls_, std::move(pending));
}

void LocalCopies::replicate(std::int64_t step) {
  const int to = partner();
  const auto path = file(step);
  close_to_others(path);
  if (to < 0 || to == rank_) return;
  Header header{static_cast<std::int64_t>(fs::file_size(path)), step};
  const auto length = header.length;
  const auto file = open_copy(path);
  send(to, header_tag, &header, sizeof(header));
  std::vector<std::byte> data(static_cast<std::size_t>(std::min(length, piece)));
  std::string unread;
  for (std::int64_t at = 0; at < length; at += piece) {
    const auto bytes = std::min(piece, length - at);
    try {
      if (unread.empty()) read_copy(file, path, data, bytes);
    } catch (const std::exception& error) {
      unread = error.what();  // the partner waits for the announced number of bytes
    }
    send(to, data_tag, data.data(), bytes);
  }
  char whole = unread.empty() ? 1 : 0;
  send(to, data_tag, &whole, 1);
  std::array<char, 512> problem{};
  Pending pending;
  {
    const std::lock_guard lock(calls_);
    pending = transport_->start_receive({to, answer_tag, problem.data(), problem.size()}, DType::uint8);
  }
  wait(calls_, std::move(pending));
  require(unread.empty(), "{}", unread);
  require(problem[0] == '\0', "[checkpoint] the copy of rank {}: {}", to, problem.data());
}

void LocalCopies::remove_others(std::int64_t step) const {
  std::error_code none;  // another rank of this node may already have removed files
  const auto suffix = fmt::format("-of-{}.h5", partners_.size());
  const auto prefix = fmt::format("{}{}-", part_prefix, step);
  for (const auto& path : parts_in(folder_)) {
    const auto name = path.filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(suffix)) fs::remove(path, none);
  }
  fs::remove(file_in(folder_), none);
}

bool LocalCopies::took(int from, int tag, void* data, std::int64_t bytes) {
  Pending pending;
  {
    const std::lock_guard lock(calls_);
    pending = transport_->start_receive({from, tag, data, bytes}, DType::uint8);
  }
  for (;;) {
    {
      const std::lock_guard lock(calls_);
      if (pending.test()) return pending.wait(), true;
      if (stop_) return pending.cancel(), false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// Receives all bytes even if they cannot be written, and reports the error to the sender.
void LocalCopies::receive(int from) try {
  for (;;) {
    Header header;
    if (!took(from, header_tag, &header, sizeof(header)) || header.length == ends) return;
    const auto length = header.length;
    std::array<char, 512> problem{};
    std::unique_ptr<NewFile> incoming;
    const auto attempt = [&](const auto& f) {
      try {
        if (problem[0] == '\0') f();
      } catch (const std::exception& error) {
        std::string(error.what()).copy(problem.data(), problem.size() - 1);
      }
    };
    attempt([&] { incoming = std::make_unique<NewFile>(file_of(from, header.step), "checkpoint"); });
    std::vector<std::byte> data(static_cast<std::size_t>(std::min(length, piece)));
    for (std::int64_t at = 0; at < length; at += piece) {
      const auto bytes = std::min(piece, length - at);
      if (!took(from, data_tag, data.data(), bytes)) return;
      attempt([&] { incoming->write(first_of(data, bytes)); });
    }
    char whole = 0;
    if (!took(from, data_tag, &whole, 1)) return;
    attempt([&] {
      if (whole != 0) incoming->commit(), close_to_others(file_of(from, header.step));
    });
    incoming.reset();
    send(from, answer_tag, problem.data(), problem.size());
  }
} catch (const std::exception&) {  // the communicator has failed, and with it the job
}

namespace {

// A complete copy or a part of one, found by the rank that searches its node.
struct Found {
  std::int64_t step = -1, rank = 0, ranks = 0, bytes = 0;  // 0 ranks: complete
};

std::vector<Found> look(const fs::path& folder, const TrainingName& training, int me) {
  std::vector<Found> found;
  const auto attempt = [&](const fs::path& path, const auto& f) {
    try {
      static_cast<void>(open_own_file(path, "checkpoint", O_RDONLY));
      const auto notes = read_checkpoint_info(path).notes;
      const auto note = notes.find(training_note);
      require(note != notes.end() && note->second == training.name, "[checkpoint] {} belongs to another training than {}",
              path.string(), training.name);
      found.push_back(f());
      found.back().bytes = static_cast<std::int64_t>(fs::file_size(path));
    } catch (const std::exception& problem) {
      fmt::print(stderr, "warning: skipped: the copy of rank {}: {}\n", me, problem.what());
    }
  };
  std::error_code none;
  const auto whole = file_in(folder);
  if (fs::exists(fs::symlink_status(whole, none)))
    attempt(whole, [&] { return Found{.step = read_checkpoint_info(whole).step}; });
  for (const auto& path : parts_in(folder))
    attempt(path, [&] {
      const auto id = checkpoint_file::verify_part(path);
      require(path == part_in(folder, id.step, id.rank, id.ranks), "[checkpoint] {} has the name of another part", path.string());
      return Found{id.step, id.rank, id.ranks};
    });
  return found;
}

// Tells all ranks what each rank has found.
std::vector<std::vector<Found>> tell(Transport& transport, const std::vector<Found>& mine) {
  const auto size = static_cast<std::size_t>(transport.size());
  constexpr std::int64_t each = sizeof(Found) / sizeof(std::int64_t);
  const auto count = static_cast<std::int64_t>(mine.size());
  std::vector<std::int64_t> counts(size);
  transport.allgather(&count, counts.data(), std::vector<std::int64_t>(size, 1), DType::int64);
  std::vector<std::vector<Found>> all(size);
  std::size_t total = 0;
  for (auto& number : counts) total += static_cast<std::size_t>(number), number *= each;
  std::vector<Found> flat(total);
  transport.allgather(mine.data(), flat.data(), counts, DType::int64);
  auto at = flat.begin();
  for (std::size_t rank = 0; rank < size; ++rank)
    for (std::int64_t i = 0; i < counts[rank] / each; ++i) all[rank].push_back(*at++);
  return all;
}

// Copies the holder's file to all nodes whose searching rank lacks it. Collective.
void give_to_all(const Communicator& world, const fs::path& path, int holder, std::int64_t length, bool takes) {
  const bool sends = world.rank() == holder;
  std::unique_ptr<NewFile> incoming;
  File file;
  together(world, [&] {
    if (sends) file = open_copy(path);
    if (!takes || sends) return;
    incoming = std::make_unique<NewFile>(path, "checkpoint");
  });
  std::vector<std::byte> data(static_cast<std::size_t>(std::min(length, piece)));
  for (std::int64_t at = 0; at < length; at += piece) {
    const auto bytes = std::min(piece, length - at);
    together(world, [&] {
      if (sends) read_copy(file, path, data, bytes);
    });
    world.transport().bcast(data.data(), bytes, DType::uint8, holder);
    together(world, [&] {
      if (incoming) incoming->write(first_of(data, bytes));
    });
  }
  together(world, [&] {
    if (incoming) incoming->commit(), close_to_others(path);
  });
}

// For the part of each rank of a checkpoint, the rank that has it.
struct Set {
  std::vector<int> holders;
  std::vector<std::int64_t> bytes;
  explicit Set(std::int64_t ranks) : holders(static_cast<std::size_t>(ranks), -1), bytes(holders.size()) {}
  std::int64_t lost() const { return std::find(holders.begin(), holders.end(), -1) - holders.begin(); }
  bool whole() const { return lost() == static_cast<std::int64_t>(holders.size()); }
};

}  // namespace

LocalCopy find_local_copy(const Communicator& world, const fs::path& folder, const TrainingName& training, std::int64_t step,
                          std::optional<bool> looking) {
  const detail::SlowPhase phase;
  auto& transport = world.transport();
  // One rank of each node searches, and stores the copies that arrive.
  const bool looks = looking.value_or(transport.node_rank() == 0);
  together(world, [&] {
    if (looks) require_local_folder(folder, training);
  });
  const auto all = tell(transport, looks ? look(folder, training, world.rank()) : std::vector<Found>());
  LocalCopy result;
  std::int64_t newest = step, bytes = 0;
  std::map<std::pair<std::int64_t, std::int64_t>, Set> sets;  // by step and number of ranks
  for (int holder = 0; holder < world.size(); ++holder)
    for (const auto& found : all[static_cast<std::size_t>(holder)]) {
      if (found.ranks == 0 && found.step > newest) newest = found.step, bytes = found.bytes, result.rank = holder;
      if (found.ranks == 0) continue;
      auto& set = sets.try_emplace({found.step, found.ranks}, found.ranks).first->second;
      const auto part = static_cast<std::size_t>(found.rank);
      if (set.holders[part] < 0) set.holders[part] = holder, set.bytes[part] = found.bytes;
    }
  const auto* parts = static_cast<const Set*>(nullptr);
  for (const auto& [key, set] : sets) {
    if (key.first <= newest) continue;
    if (set.whole()) newest = key.first, parts = &set, result.lacking.clear();
    else
      result.lacking =
          fmt::format("[checkpoint] the local copies of step {} are incomplete: no node has the part of rank {} of {}", key.first,
                      set.lost(), key.second);
  }
  if (newest == step) return result;
  result.file = file_in(folder);
  std::optional<LocalFolder> used;
  together(world, [&] {
    if (looks) used.emplace(folder, training);
  });
  if (parts == nullptr) {
    give_to_all(world, result.file, result.rank, bytes, looks);
    return result;
  }
  const auto ranks = static_cast<std::int64_t>(parts->holders.size());
  std::vector<fs::path> files;
  for (std::int64_t part = 0; part < ranks; ++part) {
    const auto at = static_cast<std::size_t>(part);
    const auto& mine = all[static_cast<std::size_t>(world.rank())];
    const bool has = std::any_of(mine.begin(), mine.end(), [&](const Found& found) {
      return found.step == newest && found.ranks == ranks && found.rank == part;
    });
    files.push_back(part_in(folder, newest, part, ranks));
    give_to_all(world, files.back(), parts->holders[at], parts->bytes[at], looks && !has);
  }
  result.rank = parts->holders.front();
  together(world, [&] {
    if (looks) checkpoint_file::join_parts(files, result.file), close_to_others(result.file);
  });
  std::error_code none;
  if (looks)
    for (const auto& path : parts_in(folder)) fs::remove(path, none);
  return result;
}

void remove_local_copies(const Communicator& world, const fs::path& folder) {
  if (world.transport().node_rank() == 0) remove_local_folder(folder);
  world.transport().barrier();
}

}  // namespace mpigrad
