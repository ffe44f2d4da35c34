#pragma once
// What standard input, output and error lead to, and what happens where that is gone.

#include <string>

namespace mpigrad {

// A program's work does not depend on who reads what it prints. From here on
//
//   * descriptors 0, 1 and 2 that are closed lead to /dev/null, so that no file is opened as one of them and printed into;
//   * what is printed after the reader of a pipe has gone (`| head -1`) is dropped, and SIGPIPE ends nothing;
//   * what standard error does not take is dropped, and what standard output does not take (a full disk) is remembered for
//     output_problem(): no print fails before.
//
// The first call counts. Called before anything is opened, by launch() and by programs without ranks. Programs that this one
// starts get SIGPIPE as it was. Where the C library is not glibc a print may still fail.
void keep_standard_streams();

// Empty if all that this process has printed to standard output has arrived, else what kept it. What a full disk refuses is
// seen only when the last buffer is written, which would be after main has returned 0.
std::string output_problem();

}  // namespace mpigrad
