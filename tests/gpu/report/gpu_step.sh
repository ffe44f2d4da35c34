#!/bin/sh
# shellcheck disable=SC2317  # functions are called by their names in the table
# Runs one step of tests/gpu.sh, which handles the limit, the order and the report:
#
#   sh tests/gpu/report/gpu_step.sh NAME
#
# Exit status: 0: passed; 77: a requirement is missing, which the last line names; any other: failed.
# MPIGRAD_GPU_BUILD: the build. MPIGRAD_GPU_PROGRAMS: folder of its programs. MPIGRAD_GPU_RUNNER: a command to run them, if any.
# MPIGRAD_REPORT: the report's folder. MPIGRAD_GPU_OPTIONS: options of Meson. MPIGRAD_PEER: a command that times PyTorch's step.
# MPIGRAD_GPU_SMALL: small shapes, for rehearsals.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
. "$root/tests/gpu/report/gpu_steps.sh"
build=$MPIGRAD_GPU_BUILD programs=$MPIGRAD_GPU_PROGRAMS runner=${MPIGRAD_GPU_RUNNER:-} peer=${MPIGRAD_PEER:-}
worst=0
# A failed command does not stop the rest of its step.
check() { "$@" || { status=$?; worst=1; echo "status $status: $*"; return 1; }; }
lacks() { printf 'skipped: %s\n' "$*"; exit 77; }
# start PROGRAM ARGUMENTS...: runs a program of the build. Its lines are in the report when they are printed.
start() {
  if [ ! -x "$programs/$1" ]; then lacks "$1 has not been built"; fi
  program=$programs/$1
  shift
  # shellcheck disable=SC2086  # MPIGRAD_GPU_RUNNER may hold options
  if have stdbuf; then $runner stdbuf -oL "$program" "$@"; else $runner "$program" "$@"; fi
}

look() {
  nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,temperature.gpu \
    --format=csv
  nvidia-smi || true
  printf 'system: %s, %s cores, %s\n' "$(system_name)" "$(nproc)" "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
  for tool in nvcc c++ python3 meson ninja pkg-config mpiexec ncu compute-sanitizer stdbuf; do
    printf '%s: %s\n' "$tool" "$(command -v "$tool" || echo 'not there')"
  done
  for command in 'nvcc --version' 'c++ --version' 'python3 --version' 'meson --version' 'ldd --version'; do
    # shellcheck disable=SC2086  # a command and its argument
    if have "${command%% *}"; then timeout 20 $command 2>&1 | grep -E '[0-9]\.[0-9]' | head -n 2; fi
  done
  if have python3; then
    timeout 50 python3 -c 'import torch
print("PyTorch", torch.__version__, "CUDA", torch.version.cuda, "cuDNN", torch.backends.cudnn.version())' 2>&1 | tail -n 1
  fi
  for library in libcudnn libcublasLt libnccl libcudart; do
    printf '%s: %s\n' "$library" "$( (ldconfig -p; ls -1 "$build"/wheels 2>/dev/null) | grep "$library\.so" | tail -n 1 | sed 's/^[[:space:]]*//')"
  done
}

# Waiting long for apt-get without a network is not worth it.
install_what_can_be() {
  if [ -f "$root/.gpu-bundle/bundle.tar.gz" ] || [ "$(id -u)" -ne 0 ] || ! have apt-get; then return 0; fi
  case $(system_name) in
    'debian 12' | 'debian 13' | 'ubuntu 24.04') ;;
    *) return 0 ;;
  esac
  # shellcheck disable=SC2016  # that shell's own argument
  timeout -k 5 150 sh -c 'root=$1; . "$root/examples/packaging/packages.sh"; install_packages $test_packages' sh "$root" || echo 'building with what is here'
}
configure() {
  if [ -f "$build/build.ninja" ]; then return 0; fi
  install_what_can_be
  arch=$(gpu_arch)
  # shellcheck disable=SC2086  # several options
  check meson setup "$build" "$root" --buildtype=release -Dtests=true -Dcuda=enabled -Dcudnn=enabled "-Dgpu_archs=$arch" ${MPIGRAD_GPU_OPTIONS:-} ||
    exit 1
}
build_programs_here() {
  if [ -n "$runner" ]; then $runner echo 'built before'; return; fi
  . "$root/tests/gpu/report/gpu_bundle.sh"
  configure
  # shellcheck disable=SC2046  # several targets
  check ninja -C "$build" $(targets_of "$build") | grep -vE '^\[[0-9]+/[0-9]+\] '
  [ -x "$build/tests/unit" ] || exit 1
}
build_rest() {
  if [ -n "$runner" ]; then $runner echo 'built before'; return; fi
  configure
  check ninja -C "$build" | grep -vE '^\[[0-9]+/[0-9]+\] '
  ninja -C "$build" -n 2>/dev/null | grep -q 'no work to do' || exit 1
}

