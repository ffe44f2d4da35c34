#!/bin/sh
# The library, the lessons and `unit` for 64-bit Arm: compiled by Debian's cross compiler, run by qemu-user on a processor that has
# NEON and nothing newer. `unit` runs without its random comparisons. `sh tests/run.sh --long arm` and `--long arm_packages` run it.
#
#   sh tests/arm.sh            without MPI, HDF5, oneDNN, OpenBLAS and other libraries that were compiled before
#   sh tests/arm.sh packages   with Debian's packages for arm64, and the programs that need them. They are unpacked to a folder: apt
#                              would remove the compilers of this machine to install the packages of MPICH and HDF5 next to its own
#
# Builds in build/arm/. Prints `failed: NAME` for each failure and ends with `N passed, M failed, K skipped`.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$root/examples/packaging/packages.sh"
case "${1:-}" in
  '' | packages) variant=${1:-plain} ;;
  *) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
install_packages g++-aarch64-linux-gnu qemu-user doctest-dev
. "$root/tests/suite.sh"
folder=$build/arm/$variant sysroot=/usr/aarch64-linux-gnu
mkdir -p "$folder.files"
cross=$root/examples/packaging/cross/aarch64.ini

# unpack NAME...: these packages of arm64 and all that they depend on, in $sysroot. Needs no rights and does not change apt's lists.
unpack() {
  [ ! -f "$sysroot/complete" ] || return 0
  apt=$folder.files/apt
  mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial" "$sysroot"
  : >"$apt/status"
  printf '%s\n' 'APT::Architecture "arm64";' 'APT::Architectures { "arm64"; };' 'APT::Install-Recommends "false";' \
    "Dir::State \"$apt/state\";" "Dir::State::status \"$apt/status\";" "Dir::Cache \"$apt/cache\";" >"$apt/conf"
  compile env APT_CONFIG="$apt/conf" apt-get update
  judge "apt-get reads Debian's list of packages for arm64" succeeds
  compile env APT_CONFIG="$apt/conf" apt-get install --yes --download-only "$@"
  judge 'apt-get downloads packages for arm64' succeeds
  for package in "$apt"/cache/archives/*.deb; do dpkg-deb --extract "$package" "$sysroot" || return 0; done
  # Links that a package makes when it is installed.
  ln -sf openblas-pthread/libopenblas.so.0 "$sysroot/usr/lib/aarch64-linux-gnu/libopenblas.so.0"
  : >"$sysroot/complete"
}

if [ "$variant" = packages ]; then
  case $(system_name) in debian*) ;; *) printf 'skipped: 1 packages for arm64 are taken from Debian only\n0 passed, 0 failed, 1 skipped\n' && exit 0 ;; esac
  sysroot=$folder.files/root
  # shellcheck disable=SC2046,SC2086  # several words
  unpack $(printf '%s\n' $packages | grep -e '-dev$') doctest-dev
  libraries=$sysroot/usr/lib/aarch64-linux-gnu
  cat >"$folder.files/packages.ini" <<END2
[binaries]
exe_wrapper = ['qemu-aarch64', '-L', '$sysroot']
[properties]
sys_root = '$sysroot'
pkg_config_libdir = ['$libraries/pkgconfig', '$libraries/openblas-pthread/pkgconfig', '$sysroot/usr/share/pkgconfig']
[built-in options]
cpp_args = ['--sysroot=$sysroot']
cpp_link_args = ['--sysroot=$sysroot']
END2
  set -- --cross-file "$cross" --cross-file "$folder.files/packages.ini" -Dmpi=enabled -Dhdf5=enabled -Donednn=enabled -Dopenblas=enabled -Dformats=enabled \
    -Dprotobuf=enabled -Dtrainer=enabled -Dexamples=enabled
  targets='examples/cosmoflow examples/mpigrad-selftest tests/cosmoflow_step'
else
  # fmt's and doctest's headers are those of this machine.
  printf 'Name: fmt\nDescription: fmt as headers\nVersion: %s\nCflags: -DFMT_HEADER_ONLY\n' "$(pkg-config --modversion fmt)" >"$folder.files/fmt.pc"
  set -- --cross-file "$cross" "-Dpkg_config_path=$folder.files" -Dmpi=disabled
  for option in hdf5 onednn openblas formats protobuf toml trainer; do set -- "$@" "-D$option=disabled"; done
  targets=
fi
# What a program of Arm needs: qemu finds the libraries of Arm in $sysroot.
QEMU_LD_PREFIX=$sysroot QEMU_CPU=cortex-a72 OMP_NUM_THREADS=1
export QEMU_LD_PREFIX QEMU_CPU OMP_NUM_THREADS
unset MPIGRAD_TEST_ALL  # tests/long.sh sets it: whole volumes would take hours here

if [ ! -f "$folder/build.ninja" ]; then
  compile meson setup "$folder" "$root" "$@" --buildtype=release -Dtests=true -Dcuda=disabled -Dcudnn=disabled -Dnccl=disabled
  judge 'the cross build is configured' says 'Build type: cross build'
fi
lessons=$(ninja -C "$folder" -t targets all | sed -n 's/^\(examples\/lessons\/[a-z0-9_]*\): .*LINKER.*/\1/p')
# shellcheck disable=SC2086  # several words
compile ninja -C "$folder" -k 0 tests/unit $lessons $targets
judge 'everything is compiled' succeeds
run readelf -h "$folder/tests/unit"
judge 'for Arm' says 'Machine: *AArch64'

# ---- what does not belong to `unit`
arm() { run qemu-aarch64 "$@"; }
arm "$folder/tests/unit" --success --test-case='instruction sets:*'
judge 'our own loops are compiled for NEON' says 'own loops NEON'
sed -n 's/^ *sets := /instructions: /p' "$work/out" | sort -u
for lesson in $lessons; do
  case $lesson in
    */10_wrong_training) arm "$folder/$lesson" --transport threads --ranks 2 --steps 2 --batch 16 --only exact ;;
    *) arm "$folder/$lesson" ;;
  esac
  judge "$lesson" succeeds
