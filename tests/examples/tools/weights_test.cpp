// Files of the safetensors format, damaged everywhere, and PyTorch's names.

#include <doctest/doctest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <tuple>

#include "examples/tools/weights/names.h"
#include "examples/tools/weights/npz.h"
#include "examples/tools/weights/safetensors.h"
#include "models/data/compressed/compressed.h"
#include "models/data/sources/formats.h"
#include "models/networks/cosmoflow.h"
#include "models/networks/resnet.h"
#include "models/networks/unet3d.h"
#include "models/train/checkpoint/checkpoint.h"
#include "ops/random/random.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/format_files.h"

using namespace mpigrad;
using namespace mpigrad::testing;
using namespace mpigrad::weights;

namespace {

void write(const std::filesystem::path& path, const std::string& header, const std::string& elements) {
  const std::uint64_t length = header.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), 8);
  file << header << elements;
}

std::vector<NamedTensor> tensors_of(nn::Module& net) {
  std::vector<NamedTensor> result;
  for (std::size_t i = 0; i < net.parameters().size(); ++i)
    result.push_back({"parameters/" + net.parameters()[i].name, net.parameters()[i].value});
  for (const auto& [name, value] : net.buffers()) result.push_back({"buffers/" + name, value});
  return result;
}

std::vector<std::string> theirs_of(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> names;
  for (const auto& pair : pytorch_names(tensors)) names.push_back(pair.theirs);
  std::sort(names.begin(), names.end());
  return names;
}

// The network's names and shapes in PyTorch are these, and none else; kernels have channels second, in every element, and all
// comes back.
void check_names(nn::Module& net, const std::map<std::string, Shape>& expected) {
  const auto tensors = tensors_of(net);
  const auto pairs = pytorch_names(tensors);
  REQUIRE(pairs.size() == tensors.size());
  std::map<std::string, Shape> found;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    CAPTURE(pairs[i].theirs);
    const auto& ours = tensors[i].value;
    const auto theirs = to_pytorch(pairs[i], ours);
    CHECK(pairs[i].ours == tensors[i].name);
    CHECK(theirs.shape() == pairs[i].shape);
    found.emplace(pairs[i].theirs, theirs.shape());
    const auto before = ours.to_vector(), after = theirs.to_vector();
    CHECK(from_pytorch(pairs[i], theirs, ours.shape()).to_vector() == before);
    if (ours.rank() != 5) continue;
    const auto filters = ours.dim(0), places = ours.dim(1) * ours.dim(2) * ours.dim(3), channels = ours.dim(4);
    bool same = true;
    for (std::int64_t k = 0; k < filters; ++k)
      for (std::int64_t c = 0; c < channels; ++c)
        for (std::int64_t p = 0; p < places; ++p)
          same = same && after[static_cast<std::size_t>((k * channels + c) * places + p)] ==
                             before[static_cast<std::size_t>((k * places + p) * channels + c)];
    CHECK(same);
  }
  for (const auto& [name, shape] : expected) {
    CAPTURE(name);
    REQUIRE(found.contains(name));
    CHECK(found.at(name) == shape);
  }
  CHECK(found.size() == expected.size());
}

void add_norm(std::map<std::string, Shape>& names, const std::string& norm, std::int64_t channels) {
  for (const auto* part : {"weight", "bias", "running_mean", "running_var"})
    names.emplace(fmt::format("{}.{}", norm, part), Shape{channels});
}

}  // namespace

