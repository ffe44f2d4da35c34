# Sourced by tests/gpu/report/gpu_rehearsal.sh, with tests/suite.sh before it: a simulated GPU machine.
#
#   set_stage           a copy of the scripts in a repository inside another; a driver's programs; a runner of programs
#   run gpu OPTIONS...  tests/gpu.sh there
#   run_interrupted STEP OPTIONS...   like run, but killed with all its processes when the step has printed a few lines
#   without_network     programs in $work/no-network that cannot install anything
#   run_terminated STEP N   like run, but gets SIGTERM while the step hangs, with N steps at the same time
#   play_programs       programs for every step, independent of the build
#   stage_says WHAT STEP   makes a step fail, be empty, skip its tests, hang or miss libraries; without arguments, no step
#
# POSIX sh.

# shellcheck shell=sh disable=SC2154,SC2034

set_stage() {
  : >"$work/out"
  : >"$work/err"
  tree=$work/outer/mpigrad
  plain_path=$PATH
  TZ=NOON$(($(date -u +%-H) - 12))  # the date must not change within a test
  export TZ
  today=$(date +%F)
  journal=$work/report/journal.txt
  mkdir -p "$tree/tests" "$tree/examples/packaging" "$work/bin" "$work/report"
  cp -r "$root/tests/gpu" "$root/tests/gpu.sh" "$root/tests/emulated.sh" "$tree/tests/"
  cp "$root/examples/packaging/packages.sh" "$tree/examples/packaging/"
  cp "$root/README.md" "$root/.gitignore" "$tree/"
  # As if no GPU had been used before.
  sed -i '/^<!-- gpu\.sh: begin/,/^<!-- gpu\.sh: end/{/^| GPU, driver/!{/^| /d}; s/^|---.*/&\n| none yet | | | | | |/}' "$tree/tests/gpu/README.md"
  ln -s "$root/ops" "$tree/ops"
  make_repository "$work/outer" outer
  make_repository "$tree" inner
  commit=$(git -C "$tree" rev-parse --short HEAD)
  stage_says
  write_driver
  write_runner
  for name in nvidia-smi compute-sanitizer ncu runner; do chmod +x "$work/bin/$name"; done
  PATH=$work/bin:$PATH
  MPIGRAD_BUILD=$build MPIGRAD_GPU_PROGRAMS=$build/tests MPIGRAD_GPU_RUNNER=$work/bin/runner MPIGRAD_GPU_SMALL=16 MPIGRAD_STAGE=$work/stage
  # On a busy machine waiting threads take time from working ones.
  MPIGRAD_EMULATE=$root/tests/emulated.sh MPIGRAD_GPU_SAMPLE=64 OMP_NUM_THREADS=1
  export PATH MPIGRAD_BUILD MPIGRAD_GPU_PROGRAMS MPIGRAD_GPU_RUNNER MPIGRAD_GPU_SMALL MPIGRAD_STAGE MPIGRAD_EMULATE MPIGRAD_GPU_SAMPLE OMP_NUM_THREADS
  # Steps of `unit` write their progress to another file.
  MPIGRAD_STAGE_PROGRESS=${MPIGRAD_TEST_PROGRESS:-}
  export MPIGRAD_STAGE_PROGRESS
  every_interruption=${MPIGRAD_TEST_ALL:-}
  unset MPIGRAD_TEST_ALL MPIGRAD_COMMIT MPIGRAD_REPORT MPIGRAD_PEER MPIGRAD_EMULATION
}

make_repository() {
  git -C "$1" init --quiet
  git -C "$1" add . >/dev/null 2>&1
  git -C "$1" -c user.name=rehearsal -c user.email=none@localhost commit --quiet --no-verify --message "$2"
}

# `run gpu OPTIONS...`: runs the copied script.
run() {
  if [ "$1" = gpu ]; then
    shift
    set -- sh "$tree/tests/gpu.sh" "$@"
  fi
  [ -z "${MPIGRAD_TEST_PROGRESS:-}" ] || printf '%s\n' "$*" >>"$MPIGRAD_TEST_PROGRESS"
  timeout -k 5 900 "$@" >"$work/out" 2>"$work/err" </dev/null
  status=$?
}