# A test is named when it begins, and again with its seconds.
unit() { MPIGRAD_TEST_PROGRESS=/dev/stdout check start unit -d "-tc=$*"; }
# All other tests: the same program, on another machine.
on_the_processor() {
  [ "$programs" = "$build/tests" ] || lacks 'tests of the CPU read the tree that they were built in'
  MPIGRAD_TEST_PROGRESS=/dev/stdout check start unit -d '-tce=gpu*'
}
# bench PROGRAM OPTIONS...; uses small sizes and batches if small shapes are requested.
bench() {
  if [ -n "${MPIGRAD_GPU_SMALL:-}" ]; then
    case $1 in
      gpu_step) set -- "$@" --steps 1 --no-autotune ;;
      *) set -- "$@" --size "$((MPIGRAD_GPU_SMALL / 2))" ;;
    esac
  fi
  check start "$@"
}
sized() { printf '%s\n' "${MPIGRAD_GPU_SMALL:-$1}"; }
layers() { bench gpu_step --device cuda --layers-only --network "${4:-cosmoflow}" --size "$(sized "$1")" --batch "$2" --precision "$3"; }
ops() { bench gpu_step --device cuda --by-op --network "$1" --size "$(sized "$2")" --batch "$3" --precision "$4"; }
# Ten thousand steps; small, so that leaks are visible compared with the memory in use.
soak() {
  steps=10000
  if [ -n "${MPIGRAD_GPU_SMALL:-}" ]; then steps=20; fi
  check start gpu_step --device cuda --network cosmoflow --size 32 --batch 1 5 8 2 --precision bfloat16 --soak "$steps"
}
contrastive() {
  set -- --device cuda
  if [ -n "${MPIGRAD_GPU_SMALL:-}" ]; then set -- "$@" --rows 256 --tile 128 --width 16 --repeats 1; fi
  if have python3 && python3 -c 'import torch' 2>/dev/null; then set -- "$@" --peer "python3 $root/tests/bench/gpu/nt_xent_peer.py"; fi
  check start gpu_contrastive "$@"
}
# Finds the engines of cuDNN with wrong results.
engines() {
  count=30
  if [ -n "${MPIGRAD_GPU_SMALL:-}" ]; then count=1; fi
  check start gpu_questions --device cuda --engines "$count"
}
# One case in this number; with --all every case.
sample() {
  MPIGRAD_GPU_SAMPLE=${MPIGRAD_GPU_SAMPLE:-6}
  if [ -n "${MPIGRAD_TEST_ALL:-}" ]; then MPIGRAD_GPU_SAMPLE=1; fi
  export MPIGRAD_GPU_SAMPLE
  "$@"
}
row() {
  [ -n "$peer" ] || echo 'PyTorch was not found: its columns are missing.'
  bench gpu_step --device cuda --no-layers --network "${4:-cosmoflow}" --size "$(sized "$1")" --batch "$2" --precision "$3" ${peer:+--peer "$peer"}
}
alone() { check start gpu_step --device cuda --no-layers --no-autotune --steps 3 --size "$(sized "$1")" --batch "$2" --precision "$3"; }

tool_of_cuda() { command -v "$1" || { [ -x "/usr/local/cuda/bin/$1" ] && echo "/usr/local/cuda/bin/$1"; }; }
# Does not change the clocks of the GPU.
profile() {
  ncu=$(tool_of_cuda ncu) || lacks 'ncu is not there'
  [ -x "$programs/gpu_kernels" ] || lacks 'gpu_kernels has not been built'
  # shellcheck disable=SC2086  # MPIGRAD_GPU_RUNNER may hold options
  check $runner "$ncu" --clock-control none --section SpeedOfLight --section MemoryWorkloadAnalysis --launch-count 60 \
    "$programs/gpu_kernels" --device cuda
}
sanitize() {
  sanitizer=$(tool_of_cuda compute-sanitizer) || lacks 'compute-sanitizer is not there'
  [ -x "$programs/unit" ] || lacks 'unit has not been built'
  # shellcheck disable=SC2086  # MPIGRAD_GPU_RUNNER may hold options
  MPIGRAD_TEST_PROGRESS=/dev/stdout MPIGRAD_GPU_SAMPLE=${MPIGRAD_GPU_SAMPLE:-8} check $runner "$sanitizer" --tool "$1" --error-exitcode 99 \
    "$programs/unit" -d "-tc=$own_kernels"
}