TEST_CASE("weights: CosmoFlow's names, shapes and layouts") {
  for (const auto variant : {CosmoFlowVariant::mlperf, CosmoFlowVariant::hybrid}) {
    const bool mlperf = variant == CosmoFlowVariant::mlperf;
    CosmoFlow net({.variant = variant, .batch_norm = !mlperf, .filters = mlperf ? 4 : 2});
    // Volumes of which 2^3 cells are left.
    net.build(Shape{1, 64, 64, 64, 4});
    const auto filters =
        mlperf ? std::vector<std::int64_t>{4, 8, 16, 32, 64} : std::vector<std::int64_t>{2, 4, 8, 16, 32, 32, 32};
    const auto widths = mlperf ? std::vector<std::int64_t>{16, 8, 4} : std::vector<std::int64_t>{256, 32, 4};
    std::map<std::string, Shape> names;
    std::int64_t in = 4;
    for (std::size_t i = 0; i < filters.size(); ++i) {
      names.emplace(fmt::format("conv{}.weight", i + 1), Shape{filters[i], in, 3, 3, 3});
      if (mlperf) names.emplace(fmt::format("conv{}.bias", i + 1), Shape{filters[i]});
      else add_norm(names, fmt::format("norm{}", i + 1), filters[i]);
      in = filters[i];
    }
    const auto channels = in;
    in *= 8;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      names.emplace(fmt::format("linear{}.weight", i + 1), Shape{widths[i], in});
      names.emplace(fmt::format("linear{}.bias", i + 1), Shape{widths[i]});
      in = widths[i];
    }
    check_names(net, names);
    // A flattened volume has its channels first.
    const auto tensors = tensors_of(net);
    for (const auto& pair : pytorch_names(tensors)) {
      if (pair.theirs != "linear1.weight") continue;
      const auto& value = tensors[static_cast<std::size_t>(std::find_if(tensors.begin(), tensors.end(),
                                                                        [&](const auto& t) { return t.name == pair.ours; }) -
                                                           tensors.begin())]
                              .value;
      const auto ours = value.to_vector(), theirs = to_pytorch(pair, value).to_vector();
      bool same = true;
      for (std::int64_t row = 0; row < widths[0]; ++row)
        for (std::int64_t c = 0; c < channels; ++c)
          for (std::int64_t cell = 0; cell < 8; ++cell)
            same = same && theirs[static_cast<std::size_t>((row * channels + c) * 8 + cell)] ==
                               ours[static_cast<std::size_t>((row * 8 + cell) * channels + c)];
      CHECK(same);
    }
  }
}

TEST_CASE("weights: the U-Net of maxima and batch norms: names, shapes and layouts") {
  UNet3d net({.variant = UNet3dVariant::lbann, .filters = {2, 3, 4, 6}, .classes = 3});
  net.build(Shape{1, 8, 8, 8, 1});
  std::map<std::string, Shape> names{
      {"up2.expand.weight", {6, 6, 2, 2, 2}}, {"up1.expand.weight", {4, 4, 2, 2, 2}}, {"head.weight", {3, 3, 1, 1, 1}}};
  const auto block = [&](const std::string& name, std::int64_t in, std::int64_t first, std::int64_t second) {
    names.emplace(name + ".conv1.weight", Shape{first, in, 3, 3, 3}), add_norm(names, name + ".norm1", first);
    names.emplace(name + ".conv2.weight", Shape{second, first, 3, 3, 3}), add_norm(names, name + ".norm2", second);
  };
  block("down1", 1, 2, 3), block("down2", 3, 3, 4), block("bottom", 4, 4, 6);
  block("up2", 6 + 4, 4, 4), block("up1", 4 + 3, 3, 3);  // what was expanded, and the skip
  check_names(net, names);
}

TEST_CASE("weights: safetensors of every type, there and back") {
  const Folder folder;
  const auto path = folder.path / "all.safetensors";
  TensorFile file{.metadata = {{"format", "pt"}, {"text", "line\nand \"quotes\""}}};
  const Shape shape{3, 2, 5};
  for (const auto type : {DType::float64, DType::float32, DType::float16, DType::bfloat16, DType::int64, DType::int32,
                          DType::int16, DType::uint16, DType::uint8, DType::boolean}) {
    Tensor value({shape, type}, DeviceKind::cpu);
    for (std::int64_t i = 0; i < value.bytes(); ++i)
      value.raw()[i] = static_cast<std::byte>(type == DType::boolean ? i % 2 : 7 * i % (type == DType::uint16 ? 256 : 100));
    file.tensors.push_back({fmt::format("a.{}", name_of(type)), constant(value)});
  }
  file.tensors.push_back({"empty", constant(Tensor({Shape{0, 4}, DType::float32}, DeviceKind::cpu))});
  file.tensors.push_back({"scalar", constant(full({}, 3))});
  write_safetensors(path, file, false);
  const auto read = read_safetensors(path);
  CHECK(read.metadata == file.metadata);
  REQUIRE(read.tensors.size() == file.tensors.size());
  for (const auto& [name, value] : file.tensors) {
    const auto found =
        std::find_if(read.tensors.begin(), read.tensors.end(), [&, n = name](const auto& t) { return t.name == n; });
    REQUIRE(found != read.tensors.end());
    CHECK(found->value.type() == value.type());
    CHECK(std::memcmp(found->value.raw(), value.raw(), static_cast<std::size_t>(value.bytes())) == 0);
  }
  CHECK(error_text([&] { write_safetensors(path, file, false); }).find("exists") != std::string::npos);
  CHECK(error_text([&] {
          write_safetensors(folder.path / "no folder" / "x.safetensors", file, false);
        }).find("cannot be written") != std::string::npos);
}

