"""Subroutines of the Fortran module that take arrays: one for each element type and number of dimensions."""

kinds = {'float32': 'real(c_float)', 'float64': 'real(c_double)', 'int32': 'integer(c_int32_t)', 'int64': 'integer(c_int64_t)',
         'complex64': 'complex(c_float_complex)', 'complex128': 'complex(c_double_complex)'}
ranks = range(1, 8)
names = ('mpigrad_tensor_over', 'mpigrad_tensor_over_constant', 'mpigrad_tensor_from', 'mpigrad_tensor_to', 'mpigrad_tensor_read',
         'mpigrad_tensor_write')

over = '''  subroutine {name}(a, x, status)
    {kind}, intent({intent}), target :: a({colons})
    type(mpigrad_tensor), intent(inout) :: x
    integer, intent(out), optional :: status
    type(c_ptr) :: at
    at = c_loc(nothing)
    if (size(a) > 0) at = c_loc(a({ones}))
    if (is_contiguous(a)) then
      call finish(c_{function}(at, mpigrad_{dtype}, {rank}, int([{extents}], c_int64_t), x), status)
    else
      call refuse('[mpigrad_{function}] the array is not contiguous: mpigrad_tensor_from() copies it', status)
    end if
  end subroutine
'''
# The strides come from the addresses of the first two elements along each dimension.
strided = '''  subroutine {name}({first}, {second}, status)
    {kind}, intent({intent}), target :: a({colons})
    type(mpigrad_tensor), intent({of_x}) :: x
    integer, intent(out), optional :: status
    integer(c_int64_t) :: strides({rank})
    type(c_ptr) :: at
    strides = {rank}_c_int64_t
    at = c_loc(nothing)
    if (size(a) > 0) at = c_loc(a({ones}))
    if (size(a) > 0) then
{strides}
    end if
    call finish({call}, status)
  end subroutine
'''
stride = '''      strides({place}) = 1
      if (size(a, {d}) > 1) strides({place}) = distance(c_loc(a({ones})), c_loc(a({other}))) / (storage_size(a) / 8)'''
pointer = '''  subroutine {name}(x, p, status)
    type(mpigrad_tensor), intent(in) :: x
    {kind}, pointer, intent(out) :: p({colons})
    integer, intent(out), optional :: status
    type(c_ptr) :: at
    integer(c_int64_t) :: extents(8)
    integer(c_int) :: code
    nullify (p)
    code = address_of(x, mpigrad_{dtype}, {rank}, {writes}, at, extents)
    if (code == mpigrad_ok) call c_f_pointer(at, p, extents({rank}:1:-1))
    call finish(code, status)
  end subroutine
'''


def each():
    for dtype, kind in kinds.items():
        for rank in ranks:
            yield dtype, kind, rank


def generics():
    text = ''
    for name in names:
        short = name.removeprefix('mpigrad_tensor_')
        lines = [f'    module procedure {", ".join(f"{short}_{dtype}_{rank}" for rank in ranks)}' for dtype in kinds]
        text += f'  interface {name}\n' + '\n'.join(lines) + '\n  end interface\n'
    return text


def subroutines():
    text = ''
    for dtype, kind, rank in each():
        ones = ', '.join(['1'] * rank)
        parts = {'dtype': dtype, 'kind': kind, 'rank': rank, 'ones': ones, 'colons': ', '.join([':'] * rank),
                 'extents': ', '.join(f'size(a, {d})' for d in range(rank, 0, -1))}
        for short, intent in (('over', 'inout'), ('over_constant', 'in')):
            text += over.format(name=f'{short}_{dtype}_{rank}', intent=intent, function=f'tensor_{short}', **parts)
        strides = '\n'.join(stride.format(place=rank + 1 - d, d=d, ones=ones,
                                          other=', '.join('2' if each == d else '1' for each in range(1, rank + 1))) for d in range(1, rank + 1))
        extents = f'int([{parts["extents"]}], c_int64_t)'
        text += strided.format(name=f'from_{dtype}_{rank}', first='a', second='x', intent='in', of_x='inout', strides=strides,
                               call=f'c_tensor_from_strided(at, mpigrad_{dtype}, {rank}, {extents}, strides, x)', **parts)
        text += strided.format(name=f'to_{dtype}_{rank}', first='x', second='a', intent='inout', of_x='in', strides=strides,
                               call=f'c_tensor_to_strided(x, mpigrad_{dtype}, {rank}, {extents}, strides, at)', **parts)
        for short, writes in (('read', '.false.'), ('write', '.true.')):
            text += pointer.format(name=f'{short}_{dtype}_{rank}', writes=writes, **parts)
    return text
