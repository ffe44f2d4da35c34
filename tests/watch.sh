# Shared by scripts that run tests and source examples/packaging/packages.sh: ends programs that hang, not slow ones.
#
#   run_limited SECONDS COMMAND...   output to $output, exit status to $status. If no test begins or ends for SECONDS, it is
#                                    ended with all that it started (tests/processes.sh), with status 124 and a last line
#                                    that names the test. There is no such limit during compilation (tests/suite.sh)
#   show_output NAME                 shows the output
#
# Programs of many tests add a line at the beginning of each test to the file that MPIGRAD_TEST_PROGRESS names
# (tests/support/progress.h, tests/suite.sh); a program that adds none is one test. $most_seconds limits the whole program.
#
# POSIX sh.

# shellcheck shell=sh disable=SC2154  # root
. "$root/tests/processes.sh"
output=$(mktemp) progress=$(mktemp) hung=$(mktemp) running=$(mktemp) || die "no temporary file"
watcher=
trap 'rm -f "$output" "$progress" "$hung" "$running"; [ -z "$watcher" ] || kill -9 "$watcher" 2>/dev/null' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
: "${most_seconds:=14400}" "${watch_step:=5}"

# Counts its own steps, not the clock: on a loaded machine on which it sleeps too long, the program had less time, too.
watch_progress() {
  idle=0 seen=
  while sleep "$watch_step"; do
    begun=$(wc -c <"$progress")
    if tail -n 1 "$progress" | grep -q '^compiling: '; then seen=; fi
    if [ "$begun" = "$seen" ]; then idle=$((idle + watch_step)); else idle=0 seen=$begun; fi
    [ "$idle" -lt "$1" ] || break
  done
  printf 'ended: for %s seconds no test has begun or ended; the last to begin: %s\n' "$1" "$(tail -n 1 "$progress")" >"$hung"
  end_marked "$progress"
  kill "$(cat "$running")" 2>/dev/null
}

run_limited() {
  limit=$1
  shift
  : >"$progress"
  : >"$hung"
  : >"$running"
  watch_progress "$limit" >/dev/null 2>&1 </dev/null &
  watcher=$!
  # In the foreground, because programs in the background ignore interrupts. The id that the watcher reads is timeout's.
  # shellcheck disable=SC2016
  MPIGRAD_TEST_PROGRESS=$progress MPIGRAD_TEST_WATCHED="${MPIGRAD_TEST_WATCHED:-} $progress" \
    sh -c 'printf "%s\n" "$$" >"$1"; shift; exec timeout -k 10 "$@"' sh "$running" "$most_seconds" "$@" >"$output" 2>&1 </dev/null
  status=$?
  # Not SIGTERM: a shell that was just forked drops a signal that arrives before it has restored its parent's traps.
  kill -9 "$watcher" 2>/dev/null
  wait "$watcher" 2>/dev/null
  watcher=
  # The program may have ended before processes that it started.
  if [ -s "$hung" ] || [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then end_marked "$progress"; fi
  if [ -s "$hung" ]; then
    cat "$hung" >>"$output"
    status=124
  elif [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then
    printf 'ended after %s seconds in all, or killed; the last test to begin: %s\n' "$most_seconds" "$(tail -n 1 "$progress")" >>"$output"
  fi
  return "$status"
}

show_output() {
  printf '\n---- %s\n' "$1"
  cat "$output"
  printf -- '---- end of %s\n\n' "$1"
}
