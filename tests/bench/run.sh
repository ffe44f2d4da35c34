#!/bin/sh
# Measures CosmoFlow training steps on this machine's cores and writes tests/bench/results/cpu-DATE-COMMIT.md: mpigrad against the
# bare oneDNN primitives in one run, ranks against threads, and PyTorch's step against ours if a Python with torch is found; the
# last also in bfloat16.
# Then compares blocking and non-blocking calls in tests/bench/results/overlap-DATE-COMMIT.md.
#
# The page names the instruction sets in use; ONEDNN_MAX_CPU_ISA=AVX2 measures oneDNN as on a processor without AVX-512.
#
#   sh tests/bench/run.sh [PYTHON]      PYTHON: an interpreter that has torch (default: python3)
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
. "$root/examples/packaging/packages.sh"
case "${1:-}" in
  -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac
python=${1:-python3}
peer=$root/../shared/peers/torch_step.py

# shellcheck disable=SC2086,SC2154  # several names, from packages.sh
install_packages $test_packages
configure_tests
build_targets
choose_launcher
step=$build/tests/cosmoflow_step
[ -x "$step" ] || die "$step is not built: it needs oneDNN and the libraries of the examples"

commit=$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)
git -C "$root" diff --quiet HEAD 2>/dev/null || commit=$commit-modified
# For a run with fewer instruction sets than the processor has.
limited=${ONEDNN_MAX_CPU_ISA:+-$(printf %s "$ONEDNN_MAX_CPU_ISA" | tr '[:upper:]' '[:lower:]')}
results=$root/tests/bench/results/cpu-$(date +%F)-$commit$limited.md
mkdir -p "$root/tests/bench/results"
part=$(mktemp)
trap 'rm -f "$part"' EXIT

{
  printf '# CosmoFlow steps on CPUs, %s, commit %s\n\n' "$(date +%F)" "$commit"
  printf '%s; %s; oneDNN %s, compiler %s\n\n' "$(processor)" "$(system_name)" \
    "$(dpkg-query --show --showformat='${Version}' libdnnl-dev 2>/dev/null || echo unknown)" \
    "$("${CXX:-c++}" --version | head -n 1)"
  # shellcheck disable=SC2016  # backquotes of Markdown
  printf 'From `%s%ssh tests/bench/run.sh PYTHON`.\n\n' "${ONEDNN_MAX_CPU_ISA:+ONEDNN_MAX_CPU_ISA=$ONEDNN_MAX_CPU_ISA }" \
    "${OPENBLAS_CORETYPE:+OPENBLAS_CORETYPE=$OPENBLAS_CORETYPE }"
  printf '## Against the bare primitives, and ranks against threads\n\n```\n'
  "$step"
  with_torch=
  if [ -f "$peer" ] && "$python" -c 'import torch' 2>/dev/null; then with_torch=1; fi
  # shellcheck disable=SC2016
  printf '```\n\n## One process each: mpigrad, mpigrad on two MPI ranks%s\n\n```\n' "${with_torch:+, PyTorch}"
  for size in 64 128; do
    for threads in 1 2; do
      for precision in float32 bfloat16; do
        "$step" --step-only --size "$size" --threads "$threads" --precision "$precision"
        [ -n "$with_torch" ] || continue
        dtype=fp32
        [ "$precision" = float32 ] || dtype=bf16
        "$python" "$peer" --size "$size" --threads "$threads" --steps 5 --dtype "$dtype"
      done
    done
    run_ranks 2 "$step" --step-only --size "$size" --threads 1 --grid depth=2 --precision float32 bfloat16
  done
  printf '```\n'
} >"$part"
mv "$part" "$results"
chmod 644 "$results"
say "written to $results"

overlap=$root/tests/bench/results/overlap-$(date +%F)-$commit$limited.md
{
  printf '# Blocking and non-blocking calls side by side, %s, commit %s\n\n```\n' "$(date +%F)" "$commit"
  run_ranks 2 "$build/tests/overlap"
  printf '\n'
  "$build/tests/overlap" --transport threads --ranks 2
  printf '```\n'
} >"$part"
mv "$part" "$overlap"
chmod 644 "$overlap"
say "written to $overlap"
