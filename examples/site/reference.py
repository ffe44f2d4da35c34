"""The reference: Doxygen over the installed headers, whose comments are plain ones. As a filter of Doxygen (reference.py HEADER) this file
writes a header whose comments it takes for documentation."""

import pathlib
import re
import subprocess
import sys


def escaped(text):
    return re.sub(r"([\\@&<>#%$\"])", r"\\\1", text)


def paragraphs(lines):
    """Comment lines as Doxygen's: sentences are escaped; indented lines, formulas and tables, stay verbatim."""
    result, drawn = [], []

    def flush():
        nonlocal drawn
        if drawn:
            result.extend(["\\verbatim", *drawn, "\\endverbatim"])
            drawn = []

    for line in lines:
        if line.startswith("  ") and line.strip():
            drawn.append(line[2:])
        else:
            if line.strip():
                flush()
            if drawn:
                drawn.append("")
            else:
                result.append(escaped(line))
    flush()
    return result


def documented(source):
    out, block = [], []
    # Declarations that Doxygen cannot handle.
    source = re.sub(r"^template <>\nstruct fmt::formatter<[^\n]*\{\};\n", "", source, flags=re.M)
    source = re.sub(r"^template <>\nstruct fmt::formatter<.*?^};\n", "", source, flags=re.M | re.S)
    lines = source.splitlines()
    first = True
    for i, line in enumerate(lines):
        comment = re.match(r"^(\s*)// ?(.*)$", line)
        if comment and not comment[2].startswith("----"):
            block.append((comment[1], comment[2]))
            continue
        if block:
            indent = block[0][0]
            text = [each[1] for each in block]
            # The first comment is the file's; others belong to the declaration that follows.
            if first and line.strip() == "":
                out += ["/** \\file", *paragraphs(text), "*/"]
            elif line.strip() and not line.lstrip().startswith(("}", "#", "public:", "private:", "protected:", "//")):
                out += [f"{indent}/**", *paragraphs(text), f"{indent}*/"]
            first = False
            block = []
        trailing = re.match(r"^(.*?[;,{}\w)]\s*)// (.*)$", line)
        if trailing and trailing[1].strip() and not re.search(r'"[^"]*$', trailing[1]) and re.search(r"[;,]\s*$", trailing[1]):
            out.append(f"{trailing[1]}///< {escaped(trailing[2])}")
        else:
            out.append(line)
    return "\n".join(out) + "\n"


def make(root, build, target, here, work):
    """Runs Doxygen; its warnings are errors."""
    headers = subprocess.run([sys.executable, root / "models/mpigrad/headers.py", "models/mpigrad/trainer.h"], capture_output=True, text=True)
    names = headers.stdout.split() + ["models/mpigrad/trainer.h"]
    if headers.returncode or not headers.stdout:
        raise SystemExit(f"make.py: the list of installed headers: {headers.stderr}")
    inputs = " \\\n  ".join(f'"{root / name}"' for name in names)
    (work / "Doxyfile").write_text((here / "Doxyfile").read_text() + f"""
INPUT = {inputs} "{here / 'reference.md'}"
STRIP_FROM_PATH = "{root}"
STRIP_FROM_INC_PATH = "{root}"
OUTPUT_DIRECTORY = "{target}"
FILTER_PATTERNS = "*.h={sys.executable} {pathlib.Path(__file__).resolve()}"
USE_MDFILE_AS_MAINPAGE = "{here / 'reference.md'}"
WARN_LOGFILE = "{work / 'doxygen.txt'}"
""")
    target.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["doxygen", work / "Doxyfile"], capture_output=True, text=True)
    warnings = (work / "doxygen.txt").read_text()
    if done.returncode or warnings.strip():
        raise SystemExit(f"make.py: Doxygen has {len(warnings.splitlines())} lines of warnings, the first ones:\n{warnings[:3000]}{done.stderr[-500:]}")


if __name__ == "__main__":
    sys.stdout.write(documented(pathlib.Path(sys.argv[1]).read_text()))
