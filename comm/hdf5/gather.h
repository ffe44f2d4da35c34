#pragma once
// Boxes of datasets that ranks keep until rank 0 writes them: for files of several processes without MPI's parallel driver.

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/transport/transport.h"

namespace mpigrad::hdf5 {

struct KeptBox {
  std::string dataset;
  std::vector<std::int64_t> begin, end;
  DType type = DType::uint8;
  std::vector<std::byte> values;  // row-major
};

// A copy of the box. Error: an end before its begin, or not as many of them.
KeptBox kept_box(const std::string& dataset, std::span<const std::int64_t> begin, std::span<const std::int64_t> end, DType type,
                 const void* data);

// Sends the boxes of all other ranks to rank 0, one after the other in the order of the ranks, and calls write(box) there for
// each. Rank 0 needs memory for one box. Collective. Returns the first exception of `write`, after all boxes have come.
std::exception_ptr gather_boxes(Transport& transport, std::vector<KeptBox> boxes,
                                const std::function<void(const KeptBox&)>& write);

}  // namespace mpigrad::hdf5