TEST_CASE("weights: damaged safetensors are an error and nothing else") {
  const Folder folder;
  const auto path = folder.path / "bad.safetensors";
  const std::string eight(8, 'x');
  const auto refused = [&](const std::string& header, const std::string& elements, const char* why) {
    write(path, header, elements);
    const auto text = error_text([&] { read_safetensors(path); });
    CAPTURE(text);
    CHECK(text.find(why) != std::string::npos);
  };
  refused("", "", "not a JSON object");
  refused("[1]", "", "not a JSON object");
  refused(std::string(1 << 20, '['), "", "its header has brackets in brackets, more than 8 deep");
  std::string many = "{";
  for (int i = 0; i < 1 << 20; ++i) many += "\"a\":0,";
  refused(many, "", "its header has more than 1048576 values");
  refused("{", "", "not a JSON object");
  refused(R"({"a":5})", "", "no dtype");
  refused(R"({"a":{"dtype":"F32","shape":[2]}})", eight, "no dtype");
  refused(R"({"a":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}})", eight, "F8_E4M3, which is not supported");
  refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,7]}})", eight, "offsets that do not match");
  refused(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", eight, "offsets that do not match");
  refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})", eight, "offsets that do not match");
  refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", eight, "offsets that do not match");
  refused(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", eight, "not a number");
  refused(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", eight, "not a number");
  refused(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})", eight, "beyond the file");
  refused(R"({"a":{"dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}})", eight, "extents that no tensor has");
  refused(R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", "x", "too many dimensions");
  refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", eight, "after its last");
  refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", eight, "do not begin");
  refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", eight,
          "do not begin");
  refused(R"({"__metadata__":{"a":5}})", "", "is not a text");
  refused(R"({"__metadata__":[]})", "", "not an object");
  // Cut everywhere, and every byte changed.
  TensorFile file;
  file.tensors.push_back({"conv1.weight", constant(random_normal({2, 3}, Philox{1, 2}, 0, 1, DType::float32))});
  file.tensors.push_back({"bias", constant(random_normal({5}, Philox{1, 3}, 0, 1, DType::float32))});
  write_safetensors(path, file, true);
  std::ifstream stream(path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(stream)), {});
  const auto elements = static_cast<std::size_t>((6 + 5) * 4);
  for (std::size_t n = 0; n < whole.size(); ++n) {
    std::ofstream(path, std::ios::binary) << whole.substr(0, n);
    CHECK(!error_text([&] { read_safetensors(path); }).empty());
  }
  for (std::size_t at = 0; at < whole.size() - elements; ++at)
    for (const int flip : {1, 2, 16, 128}) {
      auto changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ flip);
      std::ofstream(path, std::ios::binary) << changed;
      // An error of ours, or a file that says something else.
      try {
        const auto tensors = read_safetensors(path).tensors.size();
        CHECK(tensors <= 3);
      } catch (const Error& error) {
        CHECK(std::string(error.what()).starts_with("[safetensors]"));
      }
    }
}

