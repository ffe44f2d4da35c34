// Checks the order of the tree from its #include lines: framework <- ops <- comm <- models <- examples, tests. An include points
// left; leaves are included only by themselves; vendor headers stay in files whose folder or name says so.

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "comm/transport/environment.h"

#ifndef MPIGRAD_SOURCE_ROOT
#define MPIGRAD_SOURCE_ROOT "."
#endif
#ifndef MPIGRAD_BUILD_ROOT
#define MPIGRAD_BUILD_ROOT "build"
#endif

using namespace mpigrad;

namespace {

const std::map<std::string, int> levels{{"framework", 0}, {"ops", 1}, {"comm", 2}, {"models", 3}, {"examples", 4}, {"tests", 5}};

const std::vector<std::string> leaves{"framework/cuda/",         "comm/transport/mpi/", "comm/transport/nccl/",
                                      "comm/transport/threads/", "comm/transport/dry/", "comm/hdf5/"};
// Headers of leaves that do not mention the vendor.
const std::set<std::string> public_leaf_headers{"comm/transport/mpi/mpi_comm.h", "comm/transport/mpi/integer_comm.h",
                                                "comm/hdf5/hdf5_file.h",         "comm/hdf5/hdf5_tensor.h",
                                                "comm/hdf5/io_thread.h",         "comm/hdf5/xdmf.h",
                                                "framework/cuda/cuda.h",         "framework/cuda/graph.h",
                                                "framework/cuda/staging.h",      "models/data/compressed/compressed.h",
                                                "models/data/images/decode.h"};
// Leaves that are written in CUDA; they may include CUDA's foundation.
const std::set<std::string> cuda_leaves{"framework/cuda/", "comm/transport/nccl/"};

// Prefixes of vendors' header names, and the folders where they may be included; after a star, suffixes of file names.
const std::map<std::string, std::vector<std::string>> vendors{
    {"mpi.h", {"comm/transport/mpi/", "comm/hdf5/"}},
    {"hdf5", {"comm/hdf5/", "tests/support/hdf5_files"}},
    {"H5", {"comm/hdf5/"}},
    {"oneapi/", {"ops/backends/onednn/"}},
    {"dnnl", {"ops/backends/onednn/"}},
    {"cblas", {"ops/backends/blas/"}},
    {"openblas", {"ops/backends/blas/"}},
    {"nccl", {"comm/transport/nccl/"}},
    {"cuda",
     {"framework/cuda/", "ops/backends/cuda/", "ops/backends/cudnn/", "ops/backends/cublas/", "comm/transport/nccl/",
      "*_cuda.cpp", "*.cu", "*.cuh"}},
    {"cublas", {"ops/backends/cublas/"}},
    {"cudnn", {"ops/backends/cudnn/"}},
    {"immintrin", {"*_kernels.cpp"}},
    {"cairo", {"models/trainer/plot/"}},
    {"png", {"models/data/images/", "tests/support/image_files"}},
    {"turbojpeg", {"models/data/images/", "tests/support/image_files"}},
    {"zlib", {"models/data/compressed/"}},
    {"zip", {"models/data/compressed/"}},
    {"toml++", {"models/trainer/recipe/", "examples/studies/hpo/", "examples/studies/plan/"}},
    {"google/protobuf", {"models/data/records/", "models/train/tensorboard/"}},
    {"example.pb", {"models/data/records/"}},
    {"event.pb", {"models/train/tensorboard/"}},
    {"fftw", {"ops/backends/fftw/", "tests/bench/"}},
    {"cufft", {"ops/backends/cufft/"}},
    {"dlpack", {"framework/dlpack/", "tests/framework/dlpack/"}},
};

struct Include {
  std::string name;
  bool quoted = false;
};
struct Source {
  std::string path, text;  // path from the root
  std::vector<Include> includes{};
};

const std::vector<Source>& sources() {
  static const std::vector<Source> all = [] {
    std::vector<Source> result;
    const std::filesystem::path root = MPIGRAD_SOURCE_ROOT;
    const std::regex include(R"re(^\s*#\s*include\s*([<"])([^">]+)[">])re");
    for (const auto& [folder, level] : levels) {
      if (!std::filesystem::exists(root / folder)) continue;
      for (const auto& file : std::filesystem::recursive_directory_iterator(root / folder)) {
        const auto extension = file.path().extension();
        if (extension != ".h" && extension != ".cpp" && extension != ".cu" && extension != ".cuh") continue;
        Source source{std::filesystem::relative(file.path(), root).generic_string(), {}, {}};
        std::ifstream stream(file.path());
        for (std::string line; std::getline(stream, line);) {
          source.text += line + "\n";
          std::smatch match;
          if (std::regex_search(line, match, include)) source.includes.push_back({match[2], match[1] == "\""});
        }
        result.push_back(std::move(source));
      }
    }
    return result;
  }();
  return all;
}

