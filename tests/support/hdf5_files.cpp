#include "tests/support/hdf5_files.h"

#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#include <hdf5.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "comm/hdf5/io_thread.h"
#include "framework/base/error.h"

namespace mpigrad::testing {
namespace {

// Runs f(file) on a new file or on an existing one.
template <class F>
void in_file(const std::filesystem::path& path, F f, bool add = false) {
  io_thread().run([&] {
    const hid_t file =
        add ? H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT) : H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    require(file >= 0, "[test] {} cannot be made", path.string());
    f(file);
    require(H5Fclose(file) >= 0, "[test] {} cannot be closed", path.string());
  });
}

template <class Change>
void make_dataset(hid_t file, const std::string& name, const std::vector<std::uint64_t>& extents, bool written, Change change) {
  const std::vector<hsize_t> shape(extents.begin(), extents.end());
  const hid_t space = H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  change(creation, space);
  const hid_t dataset = H5Dcreate2(file, name.c_str(), H5T_STD_U8LE, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  require(dataset >= 0, "[test] the dataset {} cannot be made", name);
  if (written) {
    const std::vector<hsize_t> start(shape.size(), 0), one(shape.size(), 1);
    const hid_t cell = H5Screate_simple(static_cast<int>(one.size()), one.data(), nullptr);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, one.data(), nullptr);
    const unsigned char seven = 7;
    require(H5Dwrite(dataset, H5T_NATIVE_UCHAR, cell, space, H5P_DEFAULT, &seven) >= 0, "[test] {} cannot be written", name);
    H5Sclose(cell);
  }
  H5Dclose(dataset), H5Pclose(creation), H5Sclose(space);
}

std::string file_text(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// The value in the byte order of the file.
template <class T>
std::string bytes_of(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

// Replaces the first occurrence of `old` in a file by as many other bytes.
void replace_in(const std::filesystem::path& path, const std::string& old, const std::string& bytes) {
  const auto found = file_text(path).find(old);
  require(found != std::string::npos, "[test] {} does not hold these bytes", path.string());
  std::fstream stream(path, std::ios::binary | std::ios::in | std::ios::out);
  stream.seekp(static_cast<std::streamoff>(found)).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  require(stream.good(), "[test] {} cannot be changed", path.string());
}

}  // namespace

void write_claim(const std::filesystem::path& path, const std::string& dataset, const std::vector<std::uint64_t>& extents,
                 bool written) {
  in_file(path, [&](hid_t file) {
    make_dataset(file, dataset, extents, written, [&](hid_t creation, hid_t) {
      const std::vector<hsize_t> chunk(extents.size(), 1);
      H5Pset_chunk(creation, static_cast<int>(chunk.size()), chunk.data());
    });
  });
}

void write_short_compact(const std::filesystem::path& path, const std::string& dataset, std::uint64_t stored,
                         std::uint64_t claim) {
  in_file(path, [&](hid_t file) {
    make_dataset(file, dataset, {stored}, true, [&](hid_t creation, hid_t) { H5Pset_layout(creation, H5D_COMPACT); });
  });
  replace_in(path, bytes_of(stored) + bytes_of(stored),
             bytes_of(claim) + bytes_of(claim));  // the extent and the largest possible extent
}

void write_filtered(const std::filesystem::path& path, const std::string& dataset, const std::vector<std::uint64_t>& extents,
                    const char* filter) {
  constexpr H5Z_filter_t number = 40001;  // HDF5 reserves this range of numbers for tests
  const auto same = [](unsigned, std::size_t, const unsigned*, std::size_t bytes, std::size_t*, void**) { return bytes; };
  in_file(path, [&](hid_t file) {
    const H5Z_class2_t known{H5Z_CLASS_T_VERS, number, 1, 1, filter, nullptr, nullptr, same};
    require(H5Zregister(&known) >= 0, "[test] the filter {} cannot be registered", filter);
    make_dataset(file, dataset, extents, true, [&](hid_t creation, hid_t) {
      const std::vector<hsize_t> chunk(extents.size(), 1);
      H5Pset_chunk(creation, static_cast<int>(chunk.size()), chunk.data());
      H5Pset_filter(creation, number, H5Z_FLAG_MANDATORY, 0, nullptr);
    });
    require(H5Fflush(file, H5F_SCOPE_LOCAL) >= 0 && H5Zunregister(number) >= 0, "[test] {} cannot be written", path.string());
  });
}

void write_packed(const std::filesystem::path& path, const std::string& dataset, const std::vector<std::uint64_t>& extents,
                  const std::vector<std::uint64_t>& chunk, const std::vector<std::uint8_t>& values) {
  in_file(path, [&](hid_t file) {
    make_dataset(file, dataset, extents, false, [&](hid_t creation, hid_t) {
      const std::vector<hsize_t> shape(chunk.begin(), chunk.end());
      H5Pset_chunk(creation, static_cast<int>(shape.size()), shape.data());
      require(H5Pset_deflate(creation, 1) >= 0, "[test] this HDF5 does not pack");
    });
    const hid_t made = H5Dopen2(file, dataset.c_str(), H5P_DEFAULT);
    require(H5Dwrite(made, H5T_NATIVE_UCHAR, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0, "[test] {} cannot be written",
            dataset);
    H5Dclose(made);
  });
}

void write_external_storage(const std::filesystem::path& path, const std::string& dataset, const std::string& elements,
                            std::uint64_t count, bool add) {
  const auto create = [&](hid_t file) {
    make_dataset(file, dataset, {count}, false,
                 [&](hid_t creation, hid_t) { H5Pset_external(creation, elements.c_str(), 0, count); });
  };
  in_file(path, create, add);
}

void write_external_link(const std::filesystem::path& path, const std::string& name, const std::string& file,
                         const std::string& object, bool add) {
  const auto create = [&](hid_t own) {
    require(H5Lcreate_external(file.c_str(), object.c_str(), own, name.c_str(), H5P_DEFAULT, H5P_DEFAULT) >= 0,
            "[test] the link {} cannot be made", name);
  };
  in_file(path, create, add);
}

void write_virtual(const std::filesystem::path& path, const std::string& dataset, const std::vector<std::uint64_t>& extents,
                   const std::string& file, const std::string& source, bool add) {
  const auto create = [&](hid_t own) {
    make_dataset(own, dataset, extents, false, [&](hid_t creation, hid_t space) {
      require(H5Pset_virtual(creation, space, file.c_str(), source.c_str(), space) >= 0, "[test] {} cannot be virtual", dataset);
    });
  };
  in_file(path, create, add);
}

void write_deep(const std::filesystem::path& path, int groups) {
  in_file(path, [&](hid_t file) {
    std::string name;
    for (int i = 0; i < groups; ++i) {
      name += "g";
      H5Gclose(H5Gcreate2(file, name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
      name += "/";
    }
    make_dataset(file, name + "x", {1}, true, [](hid_t, hid_t) {});
  });
}

void write_same_text(const std::filesystem::path& path, const std::string& dataset, const std::string& text, std::size_t count) {
  constexpr std::size_t reference = 16;  // bytes of the length and the address of a text
  haddr_t elements = HADDR_UNDEF;
  in_file(path, [&](hid_t file) {
    const hsize_t extent = count;
    const hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate_simple(1, &extent, nullptr);
    H5Tset_size(type, H5T_VARIABLE);
    const hid_t made = H5Dcreate2(file, dataset.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    std::vector<const char*> values(count, "");
    values[0] = text.c_str();
    require(H5Dwrite(made, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0, "[test] {} cannot be written", dataset);
    elements = H5Dget_offset(made);
    H5Dclose(made), H5Sclose(space), H5Tclose(type);
  });
  std::fstream bytes(path, std::ios::binary | std::ios::in | std::ios::out);
  std::vector<char> first(reference);
  bytes.seekg(static_cast<std::streamoff>(elements)).read(first.data(), reference);
  bytes.seekp(static_cast<std::streamoff>(elements));
  for (std::size_t i = 0; i < count; ++i) bytes.write(first.data(), reference);
  require(bytes.good(), "[test] {} cannot be changed", path.string());
}

void add_text_attribute(const std::filesystem::path& path, const std::string& name, const std::string& text) {
  const auto create = [&](hid_t file) {
    const hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
    H5Tset_size(type, H5T_VARIABLE);
    const hid_t made = H5Acreate2(file, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT);
    const char* value = text.c_str();
    require(H5Awrite(made, type, &value) >= 0, "[test] the attribute {} cannot be written", name);
    H5Aclose(made), H5Sclose(space), H5Tclose(type);
  };
  in_file(path, create, true);
}

void claim_text_length(const std::filesystem::path& path, std::uint32_t length, std::uint32_t claim) {
  // A text is stored as its length and the address of the heap that contains it.
  const std::uint64_t heap = file_text(path).find("GCOL");
  replace_in(path, bytes_of(length) + bytes_of(heap), bytes_of(claim) + bytes_of(heap));
}

}  // namespace mpigrad::testing
