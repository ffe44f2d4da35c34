#!/usr/bin/env python3
"""CPU-seconds that compiling takes, per target, without a compiler cache: of one tree, or of two in one run.

    python3 tests/bench/compile_seconds.py [--tree NAME=FOLDER]... [--per-file N] [--jobs J] [--only WHAT]...

Each tree (default: this one) is configured twice, for CPUs only in FOLDER/build-seconds-cpu and with everything that Meson finds in
FOLDER/build-seconds-all. Every command that ninja would run to build a row of the table is run, once, and the processor time of it
and its children is added up. Commands of all trees are mixed at random, so that a machine that becomes slower hits them alike.
Writes a table in Markdown to standard output. With two trees the last column is the second's time divided by the first's.
--per-file also lists the N slowest files of each tree.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import subprocess
import sys

# The targets of a row of the table: its name, whether it is only for CPUs, and targets (None: the default targets of the build).
ROWS = {
    'quickstart': ('quickstart: the library for CPUs, universe, cosmoflow', True, ['examples/universe', 'examples/cosmoflow']),
    'library': ('the library for CPUs', True, ['libmpigrad.so']),
    'examples': ('the library for CPUs, all examples and lessons', True, ['examples/']),
    'gpu library': ('the library with CUDA', False, ['libmpigrad.so']),
    'everything': ('everything: CUDA, emulated GPUs, tests, benches', False, None),
}


def output_of(command):
    """The file that a command writes, relative to its build folder."""
    words = shlex.split(command)
    if '-o' in words:
        return words[words.index('-o') + 1]
    return next((word for word in words if word.endswith('.a')), words[-1])


def commands(build, targets):
    """What ninja would run to make the targets from nothing, in order."""
    listed = subprocess.run(['ninja', '-C', build, '-t', 'targets', 'all'], check=True, capture_output=True, text=True).stdout
    names = [line.split(':')[0] for line in listed.splitlines()]
    chosen = []
    for target in targets or ['all']:
        if target.endswith('/'):
            chosen += [name for name in names if name.startswith(target) and '.' not in name.rsplit('/', 1)[1]]
        else:  # a library's name ends with its version
            chosen.append(next(name for name in names if re.fullmatch(re.escape(target) + r'[.0-9]*', name)))
    text = subprocess.run(['ninja', '-C', build, '-t', 'commands', *chosen], check=True, capture_output=True, text=True).stdout
    return [line for line in text.splitlines() if 'symbolextractor' not in line]


def kind(command):
    """When a command is run: 0 for what makes headers, 1 for objects, 2 for libraries and programs of them."""
    output = output_of(command)
    if output.endswith('.o'):
        return 1
    return 2 if re.search(r'\bar csr|\.o\b', command) else 0


def seconds(build, command):
    """Processor time of a command and all its children."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        status = subprocess.run(['sh', '-c', command], cwd=build, env={**os.environ, 'CCACHE_DISABLE': '1'},
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        times = os.times()
        os.write(write, json.dumps([status.returncode, times.children_user + times.children_system]).encode())
        if status.returncode:
            sys.stderr.buffer.write(status.stderr)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    code, spent = json.loads(answer)
    if code:
        sys.exit(f'error: failed in {build}: {command}')
    return spent


def measure(work, jobs, shared):
    """{(tree, command): seconds}; shared: {(build in which it is made, file): another build that needs it}"""
    spent = {}
    done = 0

    def one(item):
        nonlocal done
        build, key = item
        spent[key] = seconds(build, key[1])
        output = output_of(key[1])
        if (build, output) in shared and (build / output).exists():
            shutil.copy2(build / output, shared[build, output] / output)
        done += 1
        if done % 50 == 0 or done == len(work):
            print(f'[{done}/{len(work)}]', file=sys.stderr, flush=True)

    for step, workers in ((0, 1), (1, jobs), (2, 1)):
        items = [(build, key) for key, build in work if kind(key[1]) == step]
        if step == 1:
            random.Random(1).shuffle(items)
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            list(pool.map(one, items))
    return spent


def prepare(folder, cpu_only):
    """The folder of a configured build."""
    build = folder / ('build-seconds-cpu' if cpu_only else 'build-seconds-all')
    if not (build / 'build.ninja').exists():
        # As in examples/quickstart.sh and tests/run.sh.
        options = ['-Dcuda=disabled'] if cpu_only else []
        if not cpu_only and "option('tests'" in (folder / 'meson_options.txt').read_text():
            options = ['-Dtests=true', '-Dgpu_archs=90']
        subprocess.run(['meson', 'setup', build, folder, '--buildtype=release', *options], check=True, stdout=subprocess.DEVNULL)
    return build


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument('--tree', action='append', metavar='NAME=FOLDER')
    parser.add_argument('--only', action='append', choices=ROWS, help='a row of the table; several are allowed')
    parser.add_argument('--per-file', type=int, default=0, metavar='N')
    parser.add_argument('--jobs', type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument('--json', type=pathlib.Path, help='writes the seconds of every file there, too')
    options = parser.parse_args()
    trees = dict(tree.split('=', 1) for tree in options.tree or [f'this tree={root}'])
    rows = options.only or list(ROWS)

    # A command that is the same in both builds of a tree is measured once, because its paths are relative to the build, and the
    # other build gets a copy; but each build generates its own headers.
    needed, work, known, shared = {}, [], {}, {}
    for name, folder in trees.items():
        for row in rows:
            _, cpu_only, targets = ROWS[row]
            build = prepare(pathlib.Path(folder).resolve(), cpu_only)
            needed[name, row] = commands(build, targets)
            for command in needed[name, row]:
                seen = (name, command, build if kind(command) == 0 else None)
                if seen not in known:
                    known[seen] = build
                    work.append(((name, command), build))
                elif known[seen] != build:
                    shared[known[seen], output_of(command)] = build
                (build / output_of(command)).parent.mkdir(parents=True, exist_ok=True)
    spent = measure(work, options.jobs, shared)
    if options.json:
        options.json.write_text(json.dumps([[tree, output_of(command), value] for (tree, command), value in spent.items()], indent=0))

    compiler = subprocess.run([os.environ.get('CXX', 'c++'), '--version'], capture_output=True, text=True).stdout.splitlines()[0]
    model = re.search(r'^model name\s*: (.*)$', pathlib.Path('/proc/cpuinfo').read_text(), re.M)
    print(f'{model[1] if model else "unknown processor"}, {options.jobs} commands at a time; {compiler}\n')
    print('| CPU-seconds |', ' | '.join(trees), '| files |' + (' ratio |' if len(trees) == 2 else ''))
    print('|---|' + '--:|' * (len(trees) + 1 + (len(trees) == 2)))
    for row in rows:
        sums = [sum(spent[name, command] for command in needed[name, row]) for name in trees]
        files = [len(needed[name, row]) for name in trees]
        print(f'| {ROWS[row][0]} |', ' | '.join(f'{value:.0f}' for value in sums), f'| {", ".join(map(str, files))} |'
              + (f' {sums[1] / sums[0]:.2f} |' if len(sums) == 2 else ''))
    for name in trees:
        if options.per_file:
            slowest = sorted(((value, output_of(key[1])) for key, value in spent.items() if key[0] == name), reverse=True)
            print(f'\nSlowest of {name}:\n')
            for value, output in slowest[:options.per_file]:
                print(f'    {value:6.1f}  {output}')


if __name__ == '__main__':
    main()
