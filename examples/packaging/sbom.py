#!/usr/bin/env python3
"""Writes the software bill of materials of a configured build as CycloneDX 1.5 JSON: python3 sbom.py BUILD [FILE]

Components are the dependencies that Meson found, with versions, and libraries that the built library needs and Meson found without a
version. SOURCE_DATE_EPOCH sets the time; the same build gives the same bytes.
"""
import datetime
import json
import os
import re
import subprocess
import sys
import uuid

# Meson's name: name in the document, SPDX licence. Names that are not components: threads, the compiler's own libraries.
KNOWN = {
    "fmt": ("fmt", "MIT"), "openblas": ("OpenBLAS", "BSD-3-Clause"), "mpich": ("MPICH", "mpich2"), "mpi": ("MPI", None),
    "hdf5": ("HDF5", "BSD-3-Clause-LBNL"), "hdf5-mpich": ("HDF5", "BSD-3-Clause-LBNL"), "hdf5-openmpi": ("HDF5", "BSD-3-Clause-LBNL"),
    "zlib": ("zlib", "Zlib"), "libzip": ("libzip", "BSD-3-Clause"), "libpng": ("libpng", "libpng-2.0"),
    "libturbojpeg": ("libjpeg-turbo", "IJG"), "protobuf-lite": ("protobuf", "BSD-3-Clause"), "protobuf": ("protobuf", "BSD-3-Clause"),
    "CLI11": ("CLI11", "BSD-3-Clause"), "nlohmann_json": ("nlohmann-json", "MIT"), "cairo": ("cairo", "LGPL-2.1-only"),
    "tomlplusplus": ("tomlplusplus", "MIT"), "fftw3": ("FFTW", "GPL-2.0-or-later"), "fftw3f": ("FFTW", "GPL-2.0-or-later"), "doctest": ("doctest", "MIT"),
}
NOT_COMPONENTS = {"threads", "openmp", "cuda", "mpigrad", "mpigrad-trainer", ""}
# Libraries without a version in Meson, by soname.
SONAMES = {"libdnnl": ("oneDNN", "Apache-2.0"), "libnccl": ("NCCL", "BSD-3-Clause"), "libcudnn": ("cuDNN", None), "libmpi": ("MPI", None),
           "libhdf5": ("HDF5", "BSD-3-Clause-LBNL")}


def component(name, version, licence, scope="required"):
    ref = f"pkg:generic/{name}@{version}"
    found = {"type": "library", "bom-ref": ref, "name": name, "version": version, "purl": ref, "scope": scope}
    if licence:
        found["licenses"] = [{"license": {"id": licence}}]
    return found


def needed(library):
    if not os.path.exists(library):
        return []
    try:
        text = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    return re.findall(r"NEEDED.*\[(\w+)[^\]]*\.so\.?([\d.]*)\]", text)


def bill(build):
    load = lambda name: json.load(open(os.path.join(build, "meson-info", name)))
    project = load("intro-projectinfo.json")
    root = load("meson-info.json")["directories"]["source"]
    parts = {}
    for dependency in load("intro-dependencies.json"):
        name, version = dependency["name"], dependency["version"]
        if name in NOT_COMPONENTS:
            continue
        if name not in KNOWN:
            print(f"sbom.py: no licence is known of {name}", file=sys.stderr)
        shown, licence = KNOWN.get(name, (name, None))
        parts[shown] = component(shown, version, licence, "excluded" if name == "doctest" else "required")
    for stem, number in needed(os.path.join(build, "libmpigrad.so")):
        for start, (shown, licence) in SONAMES.items():
            # libmpich and libmpi are one component if Meson has named it.
            if stem.split("_")[0] == start and shown not in parts and not (shown == "MPI" and "MPICH" in parts):
                parts[shown] = component(shown, number or "unknown", licence)
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or subprocess.run(
        ["git", "-C", root, "log", "-1", "--format=%ct"], capture_output=True, text=True).stdout.strip() or "0"
    time = datetime.datetime.fromtimestamp(int(epoch), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    own = component(project["descriptive_name"], project["version"], "Apache-2.0")
    own.pop("scope")
    components = [parts[name] for name in sorted(parts)]
    # Meson before 1.1 names compilers only in its log.
    log = os.path.join(build, "meson-logs", "meson-log.txt")
    compilers = re.findall(r"C\+\+ compiler for the host machine: .*?\((.*?) \"", open(log).read()) if os.path.exists(log) else []
    document = {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"timestamp": time, "component": own,
                     "properties": [{"name": "compiler", "value": compiler} for compiler in compilers[:1]]},
        "components": components,
        "dependencies": [{"ref": own["bom-ref"], "dependsOn": [part["bom-ref"] for part in components]}],
    }
    document["serialNumber"] = "urn:uuid:" + str(uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document, sort_keys=True)))
    return document


def main():
    if not 2 <= len(sys.argv) <= 3 or not os.path.isdir(os.path.join(sys.argv[1], "meson-info")):
        sys.exit(f"{__doc__}\nerror: the first argument is a folder that Meson has configured")
    text = json.dumps(bill(sys.argv[1]), indent=2) + "\n"
    if len(sys.argv) == 3:
        open(sys.argv[2], "w").write(text)
    else:
        sys.stdout.write(text)


main()
