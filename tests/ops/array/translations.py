#!/usr/bin/env python3
"""Makes the page examples/first/from_numpy.md from the rows of translations.inc, which a unit test compiles and runs.

    python3 tests/ops/array/translations.py --write   writes the page
    python3 tests/ops/array/translations.py --test    prints `failed: ...` if the page differs, and ends with
                                                      `N passed, M failed, K skipped`; tests/run.sh calls it
"""

import pathlib
import re
import sys

here = pathlib.Path(__file__).resolve().parent
page = here.parents[2] / 'examples/first/from_numpy.md'
TEXT = r'"((?:[^"\\]|\\.)*)"'
HEAD = """# From PyTorch, JAX and NumPy

Names are those of the [Python array API](https://data-apis.org/array-api/latest/) if it has them. A unit test compiles and runs the last
column of every row, and this page is generated from the same rows (`tests/ops/array/translations.inc`). In all tables
`x`, `y`, `z` are tensors of one shape, `c` is a complex one, `a`, `b` matrices, `v` a vector, `u` a row [1, 3], `i`, `j`, `k`, `n` integers, `m` booleans;
`np` is NumPy, `jnp` is `jax.numpy`, `F` is `torch.nn.functional`. A program that uses them begins with `#include <mpigrad/mpigrad.h>`
and `using namespace mpigrad;`. Tensors are float32 unless a type is given, as in `zeros({2, 3}, DType::float64)`. Integers divide towards zero, as in
C++: `cast(i, DType::float64) / 2` equals NumPy's `i / 2`. A tensor is not a C++ condition; compare its element with a number:
`if (all(x == y).item() != 0)`.
`write_npy(path, x)` and `read_npy(path)` are `np.save` and `np.load`. "-" means that there is no equivalent, or no single call.
"""


def cell(text):
    return '-' if text == '-' else f'`{text}`'


def written():
    lines = [HEAD]
    for number, line in enumerate((here / 'translations.inc').read_text().splitlines(), 1):
        if topic := re.fullmatch(rf'TOPIC\({TEXT}, {TEXT}\)', line):
            lines += [f'## {topic[1]}', '', *([topic[2], ''] if topic[2] else []), '| NumPy | PyTorch | JAX | mpigrad |', '|---|---|---|---|']
        elif row := re.fullmatch(rf'ROW\({TEXT}, {TEXT}, {TEXT}, (.*)\)', line):
            numpy, torch, jax, code = row.groups()
            jax = re.sub(r'\bnp\.', 'jnp.', numpy) if jax == '=' else jax
            if '|' in ''.join(row.groups()):
                sys.exit(f'translations.inc, line {number}: | would end a cell of the table')
            lines.append(f"| {' | '.join(cell(each) for each in (numpy, torch, jax, code))} |")
        elif not line:
            lines += [''] if len(lines) > 1 else []
        elif not line.startswith('//'):
            sys.exit(f'translations.inc, line {number}: neither TOPIC nor ROW: {line}')
    return '\n'.join(lines) + '\n'


if sys.argv[1:] == ['--write']:
    page.write_text(written())
elif sys.argv[1:] == ['--test']:
    same = page.read_text() == written()
    if not same:
        print('failed: examples/first/from_numpy.md is not what translations.inc says: python3 tests/ops/array/translations.py --write')
    print(f'{int(same)} passed, {int(not same)} failed, 0 skipped')
    sys.exit(not same)
else:
    sys.exit(__doc__)
