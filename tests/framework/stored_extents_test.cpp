// The option --stored: cutting keeps the bits of stored numbers, scaling goes through double.

#include <doctest/doctest.h>

#include <array>
#include <limits>

#include "models/data/sources/open.h"
#include "tests/support/files.h"
#include "tests/support/format_files.h"

using namespace mpigrad;
using namespace mpigrad::data;
using namespace mpigrad::testing;

TEST_CASE("sources: other extents change no number that is not scaled, and none by its type") {
  const Folder folder;
  const auto path = folder / "a.npy";
  const auto as_stored = [&]<class T>(const std::vector<T>& values, const char* descriptor, const char* shape, const Shape& to,
                                      augment::Fit fit) {
    write_file(path, npy_file(descriptor, shape, values));
    const auto source = open_source(path, {.extents = to, .fit = fit});
    CHECK(source->type() == dtype_of<T>());
    std::vector<T> result(static_cast<std::size_t>(source->extents().elements() * source->channels()));
    source->read(0, source->whole(), reinterpret_cast<std::byte*>(result.data()));
    return result;
  };
  using augment::Fit;
  // Scaled: through double, which represents each of these.
  const std::int32_t most = 2147483647, least = -most - 1;
  CHECK(as_stored(std::vector<std::int32_t>(18, most), "'<i4'", "(1, 3, 6)", {2, 4}, Fit::cover) ==
        std::vector<std::int32_t>(8, most));
  CHECK(as_stored(std::vector<std::int32_t>(18, least), "'<i4'", "(1, 3, 6)", {2, 4}, Fit::cover) ==
        std::vector<std::int32_t>(8, least));
  CHECK(as_stored(std::vector<std::int32_t>{most, most - 4, most, most - 4}, "'<i4'", "(1, 2, 2)", {1, 1}, Fit::cover) ==
        std::vector<std::int32_t>{most - 2});
  CHECK(as_stored(std::vector<double>(18, 1e300), "'<f8'", "(1, 3, 6)", {2, 4}, Fit::cover) == std::vector<double>(8, 1e300));
  CHECK(as_stored(std::vector<double>(18, 1 + 0x1p-40), "'<f8'", "(1, 3, 6)", {2, 4}, Fit::cover) ==
        std::vector<double>(8, 1 + 0x1p-40));
  const double largest = std::numeric_limits<double>::max();
  CHECK(as_stored(std::vector<double>(21, largest), "'<f8'", "(1, 3, 7)", {2, 5}, Fit::cover) ==
        std::vector<double>(10, largest));
  CHECK(as_stored(std::vector<std::int64_t>(18, std::numeric_limits<std::int64_t>::max()), "'<i8'", "(1, 3, 6)", {2, 4},
                  Fit::cover) == std::vector<std::int64_t>(8, std::numeric_limits<std::int64_t>::max()));
  // Only cut, or padded with zeros: bit for bit, also values that double does not represent, and next to infinite or NaN values.
  const std::int64_t odd = (std::int64_t{1} << 62) + 1;
  CHECK(as_stored(std::vector<std::int64_t>(6, odd), "'<i8'", "(1, 2, 3)", {2, 2}, Fit::cover) ==
        std::vector<std::int64_t>(4, odd));
  CHECK(as_stored(std::vector<std::int64_t>(6, odd), "'<i8'", "(1, 2, 3)", {2, 5}, Fit::pad) ==
        std::vector<std::int64_t>{0, odd, odd, odd, 0, 0, odd, odd, odd, 0});
  const double infinite = std::numeric_limits<double>::infinity();
  CHECK(as_stored(std::vector<double>{1, 2, 3, infinite, 4, 5, 6, infinite}, "'<f8'", "(1, 2, 4)", {2, 3}, Fit::cover) ==
        std::vector<double>{1, 2, 3, 4, 5, 6});
  // Scaled next to infinite or NaN values: values outside a mean do not affect it.
  const auto halves = as_stored(std::vector<double>{1, 3, infinite, 5}, "'<f8'", "(1, 1, 4)", {1, 2}, Fit::cover);
  CHECK(halves[0] == 2);
  CHECK(halves[1] == infinite);

  // Labels are not resized; their bits distinguish values that float32 and double would make equal.
  write_file(path, npy_file("'<f4'", "(2, 2, 2)", std::vector<float>(8, 0.5F)));
  write_file(folder / "labels.npy", npy_file("'<i8'", "(2,)", std::vector<std::int64_t>{16777217, (std::int64_t{1} << 53) - 1}));
  const auto labelled = open_source(path, {.labels = {{"kind", folder / "labels.npy"}}, .extents = {1, 1}});
  CHECK(labelled->targets(0) == std::vector<double>{16777217});
  CHECK(labelled->targets(1) == std::vector<double>{9007199254740991});
}
