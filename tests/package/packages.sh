#!/bin/sh
# Packages and releases: recipes, module files, the bill of materials, the source archive; without network and by a user without
# rights a configuration, and as a long test build, installation and self-test. Prints `failed: NAME` for each failed test and
# ends with `N passed, M failed, K skipped`.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
. "$root/examples/packaging/packages.sh"
. "$root/tests/suite.sh"
packaging=$root/examples/packaging
version=$(sed -n "s/^project(.*, version: '\([^']*\)'.*/\1/p" "$root/meson.build")

run python3 "$root/tests/package/recipes.py" "$root"
judge 'the recipes have the version, options and packages of the build' succeeds
cp -r "$packaging" "$work/other" && mkdir -p "$work/changed/examples/first" "$work/changed/tests/package"
mv "$work/other" "$work/changed/examples/packaging"
cp "$root/meson_options.txt" "$root/CITATION.cff" "$root/CHANGELOG.md" "$root/README.md" "$work/changed/"
cp "$root/examples/first/comparison.md" "$work/changed/examples/first/"
cp "$root/tests/package/CMakeLists.txt" "$work/changed/tests/package/"
mkdir -p "$work/changed/examples/tools/python"
cp "$root/examples/tools/python/pyproject.toml" "$work/changed/examples/tools/python/"
sed "s/version: '[0-9.]*'/version: '9.8.7'/" "$root/meson.build" >"$work/changed/meson.build"
sed -i 's/-Dhdf5=/-Dhdf6=/' "$work/changed/examples/packaging/conda/build.sh"
run python3 "$root/tests/package/recipes.py" "$work/changed"
finds() { [ "$status" -eq 1 ] && grep -q 'recipe.yaml is for version' "$work/out" && grep -q 'no package libmpigrad9' "$work/out" && grep -q 'build.sh: meson_options.txt has no hdf6' "$work/out" &&
    grep -q 'CHANGELOG.md is for version' "$work/out" && grep -q '/README.md names version' "$work/out"; }
judge 'another version and an unknown option are found' finds
sed -n '/^%post/,/^%environment/{s/^%.*//;p}' "$packaging/apptainer/mpigrad.def" >"$work/post.sh"
run sh -n "$work/post.sh"
judge 'the %post of the container is a script' test -s "$work/post.sh" -a "$status" -eq 0
run sh -n "$packaging/conda/build.sh"
judge 'the script of conda' succeeds

# ---- without network, sudo and packages of the distribution: an ordinary user configures in a namespace
mkdir "$work/user" "$work/bin"
for program in sudo apt-get curl wget; do
  printf '#!/bin/sh\necho "%s $*" >>"%s/user/called"\nexit 1\n' "$program" "$work" >"$work/bin/$program"
  chmod +x "$work/bin/$program"
done
chmod 755 "$work" "$work/bin"
as_user=
if [ "$(id -u)" -eq 0 ]; then
  chown 65534:65534 "$work/user"
  as_user='setpriv --reuid=65534 --regid=65534 --clear-groups'
fi
# shellcheck disable=SC2086  # several words
isolated() { run $as_user env HOME="$work/user" PATH="$work/bin:/usr/local/bin:/usr/bin:/bin" unshare --map-root-user --net "$@"; }
# shellcheck disable=SC2016  # expanded there
isolated sh -c 'test -r "$0/meson.build" && python3 -c "" && meson --version' "$root"
if [ "$status" -ne 0 ]; then
  skip 'no namespaces for ordinary users, or they cannot read the source tree or run Meson'
