"""The Fortran module: an interface to each C function, and a subroutine with natural arguments that calls it."""

import pathlib
import re

import fortran_arrays

here = pathlib.Path(__file__).resolve().parent
callbacks = ('function', 'step_function', 'adjoint_function', 'infer_function')
# Functions of memory, for which the module has subroutines that take arrays.
of_memory = ('tensor_over', 'tensor_over_constant', 'tensor_over_released', 'tensor_from_strided', 'tensor_to_strided', 'tensor_to_memory',
             'tensor_data', 'tensor_mutable_data')


def wrapped(text):
    """The text with lines of at most 120 characters, cut after commas."""
    lines = []
    for line in text.split('\n'):
        indent = ' ' * (len(line) - len(line.lstrip()) + 4)
        while len(line) > 120 and not line.lstrip().startswith('!'):
            cut = line.rfind(', ', 0, 116) + 2
            lines.append(line[:cut] + '&')
            line = indent + line[cut:]
        lines.append(line)
    return '\n'.join(lines)


# ---- the interfaces of C

def declared_in_c(value, direction, table):
    """A dummy argument of an interface."""
    handles = [name for name, _, _ in table.handles]
    enums = [name for name, *_ in table.enums]
    given = ', value' if direction != 'out' else ''
    name = value.name
    if value.count:
        kinds = {'ints': 'integer(c_int)', 'int64s': 'integer(c_int64_t)', 'tensors': 'type(mpigrad_tensor)', 'strings': 'type(c_ptr)'}
        return f'{kinds[value.type]}, intent({"inout" if direction == "out" else "in"}) :: {name}(*)'
    if value.type in handles:
        return f'type(mpigrad_{value.type}){given} :: {name}'
    if value.type == 'string':
        return f'type(c_ptr) :: {name}' if direction == 'out' else f'character(kind=c_char), intent(in) :: {name}(*)'
    if value.type in callbacks or value.type == 'release_function':
        return f'type(c_funptr), value :: {name}'
    if value.type in ('address', 'const_address', 'int64s3'):
        return f'type(c_ptr){given} :: {name}'
    kinds = {'int64': 'integer(c_int64_t)', 'double': 'real(c_double)'}
    assert value.type in ('int', 'bool', *kinds) or value.type in enums, value
    return f'{kinds.get(value.type, "integer(c_int)")}{given} :: {name}'


def interface_of(row, table):
    names = [value.name for value, _ in row.parameters()]
    lines = [f'    integer(c_int) function c_{row.name}({", ".join(names)}) bind(C, name="mpigrad_{row.name}")', '      import']
    lines += [f'      {declared_in_c(value, direction, table)}' for value, direction in row.parameters()]
    return '\n'.join(lines) + '\n    end function\n'


# ---- the subroutines

