#pragma once
// What files of checkpoints are made of, for what writes them and what reads them. Not installed.

#include <array>
#include <string>
#include <variant>
#include <vector>

#include "comm/hdf5/hdf5_file.h"
#include "models/train/checkpoint.h"

namespace mpigrad::checkpoint_file {

inline constexpr const char* format_name = "mpigrad checkpoint 2";
inline constexpr const char* unverified_format_name = "mpigrad checkpoint 1";  // had no checksums
inline constexpr const char* checksum_name = "checksum";                       // attribute of every dataset, and of "/": Seal
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
// Those of a network and of what the options name.
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

// One file, by one process. Throws; nothing is left then.
class Writer {
 public:
  Writer(const std::filesystem::path& path, bool half, bool overwrite) : half_(half), file_(path, overwrite) {}
  void add(const std::string& name, const Tensor& value);
  void finish(const Remarks& remarks);

 private:
  bool half_;
  Hdf5Writer file_;
  Seal seal_;
};

// What went wrong on rank 0 ("": nothing) is an Error on every rank, so that none waits for the others. Collective.
void throw_everywhere(const Communicator& world, std::string error);

}  // namespace mpigrad::checkpoint_file
