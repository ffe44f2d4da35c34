#include "framework/new_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "framework/error.h"

namespace mpigrad {

namespace fs = std::filesystem;

void put_in_place(const fs::path& temporary, const fs::path& path, const std::string& who) {
  const auto synchronise = [](const fs::path& what, int flags) {
    const int descriptor = open(what.c_str(), O_RDONLY | O_CLOEXEC | flags);
    const bool done = descriptor >= 0 && fsync(descriptor) == 0;
    const int reason = errno;
    if (descriptor >= 0) close(descriptor);
    return done ? 0 : reason;
  };
  const int reason = synchronise(temporary, 0);
  require(reason == 0, "[{}] {}: cannot be completed: {}", who, path.string(), std::strerror(reason));
  std::error_code error;
  fs::rename(temporary, path, error);
  require(!error, "[{}] {}: cannot be renamed from {}: {}", who, path.string(), temporary.string(), error.message());
  // The rename itself; not every file system can, and the file is whole in any case.
  static_cast<void>(synchronise(path.has_parent_path() ? path.parent_path() : ".", O_DIRECTORY));
}

NewFile::NewFile(const fs::path& path, const std::string& who) : path_(path), who_(who) {
  auto part = path;
  part += ".part";
  // A link would lead the writing elsewhere, a pipe would wait for a reader.
  std::error_code ignored;
  const auto kind = fs::symlink_status(part, ignored).type();
  require(kind == fs::file_type::not_found || kind == fs::file_type::regular || kind == fs::file_type::none,
          "[{}] {} is in the way: not a regular file", who_, part.string());
  file_ = std::fopen(part.c_str(), "wbe");
  require(file_ != nullptr, "[{}] {} cannot be written: {}", who_, path_.string(), std::strerror(errno));
  part_ = part;
}

NewFile::~NewFile() {
  if (file_ != nullptr) std::fclose(file_);
  std::error_code ignored;
  if (!part_.empty()) fs::remove(part_, ignored);
}

void NewFile::check(bool good) const {
  require(good, "[{}] {} could not be written completely: {}", who_, path_.string(), std::strerror(errno));
}

void NewFile::write(std::span<const std::byte> bytes) {
  check(std::fwrite(bytes.data(), 1, bytes.size(), file_) == bytes.size());
}

void NewFile::commit() {
  check(std::fclose(std::exchange(file_, nullptr)) == 0);
  put_in_place(part_, path_, who_);
  part_.clear();
}

void write_new_file(const fs::path& path, const std::string& text, const std::string& who) {
  NewFile file(path, who);
  file.write(text);
  file.commit();
}

}  // namespace mpigrad
