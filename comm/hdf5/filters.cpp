// Filters that pack the chunks of a dataset, and may be missing in this HDF5.

#include <array>

#include "comm/hdf5/detail.h"
#include "framework/base/printable.h"

namespace mpigrad::hdf5 {

void require_filters(hid_t dataset, const std::filesystem::path& path, const std::string& name) {
  const Handle creation(H5Dget_create_plist(dataset), H5Pclose);
  const int filters = H5Pget_nfilters(creation);
  for (int i = 0; i < filters; ++i) {
    unsigned flags = 0, configuration = 0;
    std::size_t values = 0;
    std::array<char, 128> called{};
    const auto number = H5Pget_filter2(creation, static_cast<unsigned>(i), &flags, &values, nullptr, called.size(), called.data(),
                                       &configuration);
    if (number < 0 || H5Zfilter_avail(number) > 0) continue;
    fail(
        "[hdf5] {}: dataset '{}' is packed by the filter '{}' (number {}), which this HDF5 does not have: HDF5_PLUGIN_PATH "
        "names the folder of filters, and h5repack -f NONE unpacks the file on a machine that has the filter",
        path.string(), printable(name), printable(called.data()), number);
  }
}

}  // namespace mpigrad::hdf5
