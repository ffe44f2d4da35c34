// XDMF files: what they name is in the HDF5 files, in the order of axes that viewers read.

#include "comm/hdf5/xdmf.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "comm/hdf5/hdf5_tensor.h"
#include "ops/elementwise/elementwise.h"
#include "ops/views/views.h"
#include "tests/support/distributed.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

struct Element {
  std::string name, text;
  std::map<std::string, std::string> attributes;
  std::vector<Element> children;

  std::vector<Element> all(const std::string& wanted) const {
    std::vector<Element> found;
    for (const auto& child : children)
      if (child.name == wanted) found.push_back(child);
    return found;
  }
  const Element& only(const std::string& wanted) const {
    const auto is_wanted = [&](const Element& child) { return child.name == wanted; };
    REQUIRE(std::count_if(children.begin(), children.end(), is_wanted) == 1);
    return *std::find_if(children.begin(), children.end(), is_wanted);
  }
  const std::string& operator[](const std::string& key) const { return attributes.at(key); }
};

std::string unescaped(std::string text) {
  for (const auto& [from, to] : {std::pair{"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&amp;", "&"}})
    for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; ++at) text.replace(at, std::strlen(from), to);
  return text;
}

// The element at text[at], which begins with '<'. XML without comments and the like.
Element parsed(const std::string& text, std::size_t& at) {
  Element element;
  const auto close = text.find('>', at);
  REQUIRE(close != std::string::npos);
  std::string head = text.substr(at + 1, close - at - 1);
  const bool empty = head.back() == '/';
  if (empty) head.pop_back();
  element.name = head.substr(0, head.find(' '));
  for (std::size_t i = element.name.size(); (i = head.find_first_not_of(' ', i)) < head.size();) {
    const auto equals = head.find("=\"", i), end = head.find('"', equals + 2);
    REQUIRE(end < head.size());
    element.attributes[head.substr(i, equals - i)] = unescaped(head.substr(equals + 2, end - equals - 2));
    i = end + 1;
  }
  at = close + 1;
  if (empty) return element;
  for (;;) {
    const auto next = text.find('<', at);
    REQUIRE(next != std::string::npos);
    element.text += unescaped(text.substr(at, next - at)), at = next;
    if (text[at + 1] != '/') element.children.push_back(parsed(text, at));
    else break;
  }
  REQUIRE(text.compare(at, element.name.size() + 3, "</" + element.name + ">") == 0);
  at += element.name.size() + 3;
  return element;
}

template <class T = std::int64_t>
std::vector<T> numbers(const std::string& text) {
  std::istringstream stream(text);
  std::vector<T> result;
  for (T x; stream >> x;) result.push_back(x);
  return result;
}
template <class T = std::int64_t>
std::vector<T> values_of(const Element& item) {
  REQUIRE(item["Format"] == "XML");
  auto values = numbers<T>(item.text);
  std::int64_t count = 1;
  for (const auto n : numbers(item["Dimensions"])) count *= n;
  REQUIRE(static_cast<std::int64_t>(values.size()) == count);
  return values;
}

// The elements that a viewer reads for an item.
std::vector<double> elements_of(const Element& item, const std::filesystem::path& folder) {
  const auto box = numbers(item["Dimensions"]);
  if (item.attributes.contains("ItemType") && item["ItemType"] == "Function") {
    REQUIRE(item["Function"] == "JOIN($0, $1, $2)");
    std::vector<std::vector<double>> parts;
    for (const auto& part : item.all("DataItem")) parts.push_back(elements_of(part, folder));
    REQUIRE(parts.size() == 3);
    REQUIRE(box.back() == 3);
    std::vector<double> joined;
    for (std::size_t i = 0; i < parts[0].size(); ++i)
      for (const auto& part : parts) joined.push_back(part[i]);
    return joined;
  }
  const bool slab = item.attributes.contains("ItemType");
  const auto items = item.all("DataItem");
  const Element& heavy = slab ? items.at(1) : item;
  REQUIRE(heavy["Format"] == "HDF");
  const auto colon = heavy.text.find(":/");
  const Hdf5Reader file(folder / heavy.text.substr(0, colon));
  const auto dataset = file.describe(heavy.text.substr(colon + 2));
  const auto shape = numbers(heavy["Dimensions"]);
  REQUIRE(std::equal(shape.begin(), shape.end(), dataset.shape.begin(), dataset.shape.end()));
  CHECK(heavy["Precision"] == std::to_string(size_of(dataset.type)));
  std::vector<std::int64_t> begin(shape.size(), 0), count = shape;
  if (slab) {
    REQUIRE(item["ItemType"] == "HyperSlab");
    const auto values = values_of(items.at(0));
    REQUIRE(values.size() == 15);
    begin.assign(values.begin(), values.begin() + 5), count.assign(values.begin() + 10, values.end());
    for (std::size_t i = 5; i < 10; ++i) REQUIRE(values[i] == 1);
  }
  auto end = begin;
  std::int64_t elements = 1, of_box = 1;
  for (std::size_t d = 0; d < end.size(); ++d) end[d] += count[d], elements *= count[d];
  for (const auto n : box) of_box *= n;
  REQUIRE(elements == of_box);
  std::vector<double> result(static_cast<std::size_t>(elements));
  file.read(dataset.name, begin, end, DType::float64, result.data());
  return result;
}

