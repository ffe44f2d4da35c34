#pragma once
// The format of checkpoint files, shared by the code that writes and the code that reads them. Not installed.

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
inline constexpr std::string_view format_prefix = "mpigrad checkpoint ";       // followed by the version
inline constexpr int format_version = 2;
inline constexpr const char* checksum_name = "checksum";  // attribute of every dataset, and of "/": Seal
inline constexpr const char* notes_name = "notes";

// Names of all numbers that a file may contain, as attributes of "/".
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

// One checksum of the numbers, the notes and the names and checksums of all tensors, to detect missing or exchanged tensors.
class Seal {
 public:
  void add(const std::string& name, const std::string& text);
  void add(const std::string& name, double number);
  void add_notes(const std::vector<std::string>& notes);
  std::string text() const;

 private:
  std::uint64_t hash_ = 0;
};

// Parameters and buffers of a network. Error: the network is not built.
std::vector<NamedTensor> network_tensors(nn::Module& net);
void append(std::vector<NamedTensor>& list, const std::string& group, const std::vector<NamedTensor>& more);
// The tensors of a network and of the objects in `options`; blocks that are not contiguous in the whole tensor are redistributed,
// so that each rank has rows, which it writes in one piece. Collective if there are blocks.
std::vector<NamedTensor> tensors_of(nn::Module& net, const SaveOptions& options);

// Contents of a file other than tensors, as of the time of construction.
struct Remarks {
  explicit Remarks(const SaveOptions& options);  // Error: an invalid note
  struct Number {
    const char* name;
    std::variant<std::int64_t, double> value;
  };
  std::vector<Number> numbers;
  std::vector<std::string> notes;
};

// Description of a tensor in a file, the same on all ranks.
struct Item {
  std::string name;
  Shape shape;                    // of the whole tensor
  DType type = DType::float32;    // type of its elements, on which the checksum is computed
  DType stored = DType::float32;  // type in the file: float16 if it is rounded
};
// A part of an item that this rank writes. Parts of an item do not overlap and together make up the tensor.
struct Part {
  std::size_t item = 0;
  Box box;
  Tensor value;                     // [box], on the host or a GPU, of type `type`
  const std::byte* copy = nullptr;  // a copy of `value` in host memory: written instead
  std::function<Tensor()> read{};   // returns the value when it is needed, instead of `value`: to keep it out of memory
};
struct Contents {
  std::vector<Item> items;
  std::vector<Part> parts;
  bool shared = false;  // whether ranks other than rank 0 have parts
};
// Copies in memory that begin at multiples of this are written to the disk without a copy by the system, where the system
// supports that.
inline constexpr std::int64_t block_bytes = 4096;
// Rank 0 writes replicated tensors; of the ranks that have a block the lowest writes it.
Contents contents_of(const std::vector<NamedTensor>& tensors, bool half, int rank);

// Writes one file by all ranks of `transport` that have parts; null: by this process, which has all parts. The file has a
// temporary name until it is complete and on the disk. The HDF5 library creates the file's structure and is available to others
// while elements are written. Collective. A failure on any rank is an Error on all ranks and leaves no file.
enum class Replaces : std::uint8_t { nothing, checkpoints, anything };
void write_file(const std::filesystem::path& path, const Contents& contents, const Remarks& remarks, Replaces replaces,
                const std::shared_ptr<Transport>& transport);

// ---- parts of a checkpoint in separate files, one per rank: the parts that the rank writes

struct PartId {
  std::int64_t step = -1, rank = 0, ranks = 0;
  bool operator==(const PartId&) const = default;
};
// Writes a checkpoint file whose tensors are this rank's parts; notes say where they belong in the whole. Not collective.
void write_part(const std::filesystem::path& path, const Contents& contents, Remarks remarks, int rank, int ranks);
// Verifies a part completely and returns its identity. Error: not a part, or damaged.
PartId verify_part(const std::filesystem::path& path);
// Writes the checkpoint made of all these parts, in the order of their ranks, with one part in memory at a time. Error: parts
// that do not belong to one checkpoint.
void join_parts(const std::vector<std::filesystem::path>& paths, const std::filesystem::path& path);

// The contents of a file other than tensors; verifies its seal.
CheckpointInfo read_info(const Hdf5Reader& file);
// Whether a dataset has the tensor's shape and its type, or float16 if the tensor is floating-point.
bool fits(const Hdf5Dataset& stored, const Tensor& value);
// Reads a tensor of the file to host memory; of a tensor in blocks only this rank's. Error: a wrong checksum.
Tensor read_tensor(const Hdf5Reader& file, const NamedTensor& tensor, bool verified);
// Copies `values` to the memory of `to`, on its device.
void give(const Tensor& to, const Tensor& values);

// Throws rank 0's `error` (unless it is "") on every rank, so that none waits for the others. Collective.
void throw_everywhere(const Communicator& world, std::string error);

}  // namespace mpigrad::checkpoint_file
