#!/bin/sh
# Measures training steps of the 3D U-Net (MLPerf's, batch 1, float32) on this machine's cores and writes
# tests/bench/results/unet-DATE-COMMIT.md: compared with bare oneDNN primitives of its layers and a large product, with PyTorch,
# two ranks with two threads and with ranks that exchange nothing, scaling, cost of a profile; CosmoFlow on two ranks with JAX on
# two devices; and both networks in bfloat16 with float32, with PyTorch's bfloat16 and with a large product, and their losses.
# Compared cases are measured in turns. Three rounds take some 30 minutes with two Pythons; --only precision takes some 10 and is
# all that a processor with AMX has to answer.
#
#   sh tests/bench/unet/unet.sh [--quick] [--sizes "64 128"] [--rounds 3] [--only exchange] [PYTHON...]
#
# PYTHON: interpreters that have torch or jax or both (default: python3). --sizes: sizes of all tables, ascending. --quick: tries
# everything with the smallest volumes and single steps, to standard output. --only: selects tables from floor, peers, split,
# exchange, scaling, precision, jax and profile; some need others.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
rounds=3 quick='' options='' only=''
sizes='64 128' exchange_sizes='64 96 128' scaling_size=64 split_size=128 profile_size=32 losses_size=64 losses=50
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --quick)
      options="$options --quick" quick=1 rounds=1 sizes=64 exchange_sizes=32 scaling_size=32 split_size=32 profile_size=32
      losses_size=32 losses=5
      shift
      ;;
    --sizes)
      [ -n "${2:-}" ] || die '--sizes is a list such as "64 128"'
      options="$options --sizes '$2'"
      sizes=$2 exchange_sizes=$2 scaling_size=${2%% *} split_size=${2##* }
      shift 2
      ;;
    --rounds)
      [ "${2:-0}" -ge 1 ] 2>/dev/null || die '--rounds is a number from 1 on'
      options="$options --rounds $2" rounds=$2
      shift 2
      ;;
    --only)
      for table in ${2:-none}; do
        case $table in
          floor | peers | split | exchange | scaling | precision | jax | profile) ;;
          *) die '--only is a list of tables such as "split exchange"' ;;
        esac
      done
      options="$options --only '$2'"
      only=$2
      shift 2
      ;;
    -*) die "unet.sh has no option $1" ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || set -- python3
peers=${MPIGRAD_SHARED:-$root/../shared}/peers

# shellcheck disable=SC2086,SC2154  # several names, from packages.sh
install_packages $test_packages
configure_tests
build_targets tests/unet_step tests/cosmoflow_step
choose_launcher
step=$build/tests/unet_step cosmoflow=$build/tests/cosmoflow_step
for program in "$step" "$cosmoflow"; do
  [ -x "$program" ] || die "$program is not built: it needs oneDNN and the libraries of the examples"
done

commit=$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)
git -C "$root" diff --quiet HEAD 2>/dev/null || commit=$commit-modified
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
begun=$(date +%s)

# Counted steps in each round: times of large volumes vary less.
repeats() {
  if [ -n "$quick" ] || [ "$1" -ge 96 ]; then echo 1; else echo 2; fi
}
# unet SIZE OPTIONS...: steps on one rank; the next two on two ranks with half of the volume each.
unet() {
  size=$1
  shift
  "$step" --size "$size" --warm-up 1 --repeats "$(repeats "$size")" "$@"
}
on_processes() {
  size=$1
  shift
  run_ranks 2 "$step" --size "$size" --warm-up 1 --repeats "$(repeats "$size")" --threads 1 --grid depth=2 "$@"
}
on_threads() {
  MPIGRAD_TRANSPORT=threads MPIGRAD_RANKS=2 "$step" --size "$1" --warm-up 1 --repeats "$(repeats "$1")" --threads 1 --grid depth=2
}
# record TABLE COMMAND...: adds lines of JSON to the table of that name. Failures are reported, and the other commands continue.
record() {
  table=$1
  shift
  case " $only " in '  ' | *" $table "*) ;; *) return ;; esac
  say "$(($(date +%s) - begun)) s: $*"
  "$@" >>"$work/$table" || say "failed: $*"
}
has_amx() { grep -qw amx_bf16 /proc/cpuinfo; }
has() { [ -f "$peers/$2_step.py" ] && "$1" -c "import $2" 2>/dev/null; }

