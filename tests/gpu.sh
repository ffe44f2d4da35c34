#!/bin/sh
# shellcheck disable=SC2016  # backquotes are Markdown's
# Checks everything that needs an NVIDIA GPU, measures, and writes tests/bench/results/gpu-DATE-COMMIT.md.
#
#   sh tests/gpu.sh                  all parts, in this order: build tests memcheck racecheck ranks training steps layers large
#   sh tests/gpu.sh build tests      some of them: what they found is kept in build-gpu/report until `report` or a full run
#   sh tests/gpu.sh report           writes the report from the parts that were run
#   sh tests/gpu.sh --bundle         packs what a build needs, but for CUDA, from this machine's packages into .gpu-bundle, to be
#                                    carried to a machine that can install nothing
#
# MPIGRAD_PEER: a command that times PyTorch's step (takes --model --size --batch --dtype --compile ...).
# Exits non-zero if a test failed.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$root/tests/packages.sh"
. "$root/tests/gpu_bundle.sh"
build=$root/build-gpu
bundle=$root/.gpu-bundle
parts=$build/report

all='build tests memcheck racecheck ranks training steps layers large report'
wanted=
for argument; do
  case $argument in
    --bundle) make_bundle "$bundle"; exit ;;
    -h | --help) sed -n '3,14s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) die "gpu.sh knows only --bundle, got $argument" ;;
    *)
      case " $all " in
        *" $argument "*) wanted="$wanted $argument" ;;
        *) die "there is no part $argument; the parts are: $all" ;;
      esac
      ;;
  esac
done
mkdir -p "$parts"
if [ -z "$wanted" ]; then
  wanted=$all
  rm -f "$parts"/*
fi
wants() { case " $wanted " in *" $1 "*) return 0 ;; *) return 1 ;; esac; }

if [ "$wanted" != ' report' ]; then
  if ! nvidia-smi -L >/dev/null 2>&1; then die "there is no NVIDIA GPU here (nvidia-smi finds none)"; fi
fi

use_wheels
if [ -f "$bundle/bundle.tar.gz" ]; then use_bundle "$bundle"; fi

# ---- counting, as in tests/run.sh

passed=0 failed=0 skipped=0
output=$(mktemp) || die "no temporary file"
trap 'rm -f "$output"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# run_limited SECONDS COMMAND...
run_limited() {
  limit=$1
  shift
  timeout -k 10 "$limit" "$@" >"$output" 2>&1 </dev/null
  status=$?
}
# Adds to the counts, which are kept in a file of the part: `N M K`.
note() { printf '%s %s %s\n' "$passed" "$failed" "$skipped" >"$parts/$1.counts"; }
begin() {
  passed=0 failed=0 skipped=0
  say "$1 ..."
}
good() { passed=$((passed + 1)); }
bad() {
  failed=$((failed + 1))
  printf 'failed: %s (status %s)\n\n' "$1" "$status"
  printf '```\n%s\n```\n\n' "$(tail -n 40 "$output")"
}
# The last line of a test program: `N passed, M failed, K skipped`.
count_unit() {
  line=$(tail -n 1 "$output" | grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$')
  if [ -z "$line" ]; then
    bad "$1: ended before its summary"
    return
  fi
  # shellcheck disable=SC2086
  set -- "$1" $line
  passed=$((passed + $2)) failed=$((failed + $4)) skipped=$((skipped + $6))
  printf '%s: %s passed, %s failed, %s skipped\n\n' "$1" "$2" "$4" "$6"
  if [ "$4" -gt 0 ] || [ "$status" -ne 0 ]; then
    printf '```\n%s\n```\n\n' "$(grep -E '^failed: |ERROR|error' "$output" | head -n 100)"
    if [ "$4" -eq 0 ]; then failed=$((failed + 1)); fi
  fi
}

# ---- parts

build_for_gpu() {
  if [ ! -f "$bundle/bundle.tar.gz" ] && [ "$(id -u)" -eq 0 ] && have apt-get; then
    case $(system_name) in
      'debian 12' | 'debian 13' | 'ubuntu 24.04') (install_packages) || say "building with what is here" ;;
    esac
  fi
  arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d '. ')
  if [ ! -f "$build/build.ninja" ]; then
    meson setup "$build" "$root" --buildtype=release -Dcuda=enabled -Dcudnn=enabled "-Dgpu_archs=$arch" >"$output" 2>&1 || {
      cat "$output" >&2
      die "meson could not configure $build"
    }
    sed -n '/Backends/,/^$/p' "$output" >"$build/backends.txt"
    sed -n 1,30p "$build/backends.txt" >&2
  fi
  ninja -C "$build" >"$output" 2>&1 || {
    grep -v '^\[[0-9]*/[0-9]*\] ' "$output" >&2
    die "the build failed"
  }
}