class Subroutine:
    """The text of one subroutine; `kind` is that of its integers of 64 bits."""

    def __init__(self, row, table, kind=''):
        self.row, self.table, self.kind = row, table, kind or 'c_int'
        self.dummies, self.locals, self.before, self.after, self.actual = [], [], [], [], {}
        self.optional_list = None
        lists = {}
        for value in row.arguments:
            if value.count:
                lists.setdefault(value.count, value)
        counts = [value.count for value in row.results if value.count]
        self.hidden = [value.name for value in row.arguments if value.name in counts]  # lengths of results
        for value in row.arguments:
            if value.name not in self.hidden:
                self.add_argument(value)
        for value in row.results:
            self.add_result(value)
        for value in [*row.arguments, *row.results]:
            if value.count:
                first = lists.setdefault(value.count, value)
                self.actual[value.count] = f'int(size({first.name}), c_int)'
                if first.name != value.name:
                    self.require_sizes(first, value)

    def require_sizes(self, first, value):
        text = f'[mpigrad_{self.row.name}] {first.name} and {value.name} have different lengths'
        self.before += [f'if (size({value.name}) /= size({first.name})) then', f"  call refuse('{text}', status)", '  return', 'end if']

    def declare(self, text, value, optional=False):
        dimension = '(:)' if value.count else ''
        self.dummies.append((value.name, f'{text}{", optional" if optional else ""} :: {value.name}{dimension}'))

    def add_argument(self, value):
        table, name = self.table, value.name
        handles = [each for each, _, _ in table.handles]
        enums = [each for each, *_ in table.enums]
        optional = value.null or value.default != ''
        if value.type in ('ints', 'int64s') and value.count:
            self.declare(f'integer({self.kind}), intent(in)' if value.type == 'int64s' else 'integer, intent(in)', value)
            self.actual[name] = f'int({name}, {"c_int64_t" if value.type == "int64s" else "c_int"})'
        elif value.type == 'tensors':
            self.declare('type(mpigrad_tensor), intent(in)', value, optional)
            self.actual[name] = name
            if optional:
                self.optional_list = value
                self.locals.append(f'type(mpigrad_tensor) :: {name}_(0)')
        elif value.type == 'strings':
            self.declare('character(*), intent(in)', value)
            self.locals += [f'character(len({name}) + 1, c_char), target :: {name}_text(size({name}))', f'type(c_ptr) :: {name}_at(size({name}))',
                            'integer :: i']
            self.before += [f'do i = 1, size({name})', f'  {name}_text(i) = trim({name}(i)) // c_null_char', f'  {name}_at(i) = c_loc({name}_text(i))',
                            'end do']
            self.actual[name] = f'{name}_at'
        elif value.type in handles:
            self.declare(f'type(mpigrad_{value.type}), intent(in)', value, optional)
            self.actual[name] = self.present(value, f'type(mpigrad_{value.type})') if optional else name
        elif value.type == 'string':
            self.declare('character(*), intent(in)', value)
            self.actual[name] = f'trim({name}) // c_null_char'
        elif value.type in callbacks:
            self.dummies.append((name, f'procedure(mpigrad_{value.type}){", optional" if optional else ""} :: {name}'))
            self.actual[name] = f'{name}_' if optional else f'c_funloc({name})'
            if optional:
                self.locals.append(f'type(c_funptr) :: {name}_')
                self.before += [f'{name}_ = c_null_funptr', f'if (present({name})) {name}_ = c_funloc({name})']
        elif value.type == 'address':
            self.declare('type(c_ptr), intent(in)', value, True)
            self.actual[name] = self.present(value, 'type(c_ptr)', 'c_null_ptr')
        elif value.type == 'int64s3':
            self.dummies.append((name, f'integer, intent(in), optional :: {name}(3)'))
            self.locals += [f'integer(c_int64_t), target :: {name}_(3)', f'type(c_ptr) :: {name}_at']
            self.before += [f'{name}_at = c_null_ptr', f'if (present({name})) then', f'  {name}_ = {name}', f'  {name}_at = c_loc({name}_)', 'end if']
            self.actual[name] = f'{name}_at'
        elif value.type == 'bool':
            self.declare('logical, intent(in)', value, optional)
            default = '.true.' if value.default == '1' else '.false.'
            self.actual[name] = f'merge(1_c_int, 0_c_int, {self.present(value, "logical", default) if optional else name})'
        elif value.type == 'double':
            self.declare('real(c_double), intent(in)', value, optional)
            default = re.sub('e', 'd', value.default) if 'e' in value.default else value.default + 'd0'
            self.actual[name] = self.present(value, 'real(c_double)', default) if optional else name
        else:
            assert value.type in ('int', 'int64') or value.type in enums, value
            kind = 'c_int64_t' if value.type == 'int64' else 'c_int'
            self.declare(f'integer({self.kind}), intent(in)' if value.type == 'int64' else 'integer, intent(in)', value, optional)
            self.actual[name] = self.present(value, f'integer({kind})', value.default) if optional else f'int({name}, {kind})'

    def present(self, value, kind, default=''):
        """A local variable with an optional argument or its default."""
        self.locals.append(f'{kind} :: {value.name}_')
        if default:
            self.before.append(f'{value.name}_ = {default}')
        self.before.append(f'if (present({value.name})) {value.name}_ = {value.name}')
        return f'{value.name}_'

    def add_result(self, value):
        name = value.name
        handles = [each for each, _, _ in self.table.handles]
        enums = [each for each, *_ in self.table.enums]
        self.actual[name] = name
        if value.type == 'tensors' or value.type in handles:
            self.declare(f'type(mpigrad_{"tensor" if value.count else value.type}), intent(inout)', value)
        elif value.type in ('int64', 'int64s'):
            self.declare('integer(c_int64_t), intent(out)', value)
        elif value.type == 'double':
            self.declare('real(c_double), intent(out)', value)
        elif value.type == 'string':
            self.declare('character(:), allocatable, intent(out)', value)
            self.locals += [f'type(c_ptr) :: {name}_at', 'integer(c_int) :: code']
            self.after = [f'if (code == mpigrad_ok) {name} = text_at({name}_at)']
            self.actual[name] = f'{name}_at'
        else:
            assert value.type == 'int' or value.type in enums, value
            self.declare('integer, intent(out)', value)

    def in_order(self):
        """The required and the optional dummy arguments."""
        return ([each for each in self.dummies if ', optional' not in each[1]], [each for each in self.dummies if ', optional' in each[1]])

    def text(self, name):
        row = self.row
        required, optional = self.in_order()
        order = required + optional
        lines = [f'  subroutine {name}({", ".join([each for each, _ in order] + ["status"])})']
        lines += [f'    {text}' for _, text in order] + ['    integer, intent(out), optional :: status']
        lines += [f'    {text}' for text in self.locals] + [f'    {text}' for text in self.before]
        def call():
            actual = ', '.join(self.actual[value.name] for value, _ in row.parameters())
            return f'c_{row.name}({actual})'

        absent = self.optional_list
        if absent:
            lines += [f'    if (present({absent.name})) then', f'      call finish({call()}, status)', '    else']
            self.actual.update({absent.name: f'{absent.name}_', absent.count: '0_c_int'})
            lines += [f'      call finish({call()}, status)', '    end if']
        elif self.after:
            lines += [f'    code = {call()}', *(f'    {text}' for text in self.after), '    call finish(code, status)']
        else:
            lines.append(f'    call finish({call()}, status)')
        return '\n'.join(lines) + '\n  end subroutine\n'


