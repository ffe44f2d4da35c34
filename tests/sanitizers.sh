#!/bin/sh
# Builds the library and `unit` with GCC's sanitizers, in folders of their own, and runs the tests in parts:
#
#   sh tests/sanitizers.sh [address] [c] [thread]      all where none is named
#
#   address   addresses, leaks and undefined behaviour in one build; all tests. tests/fuzz.sh fuzzes the readers of files so
#   c         the same for the programs in C of tests/models/c, under MPI; it does not build `unit`
#   thread    races and deadlocks of what runs on several threads: ranks of the `threads` transport, watchdog, I/O thread, loaders.
#             With OMP_NUM_THREADS=1, because libgomp is not instrumented and its barriers are not seen.
#
# A finding is shown and fails its part. Suppressions are in tests/sanitizers/, with their reasons. Prints `failed: NAME` for
# each part that failed and ends with `N passed, M failed, K skipped`, of tests; tests/run.sh --long calls it. MPIGRAD_SANITIZED_TESTS
# chooses tests by name, as -tc of `unit` does; MPIGRAD_SANITIZED_FILES chooses tests of `address` by source, as -sf of `unit` does;
# MPIGRAD_SANITIZER_FROM=N begins with the N-th test. Some hours on two cores, most of them for the compiler.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$root/examples/packaging/packages.sh"
outer_progress=${MPIGRAD_TEST_PROGRESS:-}
. "$root/tests/watch.sh"
lists=$root/tests/sanitizers
case " $* " in
  *' -h '* | *' --help '*) sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac
for kind; do
  case $kind in
    address | c | thread) ;;
    *) die "sanitizers.sh knows address, c and thread, got $kind" ;;
  esac
done
[ "$#" -gt 0 ] || set -- address thread c
choose_launcher

passed=0 failed=0 skipped=0
# Source files of `unit` with tests that use several threads, so that the thread sanitizer can find something.
threaded='*adjoint_fuzz*,*checkpoint*,*checks*,*collectives*,*comparison*,*data_test*,*device_transport*,*distributed*,*exchange*'
threaded="$threaded,*hdf5*,*launch*,*layouts*,*point_to_point*,*reduction*,*ring*,*sources*,*transport*,*views*,*watch*"

# Trainings of a minute and more, which would take an hour each here: shorter tests have the same layers, grids and steps.
too_long='CosmoFlow*12 steps*'

# Builds only what is needed, with the plain loops of framework/base/target_clones.h and with line numbers. The optimiser keeps
# the order of sums.
build_sanitized() {
  case $1 in
    address | c) folder=$build/sanitize-address flags=address,undefined ;;
    thread) folder=$build/sanitize-thread flags=thread ;;
  esac
  say "building with -fsanitize=$flags in $folder"
  if [ ! -f "$folder/build.ninja" ]; then
    meson setup "$folder" "$root" --buildtype=plain -Doptimization=1 -Db_sanitize="$flags" -Dcpp_args='-g1 -fno-omit-frame-pointer' -Dc_args='-g1' \
      -Dtests=true -Dcuda=disabled >"$output" 2>&1 || return 1
  fi
  targets=tests/unit
  [ "$1" != c ] || targets='tests/c_interface tests/c_misuse tests/c_mixed_mpi'
  # shellcheck disable=SC2086  # several words, or one
  ninja -C "$folder" $targets >"$output" 2>&1
}

# part NAME COMMAND...: runs some tests of one build.
part() {
  name=$1
  shift
  [ -z "$outer_progress" ] || printf '%s\n' "$name" >>"$outer_progress"
  say "$name"
  run_limited 1800 "$@"
  found=$(grep -c -E '(ERROR|WARNING): (Address|Leak|Thread)Sanitizer|: runtime error: ' "$output")
  line=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$output" | tail -n 1)
  if [ -n "$line" ]; then
    # shellcheck disable=SC2086  # split into words
    set -- $line
    passed=$((passed + $1)) failed=$((failed + $3)) skipped=$((skipped + $5))
    sed -n '/^failed: /p' "$output"
    [ "$3" -eq 0 ] || show_output "$name"
  fi
  if [ -z "$line" ] || [ "$found" -gt 0 ] || { [ "$status" -ne 0 ] && [ "$3" -eq 0 ]; }; then
    failed=$((failed + 1))
    printf 'failed: %s: %s findings, status %s\n' "$name" "$found" "$status"
    if [ -z "$line" ] || [ "$3" -eq 0 ]; then show_output "$name"; fi
  fi
}