# Every test, those of the CPU as well: the same programs, on another machine.
run_tests() {
  run_limited 3600 "$build/tests/unit"
  count_unit unit
}

# run_sanitizer TOOL FILTER: over the op tests, which launch every kernel.
run_sanitizer() {
  sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
  if [ ! -x "$sanitizer" ]; then
    skipped=$((skipped + 1))
    printf 'skipped: compute-sanitizer was not found\n\n'
    return
  fi
  run_limited 3600 env MPIGRAD_SANITIZER=1 "$sanitizer" --tool "$1" --error-exitcode 99 "$build/tests/unit" -tc="$2"
  printf '`%s`\n\n' "$(grep -E '^=+ (ERROR|RACECHECK) SUMMARY' "$output" | tail -n 1)"
  sed '/^=\{9\}/d' "$output" >"$output.plain" && mv "$output.plain" "$output"
  count_unit "$1"
}

# Ranks as threads of one process are in `unit`; here they are processes. Where there is one GPU, NCCL is told that its two ranks
# are on two hosts.
run_ranks_with_nccl() {
  gpus=$(nvidia-smi -L | wc -l)
  # It ends the script where there is no MPI.
  if (choose_launcher) >/dev/null 2>&1; then choose_launcher; fi
  if [ ! -x "$build/tests/nccl_ranks" ] || [ -z "${MPIEXEC:-}" ]; then
    skipped=$((skipped + 1))
    printf 'skipped: NCCL between processes needs MPI\n\n'
    return
  fi
  apart=
  if [ "$gpus" -lt 2 ]; then apart='NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_NET=Socket'; fi
  # shellcheck disable=SC2086
  run_limited 600 env $apart $MPIEXEC -n 2 "$build/tests/nccl_ranks" --transport mpi --device cuda
  if [ "$status" -eq 0 ]; then
    good
    printf '```\n%s\n```\n\n' "$(grep '^ok' "$output")"
  else
    bad nccl_ranks
  fi
  # shellcheck disable=SC2086
  # shellcheck disable=SC2016  # each rank has its own number
  run_limited 300 env MPIGRAD_DEVICE=cuda $apart $MPIEXEC -n 2 sh -c '[ -z "$1" ] || export NCCL_HOSTID="host$PMI_RANK"; exec "$0"' \
    "$build/tests/mpi_adjoint" "$apart"
  if [ "$status" -eq 0 ]; then good; else bad 'mpi_adjoint on a GPU'; fi
}

# Tools as a user runs them.
run_training() {
  if [ ! -x "$build/examples/cosmoflow" ]; then
    skipped=$((skipped + 1))
    printf 'skipped: the trainers need the libraries of the examples\n\n'
    return
  fi
  data=$build/universes
  if [ ! -e "$data/done" ]; then
    rm -rf "$data"
    run_limited 300 "$build/examples/universe" generate --transport threads --ranks 4 --size 32 --cell 4 --universes 384 --out "$data" --spread
    if [ "$status" -ne 0 ]; then bad 'universe generate'; return; fi
    touch "$data/done"
  fi
  common="--data $data --batch-norm --epochs 8 --batch 16 --seed 1 --json --quiet --overwrite"
  printf '| device | precision | ranks | training loss | test loss | seconds | MiB |\n|---|---|---|---|---|---|---|\n'
  for case in 'cpu float32 1' 'cuda float32 1' 'cuda tf32 1' 'cuda bfloat16 1' 'cuda float16 1' 'cuda float32 2' 'cuda float32 1 --graph'; do
    # shellcheck disable=SC2086
    set -- $case
    grid=depth=$3
    # shellcheck disable=SC2086
    run_limited 600 "$build/examples/cosmoflow" --transport threads --ranks "$3" --device "$1" --precision "$2" --grid "$grid" \
      ${4:-} $common --out "$build/trained-$1-$2-$3${4:-}"
    sed -n '/^{/,$p' "$output" >"$build/trained.json"
    if [ "$status" -eq 0 ]; then
      good
      # Standard output is one JSON document.
      python3 - "$build/trained.json" "$@" <<'PY'
import json, sys
result = json.load(open(sys.argv[1]))
last = result["epochs"][-1]
print("| {} | {} | {} | {:.4f} | {:.4f} | {:.1f} | {} |".format(sys.argv[2], " ".join(sys.argv[3:4] + sys.argv[5:]), sys.argv[4], last["train_loss"], last["test_loss"],
      result["training_seconds"], result.get("peak_gpu_bytes_per_rank", 0) >> 20))
PY
    else
      printf '| %s | %s | %s | failed | | | |\n' "$1" "$2 ${4:-}" "$3"
      bad "cosmoflow $*"
    fi
  done
}

