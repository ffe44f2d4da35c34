#pragma once
// Counts tests. The last line of the test program is `N passed, M failed, K skipped`: its doctest cases plus the rows of table
// tests, which report themselves here one by one. Safe to call from any thread.

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace mpigrad::testing {

class Tally {
 public:
  static Tally& instance() {
    static Tally tally;
    return tally;
  }

  void pass(std::int64_t n) {
    std::scoped_lock lock(mutex_);
    passed_ += n;
  }
  void fail(const std::string& name) {
    std::scoped_lock lock(mutex_);
    failed_.push_back(name);
  }
  void skip(const std::string& name, const std::string& reason) {
    std::scoped_lock lock(mutex_);
    skipped_[reason].push_back(name);
  }
  void skip_current_case() {
    std::scoped_lock lock(mutex_);
    current_case_skipped_ = true;
  }
  // Called by the listener at the end of every doctest case: true if the case skipped itself. Clears the mark.
  bool take_current_case_skipped() {
    std::scoped_lock lock(mutex_);
    return std::exchange(current_case_skipped_, false);
  }

  std::int64_t passed() const { return passed_; }
  const std::vector<std::string>& failed() const { return failed_; }
  const std::map<std::string, std::vector<std::string>>& skipped() const { return skipped_; }  // names by reason

 private:
  std::mutex mutex_;
  std::int64_t passed_ = 0;
  std::vector<std::string> failed_;
  std::map<std::string, std::vector<std::string>> skipped_;
  bool current_case_skipped_ = false;
};

// Counts n passed rows of a table test.
inline void count_passed(std::int64_t n = 1) { Tally::instance().pass(n); }

// Counts one failed row; also fails the surrounding doctest case, which continues.
inline void count_failed(const std::string& name, const std::string& why) {
  Tally::instance().fail(name);
  ADD_FAIL_CHECK_AT(__FILE__, __LINE__, name << ": " << why);
}

// Counts one skipped row or check.
inline void count_skipped(const std::string& name, const std::string& reason) { Tally::instance().skip(name, reason); }

// Counts the whole surrounding doctest case as skipped instead of passed; the case must return afterwards.
inline void skip_test(const std::string& name, const std::string& reason) {
  count_skipped(name, reason);
  Tally::instance().skip_current_case();
}

}  // namespace mpigrad::testing
