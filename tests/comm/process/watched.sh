#!/bin/sh
# Tests of tests/watch.sh: hanging programs are ended and named, slow ones are not. Prints `failed: NAME` for each failed test and
# ends with `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
. "$root/tests/suite.sh"

# under_watch SECONDS COMMAND...: a separate script, as tests/run.sh is one; status and output are those of the command.
cat >"$work/under_watch" <<'END'
#!/bin/sh
root=$1
shift
. "$root/examples/packaging/packages.sh"
watch_step=1
. "$root/tests/watch.sh"
run_limited "$@"
cat "$output"
exit "$status"
END
under_watch() { run sh "$work/under_watch" "$root" "$@"; }
ends() { [ "$status" -eq "$1" ]; }
fails() { ends "$1" && grep -q -e "$2" "$work/out"; }

cat >"$work/slow" <<'END'
#!/bin/sh
for i in 1 2 3 4 5 6 7 8 9 10; do printf 'test %s\n' "$i" >>"$MPIGRAD_TEST_PROGRESS"; sleep 1; done
echo all ten
END
under_watch 8 sh "$work/slow"
judge 'a program that is slower than the limit, but none of whose tests is, goes on' says '^all ten$'

# It starts another program, which must not survive either.
cat >"$work/hangs" <<'END'
#!/bin/sh
printf 'the first\nthe second\n' >>"$MPIGRAD_TEST_PROGRESS"
sleep 1000 &
echo "$!" >"$1"
echo said before
sleep 1000
END
under_watch 3 sh "$work/hangs" "$work/child"
judge 'a program that hangs is ended, and its test named' fails 124 '^ended: for 3 seconds no test has begun or ended; the last to begin: the second$'
judge 'what it said before is kept' fails 124 '^said before$'
gone() {
  [ -s "$work/child" ] || return 1
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    kill -0 "$(cat "$work/child")" 2>/dev/null || return 0
    sleep 1  # the parent needs a moment to collect the exit status
  done
  return 1
}
judge 'nothing of a program that hangs stays behind' gone
# A suite whose compilation takes longer than the limit, and which then hangs, in process groups of its own.
cat >"$work/suite" <<'END'
#!/bin/sh
root=$1 child=$2
. "$root/examples/packaging/packages.sh"
. "$root/tests/suite.sh"
compile sleep 8
say "compiled: $status"
run setsid sh -c 'sleep 1000 & echo "$!" >"$1"; exec sleep 1000' sh "$child"
END
rm -f "$work/child"
under_watch 5 sh "$work/suite" "$root" "$work/child"
judge 'what compiles for longer than the limit is not ended' fails 124 '^compiled: 0$'
judge 'what hangs afterwards is' fails 124 '^ended: for 5 seconds .* the last to begin: setsid sh'
judge 'with all that it has started, whatever its group' gone
cat >"$work/limits" <<'END'
#!/bin/sh
root=$1 child=$2
. "$root/examples/packaging/packages.sh"
. "$root/tests/suite.sh"
limit=1
run sh -c 'setsid sleep 1000 & echo "$!" >"$1"; exec sleep 1000' sh "$child"
exit "$status"
END
rm -f "$work/child"
run sh "$work/limits" "$root" "$work/child"
judge "a suite's own limit ends a program" ends 124
judge 'and all that it has started' gone
under_watch 60 sh -c 'exit 7'
judge 'a program that fails keeps its own status' ends 7
under_watch 60 sh -c 'kill -9 $$'
judge 'a program that is killed is no hang' ends 137

if [ -x "$build/tests/unit" ]; then
  MPIGRAD_TEST_PROGRESS=$work/progress
  export MPIGRAD_TEST_PROGRESS
  run "$build/tests/unit" -tc='includes: the tree is read'
  named() { succeeds && grep -q '^includes: the tree is read$' "$work/progress"; }
  judge 'unit names the test that it begins' named
fi

summary