bench_step() {
  run_limited 1700 "$build/tests/gpu_step" --device cuda "$@"
  cat "$output"
  printf '\n'
  # Counted as a test, so that a benchmark that failed is not overlooked.
  if [ "$status" -eq 0 ]; then good; else bad "gpu_step $*"; fi
}

peer=${MPIGRAD_PEER:-}
if [ -z "$peer" ] && [ -f "$root/../shared/peers/torch_step.py" ] && have python3 && python3 -c 'import torch' 2>/dev/null; then
  peer="python3 $root/../shared/peers/torch_step.py"
fi

if wants build; then
  begin build
  build_for_gpu
fi
if wants tests; then
  begin tests
  run_tests >"$parts/1-tests.md"
  note tests
fi
if wants memcheck; then
  begin memcheck
  run_sanitizer memcheck 'gpu*' >"$parts/2-memcheck.md"
  note memcheck
fi
if wants racecheck; then
  begin racecheck
  run_sanitizer racecheck 'gpu*' >"$parts/3-racecheck.md"
  note racecheck
fi
if wants ranks; then
  begin ranks
  run_ranks_with_nccl >"$parts/4-ranks.md"
  note ranks
fi
if wants training; then
  begin training
  run_training >"$parts/5-training.md"
  note training
fi
if wants steps; then
  begin steps
  {
    if [ -z "$peer" ]; then printf 'PyTorch was not found: its columns are missing.\n\n'; fi
    bench_step --no-layers --size 128 256 --batch 1 2 4 8 --precision tf32 bfloat16 ${peer:+--peer "$peer"}
    bench_step --no-layers --variant mlperf --size 128 --batch 4 --precision tf32 bfloat16
  } >"$parts/6-steps.md"
  note steps
fi
if wants layers; then
  begin layers
  {
    bench_step --layers-only --size 128 --batch 1 2 4 8 --precision float32 tf32 bfloat16
    bench_step --layers-only --size 256 --batch 1 2 4 8 --precision tf32 bfloat16
    bench_step --layers-only --variant mlperf --size 128 --batch 4 --precision tf32 bfloat16
  } >"$parts/7-layers.md"
  note layers
fi
if wants large; then
  begin large
  bench_step --no-layers --no-autotune --size 512 --batch 1 --steps 3 --precision tf32 bfloat16 >"$parts/8-large.md"
  note large
fi

# ---- the report

for part in "$parts"/*.counts; do
  if [ ! -e "$part" ]; then continue; fi
  read -r p f s <"$part"
  total_passed=$((${total_passed:-0} + p)) total_failed=$((${total_failed:-0} + f)) total_skipped=$((${total_skipped:-0} + s))
done
summary="${total_passed:-0} passed, ${total_failed:-0} failed, ${total_skipped:-0} skipped"
if wants report; then
  commit=$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo "${MPIGRAD_COMMIT:-unknown}")
  git -C "$root" diff --quiet HEAD 2>/dev/null || commit=$commit-modified
  results=$root/tests/bench/results/gpu-$(date +%F)-$commit.md
  mkdir -p "$root/tests/bench/results"
  {
    printf '# On a GPU, %s, commit %s\n\n' "$(date +%F)" "$commit"
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | sed 's/^/* /'
    sed 's/^ */* /; /^\* *$/d; /Backends/d' "$build/backends.txt" 2>/dev/null
    printf '* processor: %s; %s\n\n%s\n\n' "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$(system_name)" "$summary"
    for part in "$parts"/*.md; do
      [ -e "$part" ] || continue
      name=$(basename "$part" .md)
      printf '## %s\n\n' "${name#*-}"
      cat "$part"
      printf '\n'
    done
  } >"$results"
  say "written to $results"
fi
printf '%s\n' "$summary"
# Parts without tests, such as `build`, cannot fail here; tests of which none passed have.
if [ -n "${total_passed:-}" ]; then [ "$total_failed" -eq 0 ] && [ "$total_passed" -gt 0 ]; fi
