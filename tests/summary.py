#!/usr/bin/env python3
"""Summarises the results of `meson test`: python3 tests/summary.py BUILD

Prints the output of failed tests, the reasons of skipped tests, a command to repeat each failed test, and as the last line
`N passed, M failed, K skipped`. Exits with 1 if a test failed or none ran.
"""

import json
import pathlib
import re
import shlex
import sys


def repeat_line(build, test, name):
    """The command that runs one failed test again; for programs of many tests only that test, if possible."""
    command = f'meson test -C {shlex.quote(build)} {shlex.quote(test)}'
    if test.startswith('unit') and not re.search(r'ended with status', name):
        # Commas separate doctest's filters; ? matches any character.
        command += ' --test-args="-tc=\'' + re.sub(r'[,\'"\\$`]', '?', name) + '\'"'
    return command


def main():
    build = sys.argv[1]
    passed = failed = skipped = 0
    failures, reasons = [], {}
    log = pathlib.Path(build) / 'meson-logs' / 'testlog.json'
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    for entry in entries:
        name = entry['name'].split(' / ')[-1]
        output = entry.get('stdout', '')
        last = output.rstrip().rsplit('\n', 1)[-1]
        counts = re.fullmatch(r'(\d+) passed, (\d+) failed, (\d+) skipped', last)
        if counts is None:
            counts, named = (0, 1, 0), [f'{name}: ended with status {entry["returncode"]}']
        else:
            counts = tuple(map(int, counts.groups()))
            named = re.findall(r'^failed: (.*)$', output, re.M)
        passed, failed, skipped = passed + counts[0], failed + counts[1], skipped + counts[2]
        for count, reason in re.findall(r'^skipped: (\d+) (.*)$', output, re.M):
            reasons[reason] = reasons.get(reason, 0) + int(count)
        if counts[1]:
            print(f'\n---- {name}\n{output}{entry.get("stderr", "")}\n---- end of {name}\n')
            failures += [(failure, repeat_line(build, name, failure)) for failure in named or [name]]
    for reason, count in sorted(reasons.items()):
        print(f'skipped: {count} {reason}')
    if failures:
        print('\nfailed, and how to repeat it:')
        for failure, command in failures:
            print(f'  {failure}\n    {command}')
        print()
    print(f'{passed} passed, {failed} failed, {skipped} skipped')
    return 1 if failed or not passed else 0


if __name__ == '__main__':
    sys.exit(main())
