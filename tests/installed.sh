#!/bin/sh
# Installs the build to a temporary folder and uses it from there as others do, without access to the source tree: every
# header by itself, and programs found by pkg-config, by CMake and as a Meson subproject (of a copy of the sources), run on two
# ranks. Prints `failed: NAME` for each failed test and ends with `N passed, M failed, K skipped`.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher
. "$root/tests/suite.sh"

compiler=${CXX:-c++}
# Meson sets it, so that all freed memory is overwritten, also in compilers.
unset MALLOC_PERTURB_
# GCC collects garbage less often with this option and takes a twelfth less time.
sooner=--param=ggc-min-heapsize=600000
"$compiler" "$sooner" -Werror -fsyntax-only -x c++ /dev/null 2>/dev/null || sooner=
# Half of the cores, because other tests run at the same time.
jobs=$((($(nproc) + 1) / 2))
description=$build/meson-private/mpigrad.pc
if [ ! -f "$description" ]; then
  printf 'skipped: 1 nothing is configured in %s\n0 passed, 0 failed, 1 skipped\n' "$build"
  exit 0
fi

# The build's own prefix, below a temporary folder; pkg-config is told its place.
prefix=$work/root$(sed -n 's/^prefix=//p' "$description")
run meson install -C "$build" --no-rebuild --quiet --destdir "$work/root"
judge 'the build can be installed' succeeds
headers=$prefix/include/mpigrad
installed=$(find "$work/root" -name mpigrad.pc)
PKG_CONFIG_PATH=$(dirname "$installed")${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
export PKG_CONFIG_PATH
# The compiler acts as a user's: no flags and no include folders come from the environment.
unset CPATH CPLUS_INCLUDE_PATH CPPFLAGS CXXFLAGS LDFLAGS
of_package() { pkg-config --define-variable=prefix="$prefix" "$@"; }
flags() { of_package "$@" mpigrad; }
run pkg-config --exists mpigrad
judge 'pkg-config knows the installed library' succeeds
soname=$(readelf -d "$(find "$work/root" -name libmpigrad.so)" | sed -n 's/.*SONAME.*\[\(.*\)\].*/\1/p')
soname_fits() { [ "$soname" = "libmpigrad.so.$(pkg-config --modversion mpigrad | sed 's/^0\.\([0-9]*\)\..*/0.\1/; t; s/\..*//')" ]; }
judge "the soname follows the version: $soname" soname_fits
if [ -x "$prefix/bin/cosmoflow" ]; then
  run "$prefix/bin/cosmoflow" train "$prefix/share/mpigrad/recipes/quickstart.toml" --size 32 --describe
  judge 'an installed trainer describes the network of an installed recipe' says 'conv1'
  share=$prefix/share/mpigrad
  around() {
    for file in "$share/jobs/slurm.sh" "$share/jobs/chain.sh" "$share"/modules/tcl/mpigrad/* "$share"/modules/lua/mpigrad/*.lua; do [ -s "$file" ] || return 1; done
    [ -z "$(find "$share" -name README.md)" ]
  }
  judge 'job scripts and module files are installed, and no page with links to the source tree' around
fi

mkdir "$work/user"
programs='two_ranks own_layer own_op own_data own_training'
for program in $programs own_trainer; do cp "$root/examples/first/$program.cpp" "$work/user/"; done
cp "$root/tests/package/CMakeLists.txt" "$root/tests/package/meson.build" "$work/user/"
cd "$work/user" || die "no folder $work/user"

# what_they_print FOLDER HOW: runs the programs in FOLDER, on two ranks with MPI, otherwise on two threads.
numbers='loss 15174.644020.*gradient. 4837.428430'
both_say() { succeeds && [ "$(grep -c "planes, $numbers" "$work/out")" -eq "$1" ]; }
same_mean() { succeeds && [ "$(sed -n 's/.*: mean \([^;]*\);.*/\1/p' "$work/out" | sort -u | wc -l)" -eq 1 ] && [ "$(wc -l <"$work/out")" -eq 2 ]; }
same_loss() { succeeds && [ "$(sed -n 's/.*: loss \([^,]*\),.*/\1/p' "$work/out" | sort -u | wc -l)" -eq 1 ] && [ "$(wc -l <"$work/out")" -eq 6 ]; }
on_two() { if [ -f "$headers/comm/transport/mpi/mpi_comm.h" ]; then ranks 2 "$@"; else threads 2 "$@"; fi; }
what_they_print() {
  on_two "$1/two_ranks"
  judge "two_ranks on 2 ranks, $2" both_say 2
  on_two "$1/own_layer"
  judge "own_layer on 2 ranks, $2" same_loss
  on_two "$1/own_op"
  judge "own_op on 2 ranks, $2" same_mean
}

# ---- pkg-config. The compiler must read no file of the source tree.
apart_from_tree() { succeeds && ! grep -F -e "$root/" depends >&2 && grep -q -F -e "$headers/" depends; }
for program in $programs; do
  # shellcheck disable=SC2046  # flags are words
  run "$compiler" -std=c++20 -MD -MF depends "$program.cpp" -o "$program" $(flags --cflags --libs)
  judge "$program.cpp is compiled by pkg-config from what is installed alone" apart_from_tree
done
run ./two_ranks
judge 'two_ranks on 1 rank' both_say 1
threads 3 ./two_ranks
judge 'two_ranks on 3 threads' both_say 3
what_they_print . 'by pkg-config'
# The losses of five epochs, which must fall, on any number of ranks.
losses() { sed -n 's/.*rank 0: epoch [0-9]*, loss //p' "$work/out"; }
run ./own_data
losses >alone.txt
falls() { succeeds && [ "$(wc -l <alone.txt)" -eq 5 ] && sort -rn alone.txt | cmp -s - alone.txt; }
judge 'own_data on 1 rank' falls
on_two ./own_data
losses_of_one() { succeeds && paste alone.txt - | awk '{ d = $1 - $2; if (d < 0) d = -d; n++; if (d > 2e-9) bad = 1 } END { exit bad || n != 5 }'; }
judge 'own_data on 2 ranks' eval 'losses | losses_of_one'

if [ -x "$build/examples/pack" ]; then  # with HDF5
  run ./own_training
  judge 'own_training on 1 rank' says '^sample [0-9]*: predicted [0-9.-]*, true [0-9.]*$'
fi

# ---- C and Fortran: no flags of C++
complete() {
  page=$prefix/share/mpigrad/c_interface.md
  grep -q '^  MPIGRAD_REDUCE_SUM = 0' "$page" && grep -q '^typedef int (\*mpigrad_adjoint_function)' "$page" &&
    grep -q '^ *integer(c_int) function mpigrad_adjoint_function' "$page" && grep -q '^Defaults: .*`method` `MPIGRAD_SOLVER_' "$page"
}
judge 'the reference page has constants, callbacks and defaults' complete
if [ -f "$headers/comm/transport/mpi/mpi_comm.h" ] && pkg-config --exists mpich && have gcc; then
  of_mpi=$(pkg-config --cflags --libs mpich)
  cp "$root/examples/first/coupling/gradient.c" "$root"/examples/first/coupling/heat*.f90 .
  # shellcheck disable=SC2046,SC2086
  run gcc -std=c11 -pedantic -Wall -Werror -MD -MF depends gradient.c -o gradient $(of_package --cflags --libs mpigrad-c) $of_mpi
  from_c_header() { succeeds && ! grep -F -e "$root/" depends >&2 && grep -q -F -e "$headers/c.h" depends; }
  judge 'gradient.c is compiled by pkg-config from what is installed alone' from_c_header
  ranks 2 ./gradient
  judge 'gradient.c on 2 ranks' says '^rank 1: gradient 4 8 14$'
  if [ -x "$build/examples/heat_fortran" ]; then
    # shellcheck disable=SC2046,SC2086
    run gfortran $(of_package --variable=fortran mpigrad-c) heat_code.f90 heat_adjoint.f90 heat_op.f90 heat.f90 -o heat \
      $(of_package --libs mpigrad-c) -lmpichfort $of_mpi
    judge 'the installed module and heat.f90 are compiled' succeeds
    run ./heat
    judge 'heat.f90 from what is installed' says '^energy *94\.610462$'
  fi
fi

# ---- the second library, of trainers
if [ -f "$headers/trainer.h" ]; then
  # shellcheck disable=SC2046
  run "$compiler" -std=c++20 -MD -MF depends own_trainer.cpp -o own_trainer $(of_package --cflags --libs mpigrad-trainer)
  judge 'own_trainer.cpp is compiled by pkg-config from what is installed alone' apart_from_tree
  run ./own_trainer make noise.h5
  on_two ./own_trainer train --data noise.h5 --grid depth=2 --epochs 2 --out trained
  judge 'own_trainer on 2 ranks' says '^written to trained: weights.h5'
  libraries_of() { readelf -d "$(find "$work/root" -name "$1")" | grep NEEDED; }
  none_of_trainer() { ! libraries_of libmpigrad.so | grep -E 'cairo|CLI11|mpigrad_trainer' && libraries_of libmpigrad_trainer.so | grep -q 'libmpigrad\.so'; }
  judge 'libmpigrad needs nothing of the library of trainers' none_of_trainer
fi

# ---- own_op with its kernel, if there is an nvcc and the library was built with it
nvcc=$(command -v nvcc || command -v /usr/local/cuda/bin/nvcc || :)
if [ -f "$headers/framework/cuda/launch.cuh" ] && [ -n "$nvcc" ]; then
  cp "$root/examples/first/own_op_kernels.cu" .
  # shellcheck disable=SC2046
  run "$nvcc" -std=c++20 -MD -MF depends -c own_op_kernels.cu -o own_op_kernels.o $(flags --cflags-only-I)
  judge 'own_op_kernels.cu is compiled by nvcc from what is installed alone' apart_from_tree
  toolkit=$("$nvcc" --dryrun -c none.cu 2>&1 | sed -n 's/^#$ TOP=//p')
  # shellcheck disable=SC2046
  run "$compiler" -std=c++20 -DOWN_OP_ON_GPU -MD -MF depends own_op.cpp own_op_kernels.o -o own_op_gpu $(flags --cflags --libs) \
    -L"$toolkit/lib64" -lcudart_static -lrt -ldl -lpthread
  judge 'own_op.cpp with its kernel is compiled from what is installed alone' apart_from_tree
  on_two ./own_op_gpu
  judge 'own_op with its kernel, on CPUs' same_mean
  if nvidia-smi >"$work/smi" 2>&1; then
    run ./own_op_gpu --device cuda
    judge 'own_op with its kernel, on a GPU' says 'rank 0: mean '
  fi
else
  skip 'there is no nvcc, or the library was built without CUDA'
fi

# ---- exercises as a student does them: tasks.py writes a folder, then one command for each exercise
if have make; then
  run python3 "$root/examples/lessons/exercises/tasks.py" exercises
  judge 'the exercises are written to a folder' succeeds
  exercise() { run make -C exercises --no-print-directory CXX="$compiler" PKG_CONFIG="pkg-config --define-variable=prefix=$prefix" OUT="$work/judged" "$@"; }
  begun=$(date +%s)
  exercise 01a
  echo "an exercise is compiled and judged in $(($(date +%s) - begun)) s"
  judge 'an exercise that is not solved is judged' refuses 'your_shift on 2 ranks: first order is off'
  exercise FROM=solutions 01a
  judge 'a solution by FROM=' says '^solved$'
  exercise 01a
  judge 'which is not taken for one'"'"'s own' refuses 'your_shift on 2 ranks: first order is off'
  cp exercises/solutions/messages/01a_shift.cpp exercises/messages/
  exercise 01a
  judge 'solved it is right' says '^solved$'
  exercise
  judge 'make alone lists them' says 'make NUMBER, of: .*00a.* 13b'
fi

# ---- every header by itself. Public headers must not need a vendor's header, which a user may not have: here such headers are
# poisoned. Only mpi_comm.h needs MPI's, and only framework/cuda/check.h and *.cuh, for kernels, need the CUDA toolkit's.
mkdir -p poison/oneapi/dnnl
for header in mpi.h hdf5.h cblas.h oneapi/dnnl/dnnl.hpp cuda.h cuda_runtime.h cuda_runtime_api.h cudnn.h cudnn_graph.h cublas_v2.h \
  cublasLt.h nccl.h zlib.h zip.h png.h turbojpeg.h; do
  printf '#error "a public header includes %s"\n' "$header" >"poison/$header"
done
(cd "$headers" && find . -name '*.h' ! -name mpi_comm.h ! -path ./framework/cuda/check.h | sed 's,^\./,,' | sort) >headers.txt
limit=1800
# shellcheck disable=SC2046,SC2086
run python3 "$root/tests/package/headers.py" "$jobs" "$headers" "$compiler" $sooner -std=c++20 -Ipoison $(flags --cflags)
unset limit
none_wrong() { succeeds && [ "$(cat "$work/out")" -gt 80 ]; }
judge "each of $(wc -l <headers.txt) installed headers compiles by itself, without headers of MPI, CUDA or other vendors; not: $(sed '$d' "$work/out" | tr '\n' ' ')" \
  none_wrong
sed 's,.*,#include <&>,' headers.txt >every.cpp
# shellcheck disable=SC2046
run "$compiler" -std=c++20 -Wall -Wextra -Werror -fsyntax-only -Ipoison every.cpp $(flags --cflags)
judge 'all installed headers compile together' succeeds
if [ -f "$headers/comm/transport/mpi/mpi_comm.h" ]; then
  printf '%s\n' '#include <mpigrad/comm/transport/mpi/mpi_comm.h>' 'int main() { return mpigrad::mpi_transport(MPI_COMM_WORLD)->size(); }' >own.cpp
  # shellcheck disable=SC2046
  run "$compiler" -std=c++20 -fsyntax-only own.cpp $(flags --cflags) $(pkg-config --cflags mpich 2>/dev/null)
  judge 'mpi_comm.h compiles where MPI is' succeeds
fi

# ---- an op with misspelt or missing traits, or with traits in addition to traits(), does not compile
refused() {
  # shellcheck disable=SC2046
  run "$compiler" -std=c++20 -fsyntax-only "$1.cpp" $(flags --cflags)
  judge "$3" refuses "$2"
}
sed 's/\.keeps_inputs/.keep_inputs/' own_op.cpp >misspelt.cpp
refused misspelt OpTraits 'an op with a misspelt trait does not compile'
sed 's/.*OpTraits traits().*//; s/traits()\.name/"wavelet"/' own_op.cpp >without.cpp
refused without 'an op has .static constexpr OpTraits traits()' 'an op without traits does not compile'
sed 's/\(.*\)OpTraits traits() { return {\.name = "wavelet",.*/&\n\1bool communicates = true;/' own_op.cpp >beside.cpp
refused beside "belongs in the op's traits()" 'an op with a trait beside its traits() does not compile'

# ---- Spack's recipe names only options that exist
options_of() { sed -n "s/^option('\([a-z0-9_]*\)'.*/\1/p" "$root/meson_options.txt"; }
recipe=$root/examples/packaging/spack/package.py
named=$(sed -n 's/.*feature("\([a-z0-9]*\)")[,)].*/\1/p; s/.*feature("[a-z0-9]*", "\([a-z0-9]*\)").*/\1/p; s/.*"-D\([a-z_]*\)=.*/\1/p' "$recipe" | grep -v '^0$' | sort -u)
known() { [ "$(printf '%s\n' "$named" | wc -l)" -gt 8 ] && for option in $named; do options_of | grep -qx "$option" || return 1; done; }
status=0
: >"$work/err"
judge 'options in the recipe for Spack are those of meson_options.txt' known

# ---- CMake
if have cmake; then
  run cmake -S . -B by-cmake -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$compiler"
  judge 'CMake finds the package' succeeds
  compile cmake --build by-cmake --parallel "$jobs"
  judge 'the programs are compiled by CMake' succeeds
  what_they_print by-cmake 'by CMake'
  if [ -f "$headers/trainer.h" ]; then
    run by-cmake/own_trainer train --describe --size 8
    judge 'CMake finds the component trainer' says 'block'
  fi
  sed 's/mpigrad [0-9.]* REQUIRED/mpigrad 0.1 REQUIRED/' CMakeLists.txt >other.txt && mkdir other && mv other.txt other/CMakeLists.txt
  run cmake -S other -B other/build -DCMAKE_PREFIX_PATH="$prefix"
  judge 'CMake refuses another version' refuses 'compatible with requested version'
else
  skip 'CMake is not installed'
fi

# ---- a Meson subproject. It is compiled once more, without optimisation, and without all optional libraries except MPI: their
# absence has code of its own. A unity build of 48 files at a time takes less than half of the time, and packagers may use one:
# names local to a file must differ from those of its neighbours.
mkdir -p subprojects/mpigrad
(cd "$root" && tar -cf - --exclude='./build*' --exclude=./.git --exclude=./tests/bench/results .) | tar -C subprojects/mpigrad -xf -
unset PKG_CONFIG_PATH
run meson setup by-meson . --buildtype=plain -Dcpp_args="$sooner" --unity=subprojects --unity-size=48 -Dmpigrad:cuda=disabled -Dmpigrad:hdf5=disabled -Dmpigrad:formats=disabled \
  -Dmpigrad:protobuf=disabled -Dmpigrad:toml=disabled -Dmpigrad:onednn=disabled -Dmpigrad:openblas=disabled
judge 'a Meson project takes the library as a subproject' succeeds
compile ninja -C by-meson -j "$jobs" two_ranks own_layer own_op
judge 'the programs are compiled with a subproject' succeeds
what_they_print by-meson 'from a Meson subproject'
cd / || exit 1

summary
