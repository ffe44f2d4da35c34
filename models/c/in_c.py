"""The header, the definitions of its functions, and the reference page."""

import pathlib
import textwrap

import fortran

here = pathlib.Path(__file__).resolve().parent
callbacks = ('function', 'step_function', 'adjoint_function', 'infer_function', 'release_function')
plain = {'int': 'int', 'bool': 'int', 'int64': 'int64_t', 'double': 'double', 'string': 'const char*', 'address': 'void*',
         'const_address': 'const void*', 'int64s3': 'const int64_t*'}
lists = {'ints': 'const int*', 'int64s': 'const int64_t*', 'strings': 'const char* const*', 'tensors': 'const mpigrad_tensor*'}


def comment(text, indent=''):
    return ''.join(f'{indent}// {line}\n' for line in textwrap.wrap(text, 125 - len(indent)))


def type_of(value, direction):
    """The type of a parameter in C."""
    if value.count:
        return lists[value.type].replace('const ', '', 1) if direction == 'out' else lists[value.type]
    name = plain.get(value.type, f'mpigrad_{value.type}')
    return f'{name}*' if direction == 'out' else name


def prototype(function):
    parameters = ', '.join(f'{type_of(value, direction)} {value.name}' for value, direction in function.parameters())
    return f'mpigrad_status mpigrad_{function.name}({parameters or "void"})'


def header(table):
    handles = ''.join(f'typedef struct mpigrad_{name} {{\n  uint64_t value;\n}} mpigrad_{name};  // {text}\n'
                      for name, _, text in table.handles)
    enums = ''
    for name, _, prefix, text, values in table.enums:
        rows = ''.join(f'  {prefix}{value.upper()} = {number},\n' for number, value in enumerate(values))
        enums += f'{comment(text + ".")}typedef int mpigrad_{name};\nenum {{\n{rows[:-2]}\n}};\n'
    functions = ''
    for title, rows in table.sections:
        functions += f'\n// ---- {title}\n\n'
        for row in rows:
            lines = textwrap.wrap(prototype(row) + ';', 125, subsequent_indent='    ', break_long_words=False)
            functions += comment(row.text) + '\n'.join(lines) + '\n'
    text = (here / 'header.txt').read_text()
    return text.replace('@HANDLES@', handles).replace('@ENUMS@', enums).replace('@FUNCTIONS@', functions)


# ---- definitions

def in_cpp(value, table):
    """The type of an argument in the expression, and how it is read."""
    handles = {name: cpp for name, cpp, _ in table.handles}
    enums = {name: cpp for name, cpp, _, _, _ in table.enums}
    name, quoted = value.name, f'"{value.name}"'
    if value.raw:
        return ('const std::vector<std::uint64_t>&', f'call.raw({value.count}, {name}, {quoted})') if value.count else \
            (f'mpigrad_{value.type}', name)
    if value.type == 'tensors':
        return 'const Tensors&', f'call.tensors({value.count}, {name}, {quoted})'
    if value.type == 'strings':
        return 'const std::vector<std::string>&', f'call.strings({value.count}, {name}, {quoted})'
    if value.type == 'ints':
        return 'const std::vector<int>&', f'call.list({value.count}, {name}, {quoted})'
    if value.type == 'int64s':
        as_shape = name == 'shape'
        return ('const Shape&' if as_shape else 'const std::vector<std::int64_t>&',
                f'call.{"shape" if as_shape else "list"}({value.count}, {name}, {quoted})')
    if value.type == 'tensor':
        return 'const Tensor&', f'call.{"maybe" if value.null else "tensor"}({name}, {quoted})'
    if value.type == 'comm':
        return 'const Communicator&', f'call.comm_or_none({name}, {quoted})' if value.null else f'*call.get({name}, {quoted})'
    if value.type in handles and value.null:
        return f'{handles[value.type]}*', f'call.object_or_none({name}, {quoted})'
    if value.type in handles:
        return f'{handles[value.type]}&', f'*call.get({name}, {quoted})'
    if value.type in enums:
        values = next(each for each in table.enums if each[0] == value.type)[4]
        return enums[value.type], f'call.one_of<{enums[value.type]}>({name}, {len(values)}, {quoted})'
    if value.type == 'string':
        return 'const std::string&', f'call.text({name}, {quoted})'
    if value.type == 'bool':
        return 'bool', f'{name} != 0'
    if value.type in callbacks or value.type in ('address', 'const_address', 'int64s3'):
        kind = {'int64s3': 'const std::int64_t*'}.get(value.type, plain.get(value.type, f'mpigrad_{value.type}'))
        return kind, name if value.null else f'call.there({name}, {quoted})'
    return {'int64': 'std::int64_t'}.get(value.type, value.type), name


