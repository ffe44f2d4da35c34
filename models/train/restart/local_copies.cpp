#include "models/train/restart/local_copies.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <vector>

#include "comm/together.h"
#include "framework/activity.h"
#include "models/train/checkpoint/checkpoint.h"

namespace mpigrad {
namespace {

namespace fs = std::filesystem;
constexpr std::int64_t piece = 8 << 20, ends = -1;
constexpr int length_tag = 1, data_tag = 2, answer_tag = 3;

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

File open(const fs::path& path, const char* mode) {
  File file(std::fopen(path.c_str(), mode));
  require(file != nullptr, "[checkpoint] {}: {}", path.string(), std::strerror(errno));
  return file;
}

// Under a temporary name until it is whole and on the disk.
class Incoming {
 public:
  explicit Incoming(const fs::path& path) : path_(path), part_(path.string() + ".part"), file_(open(part_, "wb")) {}
  ~Incoming() {
    if (!file_) return;
    file_.reset();
    std::error_code none;
    fs::remove(part_, none);
  }
  Incoming(const Incoming&) = delete;
  Incoming& operator=(const Incoming&) = delete;
  void add(const std::vector<std::byte>& data, std::int64_t bytes) {
    require(std::fwrite(data.data(), 1, static_cast<std::size_t>(bytes), file_.get()) == static_cast<std::size_t>(bytes),
            "[checkpoint] {}: {}", part_.string(), std::strerror(errno));
  }
  void finish() {
    require(std::fflush(file_.get()) == 0 && fsync(fileno(file_.get())) == 0, "[checkpoint] {}: {}", part_.string(),
            std::strerror(errno));
    file_.reset();
    fs::rename(part_, path_);
  }

