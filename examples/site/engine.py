"""The library and the two tools that run in a browser, compiled by Emscripten into one classic script, because a page that is opened as
a file cannot fetch other files."""

import pathlib
import shutil
import subprocess

# Objects are in an archive, from which the linker takes only those needed: files that use functions missing in browsers are
# allowed if they compile.
LIBRARY = ["framework/base/*.cpp", "framework/engine/*.cpp", "framework/tensor/*.cpp", "framework/optim/*.cpp", "framework/cuda/absent.cpp", "ops/*.cpp", "ops/[!b]*/*.cpp", "ops/backends/*.cpp",
           "ops/backends/*/*_absent.cpp", "ops/backends/winograd/*.cpp", "comm/*.cpp", "comm/check/*.cpp", "comm/collectives/*.cpp", "comm/distributed/*.cpp", "comm/halos/*.cpp", "comm/messages/*.cpp", "comm/process/problem.cpp", "comm/transport/*.cpp", "comm/transport/threads/*.cpp",
           "comm/transport/watch/*.cpp", "comm/transport/device/*.cpp", "comm/transport/nccl/absent.cpp", "comm/transport/mpi/absent.cpp"]
# Files that start processes and threads and read the machine, inspect stacks, or send pointers as 64-bit numbers.
WITHOUT = {"comm/launch.cpp", "comm/transport/watch/whereabouts.cpp", "comm/transport/device/in_process.cpp"}
TOOLS = ["examples/site/browser/engine.cpp", "examples/site/browser/turns.cpp", "examples/site/browser/absent.cpp", "examples/tools/adjoint/calculate.cpp", "examples/tools/adjoint/operations.cpp", "examples/tools/adjoint/picture.cpp", "examples/tools/adjoint/print.cpp",
         "examples/tools/adjoint/problem.cpp", "examples/tools/adjoint/shapes.cpp", "examples/tools/halo/draw.cpp", "examples/tools/halo/picture.cpp", "examples/tools/halo/plan.cpp"]
COMPILE = "-std=c++20 -O1 -DFMT_HEADER_ONLY -fexceptions -fno-math-errno"
LINK = ("-O1 -fexceptions -sSINGLE_FILE=1 -sMODULARIZE=1 -sEXPORT_NAME=mpigradEngine -sENVIRONMENT=web,node -sALLOW_MEMORY_GROWTH=1 -sTOTAL_STACK=1MB "
        "-sEXPORTED_FUNCTIONS=_mpigrad_adjoint,_mpigrad_halo,_mpigrad_operations -sEXPORTED_RUNTIME_METHODS=ccall")


def header_folder(name):
    for folder in ("/usr/include", "/usr/local/include"):
        if (pathlib.Path(folder) / name).is_dir():
            return pathlib.Path(folder) / name
    raise SystemExit(f"make.py: the headers of {name} are not in /usr/include")


def make(root, work, target):
    """Writes the script; False if Emscripten is missing."""
    if not shutil.which("em++"):
        print("no em++: the calculator and the halo planner will not run in the browser (install emscripten)")
        return False
    folder = work / "engine"
    (folder / "include").mkdir(parents=True, exist_ok=True)
    # Only header-only libraries: /usr/include also has the headers of another C library.
    for name in ("fmt", "nlohmann"):
        link = folder / "include" / name
        if not link.exists():
            link.symlink_to(header_folder(name))
    library = sorted(str(path.relative_to(root)) for pattern in LIBRARY for path in root.glob(pattern))
    library = [path for path in library if path not in WITHOUT]
    escaped = str(root).replace(" ", "$ ")
    rules = [f"flags = {COMPILE} -include {escaped}/examples/site/browser/older_library.h -I{escaped}/examples/site/browser -I{escaped} -Iinclude",
             "rule compile\n  command = em++ $flags -MD -MF $out.d -c $in -o $out\n  depfile = $out.d\n  deps = gcc\n  description = $out",
             "rule archive\n  command = rm -f $out && emar rcs $out $in",
             f"rule link\n  command = em++ {LINK} $in -o $out"]
    objects = {}
    for path in library + TOOLS:
        objects[path] = path.replace("/", "_").removesuffix(".cpp") + ".o"
        rules.append(f"build {objects[path]}: compile {escaped}/{path}")
    rules.append("build library.a: archive " + " ".join(objects[path] for path in library))
    rules.append("build engine.js: link " + " ".join(objects[path] for path in TOOLS) + " library.a")
    (folder / "build.ninja").write_text("\n".join(rules) + "\n")
    done = subprocess.run(["ninja", "-C", folder, "engine.js"], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"make.py: the engine for browsers could not be made:\n{done.stdout[-6000:]}{done.stderr[-2000:]}")
    shutil.copy(folder / "engine.js", target)
    return True
