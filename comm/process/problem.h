#pragma once
// Texts about an exception that ends a program.

#include <exception>
#include <string>

namespace mpigrad {

// The exception's text; for exceptions of libraries, whose texts are meaningless without their type, with it:
// "[std::length_error] ...".
std::string problem_of(const std::exception& error);

// The lines that run() prints below the text of an Error: names of operands, and the place in the program, "  in mpigrad::sum,
// called by main at train.cpp:42", for programs that were compiled with -g. Takes up to a second.
std::string place_of(const std::exception& error);

// Empty, or the reason why MPI and oneDNN cannot run under the limit on address space (ulimit -v): they would end this process
// without naming the cause, or hang. The same on all ranks with equal limits.
std::string address_space_problem();

// Makes every later std::bad_alloc of this process report how much memory it uses, how much there is, and which limit is the
// nearest. Only the first call has an effect; a program that has its own handler for `new` keeps it.
void name_memory_errors();

}  // namespace mpigrad
