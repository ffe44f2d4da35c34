# Bundles for offline GPU machines. tests/gpu.sh sources this file after examples/packaging/packages.sh and gpu_report.sh.
#
#   make_bundle KIND FOLDER   packs into FOLDER, from this machine's packages:
#                               full    headers and libraries for a build with MPI, HDF5 and the trainers
#                               small   headers and libraries for a build without MPI, HDF5, oneDNN and OpenBLAS
#                               built   small, and programs compiled here, with MPI, HDF5 and the trainers
#   use_bundle FOLDER         unpacks headers and libraries in the build's folder, where Meson, compilers and programs find them
#   use_programs FOLDER       unpacks the programs; fails with a reason if they cannot be used
#   use_wheels                lets the build find CUDA libraries that were installed as Python packages
#   meson_options             the options that a build with this bundle needs
#
# Programs find a bundle's libraries by their run path. LD_LIBRARY_PATH would change the libraries of the machine's own programs,
# too: a Python that is newer than the bundle's libexpat does not start with it.
#
# POSIX sh.

# shellcheck shell=sh disable=SC2154

# Packages of examples/packaging/packages.sh without compilers, build programs, oneDNN and OpenBLAS: those have a hundred
# megabytes, and GPUs are not compared with their kernels.
small_packages='
libfmt-dev libfmt9 libfmt10 libcli11-dev nlohmann-json3-dev doctest-dev
pkgconf pkgconf-bin libpkgconf3
'
full_packages="$small_packages
libmpich-dev libmpich12 mpich
libhdf5-mpich-dev libhdf5-mpich-103-1 libhdf5-mpich-103-1t64
libfftw3-dev libfftw3-double3 libcairo2-dev libcairo2
"
# Libraries of the C library and the compiler, which every machine has.
never='/lib(c|m|dl|rt|pthread|resolv|util|stdc\+\+|gcc_s|gomp|nsl|anl)\.so|/ld-linux|/nss_|linux-vdso'
# Programs that need no MPI, in tests/ of the build; programs that this tree lacks are left out.
gpu_programs='unit gpu_step gpu_questions gpu_kernels gpu_contrastive'
# Programs in examples/ for another machine: those that the trainers' step runs.
trainer_programs='cosmoflow universe sample_size'
small_options='-Dmpi=disabled -Dhdf5=disabled -Donednn=disabled -Dopenblas=disabled'

# Copies the file at the end of a chain of links, and makes a link to it with the requested name. /lib is /usr/lib.
copy_into() {
  folder=$(readlink -f "$(dirname "$2")") file=$(readlink -f "$2") name=$(basename "$2")
  mkdir -p "$1$folder" "$1$(dirname "$file")"
  [ -e "$1$file" ] || cp -p "$file" "$1$file"
  if [ -e "$1$folder/$name" ]; then return; fi
  if [ "$folder" = "$(dirname "$file")" ]; then ln -s "$(basename "$file")" "$1$folder/$name"; else cp -p "$file" "$1$folder/$name"; fi
}

# All libraries that the libraries and programs in a folder load, directly or indirectly, except $never; one path per line.
needed_by() {
  find "$1" \( -name '*.so*' -o -path '*/bin/*' -o -path '*/examples/*' \) -type f -exec ldd {} \; 2>/dev/null | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p' |
    grep -vE "$never" | sort -u
}

size_of() { du -k "$1" | awk '{ printf "%.1f MB\n", $1 / 1024 }'; }

