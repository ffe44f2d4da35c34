#include "examples/tool/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "framework/error.h"

namespace mpigrad::tool {

FolderLock::FolderLock(const std::filesystem::path& folder) {
  const auto path = folder / ".lock";
  file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  require(file_ >= 0, "[folder] {} cannot be made: {}", path.string(), std::strerror(errno));
  const bool taken = flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (taken) close(file_);
  require(!taken, "[folder] another process is at work in {}", folder.string());
}

FolderLock::~FolderLock() { close(file_); }

}  // namespace mpigrad::tool
