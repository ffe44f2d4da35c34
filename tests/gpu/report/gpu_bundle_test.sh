#!/bin/sh
# Tests of tests/gpu/report/gpu_bundle.sh: a bundle with libraries older than the machine's does not break the machine's programs,
# and programs built with it find its libraries. Prints `failed: NAME` for each failed test and ends with `N passed, M failed, K
# skipped`. tests/run.sh calls it; with MPIGRAD_TEST_ALL it makes a real bundle and configures a build with it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
. "$root/tests/suite.sh"
. "$root/tests/gpu/report/gpu_report.sh"
. "$root/tests/gpu/report/gpu_bundle.sh"
compiler=${CXX:-c++}
build=$work/build
inside=usr/lib/x86_64-linux-gnu
: >"$work/out"
: >"$work/err"
status=0

# A library for NAME.cpp; the second argument has all options for linking.
library() { "$compiler" -shared -fPIC -Wl,-soname,"lib$1.so.1" -o "$tree/$inside/lib$1.so.1" "$work/$1.cpp" -L"$tree/$inside" ${2:+-l$2}; }

# ---- a bundle with an old libexpat, a library that loads another, and a launcher that needs both

tree=$work/tree
mkdir -p "$tree/$inside/pkgconfig" "$tree/usr/bin" "$tree/usr/include/doctest" "$work/bundle" "$build"
echo 'extern "C" int old_expat() { return 1; }' >"$work/expat.cpp"
echo 'int deep() { return 42; }' >"$work/deep.cpp"
printf 'int deep();\nint toy() { return deep(); }\n' >"$work/toy.cpp"
library expat
library deep
ln -s libdeep.so.1 "$tree/$inside/libdeep.so"
library toy deep
ln -s libtoy.so.1 "$tree/$inside/libtoy.so"
echo 'int toy();' >"$tree/usr/include/toy.h"
printf 'Name: toy\nDescription: a toy\nVersion: 1.5\nLibs: -ltoy\nCflags:\n' >"$tree/$inside/pkgconfig/toy.pc"
cat >"$work/launcher.cpp" <<'END'
#include <unistd.h>
#include <toy.h>
int main(int, char** argv) { return toy() == 42 ? execvp(argv[1], argv + 1) : 1; }
END
"$compiler" -o "$tree/usr/bin/mpiexec.hydra" "$work/launcher.cpp" -I"$tree/usr/include" -L"$tree/$inside" -ltoy -Wl,-rpath-link,"$tree/$inside"
tar -C "$tree" -czf "$work/bundle/bundle.tar.gz" .
echo small >"$work/bundle/kind"

# Finds a Python on the machine that loads its libexpat at the start or on request.
python=
for candidate in /usr/bin/python3 "$(command -v python3)"; do
  if [ -x "$candidate" ] && ! LD_LIBRARY_PATH=$tree/$inside "$candidate" -c 'import pyexpat' >/dev/null 2>&1; then python=$candidate; fi
done

unset MPIEXEC LDFLAGS LIBRARY_PATH CPLUS_INCLUDE_PATH
before=${LD_LIBRARY_PATH:-}
use_bundle "$work/bundle"
judge 'a bundle does not change what the loader finds for everybody' [ "${LD_LIBRARY_PATH:-}" = "$before" ]
if [ -n "$python" ]; then
  run "$python" -c 'import pyexpat, plistlib; print(pyexpat.EXPAT_VERSION)'
  judge "a bundle with an old libexpat: the machine's Python starts" says '^expat_'
  run "$MPIEXEC" "$python" -c 'import pyexpat; print(pyexpat.EXPAT_VERSION)'
  judge 'and also under the launcher of the bundle, which finds its own libraries' says '^expat_'
else
  skip 'no Python of this machine loads libexpat'
fi
if have meson; then
  run meson --version
  judge 'Meson starts' says '^[0-9]'
fi
run "$work/build/bundle/usr/bin/mpiexec.hydra" true
judge 'without what wraps it, the launcher would not' [ "$status" -eq 127 ]

