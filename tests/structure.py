#!/usr/bin/env python3
"""The structure of the tree in numbers, against the limits of tests/structure.txt.

    python3 tests/structure.py             the table: each number now, its limit, and its goal
    python3 tests/structure.py --list      also the files, folders and cycles of each number
    python3 tests/structure.py --lower     writes the numbers that have fallen into tests/structure.txt
    python3 tests/structure.py --test      prints `failed: ...` for each number that differs from its limit, and ends with
                                           `N passed, M failed, K skipped`; tests/run.sh calls it

A number above its limit fails. A number below its limit fails, too, until the limit is lowered. Limits are never raised.
"""

import pathlib
import re
import shutil
import subprocess
import sys

import pages

root = pathlib.Path(__file__).resolve().parent.parent
top = ('framework', 'ops', 'comm', 'models', 'tests', 'examples')
library = ('framework', 'ops', 'comm', 'models')
compiled = ('.h', '.cpp', '.cu', '.cuh')
code = compiled + ('.c', '.f90', '.inc', '.py', '.sh')
# Inputs found by fuzzers, which people need not read.
fuzzed = 'tests/fuzz/found'


def files_below(folders):
    """Paths from the root, in order, without files that Python and editors leave."""
    paths = (path for folder in folders for path in sorted((root / folder).rglob('*')) if path.is_file())
    names = (path.relative_to(root).as_posix() for path in paths)
    return [name for name in names if '__pycache__' not in name and '/.' not in name]


def text_of(name):
    return (root / name).read_text(encoding='utf-8', errors='replace')


def long_files():
    """Code files of more than 400 lines."""
    counts = {name: text_of(name).count('\n') for name in files_below(top) if name.endswith(code)}
    return [f'{name}: {lines} lines' for name, lines in counts.items() if lines > 400]


def full_folders():
    """Folders of more than 25 files, folders below them not counted."""
    counts = {}
    for name in files_below(top):
        folder = name.rpartition('/')[0]
        counts[folder] = counts.get(folder, 0) + 1
    return [f'{folder}: {count} files' for folder, count in counts.items() if count > 25 and folder != fuzzed]


def long_trainers():
    """Trainers whose sources have more lines than a program on the trainer library should need."""
    result = []
    for trainer, most in {'classify': 250, 'contrastive': 600, 'cosmoflow': 250, 'unet3d': 250}.items():
        lines = sum(text_of(name).count('\n') for name in files_below([f'examples/trainers/{trainer}']) if name.endswith(code))
        if lines > most:
            result.append(f'examples/trainers/{trainer}: {lines} lines, at most {most}')
    return result


def components(names):
    """The components that each component (a header and the source of the same name) includes."""
    edges = {}
    for name in names:
        here = edges.setdefault(name.rpartition('.')[0], set())
        for included in re.findall(r'^\s*#\s*include\s*"([^"]+)"', text_of(name), re.M):
            here.add(included.rpartition('.')[0])
    return {name: {other for other in others if other in edges and other != name} for name, others in edges.items()}


def include_cycles():
    """Sets of components that include each other, directly or indirectly (Tarjan 1972, without recursion)."""
    edges = components(name for name in files_below(library) if name.endswith(compiled))
    number, low, stack, cycles = {}, {}, [], []
    for start in edges:
        if start in number:
            continue
        number[start] = low[start] = len(number)
        stack.append(start)
        path = [(start, iter(sorted(edges[start])))]
        while path:
            name, others = path[-1]
            for other in others:
                if other not in number:
                    number[other] = low[other] = len(number)
                    stack.append(other)
                    path.append((other, iter(sorted(edges[other]))))
                    break
                if other in stack:
                    low[name] = min(low[name], number[other])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[name])
                if low[name] == number[name]:
                    at = stack.index(name)
                    cycle, stack[at:] = sorted(stack[at:]), []
                    if len(cycle) > 1:
                        cycles.append(f'{len(cycle)}: {" ".join(cycle)}')
    return cycles


