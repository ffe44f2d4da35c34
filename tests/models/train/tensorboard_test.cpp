// Event files: frames and checksums, read back without protobuf.

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "models/data/records/crc32c.h"
#include "models/train/tensorboard/events.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

using namespace mpigrad;
using namespace mpigrad::testing;

TEST_CASE("tensorboard: checksums are RFC 3720's") {
  using data::crc32c;
  CHECK(crc32c("") == 0);
  CHECK(crc32c("123456789") == 0xe3069283U);
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aaU);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62a8ab43U);
  CHECK(data::masked_crc32c("123456789") == ((0xe3069283U >> 15) | (0xe3069283U << 17)) + 0xa282ead8U);
}

TEST_CASE("tensorboard: an event file is frames of messages") {
  const Folder folder;
  const auto path = folder.path / tensorboard::event_file_name(7);
  CHECK(path.filename() == "events.out.tfevents.0000000007.mpigrad");
  if (!tensorboard::available()) {
    CHECK(has(error_text([&] { tensorboard::EventFile file(path); }), "libprotobuf-dev"));
    return;
  }
  {
    tensorboard::EventFile file(path);
    CHECK_FALSE(std::filesystem::exists(path));
    file.scalars(300, {{"loss", 0.5}, {"nothing", std::nan("")}});
  }
  std::ifstream stream(path, std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(stream), {}};
  std::vector<std::string> messages;
  for (std::size_t at = 0; at < all.size();) {
    REQUIRE(at + 12 <= all.size());
    std::uint64_t length = 0;
    std::uint32_t of_length = 0, of_message = 0;
    std::memcpy(&length, all.data() + at, 8), std::memcpy(&of_length, all.data() + at + 8, 4);
    CHECK(of_length == data::masked_crc32c(all.substr(at, 8)));
    REQUIRE(at + 16 + length <= all.size());
    messages.push_back(all.substr(at + 12, length));
    std::memcpy(&of_message, all.data() + at + 12 + length, 4);
    CHECK(of_message == data::masked_crc32c(messages.back()));
    at += 16 + length;
  }
  REQUIRE(messages.size() == 2);
  // Field 1 is a double (tag 0x09), field 3 a text (0x1a); field 2 a varint (0x10), field 5 a message (0x2a) of values (0x0a).
  CHECK(messages[0].substr(9) == std::string("\x1a\x0d") + "brain.Event:2");
  CHECK(messages[1].substr(9, 3) == "\x10\xac\x02");
  CHECK(messages[1].substr(12) == std::string("\x2a\x0d\x0a\x0b\x0a\x04loss\x15\x00\x00\x00\x3f", 15));
}