run_interrupted() {
  stage_says ends "$1"
  shift
  [ -z "${MPIGRAD_TEST_PROGRESS:-}" ] || printf '%s\n' "interrupted $*" >>"$MPIGRAD_TEST_PROGRESS"
  setsid sh "$tree/tests/gpu.sh" "$@" >"$work/out" 2>"$work/err" </dev/null &
  printf '%s\n' "$!" >"$work/stage.pid"
  wait $! 2>/dev/null
  status=$?
  stage_says
}
# Like run, but gets a signal while a step hangs, with this number of steps at the same time.
run_terminated() {
  stage_says hangs "$1"
  rm -f "$work/stage.child"
  sh "$tree/tests/gpu.sh" --report "$work/report" --jobs "$2" "$1" >"$work/out" 2>"$work/err" </dev/null &
  gpu=$!
  for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    if [ -s "$work/stage.child" ]; then break; fi
    sleep 1
  done
  kill -TERM "$gpu"
  wait "$gpu" 2>/dev/null
  status=$?
  stage_says
}
stage_says() { printf '%s %s\n' "${1:-}" "${2:-}" >"$work/stage"; }

begins() { grep -c "^@begin $1 " "$journal"; }
begun() { grep -q "^@begin $1 " "$journal"; }
ended() { grep -q "^@end $1 [pfs]" "$journal"; }
refuses_in_a_line() { [ "$status" -eq 1 ] && [ "$(wc -l <"$work/err")" -eq 1 ] && grep -q -e "$1" "$work/err"; }

write_driver() {
  cat >"$work/bin/nvidia-smi" <<'END'
#!/bin/sh
case "$*" in
  -L) echo 'GPU 0: Pretended GPU (UUID: GPU-0)' ;;
  *=name,driver_version\ *) echo 'Pretended GPU, 1.2.3' ;;
  *=compute_cap\ *) echo 9.0 ;;
  '') exec "$MPIGRAD_GPU_RUNNER" echo 'a table of the pretended GPU' ;;
  *) printf 'name, driver_version\nPretended GPU, 1.2.3\n' ;;
esac
END
  # Options, then a program that is too slow to run twice.
  cat >"$work/bin/compute-sanitizer" <<'END'
#!/bin/sh
[ "$1" = --tool ] && [ "$3 $4" = '--error-exitcode 99' ] && [ -x "$5" ] || exit 2
case $2 in memcheck | initcheck) echo '========= ERROR SUMMARY: 0 errors' ;; racecheck) echo '========= RACECHECK SUMMARY: 0 hazards' ;; *) exit 2 ;; esac
echo '1 passed, 0 failed, 0 skipped'
END
  cat >"$work/bin/ncu" <<'END'
#!/bin/sh
[ "$1 $2" = '--clock-control none' ] || exit 2
echo 'Memory Throughput'
END
}