def definition(row, table):
    expression = row.expression.replace('FUNCTION', f'"mpigrad_{row.name}"')
    read = [in_cpp(value, table) for value in row.arguments]
    parameters = ', '.join(f'[[maybe_unused]] {kind} {value.name}' for (kind, _), value in zip(read, row.arguments))
    call = f'[]({parameters}) {{ return {expression}; }}({", ".join(how for _, how in read)})'
    places, given = '', call
    if row.results:
        value = row.results[0]
        places = f'    call.place({value.name}, "{value.name}"{", " + value.count if value.count else ""});\n'
        given = f'call.give({value.name}{", " + value.count if value.count else ""}, {call})'
    return f'{prototype(row)} {{\n  return capi::run("mpigrad_{row.name}", [&]([[maybe_unused]] const capi::Call& call) {{\n{places}    {given};\n  }});\n}}\n'


def source(table):
    checks = ''
    for _, cpp, prefix, _, values in table.enums:
        checks += ''.join(f'static_assert(static_cast<int>({cpp}::{value}) == {prefix}{value.upper()});\n' for value in values)
    text = '// Made from models/c/table.txt.\n\n#include "models/c/functions.h"\n\nusing namespace mpigrad;\n\n' + checks
    return text + '\nextern "C" {\n\n' + '\n'.join(definition(row, table) for row in table.functions()) + '\n}  // extern "C"\n'


# ---- the page

def optional(row, table):
    """A sentence about the arguments that may be left out in Fortran, with the values that they have then; '' if there are none."""
    enums = {name: (prefix, values) for name, _, prefix, _, values in table.enums}
    found = []
    for value in row.arguments:
        if value.null:
            found.append(f'`{value.name}` may be null')
        elif value.default == 'none':
            found.append(f'`{value.name}` none')
        elif value.default and value.type in enums:
            prefix, values = enums[value.type]
            found.append(f'`{value.name}` `{prefix}{values[int(value.default)].upper()}`')
        elif value.default:
            found.append(f'`{value.name}` {value.default}')
    return f'\n\nDefaults: {", ".join(found)}.' if found else ''


def between(text, first, last):
    """The lines of the header from the one that begins with `first` up to the one that begins with `last`, without it."""
    lines = text.split('\n')
    begin = next(i for i, line in enumerate(lines) if line.startswith(first))
    end = next(i for i, line in enumerate(lines) if i > begin and line.startswith(last))
    return '\n'.join(lines[begin:end]).strip()


def page(table):
    head = header(table)
    callbacks_in_fortran = between((here / 'fortran.txt').read_text(), '  abstract interface', '  interface')
    kinds = ''.join(f'| `mpigrad_{name}` | {about} |\n' for name, _, about in table.handles)
    parts = {'Constants': f"""In Fortran in small letters: `mpigrad_float64`.

```c
{between(head, 'typedef int mpigrad_status', '// Handles.')}
{between(head, '// Element types', '// The element type and shape')}
```""",
             'Kinds of handles': f'| handle | object |\n|---|---|\n{kinds}',
             'Reasons of failures': f'```c\n{between(head, "// The reason of the last call", "// ---- ")}\n```',
             'Functions of the program': f"""```c
{between(head, '// The element type and shape', '// The reason of the last call')}
```

```fortran
  {callbacks_in_fortran}
```"""}
    text = (here / 'page.txt').read_text() + ''.join(f'\n## {title}\n\n{part.rstrip()}\n' for title, part in parts.items())
    for title, rows in table.sections:
        text += f'\n## {title}\n'
        for row in rows:
            lines = textwrap.wrap(prototype(row), 110, subsequent_indent='    ', break_long_words=False)
            call = fortran.call_of(row, table)
            in_fortran = f'\n\nFortran: `{call}`' if call else '\n\nFortran: see the subroutines for arrays.'
            text += f'\n### {row.name}\n\n```c\n' + '\n'.join(lines) + f'\n```\n\n{row.text}{optional(row, table)}{in_fortran}\n'
    return text
