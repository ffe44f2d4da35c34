#pragma once
// The clock of small_calls.cpp and small_torch.cpp.

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

// Seconds of a call: the median of `rounds` rounds of 2,000 calls. A first round is not counted.
inline double median_seconds(int rounds, const std::function<void()>& f) {
  constexpr int calls = 2000;
  std::vector<double> seconds;
  for (int r = 0; r <= rounds; ++r) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) f();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / calls);
  }
  std::sort(seconds.begin() + 1, seconds.end());
  return seconds[1 + static_cast<std::size_t>(rounds) / 2];
}
