# Sourced by tests/gpu.sh, with tests/packages.sh before it.
#
#   make_bundle FOLDER   packs headers and libraries of this machine's installed packages into FOLDER/bundle.tar.gz: what a build
#                        needs that its target machine cannot install
#   use_bundle FOLDER    unpacks them in the build's folder and lets Meson, the compiler and the loader find them there
#   use_wheels           the same for CUDA libraries that were installed as Python packages
#
# POSIX sh.

# shellcheck shell=sh disable=SC2154

# Packages of tests/packages.sh without compilers, build programs, oneDNN and OpenBLAS: those are a hundred megabytes, and their
# kernels are not what a GPU is checked against.
bundled='
libmpich-dev libmpich12 mpich
libhdf5-mpich-dev libhdf5-mpich-103-1 libhdf5-mpich-103-1t64
libfftw3-dev libfftw3-double3 libcairo2-dev libcairo2
libfmt-dev libfmt9 libfmt10 libcli11-dev nlohmann-json3-dev doctest-dev
pkgconf pkgconf-bin libpkgconf3
'
# Of the C library and the compiler, which every machine has.
never='/lib(c|m|dl|rt|pthread|resolv|util|stdc\+\+|gcc_s|gomp|nsl|anl)\.so|/ld-linux|/nss_|linux-vdso'

# The file at the end of a chain of links, and a link to it under the name asked for. /lib is /usr/lib.
copy_into() {
  folder=$(readlink -f "$(dirname "$2")") file=$(readlink -f "$2") name=$(basename "$2")
  mkdir -p "$1$folder" "$1$(dirname "$file")"
  [ -e "$1$file" ] || cp -p "$file" "$1$file"
  if [ -e "$1$folder/$name" ]; then return; fi
  if [ "$folder" = "$(dirname "$file")" ]; then ln -s "$(basename "$file")" "$1$folder/$name"; else cp -p "$file" "$1$folder/$name"; fi
}

make_bundle() {
  install_packages
  rm -rf "$1"
  mkdir -p "$1"
  : >"$1/.files"
  for package in $bundled; do
    dpkg-query --listfiles "$package" 2>/dev/null || true
  done | grep -E '^/usr/(include|lib|share/(pkgconfig|cmake)|bin/(pkg|mpiexec|hydra))' |
    grep -vE '\.(a|la|mod)$|/python|/perl|/share/(doc|man)|/hdf5/(serial|openmpi)|fftw3[fql]\.|fftw3[fql]_|mpif|[fF]ortran|mpichfort' |
    sort -u >"$1/.files"
  while read -r file; do
    if [ -f "$file" ]; then copy_into "$1" "$file"; fi
  done <"$1/.files"
  # What those libraries and programs load in turn.
  find "$1" \( -name '*.so*' -o -path '*/bin/*' \) -type f -exec ldd {} \; 2>/dev/null |
    sed -n 's/.*=> \(\/[^ ]*\).*/\1/p' | grep -vE "$never" | sort -u >"$1/.needed"
  while read -r library; do
    copy_into "$1" "$library"
  done <"$1/.needed"
  find "$1" -name '*.so*' -type f -exec strip --strip-unneeded {} +
  rm -f "$1/.files" "$1/.needed"
  tar -C "$1" -czf "$1.tar.gz" .
  rm -rf "$1"
  mkdir "$1"
  mv "$1.tar.gz" "$1/bundle.tar.gz"
  say "$(du -h "$1/bundle.tar.gz" | tr '\t' ' '): carry it with the source tree, to the same place"
}

use_bundle() {
  if [ ! -d "$build/bundle" ]; then
    mkdir -p "$build/bundle.part"
    tar -C "$build/bundle.part" -xzf "$1/bundle.tar.gz" || die "$1/bundle.tar.gz cannot be unpacked"
    mv "$build/bundle.part" "$build/bundle"
  fi
  set -- "$build/bundle"
  library=$1/usr/lib/x86_64-linux-gnu
  PKG_CONFIG=$1/usr/bin/pkgconf
  [ -x "$PKG_CONFIG" ] || PKG_CONFIG=$1/usr/bin/pkg-config
  PKG_CONFIG_SYSROOT_DIR=$1
  PKG_CONFIG_LIBDIR=$library/pkgconfig:$1/usr/share/pkgconfig
  CPLUS_INCLUDE_PATH=$1/usr/include:$1/usr/include/doctest${CPLUS_INCLUDE_PATH:+:$CPLUS_INCLUDE_PATH}
  LIBRARY_PATH=$library${LIBRARY_PATH:+:$LIBRARY_PATH}
  LD_LIBRARY_PATH=$library${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export PKG_CONFIG PKG_CONFIG_SYSROOT_DIR PKG_CONFIG_LIBDIR CPLUS_INCLUDE_PATH LIBRARY_PATH LD_LIBRARY_PATH
  for launcher in "$1"/usr/bin/mpiexec.hydra "$1"/usr/bin/mpiexec.mpich; do
    if [ -z "${MPIEXEC:-}" ] && [ -x "$launcher" ]; then MPIEXEC=$launcher; fi
  done
}

# Wheels have libNAME.so.N and no libNAME.so, which is what a linker looks for: it gets links in a folder of the build.
use_wheels() {
  have python3 || return 0
  wheels=$(python3 -c 'import site, sys
for folder in [*site.getsitepackages(), site.getusersitepackages(), *sys.path]: print(folder)' 2>/dev/null | sort -u)
  mkdir -p "$build/wheels"
  for site in $wheels; do
    for part in "$site"/nvidia/*; do
      [ -d "$part" ] || continue
      if [ -d "$part/include" ]; then CPLUS_INCLUDE_PATH=${CPLUS_INCLUDE_PATH:+$CPLUS_INCLUDE_PATH:}$part/include; fi
      if [ -x "$part/bin/nvcc" ] && ! have nvcc && [ ! -x /usr/local/cuda/bin/nvcc ]; then PATH=$PATH:$part/bin; fi
      [ -d "$part/lib" ] || continue
      LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$part/lib
      for library in "$part"/lib/lib*.so.[0-9]*; do
        if [ -e "$library" ]; then ln -sf "$library" "$build/wheels/$(basename "${library%%.so.*}").so"; fi
      done
    done
  done
  LIBRARY_PATH=$build/wheels${LIBRARY_PATH:+:$LIBRARY_PATH}
  export PATH CPLUS_INCLUDE_PATH LD_LIBRARY_PATH LIBRARY_PATH
}
