#pragma once
// Makes standard input, output and error safe to use when their other end is closed.

#include <string>

namespace mpigrad {

// Makes a program's work independent of the readers of its output. After this call
//
//   * descriptors 0, 1 and 2 that are closed lead to /dev/null, so that no file is opened as one of them and printed into;
//   * output that is printed after the reader of a pipe has ended (`| head -1`) is dropped, and SIGPIPE does not end the program;
//   * output that standard error does not take is dropped; output that standard output does not take (a full disk) is remembered
//     for output_problem(): no print fails before.
//
// Only the first call has an effect. Called before anything is opened, by launch() and by programs without ranks. Programs that
// this one starts get the original handling of SIGPIPE. Where the C library is not glibc a print may still fail.
void keep_standard_streams();

// Empty if all that this process has printed to standard output has been written, else the reason why not. A full disk is noticed
// only when the last buffer is written, which would otherwise be after main has returned 0.
std::string output_problem();

}  // namespace mpigrad
