#include "comm/hdf5/xdmf.h"

#include <algorithm>
#include <cmath>

#include "comm/hdf5/hdf5_file.h"
#include "framework/base/joined.h"
#include "framework/base/new_file.h"
#include "framework/base/printable.h"

namespace mpigrad {
namespace {

// The text in an attribute or an element. Error: characters that XML does not have.
std::string xml(const std::string& text, const std::string& where) {
  std::string result;
  for (const char c : text) {
    require(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f, "{}: '{}' has a character that XML cannot hold", where,
            printable(text));
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      default: result += c;
    }
  }
  return result;
}

// The name of a file or a dataset in `file:/dataset`. Error: names that viewers do not find; VTK shows other memory then.
std::string place(const std::string& name, const std::string& where) {
  auto text = xml(name, where);
  const bool found = name.find(':') == std::string::npos && name.front() != ' ' && name.back() != ' ' &&
                     std::all_of(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  require(found, "{}: viewers do not find '{}': names of files and datasets have only ASCII, no ':' and no blank at either end",
          where, printable(name));
  return text;
}

// The file's own name in its folder without links: what viewers make of "folder/../file" if the folder is a link.
std::filesystem::path without_links(const std::filesystem::path& path) {
  const auto whole = std::filesystem::absolute(path).lexically_normal();
  std::error_code error;
  const auto folder = std::filesystem::weakly_canonical(whole.parent_path(), error);
  return error ? whole : folder / whole.filename();
}

struct XdmfType {
  const char* name;
  int bytes;
};
XdmfType xdmf_type(DType type) {
  switch (type) {
    case DType::float64: return {"Float", 8};
    case DType::int64: return {"Int", 8};
    case DType::int32: return {"Int", 4};
    case DType::int16: return {"Int", 2};
    case DType::uint16: return {"UInt", 2};
    case DType::uint8:
    case DType::boolean: return {"UInt", 1};
    case DType::float32:
    case DType::bfloat16:  // HDF5 widens 16-bit numbers
    case DType::float16:
    case DType::complex64:  // is_field() refuses these
    case DType::complex128: break;
  }
  return {"Float", 4};
}

bool is_field(const Hdf5Dataset& dataset) {
  const auto& shape = dataset.shape;
  return dataset.kind == Hdf5Dataset::Kind::number && !is_complex(dataset.type) && (shape.rank() == 3 || shape.rank() == 5) &&
         shape.elements() > 0;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string values_item(const char* name, const std::array<double, 3>& values) {
  return fmt::format(R"(          <DataItem Name="{}" Dimensions="3" NumberType="Float" Precision="8" Format="XML">{}</DataItem>)"
                     "\n",
                     name, joined(values, " "));
}

// One HDF5 file, described.
class StepText {
 public:
  StepText(const std::filesystem::path& path, const XdmfStep& step, const XdmfOptions& options)
      : options_(options), where_(fmt::format("[write_xdmf] {}", step.hdf5.string())) {
    const Hdf5Reader file(step.hdf5);
    file_ = place(without_links(step.hdf5).lexically_relative(without_links(path).parent_path()).string(), where_);
    auto fields = options.fields;
    if (fields.empty())
      for (const auto& dataset : file.datasets())
        if (is_field(dataset)) fields.push_back(dataset.name);
    require(!fields.empty(), "{}: no dataset of real numbers is [N, D, H, W, C] or [D, H, W]", where_);
    for (const auto& name : options.vectors)
      require(contains(fields, name), "{}: the vector '{}' is not among the fields", where_, printable(name));
    for (const auto& name : fields) add(file.describe(name));
    text_ = fmt::format(
        R"(      <Grid Name="fields" GridType="Uniform">
        <Time Value="{}"/>
        <Topology TopologyType="3DCoRectMesh" Dimensions="{}"/>
        <Geometry GeometryType="ORIGIN_DXDYDZ">
{}{}        </Geometry>
{}      </Grid>
)",
        step.time, joined(extents_, " "), values_item("Origin", options.origin), values_item("Spacing", options.spacing), text_);
  }
  const std::string& text() const { return text_; }

 private:
  void add(const Hdf5Dataset& dataset) {
    const auto& shape = dataset.shape;
    require(is_field(dataset), "{}: '{}' is no field [N, D, H, W, C] or [D, H, W] of real numbers, but {} {}", where_,
            printable(dataset.name), dataset.stored, shape);
    const bool batch = shape.rank() == 5;
    const Shape extents = batch ? Shape{shape[1], shape[2], shape[3]} : shape;
    if (text_.empty()) extents_ = extents, first_ = dataset.name;
    require(extents == extents_, "{}: '{}' has the extents {}, '{}' has {}", where_, printable(dataset.name), extents,
            printable(first_), extents_);
    const auto samples = batch ? shape[0] : 1, channels = batch ? shape[4] : 1;
    const bool vector = contains(options_.vectors, dataset.name);
    require(!vector || channels == 3, "{}: the vector '{}' has {} channels, not 3", where_, printable(dataset.name), channels);
    for (std::int64_t n = 0; n < samples; ++n) {
      const auto name = dataset.name + (samples > 1 ? fmt::format("[{}]", n) : "");
      if (vector) {
        const auto parts = item(dataset, n, 2) + item(dataset, n, 1) + item(dataset, n, 0);
        attribute(name, "Vector",
                  fmt::format("          <DataItem ItemType=\"Function\" Function=\"JOIN($0, $1, $2)\" Dimensions=\"{} 3\">\n{}"
                              "          </DataItem>\n",
                              joined(extents_, " "), parts));
        continue;
      }
      for (std::int64_t c = 0; c < channels; ++c)
        attribute(name + (channels > 1 ? fmt::format(" {}", c) : ""), "Scalar", item(dataset, n, c));
    }
  }
  void attribute(const std::string& name, const char* type, const std::string& item) {
    text_ += fmt::format(R"(        <Attribute Name="{}" AttributeType="{}" Center="Node">
{}        </Attribute>
)",
                         xml(name, where_), type, item);
  }
  // The elements of one sample and channel.
  std::string item(const Hdf5Dataset& dataset, std::int64_t sample, std::int64_t channel) const {
    const auto [type, bytes] = xdmf_type(dataset.type);
    const auto heavy = fmt::format(R"(<DataItem Dimensions="{}" NumberType="{}" Precision="{}" Format="HDF">{}:/{}</DataItem>)",
                                   joined(dataset.shape, " "), type, bytes, file_, place(dataset.name, where_));
    if (dataset.shape.rank() == 3) return fmt::format("          {}\n", heavy);
    const auto box = joined(extents_, " ");
    return fmt::format(
        R"(          <DataItem ItemType="HyperSlab" Dimensions="{}" NumberType="{}" Precision="{}">
            <DataItem Dimensions="3 5" NumberType="Int" Format="XML">{} 0 0 0 {}  1 1 1 1 1  1 {} 1</DataItem>
            {}
          </DataItem>
)",
        box, type, bytes, sample, channel, box, heavy);
  }