# in_parts KIND FILES: runs the tests of these source files, twenty files at a time, so that a crash loses few tests.
in_parts() {
  kind=$1 files=$2
  unit=$build/sanitize-$kind/tests/unit
  count=$("$unit" -c -sf="$files" -tc="${MPIGRAD_SANITIZED_TESTS:-*}" -tce="$too_long" 2>/dev/null | sed -n 's/.*current filters: \([0-9]*\).*/\1/p')
  if [ "${count:-0}" -eq 0 ]; then
    failed=$((failed + 1))
    printf 'failed: %s sanitizer: no test was found\n' "$kind"
    return
  fi
  first=${MPIGRAD_SANITIZER_FROM:-1}
  while [ "$first" -le "$count" ]; do
    last=$((first + 19))
    [ "$last" -le "$count" ] || last=$count
    # The thread sanitizer of GCC 12 needs addresses where they were before kernels spread them wider.
    # shellcheck disable=SC2086  # several words, or none
    part "$kind sanitizer, tests $first to $last" $fixed_addresses "$unit" -sf="$files" -tc="${MPIGRAD_SANITIZED_TESTS:-*}" \
      -tce="$too_long" -f="$first" -l="$last"
    first=$((last + 1))
  done
}

# The programs in C. They count their checks; a leak or a failed check on any rank ends the launcher with another status.
c_programs() {
  programs=$build/sanitize-address/tests
  for run in '1 c_misuse' '1 c_interface' '2 c_interface' '2 c_mixed_mpi' '4 c_mixed_mpi'; do
    # shellcheck disable=SC2086  # split into words
    set -- $run
    # shellcheck disable=SC2086
    part "address sanitizer, $2 on $1 ranks" $MPIEXEC -n "$1" "$programs/$2" "$programs" "$root"
  done
}

unset MPIGRAD_TEST_ALL  # the long tests take days here
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
export ASAN_OPTIONS="detect_stack_use_after_return=1:allocator_may_return_null=1:detect_leaks=1"
# oneDNN 2.6.3 reads past the end of a table when it generates kernels for AMX, and then crashes in most runs (ops/precision.md).
export ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16
export LSAN_OPTIONS="suppressions=$lists/leak.txt:print_suppressions=0"
export UBSAN_OPTIONS="print_stacktrace=1"
export TSAN_OPTIONS="suppressions=$lists/thread.txt:second_deadlock_stack=1:history_size=4"
# UCX, which MPICH may use, replaces madvise() in the C library; ending threads call it after the thread sanitizer has forgotten
# them, which crashes.
export UCX_MEM_MMAP_HOOK_MODE=none
# hwloc, which MPICH uses, loads plugins, of which it leaks memory: also in a program with MPI_Init() and MPI_Finalize() only.
export HWLOC_PLUGINS_PATH=/nonexistent
fixed_addresses=
if have setarch && setarch "$(uname -m)" -R true 2>/dev/null; then fixed_addresses="setarch $(uname -m) -R"; fi

for kind; do
  if ! build_sanitized "$kind"; then
    failed=$((failed + 1))
    printf 'failed: the build for the %s sanitizer\n' "$kind"
    tail -n 40 "$output"
    continue
  fi
  case $kind in
    address) in_parts address "${MPIGRAD_SANITIZED_FILES:-*}" ;;
    c) c_programs ;;
    thread) in_parts thread "$threaded" ;;
  esac
done

printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
