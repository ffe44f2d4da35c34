#include "framework/base/own_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "framework/base/error.h"

namespace mpigrad {

namespace fs = std::filesystem;

namespace {

constexpr mode_t others_write = S_IWGRP | S_IWOTH;

enum class Owner { user, user_or_root };

void require_own(const struct stat& about, mode_t kind, Owner owner, const fs::path& path, const std::string& who) {
  require(!S_ISLNK(about.st_mode), "[{}] {} is a link: it is not followed", who, path.string());
  require((about.st_mode & S_IFMT) == kind, "[{}] {} is not a {}", who, path.string(),
          kind == S_IFDIR ? "folder" : "regular file");
  require(about.st_uid == geteuid() || (owner == Owner::user_or_root && about.st_uid == 0),
          "[{}] {} belongs to another user (uid {}, not {})", who, path.string(), about.st_uid, geteuid());
  require((about.st_mode & others_write) == 0, "[{}] {} may be changed by other users: its mode is {:o}", who, path.string(),
          about.st_mode & 07777);
}

constexpr int own_safely = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

Descriptor open_own(const fs::path& path, const std::string& who, int flags, mode_t kind, Owner owner = Owner::user) {
  Descriptor file(open(path.c_str(), flags | own_safely, 0600));
  const int reason = errno;
  struct stat about {};
  // If it could not be opened, find the reason that helps the user.
  const bool known = file ? fstat(file.get(), &about) == 0 : lstat(path.c_str(), &about) == 0;
  if (known) require_own(about, kind, owner, path, who);
  require(file && known, "[{}] {} cannot be opened: {}", who, path.string(), std::strerror(reason));
  return file;
}

void make_all(const fs::path& path, const std::string& who) {
  std::error_code none;
  if (path.empty() || fs::exists(fs::symlink_status(path, none))) return;
  make_all(path.parent_path(), who);
  require(mkdir(path.c_str(), 0700) == 0 || errno == EEXIST, "[{}] the folder {} cannot be created: {}", who, path.string(),
          std::strerror(errno));
}

}  // namespace

Descriptor::~Descriptor() {
  if (number_ >= 0) close(number_);
}

Descriptor open_own_folder(const fs::path& path, const std::string& who) {
  return open_own(path, who, O_RDONLY | O_DIRECTORY, S_IFDIR);
}

Descriptor make_own_folder(const fs::path& path, const std::string& who) {
  make_all(path, who);
  return open_own_folder(path, who);
}

Descriptor open_own_file(const fs::path& path, const std::string& who, int flags) { return open_own(path, who, flags, S_IFREG); }

Descriptor make_own_file(const fs::path& path, const std::string& who, int flags) {
  return open_own_file(path, who, flags | O_CREAT);
}

Descriptor open_trusted_file(const fs::path& path, const std::string& who) {
  return open_own(path, who, O_RDONLY, S_IFREG, Owner::user_or_root);
}

void close_to_group(const fs::path& path) {
  const Descriptor opened(open(path.c_str(), O_RDONLY | own_safely));
  struct stat about {};
  if (!opened || fstat(opened.get(), &about) != 0 || about.st_uid != geteuid() || (about.st_mode & others_write) != S_IWGRP)
    return;
  if (S_ISDIR(about.st_mode) && (about.st_mode & S_ISVTX) == 0) static_cast<void>(fchmod(opened.get(), 0700));
  if (S_ISREG(about.st_mode) && about.st_nlink == 1) static_cast<void>(fchmod(opened.get(), 0600));
}

void require_safe_place(const fs::path& folder, const std::string& who) {
  auto path = fs::absolute(folder);
  struct stat about {};
  while (stat(path.c_str(), &about) != 0 && errno == ENOENT && path.has_relative_path()) path = path.parent_path();
  if (!S_ISDIR(about.st_mode)) return;  // creating a folder there reports the error
  require(about.st_uid == 0 || about.st_uid == geteuid(),
          "[{}] another user (uid {}) can replace files in {}; use a folder of your own, there or elsewhere", who, about.st_uid,
          path.string());
  require((about.st_mode & others_write) == 0 || (about.st_mode & S_ISVTX) != 0,
          "[{}] other users can replace files in {}: its mode is {:o}; use chmod +t or chmod go-w", who, path.string(),
          about.st_mode & 07777);
}

}  // namespace mpigrad
