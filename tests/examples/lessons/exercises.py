"""exercises.py ROOT OUT NAME...: writes the C++ file OUT, which holds each of the exercises NAME (messages/01a_shift, ...) five times,
each in a namespace: as the student gets it, solved, and with the wrong lines of tests/examples/lessons/wrong/NAME.txt in the place of his."""

import pathlib
import re
import sys

root, out, *names = sys.argv[1:]
exercises = pathlib.Path(root) / "examples/lessons/exercises"
sys.path.insert(0, str(exercises))
sys.dont_write_bytecode = True  # a build leaves the source tree as it is
import tasks

lines = re.compile(r"^ *// ---- your lines\n.*?^ *// ----\n", re.M | re.S)

text = '#include "judge.h"\n#include "tests/examples/lessons/exercises.h"\n'
for name in names:
    short = pathlib.PurePath(name).name
    stub, solution = tasks.task_and_solution(exercises / f"{name}.cpp")
    wrong = (pathlib.Path(root) / f"tests/examples/lessons/wrong/{name}.txt").read_text().split("---- wrong\n")[1:]
    if len(wrong) < 3 or len(lines.findall(stub)) != 1 or lines.split(stub)[1] != lines.split(solution)[1]:
        sys.exit(f"{name}: three wrong solutions, and a solution that differs from the stub in the student's lines alone, are needed")
    variants = {"stub": stub, "solution": solution} | {f"wrong{i + 1}": lines.sub(lambda _: each, stub) for i, each in enumerate(wrong)}
    for variant, source in variants.items():
        space = f"exercise_{short}_{variant}"
        text += f'\nnamespace {space} {{\n{source}}}\nstatic const Registered {space}_{{"{short}", "{variant}", {space}::exercise_title, {space}::exercise_body}};\n'
pathlib.Path(out).write_text(text)
