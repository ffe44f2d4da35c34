#!/usr/bin/env python3
"""Compiles every installed header by itself: python3 tests/package/headers.py JOBS FOLDER COMPILER FLAG...

FOLDER holds the headers, of which JOBS are compiled at a time. Prints those that do not compile, after what the compiler says of them, and
as the last line how many there are. What most headers include is compiled once and kept precompiled: a header that includes it itself,
before it declares anything, may as well find it there. Exits with 1 if one does not compile.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# Precompiled, those that include more first.
FRONTS = ['models/nn/module.h', 'comm/communicator.h', 'framework/tensor/tensor.h', 'framework/error.h']


def included(text):
    """What a header includes by <>, or None if something else stands before its last #include."""
    bare = re.sub(r'//[^\n]*|/\*.*?\*/', '', text, flags=re.S)
    last = bare.rfind('#include')
    if any(line.strip() and not re.match(r'\s*#\s*(include|pragma)', line) for line in bare[:max(last, 0)].split('\n')):
        return None
    return re.findall(r'^\s*#\s*include\s*[<"](?:mpigrad/)?([^>"]+)[>"]', bare, re.M)


def main():
    jobs, folder, compile_it = int(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob('*.h') if path.name != 'mpi_comm.h')
    direct = {name: included((folder / name).read_text()) for name in names}

    def closure(name, seen):
        for inner in direct[name] or []:
            if inner in direct and inner not in seen:
                seen.add(inner)
                closure(inner, seen)
        return seen

    with tempfile.TemporaryDirectory() as work:
        precompiled = {front: f'{work}/{number}.h' for number, front in enumerate(FRONTS) if front in direct}

        def run(name, *flags):
            with open(os.environ.get('MPIGRAD_TEST_PROGRESS', os.devnull), 'a') as progress:
                print(name, file=progress)
            done = subprocess.run([*compile_it, '-Wall', '-Wextra', '-Werror', *flags], input=f'#include <{name}>\n', text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            return name, done.returncode, done.stdout

        def precompile(front):
            pathlib.Path(precompiled[front]).write_text(f'#include <{front}>\n')
            return run(front, '-x', 'c++-header', precompiled[front], '-o', precompiled[front] + '.gch')

        def alone(name):
            ahead = next((['-include', precompiled[front]] for front in precompiled if front in closure(name, set())), [])
            return run(name, *ahead, '-fsyntax-only', '-x', 'c++', '-')

        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            results = list(pool.map(precompile, precompiled))
            results += pool.map(alone, [name for name in names if name not in precompiled])
    wrong = [name for name, status, _ in results if status != 0]
    for name, _, said in results:
        if name in wrong:
            sys.stderr.write(said)
    print('\n'.join([*wrong, str(len(names))]))
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
