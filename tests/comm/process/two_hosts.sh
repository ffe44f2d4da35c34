#!/bin/sh
# Two hosts on one machine: two network namespaces with a link between them that can be cut, slowed and mended.
#
#   sh tests/comm/process/two_hosts.sh [--delay MS] [--loss PERCENT] [--rate MBIT] [--limit SECONDS] COMMAND...
#
# runs COMMAND on the first host and removes everything when it ends or after the limit (300 s). The exit status is COMMAND's
# (124: the limit; 77: no namespaces are available, standard error says why). The environment of COMMAND contains
#
#   MPIEXEC   a launcher: `$MPIEXEC -n P PROGRAM` starts ranks on the two hosts in turn, connected only by TCP
#   HYDRA     the launcher without chosen hosts: `$HYDRA -n P -hosts A,B PROGRAM`; it is Open MPI's if MPIEXEC was
#   HOSTS     their addresses, separated by a comma
#   DISK      a folder with different contents on each host: $DISK-a and $DISK-b
#   LINK      `$LINK cut`, `$LINK mend`, `$LINK delay MS [PERCENT]` (of packets lost),
#             `$LINK rate MBIT [KB]` (of packets that wait; others are lost), `$LINK clear`: changes the link;
#             `$LINK count`: packets that each host has sent and lost
#
# so that every test that starts its ranks by MPIEXEC runs over two hosts, too:
#
#   sh tests/comm/process/two_hosts.sh --delay 20 sh -c '$MPIEXEC -n 4 build/tests/mpi_transport'
#
# The launcher runs on the first host, as on a cluster, so a cut link affects it, too. No traffic leaves the two namespaces.
# Needs root, iproute2 (installed by apt-get if possible), the launcher of MPICH or Open MPI, and for a delay a kernel with netem.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
self=$root/tests/comm/process/two_hosts.sh
. "$root/examples/packaging/packages.sh"

first=10.213.0.1 second=10.213.0.2  # they exist only in the two namespaces
wire=link0

unable() {
  say "no two hosts: $*"
  exit 77
}
on_host() {
  host=$1
  shift
  ip netns exec "$TWO_HOSTS-$host" "$@"
}

# ---- calls of this script by the launcher and by COMMAND

# Launchers call this instead of ssh: options, the host's address, then the command as words that a shell must split.
if [ "${1:-}" = remote-shell ]; then
  shift
  while [ $# -gt 0 ]; do
    case $1 in
      "$first") host=a; break ;;
      "$second") host=b; break ;;
    esac
    shift
  done
  shift
  # In a new session and with a name of its own, as on another host: launchers signal groups of processes, and Open MPI takes
  # ranks for neighbours if the names of their hosts are equal.
  exec setsid --wait ip netns exec "$TWO_HOSTS-$host" unshare --uts sh -c "hostname host-$host && mount --bind '$DISK-$host' '$DISK' && $*"
fi

if [ "${1:-}" = link ]; then
  case ${2:-} in
    cut) on_host a ip link set "$wire" down && on_host b ip link set "$wire" down ;;
    mend) on_host a ip link set "$wire" up && on_host b ip link set "$wire" up ;;
    delay) for host in a b; do on_host $host tc qdisc replace dev "$wire" root netem delay "$3ms" loss "${4:-0}%" || exit 1; done ;;
    rate)
      if [ -n "${4:-}" ]; then queue="limit ${4}kb"; else queue='latency 400ms'; fi
      # shellcheck disable=SC2086  # two words
      for host in a b; do on_host $host tc qdisc replace dev "$wire" root tbf rate "$3mbit" burst 64kb $queue || exit 1; done
      ;;
    count)
      for host in a b; do
        on_host $host tc -s qdisc show dev "$wire" root | sed -n 's/^ Sent [0-9]* bytes \([0-9]*\) pkt (dropped \([0-9]*\),.*/\1 \2/p' | head -n 1
      done
      ;;
    clear) for host in a b; do on_host $host tc qdisc del dev "$wire" root 2>/dev/null; done ;;
    *) die "a link can be cut, mended, and has delay MS [PERCENT], rate MBIT [KB], count and clear" ;;
  esac
  exit
fi

# ---- the two hosts

delay='' loss='' rate='' limit=300
while [ $# -gt 0 ]; do
  case $1 in
    --delay) delay=$2; shift 2 ;;
    --loss) loss=$2; shift 2 ;;
    --rate) rate=$2; shift 2 ;;
    --limit) limit=$2; shift 2 ;;
    -h | --help) sed -n '2,24s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) die "two_hosts.sh knows --delay, --loss, --rate, --limit and --help, got $1" ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || die "two_hosts.sh needs a command; --help tells more"

[ "$(id -u)" -eq 0 ] || unable 'only root may make network namespaces'
# shellcheck disable=SC2034  # it is what install_from_distribution installs
have ip || (packages=iproute2 && install_from_distribution) >&2
have ip || unable 'iproute2 is not installed'
launcher='' open_mpi=
for name in ${MPIEXEC:-mpiexec.mpich mpiexec.hydra mpiexec mpirun.openmpi}; do
  have "$name" || continue
  if "$name" --version 2>/dev/null | grep -qE 'Open MPI|OpenRTE'; then open_mpi=yes
  elif ! "$name" -info 2>/dev/null | grep -q 'HYDRA'; then continue
  fi
  launcher=$name && break
