#!/bin/sh
# Tests the recipes of EasyBuild and conda (examples/packaging) with the tools of PyPI: easybuild checks its files for contributions,
# finds all dependencies and prints the commands of the build; rattler-build renders conda's recipe for each MPI. Nothing is built:
# that would take the packages of both.
#
#   sh tests/package/recipes.sh
#
# The source archive is that of the commit HEAD. Prints `failed: NAME` for each failure, writes a section of
# tests/bench/results/platforms.md and ends with `N passed, M failed, K skipped`.
# shellcheck disable=SC2154  # variables of suite.sh
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
. "$root/examples/packaging/packages.sh"
. "$root/tests/suite.sh"
. "$root/tests/bench/platforms.sh"
if [ ! -r /etc/profile.d/modules.sh ] && [ "$(id -u)" -eq 0 ]; then install_packages environment-modules python3-venv; fi
if [ ! -r /etc/profile.d/modules.sh ] || ! python3 -m venv "$work/python" ||
  ! "$work/python/bin/pip" --quiet install easybuild pycodestyle py-rattler-build; then
  skip 'there are no Environment Modules, no venv of Python, or no easybuild and py-rattler-build by pip'
  summary
  exit
fi
version_of() { "$work/python/bin/pip" show "$1" | sed -n 's/^Version: //p'; }
# row NAME FAILED: of the page, for tests since FAILED failures.
row() { printf '| %s | %s |\n' "$1" "$([ "$failed" -eq "$2" ] && echo passed || echo failed)" >>"$work/rows"; }

before=$failed
cat >"$work/render.py" <<'END'
import sys
from rattler_build import Stage0Recipe, VariantConfig

folder = sys.argv[1]
mpis = [line.strip(" -\n") for line in open(f"{folder}/conda_build_config.yaml") if line.startswith("  - ")]
# conda-forge's own settings name the compilers.
compilers = {"cxx_compiler": ["gxx"], "cxx_compiler_version": ["14"], "c_stdlib": ["sysroot"], "c_stdlib_version": ["2.28"]}
recipe = Stage0Recipe.from_file(f"{folder}/recipe.yaml")
for rendered in recipe.render(VariantConfig({"mpi": mpis} | compilers)):
    package = rendered.recipe.to_dict()
    print(package["package"]["version"], package["build"]["string"], package["requirements"]["run"], len(package["requirements"]["host"]))
END
compile "$work/python/bin/python" "$work/render.py" "$root/examples/packaging/conda"
rendered() { succeeds && [ "$(wc -l <"$work/out")" -eq 2 ] && says "mpi_mpich_.* \['mpich'\]" && says "mpi_openmpi_.* \['openmpi'\]"; }
judge 'the recipe of conda is rendered for MPICH and Open MPI' rendered
row "\`recipe.yaml\` is rendered for MPICH and Open MPI by rattler-build $(version_of py-rattler-build)" "$before"

cp "$root"/examples/packaging/easybuild/*.eb "$work/"
compile sh "$root/examples/packaging/archive.sh" HEAD "$work"
judge 'the source archive' succeeds
sed -i "s/^checksums = .*/checksums = ['$(cut -d ' ' -f 1 "$work"/*.sha256)']/" "$work"/*.eb
# shellcheck disable=SC1091
. /etc/profile.d/modules.sh
easybuild=$(version_of easybuild)
PATH=$work/python/bin:$PATH EASYBUILD_PREFIX=$work/easybuild EASYBUILD_MODULES_TOOL=EnvironmentModules EASYBUILD_MODULE_SYNTAX=Tcl
EASYBUILD_ALLOW_USE_AS_ROOT_AND_ACCEPT_CONSEQUENCES=1
export PATH EASYBUILD_PREFIX EASYBUILD_MODULES_TOOL EASYBUILD_MODULE_SYNTAX EASYBUILD_ALLOW_USE_AS_ROOT_AND_ACCEPT_CONSEQUENCES
cd "$work" || exit 1
for file in *.eb; do
  before=$failed
  compile eb --check-contrib "$file"
  judge "$file: --check-contrib" says 'All contribution checks PASSed'
  compile eb --dry-run --robot="$work:" "$file"
  judge "$file: all dependencies are found" says '^ \* \[ \] .*(module: mpigrad/'
  # EasyBuild 5.4.1 ends this run with an error about its own log.
  compile eb --extended-dry-run "$file"
  commands_of() { grep -q 'running shell command "meson setup.*-Dtrainer=enabled' "$work/out" && grep -q 'SUCCESS. mpigrad' "$work/out"; }
  judge "$file: the commands of the build" commands_of
  row "\`$file\`: \`--check-contrib\`, \`--dry-run --robot\`, \`--extended-dry-run\` of EasyBuild $easybuild" "$before"
done
{
  printf '`sh tests/package/recipes.sh`, commit %s, %s. Nothing was built.\n\n| | |\n|---|---|\n' \
    "$(git -C "$root" rev-parse --short HEAD)" "$(date +%F)"
  cat "$work/rows"
} | write_section 'Recipes of EasyBuild and conda'
summary
