#!/bin/sh
# Installs what is missing, builds, runs every test and ends with one line `N passed, M failed, K skipped`.
#
#   sh tests/run.sh          everything that is quick
#   sh tests/run.sh --all    the long tests as well
#
# MPIGRAD_SHOW_SKIPS=1 lists every skipped test. Exits non-zero if a test failed or none ran.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$root/tests/packages.sh"

# Seconds in which no test ends: it hangs. Far above what any test takes on a loaded machine; the suites end their own first.
test_limit=300
suite_limit=360
most_seconds=14400
for argument; do
  case $argument in
    --all)
      MPIGRAD_TEST_ALL=1
      export MPIGRAD_TEST_ALL
      test_limit=1800
      suite_limit=1860
      most_seconds=172800
      ;;
    -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) die "run.sh knows only --all, got $argument" ;;
  esac
done

install_packages
build_all
choose_launcher

passed=0 failed=0 skipped=0
failures=
. "$root/tests/watch.sh"

fail_test() {
  failed=$((failed + 1))
  failures="$failures
  $1"
}

# count_program NAME COMMAND...: a program that runs many tests; its last line is `N passed, M failed, K skipped`, each failed
# test has a line `failed: NAME`, and each reason for skipping one `skipped: COUNT REASON`.
count_program() {
  name=$1
  shift
  printf '%s ...\n' "$name"
  run_limited "$test_limit" "$@"
  status=$?
  line=$(tail -n 1 "$output" | grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$')
  if [ -z "$line" ]; then
    show_output "$name"
    fail_test "$name: ended with status $status before its summary"
    return
  fi
  # shellcheck disable=SC2086  # "3 passed, 0 failed, 1 skipped" is split into words
  set -- $line
  passed=$((passed + $1)) failed=$((failed + $3)) skipped=$((skipped + $5))
  if [ "$3" -gt 0 ] || [ "$status" -ne 0 ]; then
    show_output "$name"
    failures="$failures
$(sed -n 's/^failed: /  /p' "$output")"
    [ "$3" -gt 0 ] || fail_test "$name: ended with status $status"
  else
    grep '^skipped: ' "$output"
  fi
}

# count_ranks PROGRAM P: one test, which passes if all ranks exit with 0.
count_ranks() {
  name="$(basename "$1") on $2 ranks"
  if [ "$2" -eq 1 ]; then name="$(basename "$1") on 1 rank"; fi
  printf '%s ...\n' "$name"
  # shellcheck disable=SC2086  # MPIEXEC may hold options
  if run_limited "$test_limit" $MPIEXEC -n "$2" "$1"; then
    passed=$((passed + 1))
  else
    show_output "$name"
    fail_test "$name"
  fi
}

if [ -x "$build/tests/unit" ]; then count_program unit "$build/tests/unit"; else fail_test 'unit: not built'; fi

# What needs a GPU, on GPUs that the CPU plays: one that does everything as late as it may, and two on which streams run side by
# side.
if [ -x "$build/tests/emulation/emulation" ]; then
  for mode in late concurrent,devices=2; do
    count_program "emulation, $mode" env MPIGRAD_EMULATION="$mode" "$build/tests/emulation/emulation"
    count_program "unit on emulated GPUs, $mode" env MPIGRAD_EMULATION="$mode" sh "$root/tests/emulated.sh" \
      "$build/tests/unit" -tc='gpu:*'
  done
fi

if [ -x "$build/tests/emulation/vendor/emulated_libraries" ]; then
  count_program 'emulated libraries' "$build/tests/emulation/vendor/emulated_libraries"
  if [ -x "$build/tests/nccl_ranks" ]; then
    for ranks in 2 3; do
      name="nccl_ranks on emulated GPUs, $ranks ranks"
      printf '%s ...\n' "$name"
      # shellcheck disable=SC2086  # MPIEXEC may hold options
      if run_limited "$test_limit" env MPIGRAD_EMULATION=late sh "$root/tests/emulated.sh" $MPIEXEC -n "$ranks" \
        "$build/tests/nccl_ranks" --transport mpi --device cuda; then
        passed=$((passed + 1))
      else
        show_output "$name"
        fail_test "$name"
      fi
    done
  fi
fi

for program in "$build"/tests/mpi_*; do
  if [ ! -f "$program" ] || [ ! -x "$program" ]; then continue; fi  # meson keeps folders mpi_*.p beside the programs
  for ranks in 1 2 3 4; do count_ranks "$program" "$ranks"; done
done

# expect_exit KIND STATUS: a job in which one rank ends before the others must end, too, with that status.
expect_exit() {
  name="exit_mpi $1"
  printf '%s ...\n' "$name"
  # shellcheck disable=SC2086  # MPIEXEC may hold options
  run_limited "$test_limit" $MPIEXEC -n 2 "$build/tests/exit_mpi" "$1"
  if [ "$status" -eq "$2" ]; then
    passed=$((passed + 1))
  else
    show_output "$name"
    fail_test "$name: status $status instead of $2"
  fi
}
if [ -x "$build/tests/exit_mpi" ]; then
  expect_exit return 7
  expect_exit exit 3
  expect_exit throw 1
  expect_exit late 0
  # MPICH's own handler would let the rank go on.
  name='exit_mpi, a rank that gets SIGUSR1 ends the job'
  printf '%s ...\n' "$name"
  # shellcheck disable=SC2086  # MPIEXEC may hold options
  run_limited "$test_limit" $MPIEXEC -n 2 "$build/tests/exit_mpi" signal
  if [ "$status" -ne 0 ] && [ "$status" -ne 124 ]; then
    passed=$((passed + 1))
  else
    show_output "$name"
    fail_test "$name: status $status"
  fi
  # expect_settings STATUS VARIABLE: rank 1 alone has it. What ranks must share is the same line for all, and nobody waits.
  expect_settings() {
    name="exit_mpi, $2 on one rank only"
    printf '%s ...\n' "$name"
    # shellcheck disable=SC2086  # MPIEXEC may hold options
    run_limited "$test_limit" $MPIEXEC -n 1 "$build/tests/exit_mpi" late : -n 1 env "$2" "$build/tests/exit_mpi" late
    told=$(grep -c "^\[launch\] ${2%%=*} must be the same on all ranks: rank 0 without; rank 1 \"${2#*=}\"\$" "$output")
    if [ "$status" -eq "$1" ] && [ "$(wc -l <"$output")" -eq "$told" ] && [ "$told" -eq $(($1 / 2)) ]; then
      passed=$((passed + 1))
    else
      show_output "$name"
      fail_test "$name: status $status instead of $1, told $told times"
    fi
  }
  for setting in MPIGRAD_CHECKS=signatures MPIGRAD_CHECKS=same=10 MPIGRAD_CHECKS=watchdog=60 MPIGRAD_REDUCTIONS=fixed; do
    expect_settings 2 "$setting"
  done
  for setting in MPIGRAD_THREADS=1 MPIGRAD_TRANSPORT=mpi MPIGRAD_CHECKS=trace; do expect_settings 0 "$setting"; done
  if [ -n "${MPIGRAD_TEST_ALL:-}" ]; then
    name='exit_mpi, an MPI_Finalize that does not come back'
    printf '%s ...\n' "$name"
    # shellcheck disable=SC2086  # MPIEXEC may hold options
    run_limited "$test_limit" $MPIEXEC -n 2 "$build/tests/exit_mpi" stuck
    if [ "$status" -eq 5 ] && grep -q 'kept until the end' "$output" && grep -q 'leaving it with exit code 5' "$output"; then
      passed=$((passed + 1))
    else
      show_output "$name"
      fail_test "$name: status $status instead of 5"
    fi
  fi
  # What one rank refuses before MPI runs must not leave the other waiting for it.
  name='exit_mpi, a device that one rank refuses'
  printf '%s ...\n' "$name"
  # shellcheck disable=SC2086  # MPIEXEC may hold options
  run_limited "$test_limit" $MPIEXEC -n 1 "$build/tests/exit_mpi" late : -n 1 env MPIGRAD_DEVICE=none "$build/tests/exit_mpi" late
  told=$(grep -c '^\[rank 1 of 2\] \[launch\] MPIGRAD_DEVICE is cpu or cuda' "$output")
  if [ "$status" -eq 2 ] && [ "$told" -eq 1 ] && [ "$(wc -l <"$output")" -eq 1 ]; then
    passed=$((passed + 1))
  else
    show_output "$name"
    fail_test "$name: status $status instead of 2, told $told times"
  fi
fi

# expect_misuse KIND: a mistake that the checks between ranks must turn into the same error on all three ranks.
expect_misuse() {
  name="misuse_mpi $1"
  printf '%s ...\n' "$name"
  # shellcheck disable=SC2086  # MPIEXEC may hold options
  run_limited "$test_limit" env MPIGRAD_CHECKS=signatures,same,watchdog=30 $MPIEXEC -n 3 "$build/tests/misuse_mpi" "$1"
  told=$(grep -c '^\[rank [012] of 3\] \[checks\] ' "$output")
  texts=$(sed -n 's/^\[rank [012] of 3\] \(\[checks\] .*\)/\1/p' "$output" | sort -u | wc -l)
  if [ "$status" -ne 0 ] && [ "$status" -ne 124 ] && [ "$told" -eq 3 ] && [ "$texts" -eq 1 ]; then
    passed=$((passed + 1))
  else
    show_output "$name"
    fail_test "$name: status $status, $told ranks told, $texts different texts"
  fi
}
# expect_watchdog KIND LINE...: a hang that the watchdog must end, saying so in these lines.
expect_watchdog() {
  name="misuse_mpi $1 with a watchdog"
  printf '%s ...\n' "$name"
  # shellcheck disable=SC2086  # MPIEXEC may hold options
  run_limited "$test_limit" env MPIGRAD_CHECKS=watchdog=2 $MPIEXEC -n 3 "$build/tests/misuse_mpi" "$1"
  shift
  missing=
  for line; do grep -q "$line" "$output" || missing="$missing; $line"; done
  if [ "$status" -ne 0 ] && [ "$status" -ne 124 ] && [ -z "$missing" ]; then
    passed=$((passed + 1))
  else
    show_output "$name"
    fail_test "$name: status $status, missing$missing"
  fi
}
if [ -x "$build/tests/misuse_mpi" ]; then
  name='mpi_messages on 2 ranks, checked'
  printf '%s ...\n' "$name"
  # shellcheck disable=SC2086  # MPIEXEC may hold options
  if run_limited "$test_limit" env MPIGRAD_CHECKS=signatures,same $MPIEXEC -n 2 "$build/tests/mpi_messages"; then
    passed=$((passed + 1))
  else
    show_output "$name"
    fail_test "$name"
  fi
  for kind in $("$build/tests/misuse_mpi" list); do expect_misuse "$kind"; done
  waiting='^  ranks 0,2: in allreduce of 4 float64, sum, call [0-9]* on a communicator of 3, for [0-9.]*'
  expect_watchdog missing "$waiting" '^  rank 1: not in a call; the last was barrier'
  expect_watchdog receive "$waiting" '^  rank 1: in wait for receive of 4 float64, from rank 0'
  expect_watchdog stopped "$waiting" '^  rank 1: no answer'
  # expect_patience KIND STATUS: the watchdog of training ends the job where nobody can go on, and nowhere else.
  expect_patience() {
    name="misuse_mpi $1 with a watchdog of training"
    printf '%s ...\n' "$name"
    # shellcheck disable=SC2086  # MPIEXEC may hold options
    run_limited "$test_limit" env MPIGRAD_CHECKS=stall=2 $MPIEXEC -n 3 "$build/tests/misuse_mpi" "$1"
    if [ "$status" -eq "$2" ] && { [ "$2" -eq 0 ] || grep -q '^  ranks* [-0-2,]*: in wait for receive' "$output"; }; then
      passed=$((passed + 1))
    else
      show_output "$name"
      fail_test "$name: status $status instead of $2"
    fi
  }
  expect_patience stalled 1
  expect_patience busy 0
  expect_patience apart 0
  name='misuse_mpi replicated: one warning'
  printf '%s ...\n' "$name"
  # shellcheck disable=SC2086  # MPIEXEC may hold options
  run_limited "$test_limit" $MPIEXEC -n 3 "$build/tests/misuse_mpi" replicated
  if [ "$status" -eq 0 ] && [ "$(grep -c 'looks like a replicated loss; gradients will be 3 times' "$output")" -eq 1 ]; then
    passed=$((passed + 1))
  else
    show_output "$name"
    fail_test "$name: status $status"
  fi
  name='misuse_mpi slow with a watchdog'
  printf '%s ...\n' "$name"
  # shellcheck disable=SC2086  # MPIEXEC may hold options
  if run_limited "$test_limit" env MPIGRAD_CHECKS=watchdog=20,trace $MPIEXEC -n 2 "$build/tests/misuse_mpi" slow; then
    passed=$((passed + 1))
  else
    show_output "$name"
    fail_test "$name"
  fi
fi

test_limit=$suite_limit
for suite in watched installed tools arguments halo adjoint lessons contrastive hosts gpu_bundle_test gpu_rehearsal; do
  if [ -f "$root/tests/$suite.sh" ]; then count_program "$suite" sh "$root/tests/$suite.sh"; fi
done

# It builds for hours before the first test.
if [ -n "${MPIGRAD_TEST_ALL:-}" ]; then
  test_limit=$most_seconds
  count_program sanitizers sh "$root/tests/sanitizers.sh"
fi

if [ "$failed" -gt 0 ]; then printf '\nfailed:%s\n\n' "$failures"; fi
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