  const XdmfOptions& options_;
  std::string where_, file_, first_;
  Shape extents_;
  std::string text_;
};

}  // namespace

void write_xdmf(const std::filesystem::path& path, const std::vector<XdmfStep>& steps, const XdmfOptions& options) {
  const auto who = fmt::format("[write_xdmf] {}", path.string());
  require(!steps.empty(), "{}: no steps are given", who);
  for (const double h : options.spacing) require(h > 0 && std::isfinite(h), "{}: the spacing is positive: {}", who, h);
  for (const double x : options.origin) require(std::isfinite(x), "{}: the origin is finite: {}", who, x);
  std::string text = R"(<?xml version="1.0" ?>
<Xdmf Version="3.0">
  <Domain>
    <Grid Name="series" GridType="Collection" CollectionType="Temporal">
)";
  for (std::size_t i = 0; i < steps.size(); ++i) {
    require(std::isfinite(steps[i].time) && (i == 0 || steps[i].time > steps[i - 1].time),
            "{}: times ascend: step {} is at {}, after {}", who, i, steps[i].time, i == 0 ? 0.0 : steps[i - 1].time);
    text += StepText(path, steps[i], options).text();
  }
  text += "    </Grid>\n  </Domain>\n</Xdmf>\n";
  require(options.overwrite || !is_name_taken(path), "{}: the file exists already", who);
  write_new_file(path, text, "write_xdmf");
}

}  // namespace mpigrad
