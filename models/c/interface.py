"""Makes the C interface of table.txt: the header, the definitions of its functions, the Fortran module and the reference page.

    python3 models/c/interface.py header|source|fortran|page OUTPUT
"""

import dataclasses
import pathlib
import re
import sys

import fortran
import in_c

here = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass
class Value:
    """An argument or a result."""
    type: str
    name: str
    null: bool = False  # may be a null handle or pointer
    raw: bool = False  # the handle itself
    count: str = ''  # of a list: the name of the argument that is its length
    default: str = ''


@dataclasses.dataclass
class Function:
    """A row of the table."""
    name: str
    arguments: list
    results: list
    expression: str = ''
    text: str = ''

    def parameters(self):
        """Arguments, lengths and results in the order of C, each as (Value, 'in', 'out' or 'count')."""
        named = {value.name for value in self.arguments}
        found = []
        for kind, values in (('in', self.arguments), ('out', self.results)):
            for value in values:
                if value.count and value.count not in named:
                    named.add(value.count)
                    found.append((Value('int', value.count), 'count'))
                found.append((value, kind))
        return found


@dataclasses.dataclass
class Table:
    handles: list = dataclasses.field(default_factory=list)  # (name, type in C++, text)
    enums: list = dataclasses.field(default_factory=list)  # (name, type in C++, prefix, text, values)
    sections: list = dataclasses.field(default_factory=list)  # (title, functions)

    def functions(self):
        return [function for _, functions in self.sections for function in functions]


def values_of(text):
    """From `TYPE NAME = DEFAULT, ...`."""
    found = []
    for part in filter(None, (each.strip() for each in text.split(','))):
        match = re.fullmatch(r'(\w+?)([?!]?)(?:\[(\w+)\])? (\w+)(?: = (\S+))?', part)
        if not match:
            sys.exit(f'table.txt: no argument: {part}')
        kind, mark, count, name, default = match.groups()
        found.append(Value(kind, name, mark == '?', mark == '!', count or '', default or ''))
    return found


def read_table():
    table, mode = Table(), ''
    for line in (here / 'table.txt').read_text().splitlines():
        if not line or line.startswith('#'):
            continue
        first, _, rest = line.partition(' ')
        if first in ('handles', 'functions', 'enum') and not line.startswith(' '):
            mode = first
            if mode == 'functions':
                table.sections.append((rest, []))
            elif mode == 'enum':
                name, cpp, prefix, text = rest.split(' ', 3)
                table.enums.append((name, cpp, prefix, text, []))
        elif mode == 'handles':
            table.handles.append(tuple(line.split(None, 2)))
        elif mode == 'enum':
            table.enums[-1][4].extend(line.split())
        elif first in ('unary', 'binary'):
            name, text = rest.split(' ', 1)
            arguments = [Value('tensor', each) for each in ('x' if first == 'unary' else 'ab')]
            call = f'{name}({", ".join(value.name for value in arguments)})'
            table.sections[-1][1].append(Function(name, arguments, [Value('tensor', 'y')], call, text))
        elif line.startswith('  = '):
            table.sections[-1][1][-1].expression = line[4:]
        elif line.startswith('  '):
            row = table.sections[-1][1][-1]
            row.text = f'{row.text} {line.strip()}'.strip()
        else:
            match = re.fullmatch(r'(\w+)\((.*)\)(?: -> (.*))?', line)
            if not match:
                sys.exit(f'table.txt: no row: {line}')
            table.sections[-1][1].append(Function(match[1], values_of(match[2]), values_of(match[3] or '')))
    return table


def main(arguments):
    makers = {'header': in_c.header, 'source': in_c.source, 'fortran': fortran.module, 'page': in_c.page}
    if len(arguments) != 2 or arguments[0] not in makers:
        sys.exit(__doc__)
    pathlib.Path(arguments[1]).write_text(makers[arguments[0]](read_table()))


if __name__ == '__main__':
    main(sys.argv[1:])