done
if [ "$variant" = packages ]; then
  arm "$folder/tests/cosmoflow_step" --instructions
  judge 'the programs say it, too' says 'oneDNN for this processor, own loops NEON'
  arm "$folder/examples/mpigrad-selftest" --transport threads --ranks 2
  judge 'the self-test passes' succeeds
fi

# ---- unit: a process for each folder of its sources, as many at a time as there are processors; the longest first
not_here='comparison:*,adjoint fuzz*'
parts='networks layers ops models comm framework examples others'
of_folder() {
  case $1 in
    others) printf '%s' "--source-file-exclude=*tests/framework/*,*tests/ops/*,*tests/comm/*,*tests/models/*,*tests/examples/*" ;;
    networks) printf '%s' '--source-file=*tests/models/networks/*' ;;
    layers) printf '%s' '--source-file=*tests/models/nn/*' ;;
    models) printf '%s' '--source-file=*tests/models/* --source-file-exclude=*tests/models/networks/*,*tests/models/nn/*' ;;
    *) printf '%s' "--source-file=*tests/$1/*" ;;
  esac
}
# shellcheck disable=SC2016  # expanded there
for part in $parts; do printf '%s %s\n' "$part" "$(of_folder "$part")"; done |
  MPIGRAD_TEST_RUN=$work xargs -P "$(env -u OMP_NUM_THREADS nproc)" -L 1 sh -c '
    unit=$1 not_here=$2
    cd "$0" && mkdir "$3" && cd "$3" && shift 3 && timeout -k 5 4800 qemu-aarch64 "$unit" "$@" "--test-case-exclude=$not_here" >out 2>&1 </dev/null
    echo "$?" >status' "$work" "$folder/tests/unit" "$not_here"
for part in $parts; do
  line=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$work/$part/out" | tail -n 1)
  printf 'unit, %s: %s\n' "$part" "${line:-ended with status $(cat "$work/$part/status")}"
  grep -e '^failed: ' -e '^skipped: ' "$work/$part/out"
  if [ -z "$line" ]; then
    printf 'failed: unit, %s\n' "$part"
    tail -n 20 "$work/$part/out" | sed 's/^/  | /'
    line='0 passed, 1 failed, 0 skipped'
  fi
  # shellcheck disable=SC2086  # split into words
  set -- $line
  passed=$((passed + $1)) failed=$((failed + $3)) skipped=$((skipped + $5))
done
summary
