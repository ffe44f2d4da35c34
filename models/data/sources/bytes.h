#pragma once
// Reading files as bytes, and converting numbers in them.

#include <bit>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "framework/tensor/dtype.h"
#include "framework/tensor/layout.h"
#include "models/data/compressed/compressed.h"

namespace mpigrad::data {

// Opens a file as a stream; gzip is unpacked on the way, whatever the file is called. Errors name the file: missing, a folder,
// cannot be read, truncated.
ByteStreamPtr open_stream(const std::filesystem::path& path);
// `path` itself, or, if it is a folder, the files in it with `wanted` names, sorted, without hidden files. Errors: missing; a
// folder without such files, with the message `none`.
std::vector<std::filesystem::path> files_at(const std::filesystem::path& path,
                                            const std::function<bool(const std::string&)>& wanted, const std::string& none);
// A whole file. Errors in addition to those of open_stream(): more bytes than there is memory for, or more than 1 GiB unpacked.
Bytes read_bytes(const std::filesystem::path& path);
// The next `count` bytes, fewer at the end.
Bytes take(ByteStream& stream, std::size_t count);
// The product of extents that a file claims. Error: more than 2^53, an extent of 0 counted as 1, so that no later product
// overflows.
double elements_of(const Shape& shape, const std::string& where);
// Error: more than 65,536 targets for each sample. A name in memory for each target takes 1000 times what a packed file takes.
void require_target_count(std::int64_t count, const std::string& where);
// Reads all bytes that a header claims, and no more. `where` is for messages: "[idx] FILE". Errors: fewer or more bytes than
// `total`, both found without reading the excess; not enough memory for them and for `more` bytes in addition.
Bytes take_elements(ByteStream& stream, double total, double more, const std::string& where, const std::string& shape);
// True if no bytes follow.
bool at_end(ByteStream& stream);

// The stored type of elements: in a file's own byte order, of a type that the engine has or that fits into a wider one.
struct StoredType {
  DType type = DType::uint8;  // the smallest that holds every value
  char kind = 'u';            // u, i, f: unsigned, signed, floating; b: boolean
  int size = 1;               // bytes, as stored
  bool big_endian = false;
};
StoredType stored_type(char kind, int size, bool big_endian, const std::string& name);
// `count` elements at `from`, as elements of stored.type. Error: a number that does not fit (uint64 above 2^63 - 1).
Bytes converted(const std::byte* from, std::int64_t count, const StoredType& stored, const std::string& name);
// All elements in `bytes`, in the same memory where nothing has to be done.
Bytes converted(Bytes bytes, const StoredType& stored, const std::string& name);
// The bytes that converted() needs in addition to the `elements` as stored.
double bytes_of_conversion(double elements, const StoredType& stored);

// Integers of a type, row-major, as int64. Error: floating-point numbers.
std::vector<std::int64_t> integers(const Bytes& values, DType type, const std::string& name);

// The integer in the sizeof(T) bytes at `from`, most significant byte first.
template <class T>
T big_endian(const std::byte* from) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value = static_cast<T>((value << 8) | static_cast<T>(from[i]));
  return value;
}

// Copies the box of an array [D, H, W] of `extents` to `out`, row-major; `cell` bytes per cell.
void copy_box(const std::byte* from, std::int64_t cell, const Shape& extents, const Box& box, std::byte* out);
// Copies the cells of `part` from an array [d, h, w] that covers the box `from_box` to one that covers `to_box`; both contain
// `part`.
void copy_cells(const std::byte* from, const Box& from_box, const Box& part, const Box& to_box, std::int64_t cell, std::byte* to);
// The greatest number that float32 does not round to infinity: half a step above float32's greatest number is rounded to
// infinity.
inline constexpr double greatest_float32 = 0x1.fffffefffffffp127;
// Converts `count` numbers from one type to another. Rounding is the caller's responsibility.
void convert(const void* from, DType stored, std::int64_t count, DType type, void* to);

}  // namespace mpigrad::data
