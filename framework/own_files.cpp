#include "framework/own_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "framework/error.h"

namespace mpigrad {

namespace fs = std::filesystem;

namespace {

constexpr mode_t others_write = S_IWGRP | S_IWOTH;

void require_own(const struct stat& about, mode_t kind, const fs::path& path, const std::string& who) {
  require(!S_ISLNK(about.st_mode), "[{}] {} is a link: it is not followed", who, path.string());
  require((about.st_mode & S_IFMT) == kind, "[{}] {} is not a {}", who, path.string(),
          kind == S_IFDIR ? "folder" : "regular file");
  require(about.st_uid == geteuid(), "[{}] {} belongs to another user (uid {}, not {})", who, path.string(), about.st_uid,
          geteuid());
  require((about.st_mode & others_write) == 0, "[{}] {} may be changed by other users: its mode is {:o}", who, path.string(),
          about.st_mode & 07777);
}

Descriptor open_own(const fs::path& path, const std::string& who, int flags, mode_t kind) {
  Descriptor file(open(path.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  const int reason = errno;
  struct stat about {};
  // Of what could not be opened, the reason that helps.
  const bool known = file ? fstat(file.get(), &about) == 0 : lstat(path.c_str(), &about) == 0;
  if (known) require_own(about, kind, path, who);
  require(file && known, "[{}] {} cannot be opened: {}", who, path.string(), std::strerror(reason));
  return file;
}

void make_all(const fs::path& path, const std::string& who) {
  std::error_code none;
  if (path.empty() || fs::exists(fs::symlink_status(path, none))) return;
  make_all(path.parent_path(), who);
  require(mkdir(path.c_str(), 0700) == 0 || errno == EEXIST, "[{}] the folder {} cannot be made: {}", who, path.string(),
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

void require_safe_place(const fs::path& folder, const std::string& who) {
  auto path = fs::absolute(folder);
  struct stat about {};
  while (stat(path.c_str(), &about) != 0 && errno == ENOENT && path.has_relative_path()) path = path.parent_path();
  if (!S_ISDIR(about.st_mode)) return;  // making a folder there tells what is wrong
  require((about.st_mode & others_write) == 0 || (about.st_mode & S_ISVTX) != 0,
          "[{}] other users may exchange what lies in {}: its mode is {:o}; chmod +t, or go-w, ends that", who, path.string(),
          about.st_mode & 07777);
}

}  // namespace mpigrad