Element series_of(const std::filesystem::path& path) {
  std::ifstream stream(path);
  std::string text((std::istreambuf_iterator<char>(stream)), {});
  const std::string head = "<?xml version=\"1.0\" ?>\n";
  REQUIRE(text.compare(0, head.size(), head) == 0);
  std::size_t at = head.size();
  const auto root = parsed(text, at);
  CHECK(text.substr(at) == "\n");
  CHECK(root.name == "Xdmf");
  auto series = root.only("Domain").only("Grid");
  CHECK(series["GridType"] == "Collection");
  CHECK(series["CollectionType"] == "Temporal");
  return series;
}

}  // namespace

TEST_CASE("xdmf: a series of fields names what is in the HDF5 files of any number of ranks") {
  if (without_hdf5("xdmf")) return;
  const Shape shape{2, 4, 3, 5, 1};
  const auto vector = Shape{1, 4, 3, 5, 3}, plain = Shape{4, 3, 5};
  for (const int ranks : {1, 3}) {
    const Folder folder;
    std::filesystem::create_directory(folder / "steps");
    const auto file = [&](int step) { return folder.path / "steps" / fmt::format("{}.h5", step); };
    check_on_ranks(ranks, "fields", [&](const Communicator& comm) {
      const auto grid = make_grid(comm, {.depth = comm.size()});
      for (int step = 0; step < 2; ++step) {
        const auto seed = static_cast<std::uint64_t>(10 * step);
        write_hdf5(
            file(step),
            {{"a<b>&\"c\"", global_tensor(shape, seed, activation_layout(grid, shape))},
             {"group/v", global_tensor(vector, seed + 1, activation_layout(grid, vector), DType::float32)},
             {"w", global_tensor(vector, seed + 2, activation_layout(grid, vector))},
             {"plain", cast(100.0 * global_tensor(plain, seed + 3), DType::int16).with_layout(replicated_layout(grid, plain))},
             {"other", global_tensor({7}, seed).with_layout(replicated_layout(grid, {7}))}});
      }
      comm.transport().barrier();
      if (comm.rank() == 0)
        write_xdmf(folder / "fields.xdmf", {{file(0), 0.25}, {file(1), 1.5}},
                   {.spacing = {0.5, 1, 2}, .origin = {-1, 3, 4}, .vectors = {"group/v"}});
    });
    const auto grids = series_of(folder / "fields.xdmf").all("Grid");
    REQUIRE(grids.size() == 2);
    for (int step = 0; step < 2; ++step) {
      const auto& grid = grids[static_cast<std::size_t>(step)];
      CHECK(grid["GridType"] == "Uniform");
      CHECK(std::stod(grid.only("Time")["Value"]) == (step == 0 ? 0.25 : 1.5));
      CHECK(grid.only("Topology")["TopologyType"] == "3DCoRectMesh");
      CHECK(numbers(grid.only("Topology")["Dimensions"]) == std::vector<std::int64_t>{4, 3, 5});  // the slowest axis first
      CHECK(grid.only("Geometry")["GeometryType"] == "ORIGIN_DXDYDZ");
      const auto places = grid.only("Geometry").all("DataItem");
      REQUIRE(places.size() == 2);
      CHECK(values_of<double>(places[0]) == std::vector<double>{-1, 3, 4});
      CHECK(values_of<double>(places[1]) == std::vector<double>{0.5, 1, 2});

      const auto seed = static_cast<std::uint64_t>(10 * step);
      const auto a = global_tensor(shape, seed), w = global_tensor(vector, seed + 2);
      const auto v = cast(global_tensor(vector, seed + 1, {}, DType::float32), DType::float64);
      std::map<std::string, Tensor> expected{
          {"a<b>&\"c\"[0]", slice(a, 0, 0, 1)},
          {"a<b>&\"c\"[1]", slice(a, 0, 1, 2)},
          {"group/v", concatenate({slice(v, 4, 2, 3), slice(v, 4, 1, 2), slice(v, 4, 0, 1)}, 4)},  // x is W
          {"plain", cast(cast(100.0 * global_tensor(plain, seed + 3), DType::int16), DType::float64)}};
      for (std::int64_t c = 0; c < 3; ++c) expected[fmt::format("w {}", c)] = slice(w, 4, c, c + 1);
      const auto attributes = grid.all("Attribute");
      CHECK(attributes.size() == expected.size());
      for (const auto& attribute : attributes) {
        CAPTURE(attribute["Name"]);
        CHECK(attribute["Center"] == "Node");
        CHECK(attribute["AttributeType"] == (attribute["Name"] == "group/v" ? "Vector" : "Scalar"));
        REQUIRE(expected.contains(attribute["Name"]));
        CHECK(elements_of(attribute.only("DataItem"), folder.path) == expected[attribute["Name"]].to_vector());
      }
    }
  }
}

