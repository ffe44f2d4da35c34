#!/bin/sh
# Installs missing packages, builds, runs every test and ends with one line `N passed, M failed, K skipped`.
#
#   sh tests/run.sh                    all quick tests
#   sh tests/run.sh SUITE...           some of unit, mpi, emulated, examples, site; site makes and checks the whole site
#   sh tests/run.sh slurm              job scripts under a real Slurm (tests/slurm.sh); builds only the programs that it needs
#   sh tests/run.sh mpis [NAME...]     the suite mpi with several MPIs, a build each (tests/mpis.sh)
#   sh tests/run.sh --long [NAME]      a long test by itself, or their list with the last run of each (tests/long.sh)
#
# MPIGRAD_SHOW_SKIPS=1 lists every skipped test. Exits non-zero if a test failed or none ran.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$root/examples/packaging/packages.sh"

suites='' long='' slurm=''
if [ "${1:-}" = mpis ]; then
  shift
  # shellcheck disable=SC2086,SC2154  # several names, from packages.sh
  install_packages $test_packages libopenmpi-dev openmpi-bin libhdf5-dev python3-pip
  exec sh "$root/tests/mpis.sh" "$@"
fi
if [ "${1:-}" = --long ]; then
  shift
  [ "$#" -gt 0 ] || exec sh "$root/tests/long.sh"
  long=$1
  [ "$#" -eq 1 ] || die "--long takes one name, got $*"
  [ "$long" != site ] || MPIGRAD_TEST_SITE=1
  shift
fi
for argument; do
  case $argument in
    -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
    site)
      MPIGRAD_TEST_SITE=1
      export MPIGRAD_TEST_SITE
      suites="$suites --suite site"
      ;;
    slurm)
      [ "$#" -eq 1 ] || die "slurm runs by itself, got $*"
      slurm=1
      ;;
    unit | mpi | emulated | examples) suites="$suites --suite $argument" ;;
    *) die "run.sh knows --long and the suites unit, mpi, emulated, examples, site, slurm and mpis, got $argument" ;;
  esac
done

# shellcheck disable=SC2086,SC2154  # several names, from packages.sh
if [ -n "${MPIGRAD_TEST_SITE:-}" ]; then test_packages="$test_packages $site_packages"; fi
if [ -n "$slurm" ]; then test_packages="$test_packages slurm-wlm munge libpmix-dev iproute2 procps"; fi
# shellcheck disable=SC2086
install_packages $test_packages
configure_tests
if [ -n "$slurm" ]; then
  build_targets examples/elastic examples/cosmoflow examples/universe examples/hpo
  exec sh "$root/tests/slurm.sh"
fi
build_targets
choose_launcher
if [ -n "$long" ]; then exec sh "$root/tests/long.sh" "$long"; fi

# The list of tests is in tests/meson.build, the limits are in one.sh. Three at a time on two cores: some suites mostly wait for
# limits.
rm -f "$build/meson-logs/testlog.json"
# shellcheck disable=SC2086  # several options
PYTHONUNBUFFERED=1 meson test -C "$build" --no-rebuild --num-processes 3 $suites || [ -s "$build/meson-logs/testlog.json" ] || die "no test ran"
exec python3 "$root/tests/summary.py" "$build"
