#!/usr/bin/env python3
"""Compares recipes and pages with the version and options of the build: recipes.py ROOT prints a line for each difference, and fails
if there is one."""
import re
import sys
from pathlib import Path

root = Path(sys.argv[1])
packaging = root / "examples/packaging"
version = re.search(r"version: '([^']+)'", (root / "meson.build").read_text()).group(1)
options = set(re.findall(r"^option\('(\w+)'", (root / "meson_options.txt").read_text(), re.M))
of_meson = {"buildtype", "prefix", "libdir"}
script = (packaging / "packages.sh").read_text()
debian_packages = set(re.search(r"^packages='([^']*)'", script, re.M).group(1).split())
problems = []


def text(path):
    return (packaging / path).read_text()


easyconfigs = sorted(path.name for path in (packaging / "easybuild").glob("*.eb"))
named = {
    "spack/package.py": re.findall(r'^    version\("([\d.]+)"', text("spack/package.py"), re.M),
    "conda/recipe.yaml": re.findall(r'^  version: "([\d.]+)"', text("conda/recipe.yaml"), re.M),
    "debian/changelog": re.findall(r"^mpigrad \(([\d.]+)-", text("debian/changelog"))[:1],
    "../tools/python/pyproject.toml": re.findall(r'^version = "([\d.]+)"', text("../tools/python/pyproject.toml"), re.M),
    "../../CITATION.cff": re.findall(r"^version: ([\d.]+)", text("../../CITATION.cff"), re.M),
    "../../CHANGELOG.md": re.findall(r"^## ([\d.]+) \(", text("../../CHANGELOG.md"), re.M)[:1],
}
for name in easyconfigs:
    named[f"easybuild/{name}"] = re.findall(r"^version = '([\d.]+)'", text(f"easybuild/{name}"), re.M) + [name.split("-")[1]]
for path, versions in named.items():
    if not versions or set(versions) != {version}:
        problems.append(f"{path} is for version {versions}, meson.build has {version}")
soname = ".".join(version.split(".")[:2]) if version.startswith("0.") else version.split(".")[0]
for path, pattern in {"../../README.md": r"^Version ([\d.]+\d)", "../../examples/first/comparison.md": r"version ([\d.]+\d)",
                      "README.md": r"mpigrad-([\d.]+)\.\d+-foss",
                      "../../tests/package/CMakeLists.txt": r"find_package\(mpigrad ([\d.]+) "}.items():
    numbers = {match.group(1) for match in re.finditer(pattern, text(path), re.M)}
    if numbers != {soname}:
        problems.append(f"{path} names version {sorted(numbers)}, meson.build has {version}")
# A version that has a date in the list of changes is a release.
dates = re.findall(r"^## [\d.]+ \((\d{4}-\d\d-\d\d)\)", text("../../CHANGELOG.md"), re.M)[:1]
released = re.findall(r"^date-released: '?(\d{4}-\d\d-\d\d)", text("../../CITATION.cff"), re.M)
if dates and dates != released:
    problems.append(f"CITATION.cff says that the version was released on {released}, CHANGELOG.md on {dates}")
for path in ["conda/build.sh", "debian/rules", "apptainer/mpigrad.def", *(f"easybuild/{name}" for name in easyconfigs)]:
    given = set(re.findall(r"-D(\w+)=", text(path)))
    if len(given) < 3:
        problems.append(f"{path} gives the build {len(given)} options")
    problems += [f"{path}: meson_options.txt has no {option}" for option in sorted(given - options - of_meson)]
for path, pattern in {"debian/control": r"Build-Depends:((?:.|\n )*)", "apptainer/mpigrad.def": r"apt-get install ((?:[^\n\\]|\\\n)*)"}.items():
    words = set(re.findall(r"(?<![\w-])(?:lib|zlib|nlohmann|mpich)[\w.+-]*", re.search(pattern, text(path)).group(1)))
    problems += [f"{path}: packages.sh has no {word}" for word in sorted(words - debian_packages)]
    optional = {"libprotobuf-dev"}
    missing = {name for name in debian_packages if name.endswith("-dev")} - words - optional
    problems += [f"{path} lacks {word} of packages.sh" for word in sorted(missing)]
if f"Package: libmpigrad{soname}\n" not in text("debian/control") or not (packaging / f"debian/libmpigrad{soname}.install").exists():
    problems.append(f"debian/ has no package libmpigrad{soname}, which the soname wants")
print("\n".join(problems), end="\n" if problems else "")
sys.exit(1 if problems else 0)
