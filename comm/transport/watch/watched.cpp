#include "comm/transport/watch/checks.h"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>

#include "comm/transport/watch/call_board.h"
#include "comm/transport/watch/watched_transport.h"
#include "comm/transport/words.h"
#include "framework/base/error.h"

namespace mpigrad {

CheckOptions parse_checks(std::string_view text) {
  CheckOptions options;
  for (const auto word : detail::words_of(text)) {
    const auto equals = word.find('=');
    const auto name = word.substr(0, equals);
    std::optional<double> value;
    if (equals != std::string_view::npos) {
      const auto digits = word.substr(equals + 1);
      double number = 0;
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
      if (error == std::errc{} && end == digits.data() + digits.size() && number > 0 && number < 1e9) value = number;
      else value = -1;
    }
    if (word == "memory") {
      options.memory = true;
      continue;
    }
    if (word == "watchdog=off") {
      options.no_watchdog = true;
      continue;
    }
    const bool count = value.value_or(1) >= 1 && value.value_or(1) == static_cast<int>(value.value_or(1));
    if (name == "trace" && !value) options.trace = true;
    else if (name == "signatures" && count) options.signatures = static_cast<int>(value.value_or(1));
    else if (name == "same" && count) options.same = static_cast<int>(value.value_or(1));
    else if (name == "watchdog" && value.value_or(-1) > 0) options.watchdog = *value;
    else if (name == "stall" && value.value_or(-1) > 0) options.stall = *value;
    else
      fail(
          "[checks] MPIGRAD_CHECKS knows signatures, signatures=K, same, same=K, memory, trace, watchdog=SECONDS, stall=SECONDS "
          "and watchdog=off, got '{}'",
          word);
  }
  require(!options.no_watchdog || (options.watchdog == 0 && options.stall == 0),
          "[checks] MPIGRAD_CHECKS contains both a watchdog and watchdog=off: {}", text);
  return options;
}

CheckOptions checks_of_environment() {
  const char* text = std::getenv("MPIGRAD_CHECKS");
  return parse_checks(text ? text : "");
}

std::shared_ptr<Transport> watched(std::shared_ptr<Transport> transport, const CheckOptions& options) {
  const bool wanted = options || detail::board_of_this_thread() != nullptr;
  if (!wanted || !transport || !transport->can_ask() || &transport->underlying() != transport.get()) return transport;
  return detail::watched_transport(std::move(transport), options);
}

}  // namespace mpigrad