make_bundle() {
  case $1 in
    full) bundled=$full_packages ;;
    small | built) bundled=$small_packages ;;
    *) die "bundles are full, small and built, not $1" ;;
  esac
  # shellcheck disable=SC2086,SC2154  # several names, from packages.sh
  install_packages $test_packages
  tree=$2/tree
  rm -rf "$2"
  mkdir -p "$tree"
  for package in $bundled; do
    dpkg-query --listfiles "$package" 2>/dev/null || true
  done | grep -E '^/usr/(include|lib|share/(pkgconfig|cmake)|bin/(pkg|mpiexec|hydra))' |
    grep -vE '\.(a|la|mod)$|/python|/perl|/share/(doc|man)|/hdf5/(serial|openmpi)|fftw3[fql]\.|fftw3[fql]_|mpif|[fF]ortran|mpichfort' |
    sort -u >"$2/files"
  while read -r file; do
    if [ -f "$file" ]; then copy_into "$tree" "$file"; fi
  done <"$2/files"
  needed_by "$tree" >"$2/files"
  while read -r library; do
    copy_into "$tree" "$library"
  done <"$2/files"
  find "$tree" -name '*.so*' -type f -exec strip --strip-unneeded {} +
  tar -C "$tree" -czf "$2/bundle.tar.gz" .
  rm -rf "$tree" "$2/files"
  printf '%s\n' "$1" >"$2/kind"
  keep_commit "$2"
  for peer in "$root/../shared/peers/torch_step.py" "$root/shared/peers/torch_step.py"; do
    if [ -f "$peer" ]; then cp "$peer" "$2/peer.py"; fi
  done
  say "$1: headers and libraries $(size_of "$2/bundle.tar.gz")"
  if [ "$1" = built ]; then build_programs "$2"; fi
  say "$2, $(size_of "$2"), of commit $(cat "$2/commit"): carry it with the source tree, to the same place"
}

# Compiles programs for another machine: their libraries, except those of the C library and the compiler, are next to them.
build_programs() {
  portable=$root/build-bundle
  archs=${MPIGRAD_GPU_ARCHS:-90}
  log=$portable/last-build.txt
  mkdir -p "$portable"
  if [ -f "$portable/build.ninja" ]; then meson configure "$portable" "-Dgpu_archs=$archs" >"$log" 2>&1 || die "see $log"; else
    # shellcheck disable=SC2016  # the loader knows $ORIGIN
    LDFLAGS='-Wl,--disable-new-dtags -Wl,-rpath,$ORIGIN/../lib' meson setup "$portable" "$root" --buildtype=release -Dtests=true -Donednn=disabled -Dopenblas=disabled \
      -Dcuda=enabled -Dcudnn=enabled -Dnccl=disabled -Dformats=disabled -Dprotobuf=disabled -Dtoml=disabled "-Dgpu_archs=$archs" >"$log" 2>&1 ||
      die "meson could not configure $portable: see $log"
  fi
  # shellcheck disable=SC2046  # several targets
  ninja -C "$portable" $(targets_of "$portable") $(printf 'examples/%s ' $trainer_programs) >>"$log" 2>&1 || die "the build failed: see $log"
  rm -rf "$1/programs"
  mkdir -p "$1/programs/bin" "$1/programs/lib" "$1/programs/examples"
  for program in $gpu_programs; do
    if [ -x "$portable/tests/$program" ]; then strip -o "$1/programs/bin/$program" "$portable/tests/$program"; fi
  done
  for program in $trainer_programs; do strip -o "$1/programs/examples/$program" "$portable/examples/$program"; done
  for library in "$portable/libmpigrad.so" "$portable/models/trainer/libmpigrad_trainer.so"; do
    soname=$(readelf -d "$library" | sed -n 's/.*SONAME.*\[\(.*\)\].*/\1/p')
    strip --strip-unneeded -o "$1/programs/lib/$soname" "$library"
  done
  cp "$(readlink -f "$(ldconfig -p | sed -n 's/.*libgomp\.so\.1 .*=> //p' | head -n 1)")" "$1/programs/lib/libgomp.so.1"
  needed_by "$1/programs" | grep -vE 'libmpigrad|/cuda' | while read -r library; do cp -L "$library" "$1/programs/lib/"; done
  printf '%s\n' "$archs" >"$1/programs/archs"
  cp "$1/commit" "$1/programs/commit"
  tar -C "$1/programs" -czf "$1/programs.tar.gz" .
  rm -rf "$1/programs"
  say "built: programs for sm_$archs $(size_of "$1/programs.tar.gz")"
}

# The targets of $gpu_programs that a build has.
targets_of() {
  ninja -C "$1" -t targets all >"$1/targets.txt"
  for program in $gpu_programs; do
    if grep -q "^tests/$program:" "$1/targets.txt"; then printf 'tests/%s\n' "$program"; fi
  done
}

