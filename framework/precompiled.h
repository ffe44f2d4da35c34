// Precompiled header with the headers that most files of the library include: see cpp_pch in the meson.build files. No file
// relies on it; -Db_pch=false compiles without it. It has no "#pragma once": it is compiled as a file of its own, where compilers
// warn about that.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "framework/engine/op.h"