# Packages are missing and cannot be installed; the build's programs only print their arguments.
without_network() {
  mkdir -p "$work/no-network" "$work/none"
  printf '#!/bin/sh\necho "Could not resolve host"\nexit 100\n' >"$work/no-network/apt-get"
  printf '#!/bin/sh\nexit 1\n' >"$work/no-network/dpkg-query"
  for name in meson ninja; do printf '#!/bin/sh\necho %s "$@"\n' "$name" >"$work/no-network/$name"; done
  chmod +x "$work/no-network"/*
}

# The build's programs; missing ones are replaced by programs that print one word.
play_programs() {
  MPIGRAD_GPU_PROGRAMS=$work/played/tests
  mkdir -p "$MPIGRAD_GPU_PROGRAMS"
  ln -s "$build/examples" "$work/played/examples"
  for program in unit gpu_step gpu_questions gpu_contrastive nccl_ranks mpi_adjoint; do ln -s "$build/tests/$program" "$MPIGRAD_GPU_PROGRAMS/$program"; done
  [ ! -x "$build/tests/gpu_kernels" ] || ln -s "$build/tests/gpu_kernels" "$MPIGRAD_GPU_PROGRAMS/gpu_kernels"
}

# Runs the command of a step on emulated GPUs; slow programs are replaced: tests/run.sh runs them elsewhere.
write_runner() {
  cat >"$work/bin/runner" <<'END'
#!/bin/sh
read -r what step <"$MPIGRAD_STAGE"
[ -z "${MPIGRAD_STAGE_PROGRESS:-}" ] || printf '%s\n' "${MPIGRAD_GPU_STEP:-}" >>"$MPIGRAD_STAGE_PROGRESS"
[ "$step" = "${MPIGRAD_GPU_STEP:-}" ] || what=
case $what in
  ends)
    printf 'a line\nthe line before the end\nhalf a li'
    sleep 1
    # Kills the command with all processes that write for it, then the step.
    kill -KILL "-$(cat "$MPIGRAD_STAGE.pid")"
    kill -KILL 0
    ;;
  fails) printf 'ERROR: it is planted\nfailed: gpu: planted\n0 passed, 1 failed, 0 skipped\n'; exit 1 ;;
  skips) echo '0 passed, 0 failed, 2 skipped'; exit 0 ;;
  empty) echo '0 passed, 0 failed, 0 skipped'; exit 0 ;;
  hangs)
    echo begun
    sleep 1  # for the line to pass all pipes
    echo "$$" >"$MPIGRAD_STAGE.child"
    exec sleep 100
    ;;
  libraries) echo 'unit: error while loading shared libraries: libmissing.so: cannot open shared object file' >&2; exit 127 ;;
esac
case $1 in
  echo | */ncu | */compute-sanitizer) exec "$@" ;;
esac
# `stdbuf -oL program`, `mpiexec -n 2 program`, ...
program='' filter='' unit=''
for word; do
  case $word in
    */tests/* | */examples/*) [ -n "$program" ] || unit=$word program=${word##*/} ;;
    -tc=*) filter=$word ;;
  esac
done
case $program in
  unit)
    slow='gpu: biases*,gpu: convolutions*,gpu: a convolution of more*,gpu: the table*,gpu: reductions*'
    slow="$slow,gpu: channels*,gpu: rows*,gpu: average pooling*,gpu: more elements*,gpu: pools*,gpu: contrastive*,gpu: steps limited*"
    slow="$slow,gpu: training is*,gpu: the host does*,gpu: a batch stays*,gpu: checkpoints*,gpu: transports*"
    slow="$slow,gpu: copies*,gpu: batches*,gpu: collectives*,gpu: training with*,gpu: products*,gpu: CosmoFlow*,gpu: few*"
    if [ "$("$unit" --list-test-cases "$filter" "-tce=$slow" | grep -c '^gpu\|^cuDNN')" -eq 0 ]; then
      count=$("$unit" --list-test-cases "$filter" | grep '^gpu\|^cuDNN' | tee /dev/stderr | wc -l)
      echo "$count passed, 0 failed, 0 skipped"
      exit 0
    fi
    set -- "$@" "-tce=$slow"
    ;;
  gpu_step)
    case $MPIGRAD_GPU_STEP in
      step-128-1-bf16) ;;
      layers*) printf '| layer | forward |\n|---|---|\n| conv1 | 1 |\nmeasured: convolutions-128-1-bfloat16 1.020 times\n'; exit 0 ;;
      *) printf '| size | batch |\n|---|---|\n| 128 | 8 |\nmeasured: samples-128-8-bfloat16 1.5 samples/s\n'; exit 0 ;;
    esac
    ;;
  nccl_ranks | mpi_adjoint) echo 'ok: played'; exit 0 ;;
  cosmoflow) echo '{"epochs": [{"train_loss": 1, "test_loss": 1}], "training_seconds": 1}'; exit 0 ;;
esac
exec sh "$MPIGRAD_EMULATE" "$@"
END
}