# wrap FILE PROGRAM LIBRARIES: a program of the bundle finds its libraries; programs that it starts find the machine's own first.
wrap() {
  cat >"$1" <<END
#!/bin/sh
LD_LIBRARY_PATH=\${LD_LIBRARY_PATH:+\$LD_LIBRARY_PATH:}/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu:/lib64:/usr/lib64:$3
export LD_LIBRARY_PATH
exec "$2" "\$@"
END
  chmod +x "$1"
}

use_bundle() {
  if [ ! -d "$build/bundle" ]; then
    rm -rf "$build/bundle.part"
    mkdir -p "$build/bundle.part"
    tar -C "$build/bundle.part" -xzf "$1/bundle.tar.gz" || die "$1/bundle.tar.gz cannot be unpacked"
    mv "$build/bundle.part" "$build/bundle"
  fi
  set -- "$build/bundle"
  library=$1/usr/lib/x86_64-linux-gnu
  mkdir -p "$build/wrapped"
  for program in "$1/usr/bin/pkg-config" "$1/usr/bin/pkgconf"; do
    if [ -x "$program" ]; then wrap "$build/wrapped/pkgconf" "$program" "$library"; fi
  done
  PKG_CONFIG=$build/wrapped/pkgconf
  PKG_CONFIG_SYSROOT_DIR=$1
  PKG_CONFIG_LIBDIR=$library/pkgconfig:$1/usr/share/pkgconfig
  CPLUS_INCLUDE_PATH=$1/usr/include:$1/usr/include/doctest${CPLUS_INCLUDE_PATH:+:$CPLUS_INCLUDE_PATH}
  LIBRARY_PATH=$library${LIBRARY_PATH:+:$LIBRARY_PATH}
  # Libraries use the run path of the program if it is of the older kind (RPATH).
  LDFLAGS="-Wl,--disable-new-dtags -Wl,-rpath,$library${LDFLAGS:+ $LDFLAGS}"
  export PKG_CONFIG PKG_CONFIG_SYSROOT_DIR PKG_CONFIG_LIBDIR CPLUS_INCLUDE_PATH LIBRARY_PATH LDFLAGS
  for launcher in "$1"/usr/bin/mpiexec.hydra "$1"/usr/bin/mpiexec.mpich; do
    if [ -z "${MPIEXEC:-}" ] && [ -x "$launcher" ]; then
      wrap "$build/wrapped/mpiexec" "$launcher" "$library"
      MPIEXEC=$build/wrapped/mpiexec
      export MPIEXEC
    fi
  done
}

# use_programs FOLDER ARCH: uses them if they are of this commit, for this GPU, and start here. In $build/built/bin.
use_programs() {
  [ -f "$1/programs.tar.gz" ] || return 1
  rm -rf "$build/built"
  mkdir -p "$build/built"
  tar -C "$build/built" -xzf "$1/programs.tar.gz" || return 1
  of=$(cat "$build/built/commit") here=$(commit_of_tree)
  if [ "$of" != "$here" ]; then echo "the programs are of commit $of, this is $here: building here"; return 1; fi
  case ",$(cat "$build/built/archs")," in
    *",$2,"*) ;;
    *) echo "the programs are for sm_$(cat "$build/built/archs"), this GPU is sm_$2: building here"; return 1 ;;
  esac
  for program in "$build"/built/bin/*; do
    if ! why=$("$program" --help 2>&1 >/dev/null </dev/null); then
      printf 'the programs do not start here: building here\n%s\n' "$(printf '%s\n' "$why" | head -n 3)"
      return 1
    fi
  done
}

# Wheels have libNAME.so.N but not libNAME.so, which linkers look for: makes links in a folder of the build. These folders contain
# only NVIDIA's libraries.
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
  export PATH CPLUS_INCLUDE_PATH LIBRARY_PATH
  if [ -n "${LD_LIBRARY_PATH:-}" ]; then export LD_LIBRARY_PATH; fi
}

# Without a bundle, uses what is installed.
meson_options() {
  case $(cat "$1/kind" 2>/dev/null) in
    small | built) printf '%s\n' "$small_options" ;;
  esac
}
