# Shared by tests/run.sh and examples/quickstart.sh, which set `root` to the top of the source tree and source this file.
#
#   install_packages NAME...   checks for everything that the build needs, and for the named packages; installs missing ones
#                      on the known systems
#   configure_programs, configure_tests   configure $build once, for the programs only or with tests
#   build_targets TARGET...   builds it, or parts of it; prints nothing if everything is up to date
#   choose_launcher    sets and exports MPIEXEC, unless it is set: a launcher for the MPI of the build
#   run_ranks P COMMAND...   runs COMMAND on P ranks
#   processor          describes the hardware of measurements: the processor, its cores, and the instructions that the build uses
#
# POSIX sh; functions end the script with a message when they cannot do their work.

# shellcheck disable=SC2154
build=${MPIGRAD_BUILD:-$root/build}

# One name per line, for all known systems.
packages='
g++ meson ninja-build pkgconf
mpich libmpich-dev
libdnnl-dev libopenblas-dev
libhdf5-mpich-dev libfftw3-dev libcairo2-dev
zlib1g-dev libzip-dev libpng-dev libturbojpeg0-dev
libprotobuf-dev protobuf-compiler
libfmt-dev libcli11-dev nlohmann-json3-dev libtomlplusplus-dev
'
# Additional packages of the tests.
test_packages='doctest-dev cmake make libdlpack-dev python3-numpy python3-h5py'

# Headers to look for on other systems: a readable name, then the header.
headers='
MPI:mpi.h
oneDNN:oneapi/dnnl/dnnl.hpp
OpenBLAS:cblas.h
HDF5:hdf5.h
FFTW:fftw3.h
cairo:cairo.h
zlib:zlib.h
libzip:zip.h
libpng:png.h
libjpeg-turbo:turbojpeg.h
protobuf:google/protobuf/message_lite.h
fmt:fmt/format.h
CLI11:CLI/CLI.hpp
nlohmann-json:nlohmann/json.hpp
toml++:toml++/toml.h
doctest:doctest/doctest.h
'

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# "debian 12", "ubuntu 24.04", ...
system_name() {
  if [ -r /etc/os-release ]; then
    (. /etc/os-release && printf '%s %s\n' "${ID:-unknown}" "${VERSION_ID:-}")
  else
    uname -s
  fi
}

# Packages of the site: for the pages, the reference, the engine for browsers, and a browser to check it (Ubuntu's package of
# Chromium needs a snap daemon).
site_packages='pandoc doxygen emscripten'
case $(system_name) in debian*) site_packages="$site_packages chromium" ;; esac

install_packages() {
  packages="$packages $*"
  case $(system_name) in
    'debian 12' | 'debian 13' | 'ubuntu 24.04') install_from_distribution ;;
    *) look_for_parts ;;
  esac
}

install_from_distribution() {
  # Ubuntu 24.04 builds its MPICH so that its own launcher starts ranks that do not find each other; Open MPI's launcher works.
  case $(system_name) in
    'ubuntu 24.04') packages="$packages openmpi-bin" ;;
  esac
  missing=
  for package in $packages; do
    case $(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null) in
      installed) ;;
      *) missing="$missing $package" ;;
    esac
  done
  [ -n "$missing" ] || return 0

  if [ "$(id -u)" -eq 0 ]; then
    as_root=
  elif have sudo; then
    as_root=sudo
  else
    die "these packages are missing and only root may install them:$missing"
  fi
  say "installing with ${as_root:+$as_root }apt-get:$missing"
  apt_log=$(mktemp)
  # shellcheck disable=SC2086  # both lists are split on purpose
  if $as_root env DEBIAN_FRONTEND=noninteractive apt-get update >"$apt_log" 2>&1 &&
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends $missing >>"$apt_log" 2>&1; then
    rm -f "$apt_log"
  else
    tail -n 40 "$apt_log" >&2
    rm -f "$apt_log"
    die "apt-get could not install:$missing"
  fi
}

# True if the preprocessor accepts the program on standard input, with all the flags that pkg-config has.
preprocesses() {
  compiler=${CXX:-c++}
  if have mpicxx; then compiler=mpicxx; fi
  flags=
  for module in mpich hdf5-mpich hdf5 openblas fftw3 cairo zlib libzip libpng libturbojpeg protobuf-lite fmt CLI11 nlohmann_json dnnl doctest; do
    # A missing or broken module only omits its flags.
    flags="$flags $(pkg-config --cflags "$module" 2>/dev/null)" || true
  done
  # shellcheck disable=SC2086
  $compiler -std=c++20 $flags -E -x c++ - >/dev/null 2>&1
}

