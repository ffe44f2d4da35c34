#pragma once
// HDF5 files. Every call to the library happens on the process's I/O thread (io_thread.h). Errors name the file and the dataset,
// say what is wrong, and keep HDF5's own text.

#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/transport/transport.h"
#include "framework/tensor/dtype.h"
#include "framework/tensor/shape.h"

namespace mpigrad {

// False in builds without HDF5, whose readers and writers throw an Error that says what to install.
bool hdf5_available();

struct Hdf5Dataset {
  enum class Kind : std::uint8_t { number, text, other };
  std::string name;  // from the root, without the first slash: "train/volume"
  Shape shape;       // rank 0: a scalar
  Kind kind = Kind::other;
  DType type = DType::uint8;  // for numbers: the smallest type that holds every value
  std::string stored;         // for people: "int16", "uint32", "text", ...
  bool written = true;        // false: nothing was ever written to it, and reading gives zeros
};

// Which other files a file may refer its readers to: none, or files of its folder by links and virtual datasets.
enum class Hdf5Reach : std::uint8_t { file, folder };

// A file open for reading, by the serial driver: no call communicates, and every rank may read what it likes. Names, sizes and
// texts in the file are checked before they are used, because the file may be damaged or malicious. Links and virtual datasets
// are followed only as far as the reach allows, and elements in files of another format (external storage) are refused. The
// sources of a virtual dataset must not be virtual, and their names must not be patterns. Reading a whole dataset without enough
// memory for it is an Error that names its size.
class Hdf5Reader {
 public:
  // Errors: missing, not a file, not HDF5, truncated.
  explicit Hdf5Reader(const std::filesystem::path& path, Hdf5Reach reach = Hdf5Reach::file);

  const std::filesystem::path& path() const;
  // All datasets, including those in groups, sorted by name. Errors: groups nested more than 64 deep; with Hdf5Reach::file, a
  // link or a dataset that refers to another file.
  std::vector<Hdf5Dataset> datasets() const;
  bool contains(const std::string& name) const;         // Error: a dataset that refers further than the reach
  Hdf5Dataset describe(const std::string& name) const;  // Error if missing, which lists the datasets

  // The box [begin, end) of a dataset of numbers into `out`, row-major and contiguous, converted to `type`. Errors: missing
  // dataset, not numbers, another number of dimensions, box outside the extents, floating-point numbers asked for as integers,
  // a value that does not fit.
  void read(const std::string& name, std::span<const std::int64_t> begin, std::span<const std::int64_t> end, DType type,
            void* out) const;
  // The same without waiting; `out` must live until the future is ready, the reader may be destroyed before.
  std::future<void> read_async(const std::string& name, std::span<const std::int64_t> begin, std::span<const std::int64_t> end,
                               DType type, void* out) const;
  // All of a dataset, whatever its shape.
  template <class T>
  std::vector<T> read(const std::string& name) const {
    static_assert(!std::is_same_v<T, bool>, "read booleans as std::uint8_t");
    const Shape shape = whole(name, sizeof(T));
    std::vector<T> values(static_cast<std::size_t>(shape.elements()));
    const std::vector<std::int64_t> begin(static_cast<std::size_t>(shape.rank()), 0);
    read(name, begin, shape.span(), dtype_of<T>(), values.data());
    return values;
  }
  std::vector<std::string> read_strings(const std::string& name) const;

  // Attributes of `object`: a dataset, a group, or "/" for the file.
  bool has_attribute(const std::string& object, const std::string& name) const;
  double number_attribute(const std::string& object, const std::string& name) const;
  // Error: a text of variable length above 16 MiB.
  std::string text_attribute(const std::string& object, const std::string& name) const;

  struct State;

 private:
  // The dataset's shape. Error: too little memory for all of it in elements of so many bytes.
  Shape whole(const std::string& name, std::size_t bytes) const;

  std::shared_ptr<State> state_;
};

// A new file, written under a temporary name in the same folder and renamed by commit(): a file under the final name is always
// complete. Without commit() no file remains.
class Hdf5Writer {
 public:
  // Written by this process only.
  Hdf5Writer(const std::filesystem::path& path, bool overwrite);
  // Written by all ranks of `transport` together; all calls except write_box are then collective, with the same arguments on
  // every rank. Ranks that are processes use MPI's parallel driver; where HDF5 is built without MPI, they keep copies of their
  // boxes, which rank 0 writes in commit(). Ranks that are threads take turns with one open file.
  Hdf5Writer(const std::filesystem::path& path, bool overwrite, std::shared_ptr<Transport> transport);
  Hdf5Writer(const Hdf5Writer&) = delete;
  Hdf5Writer& operator=(const Hdf5Writer&) = delete;
  ~Hdf5Writer();

  // Creates a dataset of zeros to be filled by write_box. 16-bit types are written from float32 or float64, which are rounded.
  // Groups in `name` ("train/volume") are made as needed.
  void create(const std::string& name, const Shape& shape, DType type);
  // Creates a dataset whose elements are put into the file by other code, and returns the byte at which they begin, little-endian
  // and row-major; -1 if there are no elements. Only for a writer of one process. The elements may be put there, into
  // temporary(), between close() and commit().
  std::int64_t place(const std::string& name, const Shape& shape, DType type);
  void close();
  const std::filesystem::path& temporary() const;
  // Writes this rank's box [begin, end) of the dataset, from any type; may be empty, need not be collective. Rank 0 writes kept
  // boxes later: their errors come from commit(), on all ranks.
  void write_box(const std::string& name, std::span<const std::int64_t> begin, std::span<const std::int64_t> end, DType type,
                 const void* data);
  // Writes a whole dataset, with rank 0's data.
  void write(const std::string& name, const Shape& shape, DType type, const void* data);
  template <class T>
  void write(const std::string& name, std::span<const T> values) {
    write(name, {static_cast<std::int64_t>(values.size())}, dtype_of<T>(), values.data());
  }
  void write_strings(const std::string& name, const std::vector<std::string>& values);  // fixed length, padded with zeros
  void attribute(const std::string& object, const std::string& name, double value);
  void attribute(const std::string& object, const std::string& name, std::int64_t value);
  void attribute(const std::string& object, const std::string& name, const std::string& value);

  // Closes and renames. Errors: data that could not be written; a file that has appeared under the final name in the meantime.
  void commit();

  struct State;

 private:
  template <class F>
  void everywhere(F f);

  std::shared_ptr<State> state_;
  std::shared_ptr<Transport> transport_;  // null: written by this process only
};

}  // namespace mpigrad