std::string folder_of(const std::string& path) { return path.substr(0, path.find('/')); }

std::string leaf_of(const std::string& path) {
  for (const auto& leaf : leaves)
    if (path.starts_with(leaf)) return leaf;
  return "";
}

// True for files that are written for CUDA, by the end of their name or by their folder.
bool is_of_cuda(const std::string& path) {
  for (const char* ending : {"_cuda.h", "_cuda.cpp", ".cu", ".cuh"})
    if (path.ends_with(ending)) return true;
  for (const char* folder : {"ops/backends/cuda/", "ops/backends/cudnn/", "ops/backends/cublas/"})
    if (path.starts_with(folder)) return true;
  return path == "ops/kernel/gpu_tensors.h";
}

// True for a header of kernels that only its own family of ops may include.
bool is_inner(const std::string& path) {
  if (!path.starts_with("ops/")) return false;
  for (const char* folder : {"ops/kernel/", "ops/backends/"})
    if (path.starts_with(folder)) return true;
  for (const char* ending : {"_cuda.h", "_kernels.h", "_problem.h", ".cuh"})
    if (path.ends_with(ending)) return true;
  return false;
}

bool is_header(const std::string& path) { return path.ends_with(".h") || path.ends_with(".cuh"); }

// Installed headers: path from the root to path below the include folder, as Meson reports them. Without those that the build
// makes.
std::map<std::string, std::string> installed_headers() {
  std::ifstream stream(std::filesystem::path(MPIGRAD_BUILD_ROOT) / "meson-info" / "intro-installed.json");
  const std::string text{std::istreambuf_iterator<char>(stream), {}}, root = std::string(MPIGRAD_SOURCE_ROOT) + "/";
  const std::regex pair(R"re("([^"]+\.(?:cu)?h)": "([^"]+)")re");
  std::map<std::string, std::string> result;
  for (std::sregex_iterator match(text.begin(), text.end(), pair), end; match != end; ++match)
    if (const auto from = (*match)[1].str(); from.starts_with(root) && !from.starts_with(MPIGRAD_BUILD_ROOT))
      result[from.substr(root.size())] = (*match)[2];
  return result;
}

}  // namespace

TEST_CASE("includes: the tree is read") {
  CHECK(sources().size() > 40);
  std::set<std::string> paths;
  for (const auto& source : sources()) paths.insert(source.path);
  CHECK(paths.contains("framework/engine/tape.h"));
  CHECK(paths.contains("ops/elementwise/elementwise_cpu.cpp"));
  for (const auto& source : sources())
    if (source.path == "framework/engine/backward.cpp") CHECK(source.includes.size() >= 4);
}

