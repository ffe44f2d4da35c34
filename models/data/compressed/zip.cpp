#include <fcntl.h>
#include <zip.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "framework/base/new_file.h"
#include "framework/base/printable.h"
#include "models/data/compressed/compressed.h"

namespace mpigrad::data {
namespace {

struct Discard {
  void operator()(zip_t* archive) const { zip_discard(archive); }
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};
using Archive = std::unique_ptr<zip_t, Discard>;

Archive open_archive(const std::filesystem::path& path) {
  int code = 0;
  Archive archive(zip_open(path.c_str(), ZIP_RDONLY, &code));
  if (!archive) {
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    const std::string text = zip_error_strerror(&error);
    zip_error_fini(&error);
    fail("[zip] {}: cannot be opened: {}", path.string(), text);
  }
  return archive;
}

class UnzipStream final : public ByteStream {
 public:
  UnzipStream(const std::filesystem::path& path, const std::string& name)
      : where_(fmt::format("{}: '{}'", path.string(), printable(name))), archive_(open_archive(path)) {
    zip_stat_t stat;
    zip_stat_init(&stat);
    require(zip_stat(archive_.get(), name.c_str(), 0, &stat) == 0 && (stat.valid & ZIP_STAT_SIZE) != 0,
            "[zip] {}: no such file in the archive", where_);
    size_ = stat.size;
    file_.reset(zip_fopen(archive_.get(), name.c_str(), 0));
    require(file_ != nullptr, "[zip] {} cannot be opened: {}", where_, zip_strerror(archive_.get()));
  }

  // The archive's directory may claim any size, and the file in the archive may be longer.
  std::size_t read(std::byte* to, std::size_t count) override {
    std::size_t got = 0;
    while (got < count) {
      const auto more = zip_fread(file_.get(), to + got, count - got);
      require(more >= 0, "[zip] {} is corrupt: {}", where_, zip_file_strerror(file_.get()));
      if (more == 0) {
        require(used_ + got == size_, "[zip] {} is truncated: {} of {} bytes", where_, used_ + got, size_);
        break;
      }
      got += static_cast<std::size_t>(more);
    }
    used_ += got;
    return got;
  }
  double most_left() const override { return static_cast<double>(size_) - static_cast<double>(used_); }

 private:
  std::string where_;
  Archive archive_;
  std::unique_ptr<zip_file_t, Discard> file_;  // destroyed before the archive
  std::uint64_t size_ = 0, used_ = 0;
};

}  // namespace

bool zip_available() { return true; }

std::vector<std::string> zip_names(const std::filesystem::path& path) {
  const auto archive = open_archive(path);
  std::vector<std::string> names;
  const auto entries = zip_get_num_entries(archive.get(), 0);
  for (zip_int64_t i = 0; i < entries; ++i) {
    const auto index = static_cast<zip_uint64_t>(i);
    const char *name = zip_get_name(archive.get(), index, 0), *stored = zip_get_name(archive.get(), index, ZIP_FL_ENC_RAW);
    require(name != nullptr && stored != nullptr, "[zip] {}: the name of file {} of {} cannot be read", path.string(), i + 1,
            entries);
    names.emplace_back(name);
    // libzip interprets other names in an old code page.
    require(names.back() == stored, "[zip] {}: the name of file {} of {} has control characters or is not UTF-8: '{}'",
            path.string(), i + 1, entries, printable(stored, 80));
  }
  return names;
}

ByteStreamPtr unzip(const std::filesystem::path& path, const std::string& name) {
  return std::make_unique<UnzipStream>(path, name);
}

namespace {

// Makes a new archive `name` that becomes `path`.
void make_archive(const std::filesystem::path& name, const std::filesystem::path& path, const std::vector<ZipEntry>& entries) {
  int code = 0;
  Archive archive(zip_open(name.c_str(), ZIP_CREATE | ZIP_EXCL, &code));
  if (!archive) {
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    const std::string text = zip_error_strerror(&error);
    zip_error_fini(&error);
    fail("[zip] {} cannot be written: {}", path.string(), text);
  }
  for (const auto& entry : entries) {
    require(entry.name.find('\0') == std::string::npos && entry.name.size() < 65536, "[zip] {}: '{}' is not a valid file name",
            path.string(), printable(entry.name, 80));
    zip_source_t* source = zip_source_buffer(archive.get(), entry.bytes.data(), entry.bytes.size(), 0);
    const auto index = source ? zip_file_add(archive.get(), entry.name.c_str(), source, ZIP_FL_ENC_UTF_8) : -1;
    if (index < 0 && source) zip_source_free(source);
    require(index >= 0 && zip_set_file_compression(archive.get(), static_cast<zip_uint64_t>(index), ZIP_CM_STORE, 0) == 0,
            "[zip] {}: '{}' cannot be added: {}", path.string(), printable(entry.name), zip_strerror(archive.get()));
  }
  if (zip_close(archive.get()) != 0) fail("[zip] {} cannot be written: {}", path.string(), zip_strerror(archive.get()));
  static_cast<void>(archive.release());  // closed
}

}  // namespace

void write_zip(const std::filesystem::path& path, const std::vector<ZipEntry>& entries) {
  require(!entries.empty(), "[zip] {}: an archive needs at least one file", path.string());  // libzip would remove it
  NewFile file(path, "zip", [&](const std::filesystem::path& name) {
    make_archive(name, path, entries);
    const int made = open(name.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    require(made >= 0, "[zip] {} cannot be written: {}", path.string(), std::strerror(errno));
    return made;
  });
  file.commit();
}

}  // namespace mpigrad::data
