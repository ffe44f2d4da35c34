#pragma once
// HDF5 files that this library does not write: what others may claim in theirs, and lead to. Only in builds with HDF5.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace mpigrad::testing {

// A chunked dataset of bytes that claims these extents; with `written`, its first cell is 7.
void write_claim(const std::filesystem::path& path, const std::string& dataset, const std::vector<std::uint64_t>& extents,
                 bool written);
// A dataset of `stored` bytes within its description (compact) that claims to have `claim`.
void write_short_compact(const std::filesystem::path& path, const std::string& dataset, std::uint64_t stored,
                         std::uint64_t claim);
// A dataset of bytes in chunks that only a filter of this name, which no library has, can unpack.
void write_filtered(const std::filesystem::path& path, const std::string& dataset, const std::vector<std::uint64_t>& extents,
                    const char* filter);
// A dataset of bytes in chunks that are packed.
void write_packed(const std::filesystem::path& path, const std::string& dataset, const std::vector<std::uint64_t>& extents,
                  const std::vector<std::uint64_t>& chunk, const std::vector<std::uint8_t>& values);
// A dataset of `count` bytes that are in the file `elements`. With `add`, here and below, to a file that exists.
void write_external_storage(const std::filesystem::path& path, const std::string& dataset, const std::string& elements,
                            std::uint64_t count, bool add = false);
// A link to an object of another file.
void write_external_link(const std::filesystem::path& path, const std::string& name, const std::string& file,
                         const std::string& object, bool add = false);
// A dataset of bytes whose elements are those of another file's, of the same extents.
void write_virtual(const std::filesystem::path& path, const std::string& dataset, const std::vector<std::uint64_t>& extents,
                   const std::string& file, const std::string& source, bool add = false);
// A dataset of one byte in groups in groups.
void write_deep(const std::filesystem::path& path, int groups);
// A dataset of `count` texts, which are all one and the same place in the file.
void write_same_text(const std::filesystem::path& path, const std::string& dataset, const std::string& text, std::size_t count);
// An attribute of the root, a text of variable length, as h5py writes texts. The file exists.
void add_text_attribute(const std::filesystem::path& path, const std::string& name, const std::string& text);
// Changes the length of a file's only text of variable length that has this length.
void claim_text_length(const std::filesystem::path& path, std::uint32_t length, std::uint32_t claim);

}  // namespace mpigrad::testing
