# A Slurm of two nodes on one machine, for tests/slurm.sh, which sources this file after tests/suite.sh.
#
#   start_cluster        starts munged, slurmctld and two slurmd, node1 and node2; sets $kind (namespaces or ports) and $notes;
#                        where it fails, $problem says why
#   stop_cluster         ends all jobs, the daemons and everything that they have started, and removes the namespaces
#   remove_remains       does the same for earlier runs that were killed
#   as_user COMMAND...   runs a command as the ordinary user on the login node
#   as_admin COMMAND...  the same as Slurm's administrator
#   wait_for SECONDS COMMAND...   repeats the command until it succeeds; fails after so many seconds
#   kill_node NODE       ends all its processes at once and cuts its wire; only where nodes are namespaces
#   cluster_log          prints the last lines of the daemons' logs
#
# Each node is a network namespace with a host name of its own. All of them share the file system and the processes of this
# machine. Without namespaces the two nodes are two ports of this machine. No traffic leaves the machine. The files are in
# $work/slurm; the configuration of the system is neither read nor changed.
#
# Needs root. POSIX sh.

# shellcheck shell=sh disable=SC2154
network=10.214.0 wire=wire0 kind='' notes='' cluster=mpigrad-slurm-$$ slurm=$work/slurm home=$work/home user=nobody
user_id=$(id -u "$user") group_id=$(id -g "$user")
controller_pid='' munge_pid='' node_pids=''

note() {
  notes="$notes$1
"
  say "note: $1"
}

