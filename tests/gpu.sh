#!/bin/sh
# Checks everything that needs an NVIDIA GPU, and measures, in short steps; the most important steps come first.
#
#   sh tests/gpu.sh --minutes 30      runs steps in order until the time is over, from where the last run stopped
#   sh tests/gpu.sh STEP...           these steps, whether or not they have run
#   sh tests/gpu.sh --multi           the steps for two or more GPUs: five minutes after the build, one report to send back
#   sh tests/gpu.sh report            writes the report again; a real GPU's also to tests/bench/results, tests/gpu/README.md
#   sh tests/gpu.sh --list            the steps, their expected seconds and limits, and their tests
#   sh tests/gpu.sh --bundle KIND     packs into .gpu-bundle what an offline machine lacks; KIND: full, small or built
#   sh tests/gpu.sh --rehearse        all steps on the GPU emulator
#
#   --report FOLDER   folder of the journal and the report (default: build-gpu/report); --from FOLDER: continues the journal there
#   --fresh           forgets the steps that have run; so does another commit
#   --all             runs every random case instead of a sample
#   --jobs N          runs up to N steps of tests at the same time (default 1); steps that measure times run alone
#
# MPIGRAD_PEER: a command that times PyTorch's step (takes --model --size --batch --dtype --compile ...). MPIGRAD_COMMIT: the commit,
# if the tree has no repository. Exits non-zero if a step failed.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$root/examples/packaging/packages.sh"
. "$root/tests/gpu/report/gpu_steps.sh"
. "$root/tests/gpu/report/gpu_report.sh"
. "$root/tests/gpu/report/gpu_bundle.sh"
build=$root/build-gpu
bundle=$root/.gpu-bundle
report=${MPIGRAD_REPORT:-$build/report}
programs=${MPIGRAD_GPU_PROGRAMS:-$build/tests}
from='' minutes='' wanted='' fresh='' list='' jobs=1
# Most lines of one step in the journal; the whole output is in build-gpu/steps.
most_lines=3000

while [ $# -gt 0 ]; do
  case $1 in
    --bundle)
      case ${2:-} in
        full | small | built) make_bundle "$2" "$bundle"; exit ;;
        *) die "--bundle takes full, small or built" ;;
      esac
      ;;
    --minutes | --report | --from | --jobs)
      [ $# -gt 1 ] || die "$1 needs a value"
      case $1 in
        --jobs) jobs=$2 ;;
        --minutes) minutes=$2 ;;
        --report) report=$2 ;;
        --from) from=$2 ;;
      esac
      shift
      ;;
    --fresh) fresh=1 ;;
    --all)
      MPIGRAD_TEST_ALL=1
      export MPIGRAD_TEST_ALL
      ;;
    --list) list=1 ;;
    --multi) wanted="$wanted $several_gpus" ;;
    --rehearse) exec sh "$root/tests/gpu/report/gpu_rehearsal.sh" ;;
    -h | --help) sed -n '2,19s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) die "gpu.sh does not know $1; see --help" ;;
    *)
      [ "$1" = report ] || steps | grep -q "^$1 " || die "there is no step $1; --list shows them"
      wanted="$wanted $1"
      ;;
  esac
  shift
done
case $minutes in
  *[!0-9.]* | *.*.* | .) die "--minutes takes a number, got $minutes" ;;
esac
case $jobs in
  '' | 0* | *[!0-9]*) die "--jobs takes a number of steps, got $jobs" ;;
esac

list_steps() {
  printf '%-16s %9s %6s  %s\n' step expected limit 'what it runs'
  steps | while read -r name expected limit command; do
    took=$(states | awk -v name="$name" '$1 == name && $2 != "interrupted" { printf " (%s, %s s)", $2, $3 }')
    tests=$(filter_of "$command")
    printf '%-16s %9s %6s  %s%s\n' "$name" "$expected" "$limit" "${command%% gpu: *}" "$took"
    if [ -z "$tests" ] || [ ! -x "$programs/unit" ]; then continue; fi
    tests=$("$programs/unit" --list-test-cases "-tc=$tests" 2>/dev/null | grep -E '^(gpu|cuDNN)')
    printf '%s\n' "$tests" | awk -v whole="$expected" -v count="$(printf '%s\n' "$tests" | wc -l)" \
      '{ printf "%-16s %9.1f         %s\n", "", whole / count, $0 }'
  done
  [ -x "$programs/unit" ] || say "tests are listed where $programs/unit has been built"
}

