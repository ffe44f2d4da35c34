#!/bin/sh
# Makes a package as its users do, in a clean system, and installs it in another one:
#
#   sh tests/package/images.sh debian       dpkg-buildpackage and lintian; the packages in a clean Debian 12, self-test, a compiled program
#   sh tests/package/images.sh apptainer    an image built by Apptainer, its tests, and an MPI of the machine in the place of its own
#
# Needs root, namespaces, debootstrap and Debian's archive. Packages the commit HEAD. Prints `failed: NAME` for each failure, writes
# a section of tests/bench/results/platforms.md and ends with `N passed, M failed, K skipped`.
# shellcheck disable=SC2154  # variables of suite.sh
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
. "$root/examples/packaging/packages.sh"
. "$root/tests/suite.sh"
. "$root/tests/bench/platforms.sh"
case "$#${1:-}" in
  1debian | 1apptainer) kind=$1 ;;
  *) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
if [ "$(id -u)" -ne 0 ]; then
  skip 'only root can make clean systems'
  summary
  exit
fi
if ! unshare --user --mount --pid --fork true 2>/dev/null; then
  skip 'there are no namespaces'
  summary
  exit
fi
install_packages debootstrap
commit=$(git -C "$root" rev-parse --short HEAD)
rows=$work/rows
# show NAME CONDITION...: a test with a row of the page; $note is its last cell.
note=''
show() {
  before=$failed
  judge "$@"
  printf '| %s | %s | %s |\n' "$1" "$([ "$failed" -eq "$before" ] && echo passed || echo failed)" "$note" >>"$rows"
  note=''
}
# system NAME SUITE PACKAGES: a clean system of Debian in $work/NAME.
system() {
  compile debootstrap --variant=minbase --include="$3" "$2" "$work/$1" http://deb.debian.org/debian
  if [ "$status" -ne 0 ]; then
    skip "debootstrap makes no Debian ($2): $(tail -n 1 "$work/out")"
    summary
    exit
  fi
  cp /etc/hosts /etc/resolv.conf "$work/$1/etc/"
  rm -rf "$work/${1:?}/dev" && mkdir "$work/$1/dev" "$work/$1/.before"
}
# A system is the root of its processes, with all of root's capabilities, which Apptainer asks for: those of a user namespace.
cat >"$work/enter" <<'END'
system=$1
shift
mount --make-rprivate / && mount --rbind "$system" "$system" && mount -t proc proc "$system/proc" && mount --rbind /dev "$system/dev" &&
  mount --rbind /sys "$system/sys" && cd "$system" && pivot_root . .before && umount -l /.before && cd / && exec "$@"
END
# inside NAME COMMAND...
inside() {
  name=$1
  shift
  compile env -i MPIGRAD_TEST_RUN="$work" HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    sh "$work/namespaces" sh "$work/enter" "$work/$name" "$@"
}
cat >"$work/namespaces" <<'END'
# All users are mapped to themselves. The parent writes the map while its child waits.
fifo=$(mktemp -u) && mkfifo "$fifo"
unshare --user sh -c 'read -r go <"$1" && shift && exec setpriv --reuid=0 --regid=0 --clear-groups unshare --mount --pid --fork --kill-child "$@"' sh "$fifo" "$@" &
child=$!
trap 'kill -9 "$child"' INT TERM
until [ "$(readlink "/proc/$child/ns/user")" != "$(readlink /proc/self/ns/user)" ]; do sleep 0.1; done
echo '0 0 65536' >"/proc/$child/uid_map" && echo '0 0 65536' >"/proc/$child/gid_map"
echo go >"$fifo"
rm -f "$fifo"
wait "$child"
END
source_into() { mkdir -p "$1" && git -C "$root" archive HEAD | tar -C "$1" -xmf -; }