done
[ -n "$launcher" ] || unable "the launcher of MPICH or Open MPI is needed${MPIEXEC:+, which $MPIEXEC is not}"

# Removes the remains of earlier runs that were killed.
for name in $(ip netns list 2>/dev/null | sed -n 's/^\(mpigrad-[0-9]*\)-[ab].*/\1/p' | sort -u); do
  if ! kill -0 "${name#mpigrad-}" 2>/dev/null; then ip netns del "$name-a" && ip netns del "$name-b"; fi 2>/dev/null
done

TWO_HOSTS=mpigrad-$$
export TWO_HOSTS
tools=
take_down() {
  trap '' INT TERM
  for host in a b; do
    # Ranks that a cut link has kept from learning of the end; they run only in these namespaces.
    for signal in TERM KILL; do
      left=$(ip netns pids "$TWO_HOSTS-$host" 2>/dev/null)
      [ -n "$left" ] || break
      # shellcheck disable=SC2086  # one word for each process
      kill -$signal $left 2>/dev/null
      sleep 0.3
    done
    ip netns del "$TWO_HOSTS-$host" 2>/dev/null
  done
  [ -z "$tools" ] || rm -rf "$tools"
}
trap take_down EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

problem=$(ip netns add "$TWO_HOSTS-a" 2>&1 && ip netns add "$TWO_HOSTS-b" 2>&1 &&
  ip link add "$wire" netns "$TWO_HOSTS-a" type veth peer name "$wire" netns "$TWO_HOSTS-b" 2>&1) ||
  unable "network namespaces are not permitted here ($(printf '%s' "$problem" | tail -n 1))"
on_host a ip address add "$first/30" dev "$wire"
on_host b ip address add "$second/30" dev "$wire"
for host in a b; do
  on_host "$host" ip link set lo up
  on_host "$host" ip link set "$wire" up
done
for host in a b; do  # the kernel needs a moment to notice that the other end is up
  tries=50
  until on_host $host ip link show dev "$wire" | grep -q 'state UP'; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || unable 'the link does not come up'
    sleep 0.1
  done
done

tools=$(mktemp -d) || die "no temporary folder"
printf '#!/bin/sh\nexec sh "%s" remote-shell "$@"\n' "$self" >"$tools/remote-shell"
printf '#!/bin/sh\nexec sh "%s" link "$@"\n' "$self" >"$tools/link"
# One rank on each host in turn; the ranks of the other host get the first host's address as the launcher's.
if [ -n "$open_mpi" ]; then
  printf '#!/bin/sh\nexec %s --map-by node --host %s:64,%s:64 "$@"\n' "$launcher" "$first" "$second" >"$tools/mpiexec"
  # shellcheck disable=SC2016  # of the script that is written
  # One host is this one, and needs no link, which may be down: then Open MPI 5 does not know its own address.
  printf '#!/bin/sh\nhosts=$(printf "%%s:64" "$4" | sed s/,/:64,/g) ranks=$2\ncase $hosts in *,*) ;; *) hosts=localhost:64; unset OMPI_MCA_oob_tcp_if_include OMPI_MCA_btl_tcp_if_include PRTE_MCA_prte_if_include ;; esac\nshift 4\nexec %s --map-by node --host "$hosts" -n "$ranks" "$@"\n' \
    "$launcher" >"$tools/hydra"
  for settings in OMPI_MCA_plm_rsh_agent:OMPI_MCA_oob_tcp_if_include PRTE_MCA_plm_ssh_agent:PRTE_MCA_prte_if_include; do
    export "${settings%:*}=$tools/remote-shell" "${settings#*:}=$wire"
  done
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self "OMPI_MCA_btl_tcp_if_include=$wire"
else
  printf '#!/bin/sh\nexec %s -launcher ssh -launcher-exec "%s" -localhost %s -hosts %s,%s "$@"\n' "$launcher" \
    "$tools/remote-shell" "$first" "$first" "$second" >"$tools/mpiexec"
  printf '#!/bin/sh\nexec %s -launcher ssh -launcher-exec "%s" -localhost %s "$@"\n' "$launcher" "$tools/remote-shell" "$first" >"$tools/hydra"
fi
chmod +x "$tools"/*
MPIEXEC=$tools/mpiexec HYDRA=$tools/hydra HOSTS=$first,$second LINK=$tools/link
UCX_TLS=tcp,self UCX_NET_DEVICES=$wire FI_PROVIDER=tcp
DISK=$tools/disk
mkdir "$DISK" "$DISK-a" "$DISK-b"
export DISK MPIEXEC HYDRA HOSTS LINK UCX_TLS UCX_NET_DEVICES FI_PROVIDER
[ -z "$delay$loss" ] || "$LINK" delay "${delay:-0}" "${loss:-0}" || unable 'the link cannot be delayed (tc netem)'
[ -z "$rate" ] || "$LINK" rate "$rate" || unable 'the link cannot be slowed (tc tbf)'

# In the background, so that a signal to this script is heard at once.
# shellcheck disable=SC2016  # of the inner shell
timeout -k 5 "$limit" ip netns exec "$TWO_HOSTS-a" sh -c 'mount --bind "$DISK-a" "$DISK" && exec "$@"' sh "$@" &
wait $!