mkdir -p "$report" "$build/steps"
report=$(cd "$report" && pwd)
journal=$report/journal.txt
if [ -n "$from" ] && [ -f "$from/tuning.txt" ] && [ ! -f "$report/tuning.txt" ]; then cp "$from/tuning.txt" "$report/"; fi
if [ -n "$list" ]; then list_steps; exit; fi

# ---- results known so far

commit=$(commit_of_tree)
if [ "$wanted" = ' report' ]; then
  [ -z "$from" ] || cp "$from/journal.txt" "$journal" || exit 1
  [ -s "$journal" ] || die "there is no $journal"
  write_report
  keep_report
else
  nvidia-smi -L >/dev/null 2>&1 || die "there is no NVIDIA GPU here (nvidia-smi finds none)"
  if [ -n "$fresh" ]; then rm -f "$journal" "$build/report/journal.txt"; fi
  # The longest journal of this commit: each machine may have run a part of the steps.
  for known in "$journal" "${from:+$from/journal.txt}" "$build/report/journal.txt"; do
    if [ -z "$known" ] || [ ! -s "$known" ] || [ "$known" = "$journal" ]; then continue; fi
    if [ "$(commit_of_journal "$known")" != "$commit" ]; then say "$known is of another commit"; continue; fi
    if [ "$(grep -c "" "$journal" 2>/dev/null || echo 0)" -lt "$(wc -l <"$known")" ]; then cat "$known" >"$journal"; fi
  done
  if [ -s "$journal" ] && [ "$(commit_of_journal "$journal")" != "$commit" ]; then
    mv "$journal" "$report/journal-$(commit_of_journal "$journal").txt"
  fi
fi
gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1)
arch=$(gpu_arch)
kind=emulated
if [ -z "${MPIGRAD_GPU_RUNNER:-}${MPIGRAD_EMULATION:-}" ]; then
  for sign in /dev/nvidiactl /dev/nvidia0 /dev/dxg /proc/driver/nvidia/version; do
    if [ -e "$sign" ]; then kind=real; fi
  done
fi

# ---- running the steps

began=$(date +%s)
seconds_left() {
  if [ -z "$minutes" ]; then echo 1000000; else echo $(($(awk -v m="$minutes" 'BEGIN { printf "%d", 60 * m }') - $(date +%s) + began)); fi
}
# Steps that are running. Steps that run at the same time write a part of the journal each, which is appended when they end.
running=''
keep_parts() {
  for part in "$build"/steps/.part-*; do
    if [ -s "$part" ]; then append "$(cat "$part")"; fi
    rm -f "$part"
  done
}
stop_steps() {
  for name in $running; do
    [ ! -s "$build/steps/.pid-$name" ] || kill "$(cat "$build/steps/.pid-$name")" 2>/dev/null
  done
  keep_parts
  exit "$1"
}
trap 'stop_steps 130' INT
trap 'stop_steps 143' TERM

# The lines that doctest prints around a test.
around_tests='/^=\{60,\}$/d; /^TEST CASE:  /d; /^[^ ]*\.cpp:[0-9]*:$/d; /^$/d'