round=1
while [ "$round" -le "$rounds" ]; do
  for size in $sizes; do
    record floor unet "$size" --threads 2 --floor
    # PyTorch refuses to normalise a single cell, which 32^3 is reduced to; a step at 128^3 takes it a minute.
    if [ "$size" -lt 64 ] || { [ "$size" -ge 96 ] && [ "$round" -gt 1 ]; }; then continue; fi
    for python; do
      has "$python" torch || continue
      for format in '' --channels-last; do
        # shellcheck disable=SC2086  # no word or one
        record peers "$python" "$peers/torch_step.py" --model unet3d --size "$size" --threads 2 --warmup 1 --steps 1 $format
      done
    done
  done
  for size in $sizes; do
    record precision unet "$size" --threads 2 --precision float32 bfloat16
    record precision "$cosmoflow" --step-only --size "$size" --threads 2 --repeats 5 --precision float32 bfloat16
    for python; do
      has "$python" torch || continue
      for format in '' --channels-last; do
        # shellcheck disable=SC2086  # no word or one
        record precision "$python" "$peers/torch_step.py" --model cosmoflow --size "$size" --threads 2 --steps 5 --dtype bf16 $format
        # See above: 32^3 is too small for PyTorch, and without AMX a step at 128^3 takes it a minute.
        if [ "$size" -lt 64 ] || { [ "$size" -ge 96 ] && [ "$round" -gt 1 ] && ! has_amx; }; then continue; fi
        # shellcheck disable=SC2086
        record precision "$python" "$peers/torch_step.py" --model unet3d --size "$size" --threads 2 --warmup 1 \
          --steps "$(repeats "$size")" --dtype bf16 $format
      done
    done
  done
  case " $sizes " in
    *" $split_size "*) ;;
    *) record floor unet "$split_size" --threads 2 --floor ;;
  esac
  record split on_threads "$split_size"
  for size in $exchange_sizes; do record exchange on_processes "$size" --communication on waiting none; done
  record scaling unet "$scaling_size" --threads 1
  record scaling on_processes "$scaling_size" --depth $((2 * scaling_size)) --communication on none
  if [ "$round" -eq 1 ]; then
    # 50 steps each, those that warm up included.
    record precision "$step" --size "$losses_size" --threads 2 --warm-up 1 --repeats $((losses - 1)) --losses --precision float32 bfloat16
    record precision "$cosmoflow" --step-only --size "$losses_size" --threads 2 --repeats $((losses - 2)) --losses \
      --precision float32 bfloat16
    for python; do
      has "$python" jax || continue
      for size in $sizes; do
        record jax "$python" "$peers/jax_step.py" --size "$size" --devices 2 --steps 3
        record jax run_ranks 2 "$cosmoflow" --step-only --size "$size" --threads 1 --grid depth=2 --repeats 3
      done
    done
  fi
  round=$((round + 1))
done
pairs=15
[ -z "$quick" ] || pairs=3
record profile "$step" --size "$profile_size" --threads 2 --profile-cost --warm-up 1 --repeats "$pairs"
minutes=$((($(date +%s) - begun) / 60))

{
  printf '# 3D U-Net steps on CPUs, %s, commit %s\n\n' "$(date +%F)" "$commit"
  printf '%s; %s; oneDNN %s, compiler %s\n\n' "$(processor)" "$(system_name)" \
    "$(dpkg-query --show --showformat='${Version}' libdnnl-dev 2>/dev/null || echo unknown)" \
    "$("${CXX:-c++}" --version | head -n 1)"
  # shellcheck disable=SC2016  # backquotes of Markdown
  printf 'From `sh tests/bench/unet/unet.sh%s PYTHON...`: %s minutes, load %s at its end.\n' "$options" "$minutes" \
    "$(cut -d ' ' -f 1 /proc/loadavg)"
  python3 "$root/tests/bench/unet/unet.py" "$work"
} >"$work/page.md"
if [ -n "$quick" ]; then
  cat "$work/page.md"
else
  results=$root/tests/bench/results/unet-$(date +%F)-$commit.md
  mkdir -p "$root/tests/bench/results"
  mv "$work/page.md" "$results"
  chmod 644 "$results"
  say "written to $results"
fi