printf '#include <toy.h>\n#include <cstdio>\nint main() { std::printf("%%d\\n", toy()); }\n' >"$work/program.cpp"
# shellcheck disable=SC2086  # LDFLAGS holds several
run "$compiler" -o "$work/program" "$work/program.cpp" $LDFLAGS -ltoy
judge 'a program is built with the headers and libraries of the bundle' succeeds
run env -u LD_LIBRARY_PATH "$work/program"
judge 'and starts, with the libraries that these load' says '^42$'
# The newer kind (RUNPATH), which libraries do not inherit.
run "$compiler" -o "$work/unlike" "$work/program.cpp" -Wl,--enable-new-dtags -Wl,-rpath,"$build/bundle/$inside" -ltoy
run env -u LD_LIBRARY_PATH "$work/unlike"
judge 'with a run path of the newer kind it would not' [ "$status" -eq 127 ]

if have meson; then
  mkdir "$work/project"
  cat >"$work/project/meson.build" <<'END'
project('toy', 'cpp')
executable('toy', '../program.cpp', dependencies: meson.get_compiler('cpp').find_library('toy'))
END
  run meson setup "$work/project/build" "$work/project"
  judge 'Meson configures with the bundle' succeeds
  compile ninja -C "$work/project/build"
  run "$work/project/build/toy"
  judge 'and what it builds starts' says '^42$'
fi

# ---- programs that were built elsewhere

# programs_of COMMIT ARCHS SCRIPT: a bundle with one program.
programs_of() {
  rm -rf "$work/programs"
  mkdir -p "$work/programs/bin"
  echo "$1" >"$work/programs/commit"
  echo "$2" >"$work/programs/archs"
  printf '#!/bin/sh\n%s\n' "$3" >"$work/programs/bin/unit"
  chmod +x "$work/programs/bin/unit"
  tar -C "$work/programs" -czf "$work/bundle/programs.tar.gz" .
}
use() {
  use_programs "$work/bundle" "$1" >"$work/out" 2>"$work/err"
  status=$?
}
MPIGRAD_COMMIT=1234567
programs_of 1234567 90 'exit 0'
use 90
judge 'programs of this commit, for this GPU, that start, are used' succeeds
falls_back() { [ "$status" -ne 0 ] && grep -q "$1.*: building here" "$work/out"; }
use 100
judge 'those for another GPU are not' falls_back 'sm_90, this GPU is sm_100'
programs_of 7654321 90 'exit 0'
use 90
judge 'those of another commit are not' falls_back 'of commit 7654321, this is 1234567'
programs_of 1234567 80,90 'echo "libstdc++.so.6: version GLIBCXX_3.4.99 not found" >&2; exit 1'
use 90
told_why() { falls_back 'do not start here' && grep -q 'GLIBCXX_3.4.99' "$work/out"; }
judge 'those that do not start are not, and it says why' told_why
unset MPIGRAD_COMMIT

# ---- a real one

if [ -n "${MPIGRAD_TEST_ALL:-}" ] && have dpkg-query && have nvcc; then
  (make_bundle small "$work/real") >"$work/out" 2>"$work/err"
  status=$?
  small() { succeeds && [ "$(du -k "$work/real" | awk '{ print $1 }')" -lt 8192 ] && [ "$(cat "$work/real/kind")" = small ]; }
  judge 'the small bundle has less than 8 MB' small
  # With an old libexpat.
  mkdir "$work/opened"
  tar -C "$work/opened" -xzf "$work/real/bundle.tar.gz"
  cp "$tree/$inside/libexpat.so.1" "$work/opened/$inside/"
  tar -C "$work/opened" -czf "$work/real/bundle.tar.gz" .
  build=$work/real-build
  mkdir "$build"
  unset LDFLAGS LIBRARY_PATH CPLUS_INCLUDE_PATH PKG_CONFIG PKG_CONFIG_SYSROOT_DIR PKG_CONFIG_LIBDIR MPIEXEC
  use_bundle "$work/real"
  # shellcheck disable=SC2046  # several options
  run meson setup "$build" "$root" -Dtests=true $(meson_options "$work/real")
  configured() { says 'MPI *: no' && says 'HDF5 *: no' && says 'oneDNN *: no' && ninja -C "$build" -t targets all | grep -q '^tests/gpu_step:'; }
  judge 'with a small bundle all that needs no MPI is configured' configured
fi

summary