# `unit` has ranks as threads of one process; here they are processes. With only one GPU, NCCL is told that its two ranks are on
# two hosts.
ranks_with_nccl() {
  # Without MPI it ends the script.
  if (choose_launcher) >/dev/null 2>&1; then choose_launcher; fi
  if [ ! -x "$programs/nccl_ranks" ] || [ -z "${MPIEXEC:-}" ]; then lacks 'NCCL between processes needs MPI'; fi
  apart=
  if [ "$(nvidia-smi -L | wc -l)" -lt 2 ]; then apart='NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_NET=Socket'; fi
  # shellcheck disable=SC2086
  check env $apart $runner $MPIEXEC -n 2 "$programs/nccl_ranks" --transport mpi --device cuda
  # shellcheck disable=SC2086,SC2016  # each rank has its own number
  check env MPIGRAD_DEVICE=cuda $apart $runner $MPIEXEC -n 2 \
    sh -c '[ -z "$1" ] || export NCCL_HOSTID="host$PMI_RANK"; exec "$0"' "$programs/mpi_adjoint" "$apart"
}

# ---- two or more GPUs

# The programs that these steps need in addition to $gpu_programs.
build_split() {
  if [ -n "$runner" ]; then $runner echo 'built before'; return; fi
  configure
  check ninja -C "$build" tests/nccl_ranks tests/mpi_adjoint examples/cosmoflow examples/universe | grep -vE '^\[[0-9]+/[0-9]+\] '
}
# Sets `gpus`, or skips the step.
need_two_gpus() {
  gpus=$(nvidia-smi -L | wc -l)
  [ "$gpus" -ge 2 ] || lacks 'two GPUs'
  if (choose_launcher) >/dev/null 2>&1; then choose_launcher; fi
  [ -n "${MPIEXEC:-}" ] || lacks 'MPI'
}
# Trainings with volumes or batches split over GPUs equal those on one GPU: the losses of two epochs.
split_losses() {
  need_two_gpus
  examples=$programs/../examples data=$build/split-universes
  if [ ! -x "$examples/cosmoflow" ] || [ ! -x "$examples/universe" ]; then lacks 'cosmoflow and universe have not been built'; fi
  check "$examples/universe" generate --transport threads --ranks 2 --size 32 --cell 4 --universes 32 --out "$data" --spread --overwrite || return
  for case in '1 depth=1' '2 depth=2' '2 sample=2' "$gpus depth=$gpus"; do
    ranks=${case% *} grid=${case#* } out=$build/split-$grid
    # shellcheck disable=SC2086  # the launcher and its options
    check $runner $MPIEXEC -n "$ranks" "$examples/cosmoflow" train --transport mpi --device cuda --grid "$grid" --data "$data" --epochs 2 --batch 8 \
      --seed 1 --json --quiet --overwrite --out "$out" >"$out.json" || continue
    check python3 - "$grid" "$out.json" "$build/split-depth=1.json" <<'PY'
import json, sys
def losses(name):
    text = open(name).read()
    return [epoch[kind] for epoch in json.loads(text[text.index("{"):])["epochs"] for kind in ("train_loss", "test_loss")]
grid, here, one = sys.argv[1], losses(sys.argv[2]), losses(sys.argv[3])
far = max(abs(a - b) / abs(b) for a, b in zip(here, one))
print("{}: losses {} differ from one GPU's by {:.1e}".format(grid, " ".join("{:.5f}".format(x) for x in here), far), flush=True)
sys.exit(len(here) != len(one) or far > 1e-3)
PY
  done
}
# The 3D U-Net's step on 1, 2, 4 and 8 GPUs that share a volume, and the transport of its halos.
split_rates() {
  need_two_gpus
  for ranks in 1 2 4 8; do
    [ "$ranks" -le "$gpus" ] || continue
    # shellcheck disable=SC2086  # the launcher and its options
    check $runner $MPIEXEC -n "$ranks" "$programs/gpu_step" --transport mpi --device cuda --no-layers --network unet3d --size "$(sized 128)" --batch 1 \
      --precision bfloat16 --halo | tee "$build/split-rate-$ranks.txt"
  done
  awk '/^measured: samples/ { rate[FILENAME] = $3 } END { for (f in rate) { n = f; sub(/.*-/, "", n); sub(/\.txt/, "", n); at[n] = rate[f] }
    for (n = 1; n <= 8; n *= 2) if (at[n]) printf "measured: unet3d-on-%d-gpus %.2f times one\n", n, at[n] / at[1] }' "$build"/split-rate-*.txt
  echo 'published, 4 and 8 H100 that share a volume: 1.79 and 2.07 times one'
}