TEST_CASE("xdmf: paths are those of the file system, in a folder that is a link, too") {
  if (without_hdf5("xdmf links")) return;
  const Folder folder;
  std::filesystem::create_directories(folder / "disk" / "deep");
  std::filesystem::create_directory_symlink(folder / "disk" / "deep", folder / "link");
  write_hdf5(folder / "x.h5", "x", ones({2, 3, 4}));
  write_hdf5(folder / "link" / "y.h5", "y", ones({2, 3, 4}));
  write_xdmf(folder / "link" / "x.xdmf", {{folder / "x.h5", 0}});
  write_xdmf(folder / "y.xdmf", {{folder / "link" / "y.h5", 0}});
  for (const auto& path : {folder / "link" / "x.xdmf", folder / "y.xdmf"}) {
    const auto item = series_of(path).only("Grid").only("Attribute").only("DataItem");
    CHECK(elements_of(item, path.parent_path()) == std::vector<double>(24, 1.0));
  }
}

TEST_CASE("xdmf: misuse is refused by name") {
  if (without_hdf5("xdmf misuse")) return;
  const Folder folder;
  write_hdf5(folder / "x.h5",
             {{"x", ones({1, 2, 3, 4, 2})}, {"y", ones({3, 3, 3})}, {"z", ones({4})}, {"new\nline", ones({2, 3, 4})}});
  const auto text = [&](const std::vector<XdmfStep>& steps, const XdmfOptions& options) {
    return error_text([&] { write_xdmf(folder / "x.xdmf", steps, options); });
  };
  const XdmfStep step{folder / "x.h5", 0};
  CHECK(has(text({}, {}), "no steps are given"));
  CHECK(has(text({step, step}, {.fields = {"x"}}), "times ascend: step 1 is at 0, after 0"));
  CHECK(has(text({{folder / "none.h5", 0}}, {}), "none.h5: no such file"));
  CHECK(has(text({step}, {.fields = {"absent"}}), "no dataset 'absent'"));
  CHECK(has(text({step}, {.fields = {"z"}}), "'z' is no field [N, D, H, W, C] or [D, H, W] of real numbers, but float32 [4]"));
  CHECK(has(text({step}, {.fields = {"x", "y"}}), "'y' has the extents [3, 3, 3], 'x' has [2, 3, 4]"));
  CHECK(has(text({step}, {.fields = {"x"}, .vectors = {"x"}}), "the vector 'x' has 2 channels, not 3"));
  CHECK(has(text({step}, {.fields = {"x"}, .vectors = {"y"}}), "the vector 'y' is not among the fields"));
  CHECK(has(text({step}, {.fields = {"new\nline"}}), "'new\\x0aline' has a character that XML cannot hold"));
  CHECK(has(text({step}, {.spacing = {1, 0, 1}}), "the spacing is positive: 0"));
  CHECK(has(text({step}, {.origin = {0, 0, NAN}}), "the origin is finite: nan"));
  CHECK(folder.files() == 1);
  write_xdmf(folder / "x.xdmf", {step}, {.fields = {"x"}});
  CHECK(has(text({step}, {.fields = {"x"}}), "x.xdmf: the file exists already"));
  write_xdmf(folder / "x.xdmf", {step}, {.fields = {"x"}, .overwrite = true});
  std::filesystem::copy_file(folder / "x.h5", folder / "a:b.h5");
  CHECK(has(text({{folder / "a:b.h5", 0}}, {.fields = {"x"}, .overwrite = true}), "viewers do not find 'a:b.h5'"));
  std::filesystem::copy_file(folder / "x.h5", folder / "\u00fc.h5");
  CHECK(has(text({{folder / "\u00fc.h5", 0}}, {.fields = {"x"}, .overwrite = true}), "viewers do not find"));
  for (const std::string name : {"a:b", " x", "x ", "\u00fc"}) {
    CAPTURE(name);
    write_hdf5(folder / "names.h5", name, ones({2, 3, 4}), true);
    CHECK(has(text({{folder / "names.h5", 0}}, {.overwrite = true}), "names of files and datasets have only ASCII"));
  }
  write_hdf5(folder / "none.h5", "z", ones({4}));
  CHECK(has(text({{folder / "none.h5", 0}}, {.overwrite = true}), "no dataset of real numbers is [N, D, H, W, C]"));
}
