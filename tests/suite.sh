# Shared by the suites that run programs as a user does. Suites source examples/packaging/packages.sh, call choose_launcher and
# end with `summary`.
#
#   needs                 skips the suite if a program was not built
#   run, ranks, threads   run a program: one process, under the launcher, on threads
#   compile               runs a program that compiles, without a time limit
#   judge                 one test of the last program's result
#
# POSIX sh.

# shellcheck shell=sh disable=SC2034,SC2154
. "$root/tests/processes.sh"
passed=0 failed=0 skipped=0
# Open MPI's launcher adds lines of its own to those of a rank that has failed.
export OMPI_MCA_orte_execute_quiet=1 PRTE_MCA_prte_execute_quiet=1
work=$(mktemp -d) || die "no temporary folder"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# needs WHAT PROGRAM...: ends the suite as one skipped test if a program is missing; WHAT ("the tools are") is named as not built.
needs() {
  whole=$1
  shift
  for part; do
    if [ ! -x "$part" ]; then
      printf 'skipped: 1 %s not built\n0 passed, 0 failed, 1 skipped\n' "$whole"
      exit 0
    fi
  done
}

# run COMMAND...: output to $work/out and $work/err, exit status to $status. The limit ($limit or 300 seconds) is for hangs
# (tests/watch.sh) and ends all processes that the command has started.
run() {
  progressed "$*"
  run_began=$(date +%s)
  MPIGRAD_TEST_RUN=$work timeout -k 5 "${limit:-300}" "$@" >"$work/out" 2>"$work/err" </dev/null
  status=$?
  # 137 is also the status of a program that a test has killed in order to look at what it leaves.
  if [ "$status" -eq 124 ] || { [ "$status" -eq 137 ] && [ $(($(date +%s) - run_began)) -ge "${limit:-300}" ]; }; then
    end_marked "MPIGRAD_TEST_RUN=$work"
  fi
  if grep -aq '^prterun \|^\[.*\] PMIX ERROR:' "$work/err"; then unframe; fi
}
# Removes the framed text that Open MPI 5's launcher adds to that of a failed rank, with a zero byte at its end, whatever its settings,
# and its lines about connections that an ended rank has left.
unframe() {
  tr -d '\000' <"$work/err" | awk '/^--------------------------------------------------/ { framed = !framed; next } !framed && !/^\[.*\] PMIX ERROR:/' >"$work/unframed"
  mv "$work/unframed" "$work/err"
}
progressed() { [ -z "${MPIGRAD_TEST_PROGRESS:-}" ] || printf '%s\n' "$1" >>"$MPIGRAD_TEST_PROGRESS"; }
# Like run, but without a limit: the time of a compiler depends on the machine. Only the limit of all tests together ends it.
compile() {
  progressed "compiling: $*"
  "$@" >"$work/out" 2>"$work/err" </dev/null
  status=$?
  progressed "compiled: $*"
}
ranks() {
  p=$1
  shift
  # shellcheck disable=SC2086  # MPIEXEC may hold options
  run $MPIEXEC -n "$p" "$@"
}
# Gives rank 0 other arguments or another folder than the other ranks: unequal FIRST OTHERS COMMAND..., unequal_folders FIRST
# OTHERS COMMAND...
cat >"$work/unequal" <<'END'
#!/bin/sh
how=$1 mine=$2
[ "${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-0}}}" = 0 ] || mine=$3
shift 3
if [ "$how" = folder ]; then cd "$mine" && exec "$@"; fi
# shellcheck disable=SC2086  # may be several arguments
exec "$@" $mine
END
chmod +x "$work/unequal"
unequal() { ranks 2 "$work/unequal" arguments "$@"; }
unequal_folders() { ranks 2 "$work/unequal" folder "$@"; }
# full COMMAND...: like run, with standard output on a full device.
full() {
  : >"$work/out"
  timeout -k 5 120 "$@" >/dev/full 2>"$work/err" </dev/null
  status=$?
}
threads() {
  p=$1 tool=$2
  shift 2
  run "$tool" --transport threads --ranks "$p" "$@"
}

# ---- conditions

# Exit status 1 and one line with the reason.
refuses_full() { [ "$status" -eq 1 ] && [ "$(wc -l <"$work/err")" -eq 1 ] && grep -q 'No space left on device$' "$work/err"; }
# Exit status 0 and a warning that matches.
warns() { succeeds && grep -q -e "^warning: .*$1" "$work/err"; }
silent() { succeeds && [ ! -s "$work/err" ]; }
# Failed, but not by a signal or the time limit.
refuses() { [ "$status" -gt 0 ] && [ "$status" -lt 124 ] && grep -q -e "$1" "$work/err"; }
# Exit status 1 and one line on standard error from all ranks together: no rank was aborted.
refuses_once() { { [ "$status" -eq 1 ] || [ "$status" -eq 2 ]; } && [ "$(wc -l <"$work/err")" -eq 1 ] && grep -q -e "$1" "$work/err"; }
# number NAME: a value of the JSON document that was printed.
number() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$work/out" "$1"; }
# about A B [PART]: A and B are equal to a thousandth, or to PART.
about() { awk -v a="$1" -v b="$2" -v part="${3:-0.001}" 'BEGIN { r = a / b; exit !(r > 1 - part && r < 1 + part) }'; }
# python_with MODULES: sets `python` to a Python that has them; false if there is none.
python_with() {
  for python in python3 /usr/bin/python3; do "$python" -c "import $1" 2>/dev/null && return 0; done
  python=
  return 1
}
is_json() { succeeds && python3 -m json.tool "$work/out" >/dev/null; }
no_file() { [ ! -e "$1" ]; }

# judge NAME CONDITION...: one test; it passes if the condition, a command, succeeds.
judge() {
  name=$1
  shift
  if "$@" >>"$work/log" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf 'failed: %s\n' "$name"
    printf '  status %s\n' "$status"
    sed 's/^/  | /' "$work/err" | tail -n 5
    sed -n 's/^failed: /  | failed: /p' "$work/out" | tail -n 5
  fi
}
skip() {
  skipped=$((skipped + 1))
  printf 'skipped: 1 %s\n' "$1"
}

# Prints `N passed, M failed, K skipped`; its status is the suite's.
summary() {
  printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
  [ "$failed" -eq 0 ]
}

# ---- conditions
succeeds() { [ "$status" -eq 0 ]; }
says() { succeeds && grep -q -e "$1" "$work/out"; }
# Exit status 2 and one line that matches.
refuses_arguments() {
  [ "$status" -eq 2 ] && [ "$(wc -l <"$work/err")" -eq 1 ] && grep -q -e "$1" "$work/err" && [ ! -s "$work/out" ]
}
# near_losses METRICS METRICS: the training losses of two or more epochs are equal to 1e-9, relative.
near_losses() {
  succeeds && awk -F, '
    FNR == 1 { file++; next }
    file == 1 { a[FNR] = $2 }
    file == 2 { d = $2 - a[FNR]; if (d < 0) d = -d; n++; if (d > 1e-9 * a[FNR]) bad = 1 }
    END { exit bad || n < 2 }' "$1" "$2"
}
# same_losses FILE EPOCH FILE EPOCH: the losses of two epochs in tables of runs are equal to 1e-9, relative.
same_losses() {
  awk -F, -v first="$2" -v second="$4" '
    FNR == 1 { file++ }
    file == 1 && $1 == first { a = $2 }
    file == 2 && $1 == second { b = $2 }
    END { d = a - b; if (d < 0) d = -d; if (a < 0) a = -a; exit !(a > 0 && d <= 1e-9 * a) }' "$1" "$3"
}