# Runs the tools as a user does.
trainers() {
  examples=$programs/../examples
  if [ ! -x "$examples/cosmoflow" ] || [ ! -x "$examples/universe" ]; then lacks 'the trainers need MPI, HDF5, FFTW and cairo'; fi
  data=$build/universes${MPIGRAD_GPU_SMALL:+-small}
  size=32 count=384 epochs=8 batch=16
  if [ -n "${MPIGRAD_GPU_SMALL:-}" ]; then size=16 count=16 epochs=1 batch=4; fi
  if [ ! -e "$data/done" ]; then
    rm -rf "$data"
    check "$examples/universe" generate --transport threads --ranks 2 --size "$size" --cell 4 --universes "$count" --out "$data" --spread || return
    touch "$data/done"
  fi
  printf '| device | precision | ranks | training loss | test loss | seconds | MiB |\n|---|---|---|---|---|---|---|\n'
  for case in 'cuda float32 1' 'cpu float32 1' 'cuda bfloat16 1' 'cuda float32 1 precision.graph' 'cuda tf32 1' 'cuda float16 1' 'cuda float32 2'; do
    if [ -n "${MPIGRAD_GPU_SMALL:-}" ] && [ "$case" != 'cuda float32 1' ]; then continue; fi
    # shellcheck disable=SC2086
    set -- $case
    # shellcheck disable=SC2086
    if check $runner "$examples/cosmoflow" train --transport threads --ranks "$3" --device "$1" --precision "$2" \
      --grid "depth=$3" ${4:+--set "$4"} \
      --data "$data" --set network.batch_norm --epochs "$epochs" --batch "$batch" --seed 1 --json --quiet --overwrite \
      --out "$build/trained" >"$build/trained.json"; then
      # Standard output is one JSON document.
      python3 - "$build/trained.json" "$@" <<'PY'
import json, sys
text = open(sys.argv[1]).read()
result = json.loads(text[text.index("{"):])
last = result["epochs"][-1]
print("| {} | {} | {} | {:.4f} | {:.4f} | {:.1f} | {} |".format(sys.argv[2], " ".join(sys.argv[3:4] + sys.argv[5:]), sys.argv[4], last["train_loss"],
      last["test_loss"], result["training_seconds"], result.get("peak_gpu_bytes_per_rank", 0) >> 20), flush=True)
PY
    else
      cat "$build/trained.json"
    fi
  done
}

# Do larger cubes of a universe predict its cosmology better? Existing universes and trainings are kept.
study() {
  examples=$programs/../examples
  if [ ! -x "$examples/sample_size" ] || [ ! -x "$examples/universe" ]; then lacks 'the study needs MPI, HDF5, FFTW and cairo'; fi
  data=$build/study${MPIGRAD_GPU_SMALL:+-small}
  sizes=32,64,128 box=128 training=412 test=100 seeds=2
  if [ -n "${MPIGRAD_GPU_SMALL:-}" ]; then sizes=16 box=16 training=6 test=4 seeds=1; fi
  if [ ! -e "$data/universes/done" ]; then
    rm -rf "$data"
    check "$examples/universe" generate --transport threads --ranks "$(nproc)" --seed 1 --size "$box" --cell 4 \
      --universes "$((training + test))" --out "$data/universes" --spread || return
    touch "$data/universes/done"
  fi
  # shellcheck disable=SC2086  # MPIGRAD_GPU_RUNNER may hold options
  check $runner "$examples/sample_size" --device cuda --seed 1 --sizes "$sizes" --box "$box" --training "$training" --test "$test" \
    --seeds "$seeds" --out "$data" || return
  check cp "$data"/sample_size.csv "$data"/sample_size.json "$data"/sample_size.png "$MPIGRAD_REPORT"
}

MPIGRAD_GPU_STEP=${1:-}
export MPIGRAD_GPU_STEP
step=$(steps | grep "^${1:-} ") || die "there is no step $1"
set -f
# shellcheck disable=SC2086  # name, seconds, limit, command
set -- $step
shift 3
"$@"
exit "$worst"