else
  isolated python3 -c 'import socket; socket.create_connection(("198.51.100.1", 9), 5)'
  judge 'the namespace has no network' refuses 'Network is unreachable'
  isolated meson setup "$work/user/build" "$root" --prefix="$work/user/prefix" --wrap-mode=nodownload --buildtype=release -Dcuda=disabled
  judge 'the build is configured without network' says 'Build targets in project'
  judge 'nothing asked for rights or for the network' no_file "$work/user/called"
  if [ -n "${MPIGRAD_TEST_ALL:-}" ]; then
    choose_launcher
    limit=1800
    isolated ninja -C "$work/user/build" install
    unset limit
    judge 'it is built and installed' succeeds
    # shellcheck disable=SC2016,SC2086  # expanded there; MPIEXEC may hold options
    isolated sh -c 'PATH=$PATH:/usr/sbin:/sbin ip link set lo up; exec "$@"' sh $MPIEXEC -n 2 "$work/user/prefix/bin/mpigrad-selftest"
    judge 'the installed self-test passes on two ranks' says ' passed, 0 failed'
    judge 'none of this asked for them either' no_file "$work/user/called"
  fi
  built=$work/user/build

  # ---- module files
  lists_paths() {
    succeeds && grep -qx "PATH $work/user/prefix/bin" "$work/out" && grep -q "^LD_LIBRARY_PATH $work/user/prefix/lib" "$work/out" &&
      grep -q "^PKG_CONFIG_PATH $work/user/prefix/lib.*/pkgconfig$" "$work/out" && grep -qx "CMAKE_PREFIX_PATH $work/user/prefix" "$work/out" &&
      grep -qx "MPIGRAD $work/user/prefix" "$work/out"
  }
  if have tclsh; then
    printf 'proc module-whatis args {}\nproc conflict args {}\nproc prepend-path {name path} { puts "$name $path" }\n%s\nsource %s\n' \
      'proc setenv {name value} { puts "$name $value" }' "$built/examples/packaging/$version" >"$work/load.tcl"
    run tclsh "$work/load.tcl"
    judge 'the Tcl module file sets the paths' lists_paths
  else
    skip 'there is no tclsh'
  fi
  lua=$(command -v lua || command -v lua5.4 || command -v lua5.3 || :)
  if [ -n "$lua" ]; then
    printf 'function none() end help, whatis, conflict = none, none, none\nfunction pathJoin(...) return table.concat({...}, "/") end\n%s\nsetenv = prepend_path\ndofile("%s")\n' \
      'function prepend_path(name, path) print(name .. " " .. path) end' "$built/examples/packaging/$version.lua" >"$work/load.lua"
    run "$lua" "$work/load.lua"
    judge 'the Lua module file sets the paths' lists_paths
  else
    skip 'there is no Lua'
  fi

  # ---- the bill of materials
  run python3 "$packaging/sbom.py" "$built" "$work/sbom.json"
  lists_parts() {
    succeeds && python3 - "$work/sbom.json" "$version" <<'END2'
import json, sys
bill = json.load(open(sys.argv[1]))
assert bill["bomFormat"] == "CycloneDX" and bill["metadata"]["component"]["version"] == sys.argv[2]
parts = {part["name"]: part for part in bill["components"]}
assert parts["fmt"]["licenses"] == [{"license": {"id": "MIT"}}] and parts["fmt"]["version"][0].isdigit()
assert all("licenses" in part for part in parts.values()), [name for name, part in parts.items() if "licenses" not in part]
assert set(bill["dependencies"][0]["dependsOn"]) == {part["bom-ref"] for part in parts.values()}
END2
  }
  judge 'the bill of materials names versions and licences' lists_parts
  run python3 "$packaging/sbom.py" "$built"
  judge 'and has the same bytes again' cmp -s "$work/out" "$work/sbom.json"
fi

# ---- the source archive
if git -C "$root" rev-parse --verify -q HEAD >"$work/head" 2>&1; then
  mkdir "$work/one" "$work/two"
  run sh "$packaging/archive.sh" HEAD "$work/one"
  judge 'the source archive has a checksum' says '^[0-9a-f]\{64\}  mpigrad-[0-9.]*.tar.xz$'
  run sh "$packaging/archive.sh" HEAD "$work/two"
  judge 'the same bytes again' cmp -s "$work/one/mpigrad-$version.tar.xz" "$work/two/mpigrad-$version.tar.xz"
  run sh "$packaging/archive.sh" nowhere "$work/two"
  judge 'an unknown tag' refuses_once 'no tag or commit nowhere'
else
  skip 'the sources are not a git repository'
fi

summary