def naming(pattern):
    """Files of the library that contain the pattern."""
    return [name for name in files_below(library) if name.endswith(compiled) and re.search(pattern, text_of(name))]


def names_of_one_mpi():
    """Names in comm of functions, types and macros that only one MPI library has: the library is built for the standard ABI, too."""
    result = []
    for name in files_below(['comm']):
        if name.endswith(compiled):
            code = re.sub(r'//.*|"(?:[^"\\\n]|\\.)*"', '', text_of(name))
            found = set(re.findall(r'\b(?:P?MPIX_|MPICH|MPI[RDL]_|OMPI_|OPEN_MPI|I_MPI_|MVAPICH)\w*', code)) - {'MPICH_SKIP_MPICXX', 'OMPI_SKIP_MPICXX'}
            result += [f'{name}: {each}' for each in sorted(found)]
    return result


def entries_of_examples():
    return sorted(path.name for path in (root / 'examples').iterdir())


def results():
    return files_below(['tests/bench/results'])


def results_outside_index():
    """Pages of results to which the index has no link."""
    links = re.findall(r'\]\(([^)#]+)\)', text_of('tests/bench/results/index.md'))
    pages = [name.removeprefix('tests/bench/results/') for name in results() if name.endswith('.md')]
    return [page for page in pages if page != 'index.md' and page not in links]


def unformatted():
    """Files that clang-format 14 would change; None if it is missing."""
    for command in ('clang-format-14', 'clang-format'):
        if shutil.which(command) and ' 14.' in subprocess.run([command, '--version'], capture_output=True, text=True).stdout:
            break
    else:
        return None
    names = [name for name in files_below(top) if name.endswith(compiled)]
    said = subprocess.run([command, '--dry-run', '--style=file', *names], cwd=root, capture_output=True, text=True).stderr
    return sorted(set(re.findall(r'^(\S+?):\d+:\d+: warning:', said, re.M)))


def ambient_state():
    """State outside objects that framework/ambient_state.h does not list, and listed state that does not exist."""
    page = 'framework/ambient_state.h'
    listed = set()
    for path, names in re.findall(r'^//   (\S+/\S+)\s+([\w, ]+?)\s+[TP] ', text_of(page), re.M):
        listed |= {(path, name) for name in names.split(', ')}
    kinds = [r'\bthread_local\b[^;({=]*?(\w+)(?:\[[^\]]*\])?\s*[;({=]',
             r'^(?:\[\[maybe_unused\]\] )?(?:const )?(?:std::atomic<[^;]*>|std::mutex|bool) (\w+)\s*(?:[;{]|= \(|= \w+;)',
             r'^(?:MPI_\w+|int|struct \w+|Gpu\w+) (\w+)(?: = \w+| \{\})?;', r'^(?:std::\w+<[^;()]*>) (\w+);', r'^ +static std::\w+<[^;()]*> (\w+)(?:;|\{)',
             r'^ +static (?:(?:const )?auto[*&]|[A-Z]\w*\*?) (\w+)(?:, (\w+))?\s*(?:;|=$|= new|= \*new|= \[)',
             r'^ +static (?:inline )?(?:int|std::atomic<[^;]*>) (\w+) = ', r'^ +static JobQueue (\w+)\(']
    there = set()
    for name in files_below(library):
        if name.endswith(('.h', '.cpp')) and name != page:
            code = re.sub(r'//.*', '', text_of(name))
            for kind in kinds:
                for found in re.findall(kind, code, re.M):
                    there |= {(name, each) for each in ([found] if isinstance(found, str) else found) if each}
    return [f'{path}: {name} is not listed' for path, name in sorted(there - listed)] + \
           [f'{path}: {name} is not there' for path, name in sorted(listed - there)]


