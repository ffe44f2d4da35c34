"""The headers that `meson install` copies, one to a line: all that the umbrella and others named here include, directly or not.
Those of models/mpigrad/ are left out: meson.build names them, as they lie elsewhere.

    python3 models/mpigrad/headers.py [HEADER...]
"""

import pathlib
import re
import sys


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    found, waiting = set(), ['models/mpigrad/mpigrad.h', *sys.argv[1:]]
    while waiting:
        header = waiting.pop()
        if header in found:
            continue
        found.add(header)
        waiting += re.findall(r'^\s*#\s*include\s*"([^"]+)"', (root / header).read_text(), re.M)
    print('\n'.join(sorted(name for name in found if not name.startswith('models/mpigrad/'))))


if __name__ == '__main__':
    main()
