// The program `unit`: all tests that need no launcher. Options: those of doctest (--help), and --verbose-skips or
// MPIGRAD_SHOW_SKIPS=1, which names every skipped test. The last lines are for tests/run.sh: `skipped: COUNT REASON`, `failed:
// NAME` and, last, `N passed, M failed, K skipped`.

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "tests/support/progress.h"
#include "tests/support/skip.h"

namespace {

using mpigrad::testing::Tally;

std::string current_case;

struct CaseCounter : doctest::IReporter {
  explicit CaseCounter(const doctest::ContextOptions&) {}
  void test_case_start(const doctest::TestCaseData& test) override {
    current_case = test.m_name;
    mpigrad::testing::note_progress(current_case);
  }
  void test_case_end(const doctest::CurrentTestCaseStats& statistics) override {
    const bool skipped = Tally::instance().take_current_case_skipped();
    if (statistics.failure_flags != 0) Tally::instance().fail(current_case);
    else if (!skipped) Tally::instance().pass(1);
  }
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};
REGISTER_LISTENER("counter", 1, CaseCounter);

bool names_skips(int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]) == "--verbose-skips") return true;
  const char* asked = std::getenv("MPIGRAD_SHOW_SKIPS");
  return asked != nullptr && std::string_view(asked) != "" && std::string_view(asked) != "0";
}

}  // namespace

int main(int argc, char** argv) {
  setenv("MPIGRAD_TUNING_FILE", "none", 1);  // do not change a user's file
  doctest::Context context(argc, argv);
  context.setOption("no-intro", true);
  const int result = context.run();
  if (context.shouldExit()) return result;

  const Tally& tally = Tally::instance();
  std::size_t skipped = 0;
  for (const auto& [reason, names] : tally.skipped()) {
    skipped += names.size();
    fmt::print("skipped: {} {}\n", names.size(), reason);
    if (names_skips(argc, argv))
      for (const auto& name : names) fmt::print("skipped:   {}\n", name);
  }
  for (const auto& name : tally.failed()) fmt::print("failed: {}\n", name);
  fmt::print("{} passed, {} failed, {} skipped\n", tally.passed(), tally.failed().size(), skipped);
  return result != 0 || !tally.failed().empty() ? 1 : 0;
}