def precompiled_without_guards():
    """Headers that precompiled ones include and that have no include guard. GCC knows a file of `#pragma once` again by a
    sum over its text, and ccache may take the precompiled header of a text that differs in a comment."""
    names = [name for name in files_below(top) if 'precompiled' in name and name.endswith('.h')]
    for name in names:
        names += [other for other in re.findall(r'^#include "([^"]+)"', text_of(name), re.M) if other not in names]
    guard = r'#ifndef (MPIGRAD_\w+_H)\n#define \1\n'
    return [name for name in names if 'precompiled' not in name and not re.match(guard, text_of(name))]


numbers = {
    'code files of more than 400 lines': long_files,
    'folders of more than 25 files': full_folders,
    'trainers of too many lines': long_trainers,
    'include cycles between components': include_cycles,
    'precompiled headers without include guards': precompiled_without_guards,
    'states that no object holds, not as listed': ambient_state,
    'library files that name slope': lambda: naming(r'slope'),
    'library files that name reduce_scatter': lambda: naming(r'reduce_scatter'),
    'library files that name the newest collective, exscan': lambda: naming(r'(?i)exscan'),
    'library files that name the newest activation, hard_swish': lambda: naming(r'(?i)hard_?swish'),
    'library files that name the newest optimizer, rmsprop': lambda: naming(r'(?i)rmsprop'),
    'names of one MPI library in comm': names_of_one_mpi,
    'entries of examples': entries_of_examples,
    'files of results': results,
    'pages of results outside their index': results_outside_index,
    'files that clang-format 14 would change': unformatted,
    'words of README.md beyond 700': pages.words_beyond,
    'lines of README.md of more than 140 characters': pages.wide_lines,
    'lines of pages beyond 120': pages.long_lines_of_pages,
    'links of pages that lead nowhere': pages.broken_links,
    'words that plain English avoids': pages.never_words,
    'words that plain English suspects': pages.suspect_words,
    'environment variables in code or on a page, not both': pages.differing_variables,
    'public functions without a comment': pages.undocumented_functions,
}


def limits():
    """From lines `NAME: LIMIT, GOAL`."""
    lines = re.findall(r'^([^#\n]+): (\d+), (\d+)$', text_of('tests/structure.txt'), re.M)
    return {name: (int(limit), int(goal)) for name, limit, goal in lines}


def lower(now):
    """Limits above the numbers become the numbers."""
    def line(match):
        name, limit, goal = match.groups()
        return f'{name}: {min(int(limit), now.get(name, int(limit)))}, {goal}'

    page = root / 'tests/structure.txt'
    page.write_text(re.sub(r'^([^#\n]+): (\d+), (\d+)$', line, page.read_text(), flags=re.M))


def main(arguments):
    if arguments not in ([], ['--list'], ['--lower'], ['--test']):
        print(__doc__, file=sys.stderr)
        return 2
    known = limits()
    if set(known) != set(numbers):
        print(f'tests/structure.txt has other names: {sorted(set(known) ^ set(numbers))}', file=sys.stderr)
        return 2
    passed = failed = skipped = 0
    counted = {}
    for name, find in numbers.items():
        (limit, goal), found = known[name], find()
        # A list of what was found, or counts by file.
        now = sum(found.values()) if isinstance(found, dict) else None if found is None else len(found)
        if now is None:
            skipped += 1
            print(f'skipped: 1 clang-format 14 is not installed: {name}')
            continue
        counted[name] = now
        if arguments != ['--test']:
            print(f'{now:5} {limit:5} {goal:5}  {name}')
            if arguments == ['--list']:
                lines = [f'{each}: {count}' for each, count in found.items()] if isinstance(found, dict) else found
                print(''.join(f'                       {each}\n' for each in lines), end='')
        elif now == limit:
            passed += 1
        else:
            failed += 1
            remedy = 'run tests/structure.py --lower' if now < limit else 'see --list'
            print(f'failed: {name}: {now} where the limit is {limit}: {remedy}')
    if arguments == ['--lower']:
        lower(counted)
    if arguments == ['--test']:
        print(f'{passed} passed, {failed} failed, {skipped} skipped')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