TEST_CASE("weights: names that lose tensors or lead out of an archive are refused in every format, both ways") {
  const Folder folder;
  const auto safetensors = folder / "a.safetensors", npz = folder / "a.npz", h5 = folder / "a.h5";
  const auto refused = [&](const std::string& text, const std::filesystem::path& path, const std::string& why) {
    CAPTURE(text);
    CHECK((has(text, path.string()) && has(text, why) && text.size() < 400 && text.find('\n') == std::string::npos));
  };
  const Tensor value = constant(full({}, 3));
  for (const auto& [name, json, why] : {std::tuple(std::string("b\0c", 3), "b\\u0000c", "control characters"),
                                        {std::string("a\nb"), "a\\nb", "control characters"},
                                        {std::string("a\xff"), "", "control characters or bytes that are not UTF-8"},
                                        {std::string(70000, 'x'), "", "it has 70000 bytes, more than 1000"},
                                        {std::string("../../evil"), "../../evil", "it has the part '..'"},
                                        {std::string("a/./b"), "a/./b", "it has the part '.'"},
                                        {std::string("/etc/x"), "/etc/x", "empty part"},
                                        {std::string("a//b"), "a//b", "empty part"},
                                        {std::string("..\\evil"), "..\\\\evil", "a backslash"},
                                        {std::string(), "", "it is empty"}}) {
    const TensorFile file{.tensors = {{"a", value}, {name, value}}};
    refused(error_text([&] { write_safetensors(safetensors, file, true); }), safetensors, why);
    refused(error_text([&] { write_npz(npz, file, true); }), npz, why);
    if (hdf5_available()) {
      CheckpointTensors contents;
      contents.tensors = {{"parameters/" + name, value}};
      refused(error_text([&] { write_weights(h5, contents, false, true); }), h5,
              name.size() > 1000 ? "bytes"
              : name.empty()     ? "empty"
                                 : why);
    }
    CHECK(folder.files() == 0);
    const auto key = name.size() > 1000 ? name : std::string(json);
    if (!name.ends_with("\xff")) {
      write(safetensors, "{\"" + key + R"(":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "1234");
      refused(error_text([&] { read_safetensors(safetensors); }), safetensors, why);
    }
    if (data::zip_available() && name.size() < 1000 && name.find('\0') == std::string::npos && !name.ends_with("\xff")) {
      const auto header = data::npy_header({1}, DType::float32) + "1234";
      data::Bytes bytes(header.size());
      std::memcpy(bytes.data(), header.data(), header.size());
      data::write_zip(npz, {{name + ".npy", bytes}});
      refused(error_text([&] { read_npz(npz); }), npz, why);
    }
    std::filesystem::remove(safetensors), std::filesystem::remove(npz);
  }
  const TensorFile twice{.tensors = {{"a", value}, {"a", value}}};
  refused(error_text([&] { write_safetensors(safetensors, twice, true); }), safetensors, "two tensors 'a'");
  refused(error_text([&] { write_npz(npz, twice, true); }), npz, "two tensors 'a'");
  refused(error_text([&] {
            write_safetensors(safetensors, {.tensors = {{"__metadata__", value}}}, true);
          }),
          safetensors, "no tensor may be called");
  const std::string entry = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  write(safetensors, R"({"a":)" + entry + R"(,"a":)" + entry + "}", "1234");
  refused(error_text([&] { read_safetensors(safetensors); }), safetensors, "has 'a' twice");
  write(safetensors, R"({"a":{"dtype":"F64","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "1234");
  refused(error_text([&] { read_safetensors(safetensors); }), safetensors, "has 'dtype' twice");
  for (const auto* name : {"model--1-of-0-2", "model--1-of-2", "model-3-of-2", "model-1-of--2", "model-0-of-0"}) {
    const auto part = folder.path / fmt::format("{}.safetensors", name);
    write(part, R"({"a":)" + entry + "}", "1234");
    refused(error_text([&] { read_safetensors(part); }), part, "there is no part");
  }
  const auto part = folder / "model-00001-of-00002.safetensors";
  write(part, R"({"a":)" + entry + "}", "1234");
  CHECK(read_safetensors(part).tensors.size() == 1);
}

TEST_CASE("weights: no header is written that is not read") {
  const Folder folder;
  const TensorFile file{.tensors = {{"a", constant(full({}, 3))}}, .metadata = {{"text", std::string(100'000'000, 'x')}}};
  const auto text = error_text([&] { write_safetensors(folder / "a.safetensors", file, true); });
  CHECK_MESSAGE(has(text, "a.safetensors: the header of these 1 tensors has more than 100000000 bytes"), text);
  CHECK(folder.files() == 0);
}

