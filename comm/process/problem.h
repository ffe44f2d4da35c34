#pragma once
// What a program says of an exception that ends it.

#include <exception>
#include <string>

namespace mpigrad {

// Its text, and for exceptions of libraries, whose texts mean nothing without it, their kind: "[std::length_error] ...".
std::string problem_of(const std::exception& error);

// What run() prints below the text of an Error, a line each: names of operands, and where it happened in the program, "  in
// mpigrad::sum, called by main at train.cpp:42", for programs that were compiled with -g. Takes up to a second.
std::string place_of(const std::exception& error);

// Empty, or why MPI and oneDNN could not live under the limit on address space (ulimit -v): they would end this process without a
// word of what they lack, or hang. The same on all ranks of equal limits.
std::string address_space_problem();

// From here on a std::bad_alloc of this process says how much memory it uses, how much there is, and which limit is the nearest.
// The first call counts; a program that has a handler of its own for `new` keeps it.
void name_memory_errors();

}  // namespace mpigrad
