#pragma once
// HDF5 files that this library does not write itself: files of other programs, with wrong claims or links. Only in builds with
// HDF5.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace mpigrad::testing {

// A chunked dataset of bytes that claims these extents; with `written`, its first element is 7.
void write_claim(const std::filesystem::path& path, const std::string& dataset, const std::vector<std::uint64_t>& extents,
                 bool written);
// A compact dataset of `stored` bytes (in its description) that claims to have `claim` bytes.
void write_short_compact(const std::filesystem::path& path, const std::string& dataset, std::uint64_t stored,
                         std::uint64_t claim);
// A dataset of bytes in chunks with a filter of this name that no library provides.
void write_filtered(const std::filesystem::path& path, const std::string& dataset, const std::vector<std::uint64_t>& extents,
                    const char* filter);
// A dataset of bytes in compressed chunks.
void write_packed(const std::filesystem::path& path, const std::string& dataset, const std::vector<std::uint64_t>& extents,
                  const std::vector<std::uint64_t>& chunk, const std::vector<std::uint8_t>& values);
// A dataset of `count` bytes that are in the file `elements`. `add`, here and below: writes to an existing file.
void write_external_storage(const std::filesystem::path& path, const std::string& dataset, const std::string& elements,
                            std::uint64_t count, bool add = false);
// A link to an object of another file.
void write_external_link(const std::filesystem::path& path, const std::string& name, const std::string& file,
                         const std::string& object, bool add = false);
// A virtual dataset of bytes: its elements are those of a dataset of the same extents in another file.
void write_virtual(const std::filesystem::path& path, const std::string& dataset, const std::vector<std::uint64_t>& extents,
                   const std::string& file, const std::string& source, bool add = false);
// A dataset of one byte inside nested groups.
void write_deep(const std::filesystem::path& path, int groups);
// A dataset of `count` texts that all refer to the same address in the file.
void write_same_text(const std::filesystem::path& path, const std::string& dataset, const std::string& text, std::size_t count);
// Adds to an existing file an attribute of the root: a text of variable length, as h5py writes texts.
void add_text_attribute(const std::filesystem::path& path, const std::string& name, const std::string& text);
// Changes the stored length of the only text of variable length in a file that has this length.
void claim_text_length(const std::filesystem::path& path, std::uint32_t length, std::uint32_t claim);

}  // namespace mpigrad::testing