TEST_CASE("weights: a .npz archive has nothing but tensors, by the names that it has") {
  if (!data::zip_available()) return skip_test("weights: files of an archive", "this build has no libzip");
  const Folder folder;
  const auto path = folder / "a.npz";
  const auto array = npy_file("'<f4'", "(1,)", std::vector<float>{1});
  const auto error = [&](const std::vector<std::pair<std::string, Bytes>>& files) {
    write_file(path, zip_file(files));
    return error_text([&] { read_npz(path); });
  };
  CHECK(error({{"a.npy", array}, {"b/", {}}, {"b/c.npy", array}}).empty());
  CHECK(error({{"\xc3\xa9.npy", array}}).empty());
  CHECK(has(error({{"a.npy", array}, {"b.txt", array}, {"c d.NPY", array}}),
            "a.npz: 2 of its files are not tensors, because their names do not end in .npy: 'b.txt', 'c d.NPY'"));
  for (const auto* name : {"\xff.npy", "c\x1b.npy"})
    CHECK(has(error({{"b.npy", array}, {name, array}}), "a.npz: the name of file 2 of 2 has control characters or is not UTF-8"));
}

TEST_CASE("weights: a ResNet has torchvision's names, a U-Net its own") {
  ResNet resnet({.depth = 50, .classes = 10, .width = 2});
  resnet.build(Shape{1, 1, 32, 32, 3});
  const auto tensors = tensors_of(resnet);
  const auto names = theirs_of(tensors);
  for (const auto* name :
       {"conv1.weight", "bn1.weight", "bn1.bias", "layer1.0.conv1.weight", "layer1.0.bn3.bias", "layer1.0.downsample.0.weight",
        "layer1.0.downsample.1.weight", "layer3.5.conv2.weight", "layer4.2.bn3.weight", "fc.weight", "fc.bias"}) {
    CAPTURE(name);
    CHECK(std::binary_search(names.begin(), names.end(), name));
  }
  // 53 convolutions, as many norms of two numbers, and the last layer: as torchvision's has.
  CHECK(resnet.parameters().size() == 53 + 2 * 53 + 2);
  const auto pairs = pytorch_names(tensors);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto there = to_pytorch(pairs[i], tensors[i].value);
    CHECK(there.shape() == pairs[i].shape);
    if (pairs[i].theirs == "conv1.weight") {
      CHECK(there.shape() == Shape{2, 3, 7, 7});
      const auto ours = tensors[i].value.to_vector(), theirs = there.to_vector();
      for (int k = 0; k < 2; ++k)
        for (int c = 0; c < 3; ++c)
          for (int p = 0; p < 49; ++p)
            CHECK(theirs[static_cast<std::size_t>((k * 3 + c) * 49 + p)] == ours[static_cast<std::size_t>((k * 49 + p) * 3 + c)]);
    }
    CHECK(from_pytorch(pairs[i], there, tensors[i].value.shape()).to_vector() == tensors[i].value.to_vector());
  }
  UNet3d unet({.variant = UNet3dVariant::mlperf, .filters = {2, 3, 4}, .classes = 3});
  unet.build(Shape{1, 8, 8, 8, 1});
  const auto of_unet = tensors_of(unet);
  const auto unet_names = theirs_of(of_unet);
  for (const auto* name : {"down1.conv1.weight", "down1.norm1.weight", "up1.expand.weight", "up1.expand.bias", "head.bias"}) {
    CAPTURE(name);
    CHECK(std::binary_search(unet_names.begin(), unet_names.end(), name));
  }
  const auto unet_pairs = pytorch_names(of_unet);
  REQUIRE(unet_pairs.size() == of_unet.size());
  for (std::size_t i = 0; i < unet_pairs.size(); ++i) {
    const auto& pair = unet_pairs[i];
    CAPTURE(pair.theirs);
    const auto there = to_pytorch(pair, of_unet[i].value);
    CHECK(there.shape() == pair.shape);
    CHECK(from_pytorch(pair, there, of_unet[i].value.shape()).to_vector() == of_unet[i].value.to_vector());
    if (pair.theirs == "down1.conv2.weight") CHECK(pair.shape == Shape{2, 2, 3, 3, 3});
    if (pair.theirs == "up1.expand.weight") {  // [in, out, ...]
      CHECK(pair.shape == Shape{3, 2, 2, 2, 2});
      // Ours is [in, d, h, w, out], as the weight of the convolution that it is the transpose of.
      const auto ours = of_unet[i].value.to_vector(), theirs = there.to_vector();
      for (int k = 0; k < 3; ++k)
        for (int c = 0; c < 2; ++c)
          for (int p = 0; p < 8; ++p)
            CHECK(theirs[static_cast<std::size_t>((k * 2 + c) * 8 + p)] == ours[static_cast<std::size_t>((k * 8 + p) * 2 + c)]);
    }
  }
}