TEST_CASE("includes: an include points left") {
  for (const auto& source : sources())
    for (const auto& include : source.includes) {
      const auto target = levels.find(folder_of(include.name));
      const bool ours = target != levels.end() && include.name.find('/') != std::string::npos;
      INFO(source.path, " includes ", include.name);
      // Examples show programs outside the tree, which include the installed headers.
      const bool installed = include.name.starts_with("mpigrad/");
      // Students copy exercises out of the tree, together with the judge.
      const bool exercise = include.name == "judge.h" || include.name.find("/checks/") != std::string::npos;
      if (include.quoted) CHECK((ours || installed || exercise));
      else CHECK_FALSE(ours);
      if (!ours) continue;
      CHECK(target->second <= levels.at(folder_of(source.path)));
      CHECK(std::filesystem::exists(std::filesystem::path(MPIGRAD_SOURCE_ROOT) / include.name));
    }
}

// Transports do not know distributed tensors, tapes over ranks, or the public interface.
TEST_CASE("includes: transports include nothing of comm but transports") {
  for (const auto& source : sources()) {
    if (!source.path.starts_with("comm/transport/")) continue;
    for (const auto& include : source.includes) {
      INFO(source.path, " includes ", include.name);
      CHECK((!include.name.starts_with("comm/") || include.name.starts_with("comm/transport/")));
    }
  }
}

TEST_CASE("includes: leaves are included by nobody but themselves, tests and examples") {
  for (const auto& source : sources()) {
    const auto folder = folder_of(source.path);
    if (folder == "tests" || folder == "examples") continue;
    for (const auto& include : source.includes) {
      const auto leaf = leaf_of(include.name);
      if (leaf.empty() || public_leaf_headers.contains(include.name)) continue;
      INFO(source.path, " includes ", include.name);
      const bool both_cuda = leaf == "framework/cuda/" && (cuda_leaves.contains(leaf_of(source.path)) || is_of_cuda(source.path));
      CHECK((leaf_of(source.path) == leaf || both_cuda));
    }
  }
}

TEST_CASE("includes: headers of kernels are included by their family alone") {
  std::size_t seen = 0;
  for (const auto& source : sources()) {
    const auto folder = folder_of(source.path);
    if (folder == "tests" || folder == "examples") continue;
    for (const auto& include : source.includes) {
      if (!is_inner(include.name)) continue;
      ++seen;
      INFO(source.path, " includes ", include.name);
      CHECK(folder == "ops");
      if (include.name.starts_with("ops/kernel/") || source.path.starts_with("ops/backends/")) continue;
      const auto family = include.name.substr(0, include.name.rfind('/') + 1);
      const bool of_library = include.name.starts_with("ops/backends/") && !is_header(source.path);
      CHECK((source.path.starts_with(family) || of_library));
    }
  }
  CHECK(seen > 40);
}

TEST_CASE("includes: vendor headers stay in their folders") {
  for (const auto& source : sources())
    for (const auto& include : source.includes) {
      if (levels.contains(folder_of(include.name)) && include.name.find('/') != std::string::npos) continue;
      for (const auto& [vendor, folders] : vendors) {
        if (!include.name.starts_with(vendor)) continue;
        INFO(source.path, " includes ", include.name);
        bool allowed = false;
        for (const auto& place : folders)
          allowed = allowed || (place[0] == '*' ? source.path.ends_with(place.substr(1)) : source.path.starts_with(place));
        // Benches measure the vendors' libraries directly, and tests of MPI start it.
        allowed = allowed || source.path.starts_with("tests/bench/") || (vendor == "mpi.h" && source.path.starts_with("tests/"));
        // An emulated library declares what the vendor's header declares.
        allowed = allowed || source.path.starts_with("tests/emulation/");
        CHECK(allowed);
      }
    }
  for (const auto& source : sources())
    if (public_leaf_headers.contains(source.path) && source.path != "comm/transport/mpi/mpi_comm.h")
      for (const auto& include : source.includes) {
        INFO(source.path, " includes ", include.name);
        CHECK((include.quoted || (include.name.find(".h") == std::string::npos) || include.name.starts_with("fmt/")));
      }
}

