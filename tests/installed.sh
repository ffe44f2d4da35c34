#!/bin/sh
# Installs the build to a folder of its own and compiles and runs README's program from there, as a user does: with what pkg-config
# says and nothing of the source tree. Prints `failed: NAME` for each failed test and ends with `N passed, M failed, K skipped`.
# tests/run.sh calls it. With MPIGRAD_TEST_ALL every installed header is compiled by itself, too.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$root/tests/packages.sh"
build=${MPIGRAD_BUILD:-$build}
choose_launcher
. "$root/tests/suite.sh"

compiler=${CXX:-c++}
description=$build/meson-private/mpigrad.pc
if [ ! -f "$description" ]; then
  printf 'skipped: 1 nothing is configured in %s\n0 passed, 0 failed, 1 skipped\n' "$build"
  exit 0
fi

# The build's own prefix, below a folder that goes away; pkg-config is told where it is.
prefix=$work/root$(sed -n 's/^prefix=//p' "$description")
run meson install -C "$build" --no-rebuild --quiet --destdir "$work/root"
judge 'the build can be installed' succeeds
headers=$prefix/include/mpigrad
installed=$(find "$work/root" -name mpigrad.pc)
PKG_CONFIG_PATH=$(dirname "$installed")${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
export PKG_CONFIG_PATH
# The compiler is a user's: no flag, and no folder to look for headers in, comes from the environment.
unset CPATH CPLUS_INCLUDE_PATH
flags() { pkg-config --define-variable=prefix="$prefix" "$@" mpigrad; }
run pkg-config --exists mpigrad
judge 'pkg-config knows the installed library' succeeds

# Of all that the compiler read nothing lies in the source tree.
apart_from_tree() { succeeds && ! grep -F -e "$root/" "$work/depends" >&2 && grep -q -F -e "$headers/" "$work/depends"; }
cp "$root/examples/two_ranks.cpp" "$work/program.cpp"
cd "$work" || die "no folder $work"
# shellcheck disable=SC2046  # flags are words
run "$compiler" -std=c++20 -MD -MF depends program.cpp $(flags --cflags --libs)
judge 'two_ranks.cpp is compiled from what is installed alone' apart_from_tree
if [ -x a.out ]; then
  numbers='loss 15174.644020.*gradient. 4837.428430'
  both_say() { succeeds && [ "$(grep -c "planes, $numbers" "$work/out")" -eq "$1" ]; }
  run ./a.out
  judge 'two_ranks.cpp from the installed library on 1 rank' both_say 1
  threads 3 ./a.out
  judge 'two_ranks.cpp from the installed library on 3 threads' both_say 3
  if [ -f "$headers/comm/mpi/mpi_comm.h" ]; then
    ranks 2 ./a.out
    judge 'two_ranks.cpp from the installed library on 2 ranks' both_say 2
  fi
fi

# Public headers must not need a vendor's, which a user may not have: here these end the compiler. Only mpi_comm.h needs MPI's.
mkdir -p poison/oneapi/dnnl
for header in mpi.h hdf5.h cblas.h oneapi/dnnl/dnnl.hpp cuda.h cuda_runtime.h cuda_runtime_api.h cudnn.h cudnn_graph.h cublas_v2.h \
  cublasLt.h nccl.h zlib.h zip.h png.h turbojpeg.h; do
  printf '#error "a public header includes %s"\n' "$header" >"poison/$header"
done
(cd "$headers" && find . -name '*.h' ! -name mpi_comm.h | sed 's,^\./\(.*\),#include "\1",' | sort) >every.cpp
many() { succeeds && [ "$(wc -l <every.cpp)" -gt 40 ]; }
# shellcheck disable=SC2046
run "$compiler" -std=c++20 -Wall -Wextra -Werror -fsyntax-only -Ipoison every.cpp $(flags --cflags)
judge 'all installed headers compile together, without headers of MPI, CUDA or other vendors' many
if [ -f "$headers/comm/mpi/mpi_comm.h" ]; then
  printf '%s\n' '#include <mpigrad/comm/mpi/mpi_comm.h>' 'int main() { return mpigrad::mpi_transport(MPI_COMM_WORLD)->size(); }' >own.cpp
  # shellcheck disable=SC2046
  run "$compiler" -std=c++20 -fsyntax-only own.cpp $(flags --cflags)
  judge 'mpi_comm.h compiles where MPI is' succeeds
fi
if [ -n "${MPIGRAD_TEST_ALL:-}" ]; then
  while read -r line; do
    printf '%s\n' "$line" >one.cpp
    # shellcheck disable=SC2046
    run "$compiler" -std=c++20 -Wall -Wextra -fsyntax-only -Ipoison one.cpp $(flags --cflags)
    judge "compiles by itself: $line" succeeds
  done <every.cpp
fi
cd / || exit 1

summary
