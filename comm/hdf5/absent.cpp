// Replaces the other files of this folder in builds without HDF5.

#include "comm/hdf5/hdf5_file.h"
#include "comm/hdf5/io_thread.h"

namespace mpigrad {

bool hdf5::open_library() { return false; }
void hdf5::close_library_at_exit() {}

namespace {
[[noreturn]] void refuse() { fail("[hdf5] built without HDF5: install libhdf5-mpich-dev and configure with -Dhdf5=enabled"); }
}  // namespace

struct Hdf5Reader::State {};
struct Hdf5Writer::State {};

bool hdf5_available() { return false; }

Hdf5Reader::Hdf5Reader(const std::filesystem::path&, Hdf5Reach) { refuse(); }
const std::filesystem::path& Hdf5Reader::path() const { refuse(); }
std::vector<Hdf5Dataset> Hdf5Reader::datasets() const { refuse(); }
bool Hdf5Reader::contains(const std::string&) const { refuse(); }
Hdf5Dataset Hdf5Reader::describe(const std::string&) const { refuse(); }
void Hdf5Reader::read(const std::string&, std::span<const std::int64_t>, std::span<const std::int64_t>, DType, void*) const {
  refuse();
}
std::future<void> Hdf5Reader::read_async(const std::string&, std::span<const std::int64_t>, std::span<const std::int64_t>, DType,
                                         void*) const {
  refuse();
}
Shape Hdf5Reader::whole(const std::string&, std::size_t) const { refuse(); }
std::vector<std::string> Hdf5Reader::read_strings(const std::string&) const { refuse(); }
bool Hdf5Reader::has_attribute(const std::string&, const std::string&) const { refuse(); }
double Hdf5Reader::number_attribute(const std::string&, const std::string&) const { refuse(); }
std::string Hdf5Reader::text_attribute(const std::string&, const std::string&) const { refuse(); }

Hdf5Writer::Hdf5Writer(const std::filesystem::path&, bool) { refuse(); }
Hdf5Writer::Hdf5Writer(const std::filesystem::path&, bool, std::shared_ptr<Transport>) { refuse(); }
Hdf5Writer::~Hdf5Writer() = default;
void Hdf5Writer::create(const std::string&, const Shape&, DType) { refuse(); }
std::int64_t Hdf5Writer::place(const std::string&, const Shape&, DType) { refuse(); }
void Hdf5Writer::close() { refuse(); }
const std::filesystem::path& Hdf5Writer::temporary() const { refuse(); }
void Hdf5Writer::write_box(const std::string&, std::span<const std::int64_t>, std::span<const std::int64_t>, DType, const void*) {
  refuse();
}
void Hdf5Writer::write(const std::string&, const Shape&, DType, const void*) { refuse(); }
void Hdf5Writer::write_strings(const std::string&, const std::vector<std::string>&) { refuse(); }
void Hdf5Writer::attribute(const std::string&, const std::string&, double) { refuse(); }
void Hdf5Writer::attribute(const std::string&, const std::string&, std::int64_t) { refuse(); }
void Hdf5Writer::attribute(const std::string&, const std::string&, const std::string&) { refuse(); }
void Hdf5Writer::commit() { refuse(); }

}  // namespace mpigrad