look_for_parts() {
  missing=
  newline='
  '
  for program in meson ninja pkg-config protoc mpiexec; do
    have "$program" || missing="$missing$newline$program"
  done
  if ! have "${CXX:-c++}"; then
    missing="$missing${newline}a compiler for C++20 (and libraries, which cannot be looked for without one)"
  elif ! printf '#include <span>\nstd::span<int> empty;\n' | "${CXX:-c++}" -std=c++20 -fsyntax-only -x c++ - >/dev/null 2>&1; then
    missing="$missing${newline}a compiler for C++20: ${CXX:-c++} is too old"
  else
    for entry in $headers; do
      case $packages:$entry in *doctest*:doctest*) ;; *:doctest*) continue ;; esac
      printf '#include <%s>\n' "${entry#*:}" | preprocesses ||
        missing="$missing$newline${entry%%:*} (header ${entry#*:})"
    done
    if printf '#include <hdf5.h>\n' | preprocesses &&
      ! printf '#include <hdf5.h>\n#ifndef H5_HAVE_PARALLEL\n#error serial\n#endif\n' | preprocesses; then
      missing="$missing${newline}HDF5 with MPI (this one is serial)"
    fi
  fi
  [ -n "$missing" ] || return 0
  say "On this system ($(system_name)) nothing is installed automatically. Install what is missing, then run this again:$missing"
  exit 1
}

# True if there is a GPU to run on, independent of the compilers.
gpu_visible() { have nvidia-smi && nvidia-smi -L 2>/dev/null | grep -q GPU; }

# Its architecture in the form of -Dgpu_archs: 90.
gpu_arch() { nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d '. '; }

# configure_with OPTION...: creates $build, or changes options of an existing build that differ. The values come from Meson's
# introspection, so that a correct build is not touched.
configure_with() {
  log=$build/last-build.txt
  if [ ! -f "$build/build.ninja" ]; then
    say "configuring $build"
    mkdir -p "$build"
    # --wipe removes the remains of an interrupted configuration
    again=
    [ ! -d "$build/meson-private" ] || again=--wipe
    # shellcheck disable=SC2086
    meson setup "$build" "$root" --buildtype=release "$@" $again >"$log.setup" 2>&1 || {
      cat "$log.setup" >&2
      die "meson could not configure $build"
    }
    mv "$log.setup" "$log"
    return 0
  fi
  changed=$(python3 - "$build/meson-info/intro-buildoptions.json" "$@" <<'END'
import json, sys
known = {option['name']: option['value'] for option in json.load(open(sys.argv[1]))}
text = lambda value: ','.join(value) if isinstance(value, list) else str(value).lower()
for argument in sys.argv[2:]:
    name, value = argument[2:].split('=', 1)
    if text(known.get(name)) != value:
        print(argument)
END
  ) || die "$build is not a build that Meson knows; remove it"
  if [ -n "$changed" ]; then
    # Not `meson configure`: it does not know options that were added after the build was created.
    # shellcheck disable=SC2086  # several options
    meson setup --reconfigure $changed "$build" "$root" >"$log" 2>&1 || { cat "$log" >&2; die "meson could not configure $build"; }
  fi
}

# For the programs only: for CPUs, unless there is a GPU. An existing build stays as it is.
configure_programs() {
  if [ -f "$build/build.ninja" ]; then return 0; fi
  if gpu_visible; then configure_with "-Dgpu_archs=$(gpu_arch)"; return; fi
  configure_with -Dcuda=disabled
  : >"$build/for-cpus.txt"
}

# With tests and everything that Meson finds. If a build for CPUs was made because there was no GPU, and now there is one, only the
# kernels are compiled in addition. The tests need the kernels for one architecture.
configure_tests() {
  archs=90
  if gpu_visible; then archs=$(gpu_arch); fi
  if [ ! -f "$build/build.ninja" ]; then
    configure_with -Dtests=true "-Dgpu_archs=$archs"
  elif [ -f "$build/for-cpus.txt" ]; then
    configure_with -Dtests=true -Dcuda=auto "-Dgpu_archs=$archs"
    rm -f "$build/for-cpus.txt"
  else
    configure_with -Dtests=true
  fi
}

