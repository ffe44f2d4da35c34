#!/bin/sh
# Measures time and memory of NT-Xent and CLIP in the direct form, around a ring and with cached gradients, on one rank, on two
# ranks as threads, and on two MPI ranks. Writes tests/bench/results/contrastive-DATE.md and .png; some ten minutes on two cores.
#
#   sh tests/bench/contrastive/contrastive.sh [LARGEST]      LARGEST: largest number of samples (default: 65536)
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
case "${1:-}" in
  -h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac
largest=${1:-65536}

# shellcheck disable=SC2086,SC2154  # several names, from packages.sh
install_packages $test_packages
configure_tests
build_targets
choose_launcher
program=$build/tests/contrastive_memory
[ -x "$program" ] || die "$program is not built: it needs the libraries of the examples"

results=$root/tests/bench/results/contrastive-$(date +%F)
mkdir -p "$root/tests/bench/results"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
begun=$(date +%s)
# Waiting threads sleep, so that processor time is work.
export OMP_WAIT_POLICY=passive

# One process per line, so that memory of one line does not count for another.
for loss in nt_xent clip; do
  for form in direct ring cached; do
    samples=1024
    while [ "$samples" -le "$largest" ]; do
      say "$loss, $form, $samples samples"
      set -- measure --loss "$loss" --form "$form" --samples "$samples" --to "$work/measured.csv"
      "$program" "$@" --transport threads --ranks 1
      [ "$samples" -gt "$((largest / 4))" ] || "$program" "$@" --transport threads --ranks 2
      run_ranks 2 "$program" "$@"
      samples=$((samples * 2))
    done
  done
done
"$program" report "$work/measured.csv" --to "$work/report"

{
  printf '# Contrastive losses: time and memory, %s, commit %s\n\n' "$(date +%F)" "$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)"
  printf '%s; %s; %s. Measured in %s minutes.\n\n' "$(processor)" "$(system_name)" \
    "$("${CXX:-c++}" --version | head -n 1)" "$((($(date +%s) - begun + 59) / 60))"
  cat <<'TEXT'
One step, forward and backward, float32: N samples in two views through an encoder 64 -> 512 -> 128, and the loss of their
embeddings (D = 128), whose matrix has 2N rows for NT-Xent and N for CLIP. Memory is the peak of all ranks together, of tensors and
of processes. "predicted" is the count of a previous run on the dry device; lines with more than 8 GiB are not run. "grows as"
compares a line with the one above. Seconds are those of the slowest rank on the clock in the fastest of two to twenty steps (if the
first takes more than ten seconds, in that one); "processor s" are those of all processors together, which other work on the machine
hardly changes; "products alone" is the processor time of the form's matrix products at the rate of large products in the same
process: four products for the ring, which computes the similarities again backwards; three for NT-Xent's direct form, six for CLIP's,
which has separate rows and columns.

TEXT
  printf '![memory and time](%s)\n' "$(basename "$results").png"
  cat "$work/report.md"
} >"$work/page.md"
mv "$work/page.md" "$results.md"
mv "$work/report.png" "$results.png"
chmod 644 "$results.md" "$results.png"
say "written to $results.md"
