// Checksums of checkpoints: a file with a flipped bit or without checksums is refused.

#include <doctest/doctest.h>

#include <cstring>

#include "comm/hdf5/hdf5_file.h"
#include "models/train/checkpoint/checkpoint.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "tests/models/train/checkpoint_helpers.h"
#include "tests/support/all_tests.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;
using namespace mpigrad::testing::checkpoints;
namespace fs = std::filesystem;

namespace {

// A network whose file is small.
class Tiny : public nn::Module {
 public:
  Tensor operator()(const Tensor& x) override {
    const auto y = x * parameter("scale", {2, 3}, nn::glorot_uniform(2, 3));
    const auto& mean = buffer("mean", {3}, 0.5);
    return building() ? y : y + mean;
  }
};

// All data that loading `file` gives; empty on an error, whose message goes to *why.
std::vector<double> loaded(const fs::path& file, std::string* why = nullptr) {
  Tiny net;
  net.build(Shape{2, 3}, {.seed = 7});
  Adam adam(net);
  AveragedWeights averages(net);
  LossScale scale;
  try {
    const auto info = load_checkpoint(file, net, {.optimizer = &adam, .averages = &averages, .loss_scale = &scale});
    std::vector<double> all{static_cast<double>(info.step),
                            static_cast<double>(info.epoch),
                            static_cast<double>(adam.steps()),
                            static_cast<double>(averages.updates()),
                            scale.value(),
                            static_cast<double>(scale.skipped()),
                            static_cast<double>(info.notes.size())};
    for (const auto& [name, text] : info.notes)
      for (const char c : name + text) all.push_back(c);
    auto tensors = adam.state();
    for (const auto& more : averages.state()) tensors.push_back(more);
    tensors.push_back({"scale", net.parameters()[0].value});
    for (const auto& [name, value] : net.buffers()) tensors.push_back({name, value});
    for (const auto& [name, value] : tensors)
      for (const double number : value.to_vector()) all.push_back(number);
    return all;
  } catch (const Error& error) {
    if (why) *why = error.what();
    return {};
  }
}

void save_tiny(const fs::path& file) {
  run_threads(1, [&](std::shared_ptr<Transport> transport) {
    Tiny net;
    net.build(Shape{2, 3}, {.seed = 5});
    Adam adam(net);
    AveragedWeights averages(net);
    LossScale scale;
    for (int step = 0; step < 3; ++step) {
      Tape tape(net);
      adam.step(tape.gradient(sum(net(ones({2, 3})))));
      averages.update();
    }
    save_checkpoint(file, net, Communicator(transport),
                    {.optimizer = &adam,
                     .averages = &averages,
                     .loss_scale = &scale,
                     .info = {.step = 3, .epoch = 1, .notes = {{"seed", "5"}, {"variant", "hybrid"}}}});
  });
}

}  // namespace

TEST_CASE("a flipped bit of a checkpoint is refused or changes nothing that is read") {
  if (without_hdf5("checkpoints")) return;
  Folder folder;
  const auto file = folder / "net.h5";
  save_tiny(file);
  const auto good = read_bytes(file);
  const auto expected = loaded(file);
  REQUIRE(!expected.empty());
  int refused = 0, unseen = 0;
  const auto flip = [&](std::size_t byte, int bit) {
    auto bytes = good;
    bytes[byte] = static_cast<char>(bytes[byte] ^ (1 << bit));
    const auto values = loaded(write_bytes(folder / "flipped.h5", bytes));
    ++(values.empty() ? refused : unseen);
    const bool right = values.empty() ||
                       (values.size() == expected.size() && std::memcmp(values.data(), expected.data(), 8 * values.size()) == 0);
    if (!right) FAIL_CHECK("bit " << bit << " of byte " << byte << " changes what is read");
  };
  // Every bit of the weights and of a note, which HDF5's format does not protect, and one bit of every byte of the file, or of
  // every thirteenth byte.
  const std::size_t step = all_tests() ? 1 : 13;
  const Hdf5Reader reader(file);
  const auto weights = reader.read<float>("parameters/scale");
  for (const std::string_view part : {std::string_view(reinterpret_cast<const char*>(weights.data()), 4 * weights.size()),
                                      std::string_view("variant=hybrid")}) {
    const auto at = good.find(part);
    REQUIRE(at != std::string::npos);
    const int before = unseen;
    for (std::size_t i = 0; i < 8 * part.size(); ++i) flip(at + i / 8, static_cast<int>(i % 8));
    CHECK(unseen == before);
  }
  const Philox random{11, 0};
  for (std::size_t byte = 0; byte < good.size(); byte += step) flip(byte, static_cast<int>(random.below(byte, 8)));
  CHECK(refused > 300);

  auto bytes = good;
  bytes[good.find(std::string_view(reinterpret_cast<const char*>(weights.data()), 8))] ^= 1;
  std::string why;
  CHECK(loaded(write_bytes(folder / "flipped.h5", bytes), &why).empty());
  CHECK(has(why, "flipped.h5 is damaged: the elements of parameters/scale are not those that were written"));
}

TEST_CASE("a checkpoint without checksums loads as unverified, one that has lost them does not") {
  if (without_hdf5("checkpoints")) return;
  Folder folder;
  const std::vector<float> scale{1, 2, 3, 4, 5, 6}, mean{7, 8, 9};
  const auto write = [&](const char* name, const std::string& format, bool one) {
    Hdf5Writer writer(folder / name, false);
    writer.write("parameters/scale", {2, 3}, DType::float32, scale.data());
    writer.write<float>("buffers/mean", mean);
    if (one) writer.attribute("buffers/mean", "checksum", std::string("0123456789abcdef"));
    writer.attribute("/", "format", format);
    writer.attribute("/", "step", std::int64_t{3});
    writer.attribute("/", "epoch", std::int64_t{1});
    writer.commit();
    return folder / name;
  };
  Tiny net;
  net.build(Shape{2, 3}, {.seed = 5});
  const auto info = load_checkpoint(write("old.h5", "mpigrad checkpoint 1", false), net);
  CHECK_FALSE(info.verified);
  CHECK(info.step == 3);
  CHECK(net.parameters()[0].value.to_vector() == std::vector<double>{1, 2, 3, 4, 5, 6});
  CHECK(has(error_text([&] { load_checkpoint(write("some.h5", "mpigrad checkpoint 1", true), net); }), "some.h5 is damaged"));
  CHECK(has(error_text([&] { load_checkpoint(write("none.h5", "mpigrad checkpoint 2", false), net); }),
            "none.h5 is damaged: buffers/mean has no checksum"));
}