def call_of(row, table):
    """How a program calls the subroutine, with optional arguments in brackets; '' for functions that take arrays."""
    if row.name in of_memory:
        return ''
    required, optional = Subroutine(row, table).in_order()
    text = ', '.join(name for name, _ in required)
    rest = ''.join(f', {name}' for name in [*(name for name, _ in optional), 'status'])
    return f'call mpigrad_{row.name}({text}[{rest if text else rest[2:]}])'


def has_variants(row):
    """True if a required argument is an integer of 64 bits: then there is a subroutine for default integers, too."""
    return any(value.type in ('int64', 'int64s') and not value.default and not value.null for value in row.arguments)


def module(table):
    rows = [row for row in table.functions() if row.name not in of_memory]
    names = [f'mpigrad_{name}' for name, _, _ in table.handles] + [f'mpigrad_{row.name}' for row in rows]
    names += [f'mpigrad_{name}' for name in (*callbacks, 'type', 'last_error', 'fail')] + list(fortran_arrays.names)
    constants, generics, bodies = '', '', ''
    for _, _, prefix, text, values in table.enums:
        constants += f'\n  ! {text}\n'
        for number, value in enumerate(values):
            constants += f'  integer, parameter, public :: {prefix.lower()}{value} = {number}\n'
    for row in rows:
        if has_variants(row):
            generics += f'  interface mpigrad_{row.name}\n    module procedure {row.name}_i4, {row.name}_i8\n  end interface\n'
            bodies += Subroutine(row, table).text(f'{row.name}_i4') + Subroutine(row, table, 'c_int64_t').text(f'{row.name}_i8')
        else:
            bodies += Subroutine(row, table).text(f'mpigrad_{row.name}')
    handles = ''.join(f'  type, bind(C) :: mpigrad_{name}  ! {text}\n    integer(c_int64_t) :: value = 0\n  end type\n' for name, _, text in table.handles)
    parts = {'NAMES': ', '.join(names), 'HANDLES': handles, 'CONSTANTS': constants, 'INTERFACES': ''.join(interface_of(row, table) for row in table.functions()),
             'GENERICS': generics + fortran_arrays.generics(), 'SUBROUTINES': bodies + fortran_arrays.subroutines()}
    text = (here / 'fortran.txt').read_text()
    for name, value in parts.items():
        text = text.replace(f'@{name}@', value.rstrip('\n'))
    return wrapped(text)
