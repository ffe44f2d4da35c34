#!/usr/bin/env python3
"""Compiles every installed header by itself, except those that need a vendor's.

python3 tests/package/headers.py JOBS FOLDER COMPILER FLAG...

FOLDER contains the headers; JOBS of them are compiled at a time. Prints the compiler's messages and the names of headers that do
not compile, and as the last line the number of headers. Headers that a header includes before it declares anything may be present
already: the most common ones are compiled once and kept precompiled, and headers that include each other are compiled one after
the other, the innermost first. Exits with 1 if one does not compile.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# Precompiled headers, those that include more first.
FRONTS = ['models/nn/module.h', 'comm/communicator.h', 'framework/tensor/tensor.h', 'framework/base/error.h']
# Headers that need MPI's, or the CUDA toolkit's.
VENDORS = ['comm/transport/mpi/mpi_comm.h', 'framework/cuda/check.h']


def included(text):
    """The files that a header includes by <>, or None if it has code before its last #include."""
    bare = re.sub(r'//[^\n]*|/\*.*?\*/', '', text, flags=re.S)
    last = bare.rfind('#include')
    if any(line.strip() and not re.match(r'\s*#\s*(include|pragma)', line) for line in bare[:max(last, 0)].split('\n')):
        return None
    return re.findall(r'^\s*#\s*include\s*[<"](?:mpigrad/)?([^>"]+)[>"]', bare, re.M)


def main():
    jobs, folder, compile_it = int(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob('*.h') if str(path.relative_to(folder)) not in VENDORS)
    direct = {name: included((folder / name).read_text()) for name in names}

    def closure(name, seen):
        for each in direct[name] or []:
            if each in direct and each not in seen:
                seen.add(each)
                closure(each, seen)
        return seen

    inner = {name: closure(name, set()) for name in names}
    with tempfile.TemporaryDirectory() as work:
        precompiled = {front: f'{work}/{number}.h' for number, front in enumerate(FRONTS) if front in direct}

        def run(chain, *flags):
            with open(os.environ.get('MPIGRAD_TEST_PROGRESS', os.devnull), 'a') as progress:
                print(*chain, file=progress)
            done = subprocess.run([*compile_it, '-Wall', '-Wextra', '-Werror', *flags], text=True, check=False,
                                  input=''.join(f'#include <{name}>\n' for name in chain), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            return chain, done.returncode, done.stdout

        def precompile(front):
            pathlib.Path(precompiled[front]).write_text(f'#include <{front}>\n')
            return run([front], '-x', 'c++-header', precompiled[front], '-o', precompiled[front] + '.gch')

        def front_of(name):
            return next((front for front in precompiled if front in inner[name]), None)

        def alone(chain):
            front = front_of(chain[0])
            return run(chain, *(['-include', precompiled[front]] if front else []), '-fsyntax-only', '-x', 'c++', '-')

        # Of the chains that can precede a header, the one with most of the headers that it includes.
        chains = []
        for name in sorted((name for name in names if name not in precompiled), key=lambda name: len(inner[name])):
            fitting = [chain for chain in chains if chain[-1] in inner[name] and front_of(chain[0]) == front_of(name)]
            if fitting:
                max(fitting, key=lambda chain: len(inner[chain[-1]])).append(name)
            else:
                chains.append([name])
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            results = list(pool.map(precompile, precompiled))
            results += pool.map(alone, chains)
            # The index in the chain.
            results = [each for result in results
                       for each in ([result] if result[1] == 0 or len(result[0]) == 1 else map(alone, ([name] for name in result[0])))]
    wrong = [name for chain, status, said in results if status != 0 for name in chain]
    for _, status, said in results:
        if status != 0:
            sys.stderr.write(said)
    print('\n'.join([*wrong, str(len(names))]))
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
