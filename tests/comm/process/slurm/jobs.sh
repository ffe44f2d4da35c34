# Jobs of an ordinary user for tests/slurm.sh, which sources this file after cluster.sh.
#
#   prepare_home      makes a home with the programs, the job scripts and small universes
#   edit_script NAME [SED...]   writes NAME.sh: examples/packaging/jobs/slurm.sh as a user edits it for two nodes
#   submit NAME [OPTION...]   submits NAME.sh; its number becomes $job
#   field NAME        prints a field of the job $job, as scontrol names it
#   ended SECONDS     waits until the user has no job; fails after so many seconds
#   epochs_of NAME N  succeeds if the training in the folder NAME has finished N epochs or more
#   hold NAME, release NAME   stop all its ranks in the middle of the training, and continue them: what happens in between does not
#                     depend on how fast this machine is
#   starts NAME N     succeeds if elastic has started the ranks N times or more, in one job or in several
#
# POSIX sh.

# shellcheck shell=sh disable=SC2154
job=

prepare_home() {
  mkdir -p "$home/mpigrad"
  ln -s "$build" "$home/mpigrad/build"
  cp -R "$root/examples" "$home/mpigrad/examples"
  chown -R "$user" "$home"
  as_user "$build/examples/universe" generate --out universes --universes 6 --size 16 --cell 8 --seed 1 --spread >"$work/out" 2>"$work/err"
}

# The program's arguments: small networks, in float64, so that losses on other grids differ only by rounding errors.
small='--filters 2 --batch 4 --precision float64 --set schedule.shape=constant --quiet'
epochs=300
edit_script() {
  name=$1
  shift
  sed -e 's/--nodes=4/--nodes=2/; s/--ntasks-per-node=2/--ntasks-per-node=1/; s/--cpus-per-task=16/--cpus-per-task=1/g' \
    -e 's/--time=04:00:00/--time=00:30:00/; s/--ranks-per-host 2/--ranks-per-host 1/; s/--grid sample=2,depth=4/--grid depth=2/' \
    -e "s/--epochs 100/$small --epochs $epochs/; s/--out run/--out $name/; s/%x.out/$name.out/" "$@" \
    "$home/mpigrad/examples/packaging/jobs/slurm.sh" >"$home/$name.sh"
}

submit() {
  name=$1
  shift
  job=$(as_user sbatch --parsable "$@" "$name.sh" 2>"$work/err") || {
    job=
    return 1
  }
}
field() { as_admin scontrol show job -o "$job" | tr ' ' '\n' | sed -n "s/^$1=//p" | head -n 1; }
has() { [ "$(field "$1")" = "$2" ]; }
no_job() { [ -z "$(as_admin squeue -h -u "$user" -o %i)" ]; }
ended() { wait_for "$1" no_job; }
epochs_of() { [ -f "$home/$1/metrics.csv" ] && [ "$(wc -l <"$home/$1/metrics.csv")" -gt "$2" ]; }
said() { grep -q -e "$2" "$home/$1.out"; }
is_in_state() { [ "$(head -n 1 "$home/$1/state" 2>/dev/null)" = "$2" ]; }
ranks_of() { pgrep -u "$user" -f "^[^ ]*/cosmoflow train .*--out $1( |\$)"; }
hold() {
  # shellcheck disable=SC2046  # one word for each rank
  wait_for 300 epochs_of "$1" 20 && kill -STOP $(ranks_of "$1")
}
# shellcheck disable=SC2046
release() { kill -CONT $(ranks_of "$1") 2>/dev/null || true; }
# signalled NAME: every held rank has SIGUSR1, which it can take when it continues.
signalled() {
  for process in $(ranks_of "$1"); do
    pending=$(sed -n 's/^ShdPnd:[[:space:]]*//p' "/proc/$process/status") && [ $((0x$pending & 0x200)) -ne 0 ] || return 1
  done
  [ -n "$(ranks_of "$1")" ]
}
rank_on_second() {
  if [ "$kind" = ports ]; then ranks_of "$1" | tail -n 1; return; fi
  ip netns pids "$cluster-node2" | grep -xF "$(ranks_of "$1")"
}
starts() { [ "$(grep -c '^elastic: start ' "$home/$1.out")" -ge "$2" ]; }
