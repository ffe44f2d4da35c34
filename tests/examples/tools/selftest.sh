#!/bin/sh
# mpigrad-selftest as administrators run it, and with an MPI library that adds up wrongly. Prints `failed: NAME` for each failed
# test and ends with `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher

tools=$build/examples
. "$root/tests/suite.sh"

needs 'the tools are' "$tools/mpigrad-selftest"
selftest=$tools/mpigrad-selftest
mkdir "$work/folder"
TMPDIR=$work/folder
export TMPDIR

all_pass() { succeeds && silent && tail -n 1 "$work/out" | grep -q '^2[0-9] passed, 0 failed in [0-9.]* s$' && ! grep -q '^FAILED' "$work/out"; }
for p in 1 2 3 4; do
  ranks $p "$selftest"
  judge "all items pass on $p ranks" all_pass
done
threads 6 "$selftest"
judge 'all items pass on 6 threads' all_pass
judge 'no file remains' test -z "$(ls "$work/folder")"

ranks 2 "$selftest" --scaling --machine "$root/examples/machines/two_cores.toml" --report "$work/report.json"
judge 'rates: next to those of a machine file' says '^allreduce  *8192 KiB  *[0-9.]* GB/s  *1.62  *[0-9.]*$'
has_report() {
  python3 - "$work/report.json" "$@" <<'END2'
import json, sys
report = json.load(open(sys.argv[1]))
assert report["ranks"] == 2 and sum(report["hosts"].values()) == 2 and report["mpi"] and report["processor"]
assert report["passed"] == len(report["items"]) and report["failed"] == 0
assert all(item["passed"] and item["seconds"] >= 0 for item in report["items"])
assert {"allreduce", "halos to two neighbours"} <= {rate["name"] for rate in report["rates"] if rate["expected"] > 0}
END2
}
judge 'the report has versions, hosts, items and rates' has_report
ranks 2 "$selftest" --json
judge '--json prints the report only' is_json

# ---- failures
failures() { [ "$status" -eq 1 ] && grep -q -e "^FAILED .*$1" "$work/out" && grep -q -e "$2" "$work/out"; }
ranks 2 "$selftest" --seconds 0.00001
judge 'items for which no time is left have failed' failures 'files: checkpoint' 'not run: 1e-05 s are over'
if [ -f "$build/tests/libwrong_mpi.so" ]; then
  ranks 2 env LD_PRELOAD="$build/tests/libwrong_mpi.so" "$selftest"
  judge 'an MPI library with wrong sums is noticed' failures 'values of calls' 'allreduce is off by'
else
  skip 'there is no MPI'
fi
ranks 2 "$selftest" --folder "$work/nowhere"
judge 'a folder that does not exist' refuses_arguments 'nowhere: no folder can be made there'
ranks 2 "$selftest" --machine "$root/examples/machines/two_cores.toml"
judge '--machine without --scaling' refuses_arguments 'machine is for --scaling'
ranks 3 "$selftest" --scaling --machine "$root/examples/machines/two_cores.toml"
judge 'a machine of fewer ranks' refuses_arguments 'two_cores.toml has 2 ranks, fewer than the 3'

summary