 private:
  fs::path path_, part_;
  File file_;
};

void read(const File& file, const fs::path& path, std::vector<std::byte>& data, std::int64_t bytes) {
  require(std::fread(data.data(), 1, static_cast<std::size_t>(bytes), file.get()) == static_cast<std::size_t>(bytes),
          "[checkpoint] {} has become shorter", path.string());
}

// Waits without a core of its own: the other side may take any time.
void wait(Pending pending) {
  while (!pending.test()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  pending.wait();
}
void send(Transport& transport, int to, int tag, void* data, std::int64_t bytes) {
  const Message message{to, tag, data, bytes};
  wait(transport.start_exchange({&message, 1}, {}, DType::uint8));
}
fs::path file_in(const fs::path& folder) { return folder / newest_checkpoint; }

// The first rank of another node than rank 0's.
int partner_of(const Communicator& world) {
  const int first = world.transport().node_rank() == 0 ? world.rank() : world.size();
  std::vector<std::int64_t> all(static_cast<std::size_t>(world.size()));
  const std::int64_t mine = first;
  world.transport().allgather(&mine, all.data(), std::vector<std::int64_t>(all.size(), 1), DType::int64);
  for (const auto rank : all)
    if (rank > 0 && rank < world.size()) return static_cast<int>(rank);
  return -1;
}

}  // namespace

LocalCopies::LocalCopies(const Communicator& world, fs::path folder, int partner)
    : folder_(std::move(folder)), transport_(world.transport().control()), rank_(world.rank()),
      partner_(partner >= 0 ? partner : partner_of(world)) {
  together(world, [&] {
    require(partner_ < 0 || transport_->any_thread(),
            "[checkpoint] copies on another node need MPI_THREAD_MULTIPLE, which this MPI library does not give");
    if (rank_ == 0 || rank_ == partner_) fs::create_directories(folder_);
  });
  if (rank_ == partner_ && rank_ != 0) thread_ = std::thread([this] { receive(); });
}

LocalCopies::~LocalCopies() {
  // After an error on this rank alone the others do not come here.
  const bool fails = std::uncaught_exceptions() > exceptions_;
  std::int64_t end = ends;
  if (rank_ == 0 && partner_ > 0 && !fails) try {
      send(*transport_, partner_, length_tag, &end, sizeof(end));
    } catch (const std::exception&) {  // the job ends by an error of its own
    }
  stop_ = fails;
  if (thread_.joinable()) thread_.join();
}

fs::path LocalCopies::file() const { return file_in(folder_); }

void LocalCopies::replicate() {
  if (partner_ <= 0) return;
  const auto path = file();
  auto length = static_cast<std::int64_t>(fs::file_size(path));
  const auto file = open(path, "rb");
  send(*transport_, partner_, length_tag, &length, sizeof(length));
  std::vector<std::byte> data(static_cast<std::size_t>(std::min(length, piece)));
  std::string unread;
  for (std::int64_t at = 0; at < length; at += piece) {
    const auto bytes = std::min(piece, length - at);
    try {
      if (unread.empty()) read(file, path, data, bytes);
    } catch (const std::exception& error) {
      unread = error.what();  // the partner waits for as many bytes as were promised
    }
    send(*transport_, partner_, data_tag, data.data(), bytes);
  }
  char whole = unread.empty() ? 1 : 0;
  send(*transport_, partner_, data_tag, &whole, 1);
  std::array<char, 512> problem{};
  wait(transport_->start_receive({partner_, answer_tag, problem.data(), problem.size()}, DType::uint8));
  require(unread.empty(), "{}", unread);
  require(problem[0] == '\0', "[checkpoint] the copy of rank {}: {}", partner_, problem.data());
}

bool LocalCopies::took(int tag, void* data, std::int64_t bytes) {
  auto pending = transport_->start_receive({0, tag, data, bytes}, DType::uint8);
  while (!pending.test()) {
    if (stop_) return pending.cancel(), false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  pending.wait();
  return true;
}

// What arrives is taken to its end, also where it cannot be written: rank 0 is told then.
void LocalCopies::receive() try {
  for (;;) {
    std::int64_t length = 0;
    if (!took(length_tag, &length, sizeof(length)) || length == ends) return;
    std::array<char, 512> problem{};
    std::unique_ptr<Incoming> incoming;
    const auto attempt = [&](const auto& f) {
      try {
        if (problem[0] == '\0') f();
      } catch (const std::exception& error) {
        std::string(error.what()).copy(problem.data(), problem.size() - 1);
      }
    };
    attempt([&] { incoming = std::make_unique<Incoming>(file()); });
    std::vector<std::byte> data(static_cast<std::size_t>(std::min(length, piece)));
    for (std::int64_t at = 0; at < length; at += piece) {
      const auto bytes = std::min(piece, length - at);
      if (!took(data_tag, data.data(), bytes)) return;
      attempt([&] { incoming->add(data, bytes); });
    }
    char whole = 0;
    if (!took(data_tag, &whole, 1)) return;
    attempt([&] {
      if (whole != 0) incoming->finish();
    });
    send(*transport_, 0, answer_tag, problem.data(), problem.size());
  }
} catch (const std::exception&) {  // the communicator is gone, and the job with it
}

fs::path local_folder(const fs::path& disk, const std::string& training) { return disk / ("mpigrad-" + training); }

LocalCopy find_local_copy(const Communicator& world, const fs::path& folder, std::int64_t step, std::optional<bool> looking) {
  const detail::UnhurriedPhase phase;
  const auto path = file_in(folder);
  auto& transport = world.transport();
  // One rank of each node looks, and keeps what comes.
  const bool looks = looking.value_or(transport.node_rank() == 0);
  std::array<std::int64_t, 2> mine{-1, 0};
  std::error_code none;
  if (looks && fs::exists(path, none)) try {
      mine = {read_checkpoint_info(path).step, static_cast<std::int64_t>(fs::file_size(path))};
    } catch (const std::exception& problem) {
      fmt::print(stderr, "warning: skipped: the copy of rank {}: {}\n", world.rank(), problem.what());
    }
  std::vector<std::array<std::int64_t, 2>> all(static_cast<std::size_t>(world.size()));
  transport.allgather(mine.data(), all.data(), std::vector<std::int64_t>(all.size(), 2), DType::int64);
  const auto newest = std::max_element(all.begin(), all.end(), [](const auto& a, const auto& b) { return a[0] < b[0]; });
  if ((*newest)[0] <= step) return {};
  const auto holder = static_cast<int>(newest - all.begin());
  const auto length = (*newest)[1];
  const bool sends = world.rank() == holder;
  std::unique_ptr<Incoming> incoming;
  File file;
  together(world, [&] {
    if (sends) file = open(path, "rb");
    if (!looks || sends) return;
    fs::create_directories(folder);
    incoming = std::make_unique<Incoming>(path);
  });
  std::vector<std::byte> data(static_cast<std::size_t>(std::min(length, piece)));
  for (std::int64_t at = 0; at < length; at += piece) {
    const auto bytes = std::min(piece, length - at);
    together(world, [&] {
      if (sends) read(file, path, data, bytes);
    });
    transport.bcast(data.data(), bytes, DType::uint8, holder);
    together(world, [&] {
      if (incoming) incoming->add(data, bytes);
    });
  }
  together(world, [&] {
    if (incoming) incoming->finish();
  });
  return {path, holder};
}

void remove_local_copies(const Communicator& world, const fs::path& folder) {
  std::error_code none;  // what is not there is removed
  if (world.transport().node_rank() == 0) fs::remove(file_in(folder), none), fs::remove(folder, none);
  world.transport().barrier();
}

}  // namespace mpigrad