// Every header that an installed header includes must be installed, too. Of vendors' headers, only mpi_comm.h needs MPI's, and
// headers of kernels need the CUDA toolkit's.
TEST_CASE("includes: every header that an installed one includes is installed, and needs no more than fmt") {
  const auto needs_vendor = [](const std::string& path) {
    return path == "comm/transport/mpi/mpi_comm.h" || path == "framework/cuda/check.h" || path.ends_with(".cuh");
  };
  const auto installed = installed_headers();
  CHECK(installed.size() > 40);
  CHECK(installed.contains("models/mpigrad/mpigrad.h"));
  std::size_t read = 0;
  for (const auto& source : sources()) {
    const auto place = installed.find(source.path);
    if (place == installed.end()) continue;
    ++read;
    INFO(source.path);
    // <mpigrad/mpigrad.h> and "framework/engine/tape.h" are found in the folders of pkg-config's flags.
    const bool umbrella = source.path.starts_with("models/mpigrad/");
    CHECK(place->second.ends_with(umbrella ? source.path.substr(std::string("models").size()) : "/mpigrad/" + source.path));
    for (const auto& include : source.includes) {
      INFO("includes ", include.name);
      if (include.quoted) CHECK(installed.contains(include.name));
      else if (!needs_vendor(source.path))
        CHECK((include.name.find(".h") == std::string::npos || include.name.starts_with("fmt/")));
    }
  }
  CHECK(read == installed.size());
}

TEST_CASE("includes: every variable that the library reads is compared between ranks, or known to be one rank's own") {
  std::set<std::string> known, read;
  using Names = std::span<const std::string_view>;
  for (const auto& list : {Names(shared_variables), Names(launch_variables)}) known.insert(list.begin(), list.end());
  known.insert(own_variables.begin(), own_variables.end());
  const std::regex name(R"re("(MPIGRAD_[A-Z_]+)")re");
  for (const auto& source : sources()) {
    if (levels.at(folder_of(source.path)) > levels.at("models") || source.path == "comm/transport/environment.h") continue;
    for (std::sregex_iterator at(source.text.begin(), source.text.end(), name), end; at != end; ++at) read.insert((*at)[1]);
  }
  CHECK(read == known);
}

// Files made in other ways follow links, wait at pipes, or have names that other users can predict.
TEST_CASE("includes: files are made in framework/base/new_file.cpp") {
  const std::vector<std::string> words{"ofstream",  "std::fstream",   "O_CREAT",       "creat(",       "freopen(",
                                       "H5Fcreate", "ZIP_CREATE",     "ZIP_TRUNCATE",  "gzopen",       "MPI_File_open",
                                       "::rename(", "renameat",       "write_to_png(", "std::tmpfile", "::overwrite_existing",
                                       "fopen64(",  "update_existing"};
  // own_files.cpp makes files that other users may not touch. HDF5 and libzip make files themselves: exclusively, or over a file
  // that a NewFile of rank 0 has made before.
  const std::set<std::string> allowed{"framework/base/new_file.cpp", "framework/base/own_files.cpp", "comm/hdf5/hdf5_writer.cpp",
                                      "models/data/compressed/zip.cpp"};
  std::set<std::string> making;
  for (const auto& [path, text, includes] : sources()) {
    if (folder_of(path) == "tests") continue;
    for (const auto& word : words)
      if (text.find(word) != std::string::npos) making.insert(path);
    for (auto at = text.find("fopen("); at != std::string::npos; at = text.find("fopen(", at + 1)) {
      const auto call = text.substr(at, text.find(';', at) - at);
      for (const char* mode : {"\"w", "\"a", "+"})
        if (call.find(mode) != std::string::npos) making.insert(path);
    }
  }
  CHECK(making == allowed);
}

TEST_CASE("includes: headers begin with #pragma once or, where they are precompiled, an include guard; no tabs") {
  for (const auto& source : sources()) {
    INFO(source.path);
    // Precompiled headers are main files; compilers warn of #pragma once in them.
    if (is_header(source.path) && source.path.find("/precompiled") == std::string::npos)
      CHECK((source.text.starts_with("#pragma once\n") || source.text.starts_with("#ifndef MPIGRAD_")));
    CHECK(source.text.find('\t') == std::string::npos);
  }
}
