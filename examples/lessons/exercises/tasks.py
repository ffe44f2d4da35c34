"""Writes the exercises to FOLDER: the tasks, what judges them, and the solutions in FOLDER/solutions.

A file that is there already stays as it is, so that a second call does not overwrite a student's work.

A file PART/NAME.cpp of the source tree holds a task and its solution. They differ in the first comment and between these lines:

  // ---- your lines
  // the lines of the task, each after two slashes and a space
  // ---- solution
  the lines of the solution
  // ----
"""

import argparse
import pathlib
import re
import sys

here = pathlib.Path(__file__).resolve().parent
GAP = re.compile(r"^( *// ---- your lines\n)((?: *//.*\n)*?) *// ---- solution\n(.*?)^( *// ----\n)", re.M | re.S)
HEAD = re.compile(r"// Exercise (.*)\n(?://.*\n)*")


def task_and_solution(path):
    """Returns both texts, as a student gets them."""
    source = path.read_text()
    parts, head = GAP.split(source), HEAD.match(source)
    if len(parts) != 6 or not head:
        sys.exit(f"{path}: these lines are needed, each once: // Exercise ..., // ---- your lines, // ---- solution, // ----")
    before, begin, given, solved, end, after = parts
    given = re.sub(r"^( *)// ?", r"\1", given, flags=re.M)
    solution_head = f"// The solution of exercise {head[1]}\n"
    return before + begin + given + end + after, solution_head + before[head.end():] + begin + solved + end + after


def write_exercises(folder):
    """Returns the number of tasks, and the files that were there and differ from what would have been written."""
    texts = {name: (here / name).read_text() for name in ("Makefile", "README.md", "judge.h")}
    texts |= {path.relative_to(here): path.read_text() for path in here.glob("*/checks/*.inc")}
    sources = sorted(here.glob("*/[0-9]*.cpp"))
    for path in sources:
        name = path.relative_to(here)
        texts[name], texts["solutions" / name] = task_and_solution(path)
    kept = []
    for name, text in texts.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.write_text(text)
        elif target.read_bytes() != text.encode():
            kept.append(target)
    return len(sources), kept


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="tasks.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER", type=pathlib.Path)
    out = parser.parse_args().folder
    if out.resolve() == here:
        parser.error("FOLDER is the folder of the sources; name another one")
    try:
        count, left = write_exercises(out)
    except OSError as error:
        sys.exit(f"tasks.py: {error}")
    print(f"{count} tasks in {out}, their solutions in {out / 'solutions'}")
    if left:
        print(f"not overwritten: {', '.join(map(str, left))}")