wait_for() {
  patience=$(($(date +%s) + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ "$(date +%s)" -lt "$patience" ] || return 1
    sleep 0.2
  done
}

# on NODE COMMAND...: a namespace has the node's name and a file of hosts. The command becomes the process itself: `on ... &` and
# its $! may be used.
on() {
  node=$1
  shift
  if [ "$kind" = ports ]; then
    exec env SLURM_CONF="$slurm/slurm.conf" MPIGRAD_TEST_RUN="$work" "$@"
  fi
  # Not `ip netns exec`, which hides the control groups of /sys.
  # shellcheck disable=SC2016  # of the inner shell
  exec nsenter --net="/run/netns/$cluster-$node" unshare --uts --mount -- \
    sh -c 'hostname "$1" && mount --bind "$2" /etc/hosts && shift 2 && exec "$@"' \
    sh "$node" "$slurm/hosts" env SLURM_CONF="$slurm/slurm.conf" MPIGRAD_TEST_RUN="$work" "$@"
}
as_admin() { (on login "$@"); }
as_user() {
  (on login setpriv --reuid "$user_id" --regid "$group_id" --clear-groups --inh-caps=-all env -i HOME="$home" USER="$user" \
    LOGNAME="$user" PATH="$PATH" LANG=C.UTF-8 OMP_NUM_THREADS=1 SLURM_CONF="$slurm/slurm.conf" MPIGRAD_TEST_RUN="$work" \
    MPIGRAD="$home/mpigrad" \
    sh -c 'cd && exec "$@"' sh "$@")
}

make_namespaces() {
  [ "$nodes" = namespaces ] || { problem='--ports was given'; return 1; }
  have ip || { problem='iproute2 is not installed'; return 1; }
  problem=$(
    exec 2>&1
    for node in login node1 node2; do ip netns add "$cluster-$node" || exit 1; done
    ip -n "$cluster-login" link add bridge0 type bridge || exit 1
    number=1
    for node in login node1 node2; do
      port=bridge0
      if [ "$node" != login ]; then
        port=$wire
        ip link add "$wire" netns "$cluster-$node" type veth peer name "to-$node" netns "$cluster-login" || exit 1
        ip -n "$cluster-login" link set "to-$node" master bridge0 up || exit 1
      fi
      ip -n "$cluster-$node" address add "$network.$number/24" dev "$port" || exit 1
      ip -n "$cluster-$node" link set lo up
      ip -n "$cluster-$node" link set "$port" up
      number=$((number + 1))
    done
    unshare --uts hostname mpigrad-test
  ) || {
    problem=$(printf '%s' "$problem" | tail -n 1)
    remove_namespaces
    return 1
  }
}
remove_remains() {
  for left in $(ip netns list 2>/dev/null | sed -n 's/^\(mpigrad-slurm-[0-9]*-[a-z0-9]*\).*/\1/p'); do
    process=${left#mpigrad-slurm-}
    if kill -0 "${process%%-*}" 2>/dev/null; then continue; fi
    # shellcheck disable=SC2046  # one word for each process
    kill -KILL $(ip netns pids "$left") 2>/dev/null
    ip netns del "$left"
  done
}
remove_namespaces() {
  for node in login node1 node2; do ip netns del "$cluster-$node" 2>/dev/null; done
}

# Slurm's defaults, except for what a comment names.
write_configuration() {
  if [ "$kind" = namespaces ]; then
    printf '127.0.0.1 localhost\n%s.1 login\n%s.2 node1\n%s.3 node2\n' "$network" "$network" "$network" >"$slurm/hosts"
    hosts="NodeName=node1 NodeAddr=$network.2 CPUs=2
NodeName=node2 NodeAddr=$network.3 CPUs=2"
    controller="login($network.1)"
  else
    hosts="NodeName=node1 NodeHostname=$(uname -n) NodeAddr=127.0.0.1 Port=26819 CPUs=2
NodeName=node2 NodeHostname=$(uname -n) NodeAddr=127.0.0.1 Port=26820 CPUs=2"
    controller="$(uname -n)(127.0.0.1)"
  fi
  cat >"$slurm/slurm.conf" <<END
ClusterName=mpigrad
SlurmctldHost=$controller
SlurmctldPort=26817
SlurmdPort=26818
SlurmUser=$slurm_user
# A job that was requeued may start after 10 s, by default after 120 s.
AuthInfo=socket=$slurm/munge/socket,cred_expire=10
StateSaveLocation=$slurm/state
SlurmdSpoolDir=$slurm/spool-%n
TmpFS=$slurm/tmp-%n
SlurmctldPidFile=$slurm/state/pid
SlurmdPidFile=$slurm/%n.pid
SlurmctldLogFile=$slurm/state/log
SlurmdLogFile=$slurm/%n.log
ProctrackType=$track
# Slurm notices a dead node after 60 s, by default after 300 s.
SlurmdTimeout=60
# The number of cores of this machine does not matter.
SlurmdParameters=config_overrides
# What most sites set. The default of 22.05, select/linear, starts no further job after a node has left one.
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
# Two partitions, so that jobs of one take the nodes of the other's jobs.
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
# Looks for jobs to start every 5 s, by default every 30 to 60 s.
SchedulerParameters=sched_interval=5,bf_interval=5
$hosts
PartitionName=normal Nodes=node[1-2] Default=YES PriorityTier=1
PartitionName=urgent Nodes=node[1-2] PriorityTier=10 PreemptMode=OFF
END
}

idle() { [ "$(as_admin sinfo -h -N -p normal -t idle -o %N | wc -l)" -eq "$1" ]; }
idle_or_dead() {
  idle 2 && return
  for process in $controller_pid $node_pids; do kill -0 "$process" || return 0; done
  return 1
}
start_daemons() {
  # In the foreground, so that their process numbers are known.
  (on login munged --foreground --key-file="$slurm/munge/key" --socket="$slurm/munge/socket" --pid-file="$slurm/munge/pid" \
    --seed-file="$slurm/munge/seed") >"$slurm/munged.log" 2>&1 &
  munge_pid=$!
  wait_for 10 test -S "$slurm/munge/socket" || { problem="munged does not start: $(tail -n 1 "$slurm/munged.log")"; return 1; }
  (on login slurmctld -D -c) >"$slurm/slurmctld.out" 2>&1 &
  controller_pid=$!
  for node in node1 node2; do
    (on "$node" slurmd -D -N "$node") >"$slurm/$node.out" 2>&1 &
    node_pids="$node_pids $!"
  done
  wait_for 30 idle_or_dead
  idle 2 || { problem="the nodes do not become idle: $(tail -qn 1 "$slurm"/node?.log | tr '\n' ' ')"; return 1; }
  as_user timeout -k 5 60 srun --nodes=2 --ntasks=2 true >"$slurm/first.out" 2>&1 || { problem=$(head -n 1 "$slurm/first.out"); return 1; }
}

end_daemons() {
  for signal in TERM KILL; do
    # shellcheck disable=SC2086  # one word for each
    kill -$signal $controller_pid $node_pids $munge_pid 2>/dev/null
    for _ in 1 2 3 4 5 6 7 8 9 10; do
      left=
      for process in $controller_pid $node_pids $munge_pid; do kill -0 "$process" 2>/dev/null && left=yes; done
      [ -n "$left" ] || break
      sleep 0.3
    done
  done
  controller_pid='' munge_pid='' node_pids=''
  # Supervisors of steps, and ranks: they inherit this variable.
  end_marked "MPIGRAD_TEST_RUN=$work"
}

start_cluster() {
  chmod 711 "$work"
  slurm_user=slurm
  id -u slurm >/dev/null 2>&1 || slurm_user=root
  mkdir -p "$slurm" "$slurm/munge" "$slurm/state" "$slurm/spool-node1" "$slurm/spool-node2" "$slurm/tmp-node1" "$slurm/tmp-node2"
  chmod 755 "$slurm" "$slurm/munge"
  chmod 1777 "$slurm"/tmp-*
  chown "$slurm_user" "$slurm/state"
  (umask 077 && head -c 1024 /dev/urandom >"$slurm/munge/key")
  kind=namespaces
  if ! make_namespaces; then
    kind=ports
    note "The nodes are two ports of one host, without namespaces: $problem."
  fi
  track=proctrack/cgroup
  echo CgroupMountpoint=/sys/fs/cgroup >"$slurm/cgroup.conf"
  write_configuration
  start_daemons && return
  end_daemons
  note "Slurm follows processes by their parents (proctrack/linuxproc), because with control groups $problem"
  track=proctrack/linuxproc
  echo CgroupPlugin=cgroup/v1 >"$slurm/cgroup.conf"  # no search for the mounted version
  rm -rf "$slurm/state"/*
  write_configuration
  start_daemons
}

kill_node() {
  # shellcheck disable=SC2046  # one word for each process
  ip -n "$cluster-login" link set "to-$1" down && kill -KILL $(ip netns pids "$cluster-$1")
}

stop_cluster() {
  [ -n "$kind" ] || return 0
  trap '' INT TERM
  [ -z "$controller_pid" ] || as_admin timeout 5 scancel --full --signal=KILL --user="$user" >/dev/null 2>&1
  end_daemons
  [ "$kind" = ports ] || remove_namespaces
  # Slurm's control groups, which are empty by now, from the inside out.
  find /sys/fs/cgroup -depth -path '*/slurm_node[12]*' -type d -exec rmdir {} + 2>/dev/null
  kind=
}

cluster_log() { tail -n 15 "$slurm/state/log" "$slurm"/node?.log "$slurm"/*.out 2>/dev/null; }