# start_step NAME LIMIT JOURNAL: starts a step; its output goes to its own file and, line by line, to the journal.
start_step() {
  say "$1 ..."
  rm -f "$build/steps/.status-$1" "$build/steps/.part-$1"
  most=$2 settings=
  # Steps that run at the same time take longer, so their times of kernels are not kept.
  if [ "$3" != "$journal" ]; then
    most=$((2 * most))
    settings="OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((($(nproc) + jobs - 1) / jobs))} MPIGRAD_TUNING_FILE=none"
  fi
  if [ "$left" -lt "$most" ]; then most=$left; fi
  tidy=${filter:+$around_tests}
  printf '%s %s %s\n' "$most" "$left" "$(date +%s)" >"$build/steps/.limit-$1"
  : >"$build/steps/.pid-$1"
  begin="@begin $1 $(date +%s)"
  if [ "$3" = "$journal" ]; then append "$begin"; else printf '%s\n' "$begin" >"$3"; fi
  running="$running $1"
  {
    {
      # shellcheck disable=SC2016,SC2086  # timeout's own id; settings or nothing
      sh -c 'printf "%s\n" "$$" >"$0"; exec timeout -k 10 "$@"' "$build/steps/.pid-$1" "$most" env $settings sh "$root/tests/gpu/report/gpu_step.sh" "$1" 2>&1 </dev/null
      echo $? >"$build/steps/.code-$1"
    } | sed -u "$tidy" | tee "$build/steps/$1.txt" | sed -u -n "1,${most_lines}p" >>"$3"
    # The status is written even if the disk is full: the step has ended.
    mv "$build/steps/.code-$1" "$build/steps/.status-$1" || echo 1 >"$build/steps/.status-$1"
  } &
}

# end_step NAME TESTS: writes the result of a step to the journal; TESTS is empty if the step has no tests.
end_step() {
  name=$1 has_tests=$2
  read -r most had start <"$build/steps/.limit-$name"
  status=$(cat "$build/steps/.status-$name")
  took=$(($(date +%s) - start))
  if [ -s "$build/steps/.part-$name" ]; then
    append "$(cat "$build/steps/.part-$name")"
    rm -f "$build/steps/.part-$name"
  fi
  : >"$build/steps/.pid-$name"
  others=''
  for other in $running; do [ "$other" = "$name" ] || others="$others $other"; done
  running=$others
  lines=$(wc -l <"$build/steps/$name.txt")
  if [ "$lines" -gt "$most_lines" ]; then
    append "(... $((lines - most_lines)) lines more, the last of them:)"
    tail -n 60 "$build/steps/$name.txt" >>"$journal"
  fi
  # shellcheck disable=SC2046  # three numbers
  set -- $(awk '/^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { p += $1; f += $3; k += $5 } END { print p + 0, f + 0, k + 0 }' \
    "$build/steps/$name.txt")
  tests=$(($1 + $2 + $3)) p=$1 f=$2 k=$3
  if [ "$status" -ne 0 ] && [ "$status" -ne 77 ] && [ "$took" -ge "$most" ]; then
    if [ "$most" -eq "$had" ]; then
      append "@cut $name $took"
      report_step
      return
    fi
    append "ended after its limit of $most seconds"
  fi
  if [ "$status" -eq 0 ] && [ "$f" -eq 0 ] && [ "$tests" -eq 0 ] && [ -n "$has_tests" ]; then
    append 'no test ran'
    status=1
  fi
  case $status in
    0)
      if [ "$f" -gt 0 ]; then result=failed; elif [ "$tests" -gt 0 ] && [ "$p" -eq 0 ]; then result=skipped; else result=passed; fi
      ;;
    77) result=skipped ;;
    *) result=failed ;;
  esac
  case $result in
    passed) [ "$tests" -gt 0 ] || p=1 ;;
    failed) [ "$f" -gt 0 ] || f=1 ;;
    skipped) [ "$tests" -gt 0 ] || k=1 ;;
  esac
  append "@end $name $result $took $p $f $k"
  report_step
}
report_step() {
  write_report
  if [ "$report" != "$build/report" ]; then mkdir -p "$build/report"; cp "$journal" "$build/report/"; fi
}

# wait_for N: waits until fewer than N steps are running.
wait_for() {
  while :; do
    count=0
    for one in $running; do
      if [ -f "$build/steps/.status-$one" ]; then end_step "$one" tests; else count=$((count + 1)); fi
    done
    [ "$count" -ge "$1" ] || break
    sleep 0.1
  done
}

state_of() { states | awk -v name="$1" '$1 == name { print $2, $7 }'; }