debian() {
  system build bookworm ca-certificates
  cp -a "$work/build" "$work/user"
  inside build sh -c 'apt-get update && apt-get install --yes --no-install-recommends dpkg-dev debhelper lintian'
  source_into "$work/build/srv/mpigrad"
  cp -r "$work/build/srv/mpigrad/examples/packaging/debian" "$work/build/srv/mpigrad/debian"
  inside build sh -c 'cd /srv/mpigrad && apt-get build-dep --yes --no-install-recommends ./ && chown -R 65534:65534 /srv'
  show 'what the package needs to be built is installed' succeeds
  began=$(date +%s)
  inside build setpriv --reuid=65534 --regid=65534 --clear-groups sh -c 'cd /srv/mpigrad && HOME=/srv dpkg-buildpackage -us -uc -b'
  note="$((($(date +%s) - began + 30) / 60)) minutes"
  show '`dpkg-buildpackage -us -uc -b` of a user without rights, with the self-test on two threads' succeeds
  inside build sh -c 'cd /srv && lintian --allow-root --fail-on error ./*.changes'
  note="$(grep -c '^W:' "$work/out") warnings"
  show 'lintian has no error' succeeds
  cp "$work"/build/srv/*.deb "$work/user/srv/" || return
  rm -rf "$work/build"
  inside user sh -c 'apt-get update && cd /srv && apt-get install --yes --no-install-recommends ./mpigrad_*.deb ./libmpigrad0.[0-9]_*.deb'
  show 'programs and library are installed in a clean Debian 12' succeeds
  inside user mpiexec.mpich -n 2 mpigrad-selftest --folder /tmp
  note=$(tail -n 1 "$work/out")
  show '`mpigrad-selftest` on two ranks' says ' passed, 0 failed'
  inside user sh -c 'cosmoflow train --describe /usr/share/mpigrad/recipes/quickstart.toml'
  show '`cosmoflow` reads an installed recipe' says parameters
  cp "$root/examples/first/two_ranks.cpp" "$work/user/srv/"
  inside user sh -c 'cd /srv && apt-get install --yes --no-install-recommends ./libmpigrad-dev*.deb g++ pkgconf &&
    g++ -std=c++20 two_ranks.cpp $(pkgconf --cflags --libs mpigrad) -o two_ranks && mpiexec.mpich -n 2 ./two_ranks'
  show '`two_ranks.cpp` is compiled with `libmpigrad-dev` and runs on two ranks' succeeds
  inside user sh -c 'dpkg --purge mpigrad libmpigrad-dev && dpkg --purge $(dpkg-query -W -f "\${Package}\n" | grep ^libmpigrad) && ! find / -xdev -name "*mpigrad*" -not -path "/srv/*" | grep .'
  show 'nothing stays when the packages are removed' succeeds
}

apptainer() {
  system machine sid apptainer,ca-certificates
  system machine/debian12 bookworm ca-certificates
  source_into "$work/machine/srv/mpigrad"
  sed 's|^Bootstrap: .*|Bootstrap: localimage|; s|^From: .*|From: /debian12|' "$root/examples/packaging/apptainer/mpigrad.def" \
    >"$work/machine/srv/mpigrad/examples/packaging/apptainer/mpigrad.def"
  inside machine apptainer --version
  version=$(sed 's/.* //' "$work/out")
  began=$(date +%s)
  inside machine sh -c 'cd /srv/mpigrad && apptainer build /srv/mpigrad.sif examples/packaging/apptainer/mpigrad.def'
  note="$((($(date +%s) - began + 30) / 60)) minutes, $(du -m "$work/machine/srv/mpigrad.sif" | cut -f 1) MB"
  show "\`apptainer build\` $version, with the definition's test, from a debootstrap folder of Debian 12 in place of \`docker\`" succeeds
  rm -rf "$work/machine/debian12"
  # Without FUSE each command would unpack the image anew.
  inside machine apptainer build --sandbox /srv/image /srv/mpigrad.sif
  inside machine apptainer test /srv/image
  note=$(tail -n 1 "$work/out")
  show '`apptainer test`: `mpigrad-selftest` on two ranks with the MPI of the image' says ' passed, 0 failed'
  inside machine apptainer exec /srv/image unet3d --help
  show '`unet3d` runs in the image' says Usage
  if ! python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$work/wheel" 'mpich>=5,<6' ||
    ! python3 -m zipfile -e "$work"/wheel/*.whl "$work/wheel"; then
    skip 'pip has no mpich 5'
    return
  fi
  mkdir -p "$work/machine/opt/mpich" "$work/machine/srv/host-mpi"
  cp -r "$work"/wheel/*.data/data/* "$work/machine/opt/mpich/" && chmod +x "$work"/machine/opt/mpich/bin/*
  ln -s /opt/mpich/lib/libmpi.so.12 "$work/machine/srv/host-mpi/libmpich.so.12"
  inside machine /opt/mpich/bin/mpiexec -n 2 apptainer exec --bind /srv/host-mpi:/opt/host-mpi,/opt/mpich \
    --env LD_LIBRARY_PATH=/opt/host-mpi:/opt/mpich/lib:/opt/mpich/lib/mpich /srv/image mpigrad-selftest --folder /tmp
  note="$(sed -n 's/^MPI  *MPICH Version: *\([0-9.]*\).*/MPICH \1/p' "$work/out")"
  uses_it() { says ' passed, 0 failed' && grep -q '^MPI .*MPICH Version: *5\.' "$work/out"; }
  show 'the same with the MPI and the `mpiexec` of the machine (MPICH 5 for 4.0.2 of the image)' uses_it
}

"$kind"
{
  printf '`sh tests/package/images.sh %s`, commit %s, %s, %s.\n\n| case | outcome | seen |\n|---|---|---|\n' "$kind" "$commit" "$(date +%F)" "$(processor | cut -d ';' -f 1)"
  cat "$rows"
} | write_section "$([ "$kind" = debian ] && echo 'Debian packages' || echo Apptainer)"
summary
