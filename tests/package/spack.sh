#!/bin/sh
# Tests Spack's recipe, examples/packaging/spack/package.py: the audit, variants, a build of ~examples, and its tests on two ranks.
# Spack compiles only mpigrad. Compiler, MPICH and libraries are those of Debian (examples/packaging/packages.sh).
#
#   sh tests/package/spack.sh SPACK REPOSITORY     folders of Spack (1.1 or newer) and of its packages (spack-packages)
#
# The Python of Spack (SPACK_PYTHON) must have clingo: nothing is fetched. Builds the commit HEAD in a temporary folder. Prints
# `failed: NAME` for each failure and ends with `N passed, M failed, K skipped`.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
. "$root/examples/packaging/packages.sh"
. "$root/tests/suite.sh"
if [ "$#" -ne 2 ] || [ ! -x "$1/bin/spack" ] || [ ! -d "$2/repos/spack_repo/builtin" ]; then sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; fi
spack=$(cd "$1" && pwd)/bin/spack builtin=$(cd "$2" && pwd)/repos/spack_repo/builtin
version=$(sed -n "s/^project(.*, version: '\([^']*\)'.*/\1/p" "$root/meson.build")
mine=$work/spack_repo/mine
mkdir -p "$work/config" "$work/src" "$mine/packages/mpigrad"
export SPACK_USER_CONFIG_PATH="$work/config" SPACK_SYSTEM_CONFIG_PATH="$work/none" SPACK_USER_CACHE_PATH="$work/cache"

# ---- a repository with the recipe, and the libraries of the system
printf 'repo: {namespace: mine, api: v2.0}\n' >"$mine/repo.yaml"
cp "$root/examples/packaging/spack/package.py" "$mine/packages/mpigrad/"
printf 'repos:\n  mine: %s\n  builtin:: %s\n' "$mine" "$builtin" >"$work/config/repos.yaml"
printf 'bootstrap: {enable: false}\n' >"$work/config/bootstrap.yaml"
printf 'config: {install_tree: {root: %s}, build_stage: [%s], test_stage: %s, ccache: %s}\n' "$work/opt" "$work/stage" "$work/tests" \
  "$(have ccache && echo true || echo false)" >"$work/config/config.yaml"
# external NAME VERSION [VARIANTS]; found NAME MODULE [VARIANTS] asks pkg-config for the version of its MODULE.
external() { printf '  %s: {buildable: false, externals: [{spec: "%s@%s %s", prefix: /usr}]}\n' "$1" "$1" "$2" "${3:-}"; }
found() { external "$1" "$(pkg-config --modversion "$2")" "${3:-}"; }
{
  printf 'packages:\n  all: {providers: {mpi: [mpich], zlib-api: [zlib], pkgconfig: [pkgconf], blas: [openblas]}}\n'
  external meson "$(meson --version)"
  external ninja "$(ninja --version)"
  external pkgconf "$(pkg-config --version)"
  external python "$(/usr/bin/python3 -c 'import platform; print(platform.python_version())')"
  found mpich mpich 'device=ch4 netmod=ucx'
  external onednn "$(readlink -f "$("${CXX:-c++}" -print-file-name=libdnnl.so)" | sed 's/.*\.so\.//').0"
  # Spack 1.1 takes no cairo 1.16 from the system, and the recipe wants an OpenBLAS with OpenMP: Debian's are declared as such.
  external cairo 1.18.0 '+fc+ft+pdf+png+svg+zlib'
  found openblas openblas threads=openmp
  found fftw fftw3 'precision=float,double ~mpi'
  found hdf5 hdf5-mpich +mpi
  while read -r name module; do found "$name" "$module"; done <<END2
fmt fmt
zlib zlib
libzip libzip
libpng libpng
libjpeg-turbo libturbojpeg
cli11 CLI11
nlohmann-json nlohmann_json
tomlplusplus tomlplusplus
END2
} >"$work/config/packages.yaml"

# ---- the recipe
compile "$spack" audit packages mpigrad
judge 'the audit' succeeds
for variants in '~examples' '~trainer~examples' '~mpi~hdf5~trainer~examples'; do
  compile "$spack" spec "mpigrad$variants"
  judge "mpigrad$variants" says 'mpigrad@'
done
compile "$spack" spec 'mpigrad+trainer~hdf5'
judge 'trainers without HDF5 are refused' grep -q 'trainers write HDF5 files' "$work/err"
compile "$spack" spec 'mpigrad+cuda'
judge 'CUDA without cuda_arch is refused' grep -q 'choose the GPUs' "$work/err"

# ---- the build, and its tests
git -C "$root" archive HEAD | tar -C "$work/src" -xmf -
compile "$spack" dev-build --source-path "$work/src" "mpigrad@$version~examples"
judge 'mpigrad~examples is built and installed' succeeds
compile "$spack" test run mpigrad
judge 'mpigrad-selftest and a compiled program run on two ranks' succeeds
summary
