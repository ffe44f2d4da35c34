"""texts.py ROOT BUILD FILE.md...: runs what stands in blocks of ```console in the texts and compares what they show.

A line `$ COMMAND` is run at the top of the tree, `build/` being BUILD; the lines behind it are its output, in which a line `...` stands for
any number of lines, and `...` at the end of a line for the rest of it. Numbers may differ in the last digits that a processor may change:
by 1e-6 of their size. Every number with a decimal point in the sentences and tables of a section must be in the output of one of its
commands, to the digits it has. Blocks of ```cpp and ```python that quote a program (FILE named in the sentence in front) are in it, word for word.
Prints `failed: ...` for each difference and ends with `N passed, M failed, K skipped`."""

import pathlib
import re
import subprocess
import sys

root, build = (pathlib.Path(each).resolve() for each in sys.argv[1:3])
passed = failed = 0
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def judge(name, problem):
    global passed, failed
    if problem:
        failed += 1
        print(f"failed: {name}\n  | {problem}")
    else:
        passed += 1


def same(expected, found):
    """One line; numbers to 1e-6, or what rounding leaves of them."""
    expected, found = expected.rstrip(), found.rstrip()
    if expected.endswith("...") and expected != "...":
        expected = expected[:-3]
        found = found[: len(expected)]
    if expected == found:
        return True
    words, other = NUMBER.split(expected), NUMBER.split(found)
    if [re.sub(" +", " ", word) for word in words] != [re.sub(" +", " ", word) for word in other]:
        return False
    return all(abs(float(a) - float(b)) <= max(1e-6 * abs(float(a)), 1e-12) for a, b in zip(NUMBER.findall(expected), NUMBER.findall(found)))


def mismatch(expected, found):
    """What is missing of the expected lines, in their order; nothing if all are there."""
    at, free = 0, False
    for line in expected:
        if line.strip() == "...":
            free = True
            continue
        start = at
        while at < len(found) and not same(line, found[at]):
            if not free:
                return f"expected: {line}\n  | found:    {found[at]}"
            at += 1
        if at == len(found):
            return f"nothing like this behind line {start} of the output: {line}"
        at, free = at + 1, False
    if not free and at < len(found):
        return f"more than expected: {found[at]}"
    return None


outputs = {}


def output_of(command):
    if command not in outputs:
        here = re.sub(r"(?<![\w/])build/", f"{build}/", command)
        try:
            done = subprocess.run(here, shell=True, cwd=root, capture_output=True, text=True, timeout=280, stdin=subprocess.DEVNULL)
            outputs[command] = (done.returncode, done.stdout.rstrip("\n").split("\n"), done.stderr)
        except subprocess.TimeoutExpired:
            outputs[command] = (124, [""], "took longer than 280 s")
    return outputs[command]


def check(path):
    text = path.read_text()
    name = path.relative_to(root)
    for section in re.split(r"^(?=## )", text, flags=re.M):
        title = section.split("\n", 1)[0].strip("# ")
        shown = []
        for block in re.findall(r"^```console\n(.*?)^```", section, re.M | re.S):
            for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
                command, _, expected = part.partition("\n")
                code, found, errors = output_of(command)
                shown += found
                judge(f"{name}: {command}", f"exit code {code}: {errors.strip()[:300]}" if code else mismatch(expected.rstrip("\n").split("\n"), found))
        if shown:
            sentences = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", " ", section, flags=re.S)
            values = [float(each) for line in shown for each in NUMBER.findall(line)]
            for number in sorted(set(re.findall(r"(?<![\w.])\d+\.\d{2,}(?![\w.])", sentences))):
                digits = len(number.split(".")[1])
                judge(f"{name}, {title}: {number}", None if any(abs(abs(value) - float(number)) <= 0.5001 * 10**-digits for value in values)
                      else "no command of this section prints it")
    for before, block in re.findall(r"From `([\w./]+)`[^`]*```(?:cpp|python)\n(.*?)^```", text, re.M | re.S):
        judge(f"{name}: quotes {before}", None if block in (path.parent / before).read_text() else "what it quotes is not in the program")


for each in sys.argv[3:]:
    check(pathlib.Path(each).resolve())
print(f"{passed} passed, {failed} failed, 0 skipped")
sys.exit(failed > 0)
