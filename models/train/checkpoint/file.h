#pragma once
// What files of checkpoints are made of, for what writes them and what reads them. Not installed.

#include <array>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "comm/hdf5/hdf5_file.h"
#include "models/train/checkpoint/checkpoint.h"

namespace mpigrad::checkpoint_file {

inline constexpr const char* format_name = "mpigrad checkpoint 2";
inline constexpr const char* unverified_format_name = "mpigrad checkpoint 1";  // had no checksums
inline constexpr std::string_view format_prefix = "mpigrad checkpoint ";       // behind it the version
inline constexpr int format_version = 2;
inline constexpr const char* checksum_name = "checksum";  // attribute of every dataset, and of "/": Seal
inline constexpr const char* notes_name = "notes";

// Every number that may stand beside the tensors; an attribute of "/".
inline constexpr std::array number_names{"step",
                                         "epoch",
                                         "optimizer_steps",
                                         "average_updates",
                                         "loss_scale",
                                         "loss_scale_good_steps",
                                         "loss_scale_skipped",
                                         "epoch_step",
                                         "epoch_steps",
                                         "epoch_loss",
                                         "epoch_samples"};

std::string checksum_of(DType type, const Shape& shape, const void* values);

// One checksum of the numbers, the notes and the names and checksums of all tensors, so that none can be missing or another
// one's.
class Seal {
 public:
  void add(const std::string& name, const std::string& text);
  void add(const std::string& name, double number);
  void add_notes(const std::vector<std::string>& notes);
  std::string text() const;

 private:
  std::uint64_t hash_ = 0;
};

// Parameters and buffers. Error: a network that is not built.
std::vector<NamedTensor> network_tensors(nn::Module& net);
void append(std::vector<NamedTensor>& list, const std::string& group, const std::vector<NamedTensor>& more);
// Those of a network and of what the options name; blocks whose elements lie scattered in the whole are redistributed, so that
// each rank has rows of it, which are written at once. Collective where there are blocks.
std::vector<NamedTensor> tensors_of(nn::Module& net, const SaveOptions& options);

// What a file says besides tensors, as it is when this is made.
struct Remarks {
  explicit Remarks(const SaveOptions& options);  // Error: a note that is none
  struct Number {
    const char* name;
    std::variant<std::int64_t, double> value;
  };
  std::vector<Number> numbers;
  std::vector<std::string> notes;
};

// What is written of a tensor, the same on all ranks.
struct Item {
  std::string name;
  Shape shape;                    // of all of it
  DType type = DType::float32;    // of its elements, which the checksum is of
  DType stored = DType::float32;  // in the file: float16 of what was rounded
};
// A part of one that this rank writes. Nobody else writes any of it, and all parts together are the tensor.
struct Part {
  std::size_t item = 0;
  Box box;
  Tensor value;                     // [box], on the host or a GPU, of type `type`
  const std::byte* copy = nullptr;  // of it, in memory of the host: written instead
  std::function<Tensor()> read{};   // instead of it, whenever it is needed: what need not all be in memory at once
};
struct Contents {
  std::vector<Item> items;
  std::vector<Part> parts;
  bool shared = false;  // whether other ranks than the first have parts
};
// What is the same on all ranks is rank 0's to write, of blocks each the lowest rank's that has it.
// Copies that begin at multiples of this, in memory, go to the disk without the system's own copy in between, where it can do
// that.
inline constexpr std::int64_t block_bytes = 4096;
Contents contents_of(const std::vector<NamedTensor>& tensors, bool half, int rank);

// One file by all ranks of `transport` that have parts; null: by this process alone, which has all. Under a temporary name until
// it is whole and on the disk. The HDF5 library makes the file's structure and is free again while elements are written.
// Collective. What goes wrong on any rank is an Error on all; nothing is left then.
enum class Replaces : std::uint8_t { nothing, checkpoints, anything };
void write_file(const std::filesystem::path& path, const Contents& contents, const Remarks& remarks, Replaces replaces,
                const std::shared_ptr<Transport>& transport);

// ---- parts of a checkpoint in files of their own, one for each rank: what it wrote of the whole

struct PartId {
  std::int64_t step = -1, rank = 0, ranks = 0;
  bool operator==(const PartId&) const = default;
};
// A checkpoint's file like any other, in which each tensor is this rank's part of it, and notes say where that belongs. By this
// process alone.
void write_part(const std::filesystem::path& path, const Contents& contents, Remarks remarks, int rank, int ranks);
// What it is. Error: no part, or damaged anywhere.
PartId verify_part(const std::filesystem::path& path);
// The checkpoint that these are all parts of, in order of their ranks. Its tensors are in memory one part at a time. Error: parts
// that are not those of one checkpoint.
void join_parts(const std::vector<std::filesystem::path>& paths, const std::filesystem::path& path);

// What a file says; its seal is verified.
CheckpointInfo read_info(const Hdf5Reader& file);
// Whether a dataset is of the tensor's shape and type, or float16 of another floating-point type.
bool fits(const Hdf5Dataset& stored, const Tensor& value);
// A tensor of the file in host memory, or of one in blocks this rank's. Error: a wrong checksum.
Tensor read_tensor(const Hdf5Reader& file, const NamedTensor& tensor, bool verified);
// Copies it to where the network has it.
void give(const Tensor& to, const Tensor& values);

// What went wrong on rank 0 ("": nothing) is an Error on every rank, so that none waits for the others. Collective.
void throw_everywhere(const Communicator& world, std::string error);

}  // namespace mpigrad::checkpoint_file
