#!/bin/sh
# Fuzzes the readers of files with libFuzzer under the address and undefined-behaviour sanitizers. Every input must be refused with an
# error or be read, within a limit on time and memory:
#
#   sh tests/fuzz.sh [--seconds N] [READER...]     by default 20 seconds for each reader
#
# A reader is one of the names of tests/fuzz/readers.cpp: cifar csv gzip hdf5_volumes hdf5_weights idx jpeg nifti npy npz png safetensors
# tfrecord toml. The build, the corpus and the found inputs are in build/fuzz/; a corpus grows from run to run.
# An input that finds a fault goes to tests/fuzz/found/READER/, where `unit` reads it. Needs clang; prints `failed: NAME`
# for each reader with a fault and ends with `N passed, M failed, K skipped`. The first build takes tens of minutes on two cores.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$root/examples/packaging/packages.sh"
. "$root/tests/watch.sh"
readers='cifar csv gzip hdf5_volumes hdf5_weights idx jpeg nifti npy npz png safetensors tfrecord toml'
seconds=20 chosen=
while [ "$#" -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --seconds)
      case ${2:-} in '' | 0* | *[!0-9]*) die "--seconds takes a whole number of seconds, got ${2:-nothing}" ;; esac
      seconds=$2
      shift
      ;;
    *)
      case " $readers " in *" $1 "*) chosen="$chosen $1" ;; *) die "fuzz.sh knows the readers $readers, got $1" ;; esac
      ;;
  esac
  shift
done

case $(system_name) in debian* | ubuntu*) test_packages="$test_packages clang libomp-dev libclang-rt-dev" ;; esac
# shellcheck disable=SC2086,SC2154  # several names, from packages.sh
install_packages $test_packages

if ! have clang++; then
  # shellcheck disable=SC2086  # several readers
  set -- ${chosen:-$readers}
  printf 'skipped: %s no clang++\n0 passed, 0 failed, %s skipped\n' "$#" "$#"
  exit 1
fi
folder=$build/fuzz
say "building the fuzzers in $folder"
if [ ! -f "$folder/build.ninja" ]; then
  CXX=clang++ meson setup "$folder" "$root" --buildtype=plain -Doptimization=1 -Db_sanitize=address,undefined -Db_lundef=false \
    -Dcpp_args='-g1 -fno-omit-frame-pointer -fsanitize=fuzzer-no-link -fno-sanitize-recover=undefined' -Db_pch=false \
    -Dtests=true -Dfuzz=true -Dcuda=disabled -Donednn=disabled -Dopenblas=disabled >"$output" 2>&1 || { cat "$output"; die 'no build'; }
fi
programs=
for reader in ${chosen:-$readers}; do programs="$programs tests/fuzz_$reader"; done
# shellcheck disable=SC2086  # several programs
ninja -C "$folder" $programs >"$output" 2>&1 || { tail -n 40 "$output"; die 'no build'; }

# Inputs are files; they are kept in memory if the system has a folder for that.
scratch=$(mktemp -d /dev/shm/mpigrad-fuzz.XXXXXX 2>/dev/null || mktemp -d) || die 'no temporary folder'
trap 'rm -rf "$scratch" "$output" "$progress" "$hung" "$running"; [ -z "$watcher" ] || kill -9 "$watcher" 2>/dev/null' EXIT
export TMPDIR="$scratch" OMP_NUM_THREADS=1 UCX_MEM_MMAP_HOOK_MODE=none
export ASAN_OPTIONS='allocator_may_return_null=1:detect_leaks=0' UBSAN_OPTIONS='print_stacktrace=1'

passed=0 failed=0 skipped=0
for reader in ${chosen:-$readers}; do
  corpus=$folder/corpus/$reader found=$folder/found/$reader
  mkdir -p "$corpus" "$found"
  say "fuzzing $reader for $seconds s"
  run_limited $((seconds + 300)) "$folder/tests/fuzz_$reader" "$corpus" -max_total_time="$seconds" -max_len=20000 -timeout=30 \
    -rss_limit_mb=3000 -malloc_limit_mb=2500 -artifact_prefix="$found/" -print_final_stats=1
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$output")
  if [ "$status" -eq 0 ] && [ "${runs:-0}" -gt 0 ]; then
    passed=$((passed + 1))
    printf '%-14s %9s inputs, no fault; %s in the corpus\n' "$reader" "$runs" "$(find "$corpus" -type f | wc -l)"
  elif [ "$status" -eq 77 ]; then
    skipped=$((skipped + 1))
    printf 'skipped: 1 the build lacks a library for %s\n' "$reader"
  else
    failed=$((failed + 1))
    printf 'failed: %s: status %s; inputs in %s\n' "$reader" "$status" "$found"
    tail -n 60 "$output"
  fi
done
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