# build_targets [TARGET...]: builds all targets or some. Reports progress; in lines if the output is not a terminal.
build_targets() {
  log=$build/last-build.txt
  if ninja -C "$build" -n "$@" 2>/dev/null | grep -q 'no work to do'; then return 0; fi
  say "building in $build"
  if [ -t 2 ]; then
    NINJA_STATUS='[%f of %t files, %es] ' ninja -C "$build" "$@" >&2 || die "the build failed"
    return 0
  fi
  : >"$log"
  { NINJA_STATUS='[%f/%t] ' ninja -C "$build" "$@" 2>&1; echo "$?" >"$log.status"; } | follow_build
  if [ "$(cat "$log.status")" != 0 ]; then
    grep -v '^\[[0-9]*/[0-9]*\] ' "$log" >&2
    die "the build failed; all of it is in $log"
  fi
}

# Reads ninja's output: writes all of it to $log, and prints a line every ten seconds.
follow_build() {
  begun=$(date +%s) next=10 seconds=0 files=
  while IFS= read -r line; do
    printf '%s\n' "$line" >>"$log"
    case $line in
      \[[0-9]*/*\]*)
        files=${line%%\]*}
        files=${files#\[}
        seconds=$(($(date +%s) - begun))
        [ "$seconds" -ge "$next" ] || continue
        next=$((seconds + 10))
        say "  ${files%/*} of ${files#*/} files, $((seconds / 60)) min $((seconds % 60)) s"
        ;;
    esac
  done
  [ -z "$files" ] || say "  ${files%/*} of ${files#*/} files, $((seconds / 60)) min $((seconds % 60)) s"
}

# Several MPIs may be installed, and a launcher of the wrong one starts P worlds of one rank. So launchers are tried once, and the
# result is kept in $build.
choose_launcher() {
  # Settings with which Open MPI's launcher starts more ranks than cores, also as root, not bound to cores; other launchers ignore
  # them.
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
  export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none  # Open MPI 5
  [ -z "${MPIEXEC:-}" ] || return 0
  # Meson has looked for the launcher of the wrapper in -Dmpi=.
  known=$build/comm/transport/mpi/launcher.txt
  [ -s "$known" ] || known=$build/launcher.txt
  if [ ! -s "$known" ]; then find_launcher >"$known" || exit 1; fi
  MPIEXEC=$(cat "$known")
  export MPIEXEC
}

find_launcher() {
  probe=$(mktemp -d)
  printf '%s\n' '#include <mpi.h>' 'int main(int argc, char** argv) {' '  int size = 0;' '  MPI_Init(&argc, &argv);' \
    '  MPI_Comm_size(MPI_COMM_WORLD, &size);' '  MPI_Finalize();' '  return size == 2 ? 0 : 1;' '}' >"$probe/probe.cpp"
  # shellcheck disable=SC2046
  if ! "${CXX:-c++}" $(pkg-config --cflags mpich) -o "$probe/probe" "$probe/probe.cpp" $(pkg-config --libs mpich) >"$probe/log" 2>&1 &&
    ! mpicxx -o "$probe/probe" "$probe/probe.cpp" >>"$probe/log" 2>&1; then
    cat "$probe/log" >&2
    rm -rf "$probe"
    die "a small MPI program does not compile"
  fi
  for launcher in mpiexec.mpich mpiexec.hydra mpiexec mpirun.openmpi; do
    if have "$launcher" && timeout -k 5 60 "$launcher" -n 2 "$probe/probe" >"$probe/log" 2>&1 </dev/null; then
      rm -rf "$probe"
      printf '%s\n' "$launcher"
      return 0
    fi
  done
  cat "$probe/log" >&2
  rm -rf "$probe"
  die "no launcher starts two ranks of MPICH that find each other; set MPIEXEC to one that does"
}

run_ranks() {
  ranks=$1
  shift
  # shellcheck disable=SC2086  # MPIEXEC may hold options
  $MPIEXEC -n "$ranks" "$@"
}

processor() {
  printf '%s, %s cores; %s' "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)" \
    "$("$build/tests/cosmoflow_step" --instructions 2>/dev/null || echo 'instructions unknown')"
}
