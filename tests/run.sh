#!/bin/sh
# Installs what is missing, builds, runs every test and ends with one line `N passed, M failed, K skipped`.
#
#   sh tests/run.sh                    everything that is quick
#   sh tests/run.sh --all              the long tests as well
#   sh tests/run.sh [--all] SUITE...   some of unit, mpi, emulated, examples, site; site makes the whole site and looks at it, too
#
# MPIGRAD_SHOW_SKIPS=1 lists every skipped test. Exits non-zero if a test failed or none ran.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$root/tests/packages.sh"

suites=
for argument; do
  case $argument in
    --all)
      MPIGRAD_TEST_ALL=1
      export MPIGRAD_TEST_ALL
      ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    site)
      MPIGRAD_TEST_SITE=1
      export MPIGRAD_TEST_SITE
      suites="$suites --suite site"
      ;;
    unit | mpi | emulated | examples) suites="$suites --suite $argument" ;;
    *) die "run.sh knows --all and the suites unit, mpi, emulated, examples and site, got $argument" ;;
  esac
done

# shellcheck disable=SC2086,SC2154  # several names, from packages.sh
if [ -n "${MPIGRAD_TEST_ALL:-}${MPIGRAD_TEST_SITE:-}" ]; then test_packages="$test_packages $site_packages"; fi
install_packages $test_packages
configure_tests
build_targets
choose_launcher

# The list is in tests/meson.build. Limits are one.sh's. Three at a time on two cores: some suites wait for limits most of the time.
rm -f "$build/meson-logs/testlog.json"
# shellcheck disable=SC2086  # several options
PYTHONUNBUFFERED=1 meson test -C "$build" --no-rebuild --num-processes 3 $suites || [ -s "$build/meson-logs/testlog.json" ] || die "no test ran"
if [ -z "${MPIGRAD_TEST_ALL:-}" ] || [ -n "$suites" ]; then exec python3 "$root/tests/summary.py" "$build"; fi

# These build for hours before their first test.
. "$root/tests/watch.sh"
most_seconds=172800
run_limited "$most_seconds" sh "$root/tests/compilers.sh" "${CXX:-g++}"
cp "$output" "$build/compilers.txt"
run_limited "$most_seconds" sh "$root/tests/fuzz.sh"
cp "$output" "$build/fuzz.txt"
run_limited "$most_seconds" sh "$root/tests/sanitizers.sh"
python3 "$root/tests/summary.py" "$build" "compilers=$build/compilers.txt" "fuzz=$build/fuzz.txt" "sanitizers=$output"
