#!/bin/sh
# Runs the studies for the documents that this project implements, and writes one page: each published number or sentence, ours,
# the command, and what differs and why. Installs what is missing first, and builds. A second run resumes where the first stopped.
#
#   sh examples/studies/reproduce.sh [--quick] [--list] [DOCUMENT...]
#
#   --quick    smaller runs: at most 20 minutes on two cores for all documents; else up to 150 minutes for each
#   --list     documents, their claims and the minutes of their runs; runs nothing
#   DOCUMENT   some of krajsek, oyama, gholami, kahira, yoginath, rojas; default: all
#
# The page is build/reproduce/report.html, or build/reproduce-quick/report.html. The exit code is 1 if a run failed.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
. "$root/examples/packaging/packages.sh"
study=$root/examples/studies/reproduce/reproduce.py
case " $* " in
  *' -h '* | *' --help '*) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *' --list '*) exec python3 "$study" "$@" ;;
esac
python3 "$study" --check "$@"
install_packages
configure_programs
# shellcheck disable=SC2046  # several names
build_targets $(python3 "$study" --programs "$@")
choose_launcher
exec python3 "$study" --build "$build" --launcher "$MPIEXEC" "$@"
