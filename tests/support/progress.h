#pragma once
// Reports the progress of the test program to its watcher (tests/watch.sh).

#include <cstdio>
#include <cstdlib>
#include <string>

namespace mpigrad::testing {

// Adds a line to the file named by MPIGRAD_TEST_PROGRESS, if that is set. Called at the beginning of every test, and from time to
// time within tests of many minutes. Safe to call from any thread and process.
inline void note_progress(const std::string& what) {
  const char* path = std::getenv("MPIGRAD_TEST_PROGRESS");
  if (path == nullptr || *path == 0) return;
  std::FILE* file = std::fopen(path, "a");
  if (file == nullptr) return;
  std::fputs((what + "\n").c_str(), file);
  std::fclose(file);
}

}  // namespace mpigrad::testing