if [ "$wanted" != ' report' ]; then
  use_wheels
  if [ -f "$bundle/bundle.tar.gz" ]; then use_bundle "$bundle"; fi
  # Steps that ran at the same time in a killed command have begun and not ended.
  if [ ! -s "$journal" ]; then rm -f "$build"/steps/.part-*; else keep_parts; fi
  append "@run $began $kind $commit $gpu"
  if [ -f "$bundle/programs.tar.gz" ] && [ -z "${MPIGRAD_GPU_PROGRAMS:-}" ]; then
    why=$(use_programs "$bundle" "$arch") && programs=$build/built/bin
    [ -z "$why" ] || append "@note $(printf '%s\n' "$why" | tr '\n' ' ')"
  fi
  # Times of cuDNN's kernels come back with the report, so that a later run need not measure them.
  MPIGRAD_TUNING_FILE=${MPIGRAD_TUNING_FILE:-$report/tuning.txt}
  export MPIGRAD_TUNING_FILE
  MPIGRAD_SOURCE_ROOT=$root MPIGRAD_REPORT=$report
  MPIGRAD_GPU_BUILD=$build MPIGRAD_GPU_PROGRAMS=$programs MPIGRAD_GPU_OPTIONS=$(meson_options "$bundle")
  export MPIGRAD_SOURCE_ROOT MPIGRAD_REPORT MPIGRAD_GPU_BUILD MPIGRAD_GPU_PROGRAMS MPIGRAD_GPU_OPTIONS
  if [ -z "${MPIGRAD_PEER:-}" ]; then
    for peer in "$root/../shared/peers/torch_step.py" "$root/shared/peers/torch_step.py" "$bundle/peer.py"; do
      if [ -f "$peer" ] && have python3 && python3 -c 'import torch' 2>/dev/null; then MPIGRAD_PEER="python3 $peer"; break; fi
    done
    export MPIGRAD_PEER
  fi
  write_report
  steps >"$build/steps/.table"
  while read -r step expected limit command <&3; do
    filter=$(filter_of "$command")
    if [ -n "$wanted" ]; then
      case " $wanted " in *" $step "*) ;; *) continue ;; esac
    else
      # shellcheck disable=SC2046  # result and number of interruptions
      set -- $(state_of "$step")
      case ${1:-} in
        passed | failed) if [ "$step" != build ] || [ -x "$programs/unit" ]; then continue; fi ;;
        interrupted)
          # A build continues where it stopped.
          if [ "${2:-0}" -ge 2 ] && [ "${step#build}" = "$step" ]; then
            append "@begin $step $(date +%s)"
            append 'was ended in the middle twice: not tried again by itself'
            append "@end $step failed 0 0 1 0"
            continue
          fi
          ;;
      esac
      if [ "$step" = build ] && [ "$programs" = "$build/built/bin" ]; then
        append "@begin build $(date +%s)"
        append 'the programs of the bundle start here'
        append "@end build passed 0 1 0 0"
        continue
      fi
    fi
    # Tests run at the same time; steps that measure times or fill the memory run alone.
    if [ "$jobs" -gt 1 ] && [ -n "$filter" ] && [ "${command#sanitize}" = "$command" ]; then
      wait_for "$jobs"
      part=$build/steps/.part-$step
    else
      wait_for 1
      part=$journal
    fi
    left=$(seconds_left)
    if [ "$expected" -gt "$left" ] || [ "$left" -lt 1 ]; then
      say "$step would take $expected seconds, $left remain: not started"
      continue
    fi
    start_step "$step" "$limit" "$part"
    if [ "$part" = "$journal" ]; then
      wait $!
      end_step "$step" "$filter"
    fi
  done 3<"$build/steps/.table"
  wait_for 1
  write_report
  case " $wanted " in *' report '*) keep_report ;; esac
  if [ -z "$wanted" ] && [ "$kind" = real ]; then keep_report; fi
fi

# ---- the result

say "the report: $page"
states | awk '$2 == "failed" { print "failed: " $1 } $2 == "interrupted" { print "interrupted: " $1 }'
states | awk '{ p += $4; f += $5; k += $6 } END { printf "%d passed, %d failed, %d skipped\n", p, f, k; exit !(f == 0 && p > 0) }'
