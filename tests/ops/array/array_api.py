#!/usr/bin/env python3
"""Writes array_api.json, which array_api_test.cpp reads: the names of the Python array API standard 2024.12
(https://data-apis.org/array-api/2024.12/) and test cases of each with the values of NumPy.

    python3 tests/ops/array/array_api.py        needs NumPy 2.1 or later; the tests need neither

A case is {"f": name, "x": operands, "a": other arguments, "y": results}; a tensor is [type, shape, elements]. Transcendental
functions are computed in long double and rounded. Unsigned 64-bit integers are not here: NumPy's sums of uint8 are int64.
"""

import json
import pathlib

import numpy as np

np.seterr(all='ignore')
f64, f32, i64, i32, i16, u8, boolean = (np.dtype(t) for t in ('f8', 'f4', 'i8', 'i4', 'i2', 'u1', '?'))
floats, integers = [f64, f32], [i64, i32, u8]
inf, nan = np.inf, np.nan

groups = {
    'constants': 'e inf nan newaxis pi',
    'creation': 'arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones ones_like tril triu zeros '
                'zeros_like',
    'data types': 'astype can_cast finfo iinfo isdtype result_type',
    'elementwise': 'abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_invert bitwise_or '
                   'bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh divide equal exp expm1 floor floor_divide '
                   'greater greater_equal hypot imag isfinite isinf isnan less less_equal log log1p log2 log10 logaddexp '
                   'logical_and logical_not logical_or logical_xor maximum minimum multiply negative nextafter not_equal '
                   'positive pow real reciprocal remainder round sign signbit sin sinh square sqrt subtract tan tanh trunc',
    'indexing': 'take take_along_axis',
    'linear algebra': 'matmul matrix_transpose tensordot vecdot',
    'manipulation': 'broadcast_arrays broadcast_to concat expand_dims flip moveaxis permute_dims repeat reshape roll squeeze '
                    'stack tile unstack',
    'searching': 'argmax argmin count_nonzero nonzero searchsorted where',
    'set': 'unique_all unique_counts unique_inverse unique_values',
    'sorting': 'argsort sort',
    'statistics': 'cumulative_prod cumulative_sum max mean min prod std sum var',
    'utility': 'all any diff',
    'operators': '__pos__ __neg__ __add__ __sub__ __mul__ __truediv__ __floordiv__ __mod__ __pow__ __matmul__ __invert__ __and__ '
                 '__or__ __xor__ __lshift__ __rshift__ __lt__ __le__ __gt__ __ge__ __eq__ __ne__ __iadd__ __isub__ __imul__ '
                 '__itruediv__ __imod__',
}
ours = {
    'asarray': 'from_vector', 'astype': 'cast', 'clip': 'clamp', 'concat': 'concatenate',
    'empty': 'Tensor', 'empty_like': 'Tensor', 'expand_dims': 'unsqueeze', 'negative': 'negate', 'permute_dims': 'permute',
    'positive': 'operator+', 'std': 'stddev', 'unstack': 'unbind', '__floordiv__': 'floor_divide', '__pow__': 'pow',
    '__matmul__': 'matmul', '__lshift__': 'bitwise_left_shift', '__rshift__': 'bitwise_right_shift', 'e': 'std::numbers::e',
    'pi': 'std::numbers::pi', 'inf': 'std::numeric_limits', 'nan': 'std::numeric_limits',
}
excuses = {
    'newaxis': 'C++ has no such index; unsqueeze()', 'from_dlpack': 'a protocol of Python; framework/dlpack/dlpack.h',
    'can_cast': 'cast() converts between all types', 'finfo': 'std::numeric_limits', 'iinfo': 'std::numeric_limits',
    'isdtype': 'is_floating() and comparisons of DType',
}
excuses |= dict.fromkeys('conj imag real'.split(), 'complex numbers: tests/ops/complex/complex_test.cpp')
later = dict.fromkeys('nonzero searchsorted unique_all unique_counts unique_inverse unique_values argsort sort'.split(),
                       'a step of its own: shapes that depend on values, and sorting')
# Functions for which the standard specifies the sign of a zero.
signed = ('abs acos add asin asinh atan atan2 atanh ceil copysign divide expm1 floor floor_divide log1p multiply negative '
          'positive pow reciprocal remainder round sin sinh sqrt square subtract tan tanh trunc __neg__ __pos__ '
          '__truediv__').split()

cases = []


def tensor(x):
    x = np.asarray(x)
    dtype = {'uint64': 'int64', 'bool': 'boolean'}.get(x.dtype.name, x.dtype.name)
    if x.dtype == f32:
        flat = [float(str(v)) for v in x.ravel()]
    else:
        flat = [int(v) if x.dtype.kind in 'iub' else float(v) for v in x.ravel()]
    text = {True: 'nan'}
    plain = [text.get(v != v) or ({inf: 'inf', -inf: '-inf'}.get(v)) or
             ('-0' if v == 0 and np.signbit(float(v)) else int(v) if v == int(v) and abs(v) < 1e9 else v) for v in flat]
    return [dtype, list(x.shape), plain]


def case(name, x, y, **arguments):
    results = list(y) if isinstance(y, (list, tuple)) else [y]
    cases.append({'f': name, 'x': [tensor(part) for part in x], 'a': arguments, 'y': [tensor(part) for part in results]})


def of(dtype, values, shape=None):
    x = np.array(values).astype(dtype)
    return x if shape is None else x.reshape(shape)


def eighths(dtype, shape, seed=0):
    """Numbers whose sums and products are exact."""
    n = int(np.prod(shape))
    order = np.random.default_rng(seed + n).permutation(n)
    if dtype == boolean:
        return (order % 3 == 0).reshape(shape)
    if dtype == u8:
        return order.astype(u8).reshape(shape)
    x = order - n // 2
    return (x / 8 if dtype.kind == 'f' else x).astype(dtype).reshape(shape)


# ---- elementwise functions of one operand
special = [nan, inf, -inf, 0.0, -0.0]
domains = {'acos': [-1, -0.5, 0.3, 1], 'asin': [-1, -0.5, 0.3, 1], 'acosh': [1, 1.5, 40], 'atanh': [-1, -0.5, 0.3, 1, 2],
           'log': [0.3, 1, 40, -1], 'log2': [0.3, 1, 8, -1], 'log10': [0.3, 1, 1000, -1], 'log1p': [-1, -0.5, 1e-9, 3],
           'exp': [-800, -1.25, 1e-9, 3, 800], 'expm1': [-50, -1.25, 1e-9, 3], 'sqrt': [0.3, 4, -1],
           'cosh': [-3, 0.4, 20], 'sinh': [-3, 1e-9, 20], 'tanh': [-30, 1e-9, 0.4], 'sin': [-3, 0.4, 31], 'cos': [-3, 0.4, 31],
           'tan': [-3, 0.4, 31], 'asinh': [-3, 1e-9, 1e6], 'atan': [-3, 1e-9, 1e6]}
for name, values in domains.items():
    for dtype in floats:
        x = of(dtype, values + special)
        case(name, [x], getattr(np, name)(x.astype(np.longdouble)).astype(dtype))
halves = [-2.5, -1.5, -0.5, -0.3, 0.5, 0.7, 1.5, 2.5, 3.0] + special
for name in 'abs ceil floor negative positive reciprocal round sign square trunc isfinite isinf isnan signbit'.split():
    for dtype in floats:
        x = of(dtype, halves)
        case(name, [x], getattr(np, name)(x))
for name in 'abs ceil floor positive round sign square trunc isfinite isinf isnan'.split():
    for dtype in integers:
        x = of(dtype, [0, 1, 3, 200] if dtype == u8 else [-7, -1, 0, 1, 100])
        case(name, [x], getattr(np, name)(x))
for dtype in [i64, i32]:
    case('negative', [of(dtype, [-7, 0, 3])], of(dtype, [7, 0, -3]))
for name in ('abs', 'exp', 'negative', 'round'):
    case(name, [np.zeros((0, 3))], np.zeros((0, 3)))
    case(name, [np.array(-1.0)], {'abs': np.abs, 'exp': np.exp, 'negative': np.negative, 'round': np.round}[name](np.array(-1.0)))
for dtype in integers + [boolean]:
    x = of(dtype, [0, 1, 3, 200]) if dtype in (u8, boolean) else of(dtype, [-7, 0, 5])
    case('bitwise_invert', [x], np.invert(x))
case('logical_not', [np.array([True, False])], np.array([False, True]))
for dtype in floats + [i64, i32]:
    x = eighths(dtype, (3, 4))
    case('clip', [x], np.clip(x, -1, 2 if dtype.kind == 'i' else 0.5), min=-1, max=2 if dtype.kind == 'i' else 0.5)
case('clip', [of(f64, [nan, inf, -inf])], of(f64, [nan, 1, -1]), min=-1, max=1)

# ---- elementwise functions of two operands: all pairs of these
column, row = [nan, inf, -inf, 0.0, -0.0, 1.5, -2.5, 7.0], [nan, inf, -inf, 0.0, -0.0, 3.0, -2.0]
arithmetic = 'add subtract multiply maximum minimum'.split()
for name in arithmetic + 'divide remainder floor_divide'.split():
    for dtype in floats:
        a, b = of(dtype, column, (-1, 1)), of(dtype, row)
        case(name, [a, b], getattr(np, name)(a, b))
for name in 'atan2 copysign hypot logaddexp nextafter pow'.split():
    for dtype in floats:
        a, b = of(dtype, column, (-1, 1)), of(dtype, row)
        exact = (a, b) if name in ('copysign', 'nextafter') else (a.astype(np.longdouble), b.astype(np.longdouble))
        case(name, [a, b], getattr(np, {'atan2': 'arctan2'}.get(name, name))(*exact).astype(dtype))
for dtype in integers:
    a = of(dtype, [0, 1, 2, 3, 7, 100, 200, 255] if dtype == u8 else [-7, -3, -1, 0, 1, 2, 5, 100], (-1, 1))
    b = of(dtype, [1, 2, 3, 200] if dtype == u8 else [-4, -1, 1, 3])
    for name in arithmetic + 'remainder floor_divide bitwise_and bitwise_or bitwise_xor'.split():
        case(name, [a, b], getattr(np, name)(a, b))
    bits = of(dtype, [0, 1, 3, 7])
    for name in 'pow bitwise_left_shift bitwise_right_shift'.split():
        case(name, [a, bits[:3] if name == 'pow' else bits], getattr(np, name)(a, bits[:3] if name == 'pow' else bits))
truth = np.array([[False], [True]]), np.array([False, True])
for name in 'logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor equal not_equal'.split():
    case(name, truth, getattr(np, name)(*truth))
for name in 'equal not_equal less less_equal greater greater_equal'.split():
    for dtype in floats + integers:
        a = of(dtype, [0, 1, 200] if dtype == u8 else [-1, 0, 1], (-1, 1))
        a = of(dtype, column, (-1, 1)) if dtype in floats else a
        b = of(dtype, row) if dtype in floats else a.ravel()
        case(name, [a, b], getattr(np, name)(a, b))
for a, b in [(i32, i64), (u8, i32), (u8, i16), (i16, i64), (f32, f64)]:  # types with a common type
    x, y = of(a, [1, 2, 3], (3, 1)), of(b, [5, 100], (1, 2))
    for name in ('add', 'multiply', 'equal'):
        case(name, [x, y], getattr(np, name)(x, y))
        case(name, [y, x], getattr(np, name)(y, x))
case('add', [np.zeros((0, 3)), np.ones(3)], np.zeros((0, 3)))
case('equal', [np.zeros((2, 0)), np.zeros((2, 1))], np.zeros((2, 0), bool))

# ---- operators
operands = {'floats': (of(f64, [-2.5, 0.5, 7]), of(f64, [2, -3, 0.5])), 'integers': (of(i32, [-7, 5, 100]), of(i32, [3, -2, 7])),
            'bytes': (of(u8, [3, 100, 200]), of(u8, [2, 7, 1]))}
for kind, (a, b) in operands.items():
    names = '__add__ __sub__ __mul__ __floordiv__ __mod__ __lt__ __le__ __gt__ __ge__ __eq__ __ne__'.split()
    names += ['__truediv__'] if kind == 'floats' else '__and__ __or__ __xor__'.split()
    for name in names:
        case(name, [a, b], getattr(np.ndarray, name)(a, b))
        in_place = '__i' + name[2:]
        if in_place in groups['operators']:
            case(in_place, [a, b], getattr(np.ndarray, name)(a, b))
    case('__pos__', [a], a)
    if kind == 'integers':
        case('__invert__', [a], ~a)
    else:
        case('__pow__', [a, b], a**b)
    if kind != 'bytes':
        case('__neg__', [a], -a)
    else:
        case('__lshift__', [a, b], a << b)
        case('__rshift__', [a, b], a >> b)
case('__matmul__', [eighths(f64, (2, 3)), eighths(f64, (3,))], eighths(f64, (2, 3)) @ eighths(f64, (3,)))

# ---- constants, types, creation
for name in ('e', 'inf', 'nan', 'pi'):
    case(name, [], np.array(getattr(np, name)))
for dtype in floats + [i64, i32, i16, u8, boolean]:
    case('asarray', [], of(dtype, [[0, 1, 2], [3, 0, 5]]))
    for name in ('zeros', 'ones', 'empty'):
        case(name, [], getattr(np, {'empty': 'zeros'}.get(name, name))((2, 3), dtype))
        case(name + '_like', [eighths(dtype, (2, 3))], getattr(np, {'empty': 'zeros'}.get(name, name))((2, 3), dtype))
    value = dtype.type(7)
    case('full', [], np.full((3,), value), value=True if dtype == boolean else 7)
    case('full_like', [eighths(dtype, (2, 0, 3))], np.full((2, 0, 3), value), value=True if dtype == boolean else 7)
    case('full_like', [eighths(dtype, (2, 3))], np.full((2, 3), value), value=True if dtype == boolean else 7)
    for source in floats + [i64, i32, u8, boolean]:
        x = of(source, [0, 1, 2.75, 100]) if source.kind == 'f' else of(source, [0, 1, 3, 100])
        case('astype', [x], x.astype(dtype))
case('astype', [of(f64, [-2.75, nan, inf])[:1]], of(i32, [-2]))
case('astype', [of(f64, [-2.75, nan, inf, 0, -0.0])], of(boolean, [1, 1, 1, 0, 0]))
for a, b in [(i32, i64), (i64, u8), (u8, i32), (i16, u8), (f32, f64), (f32, f32), (boolean, boolean)]:
    case('result_type', [np.zeros(0, a), np.zeros(0, b)], np.zeros(0, np.result_type(a, b)))
for start, stop, step in [(0, 5, 1), (2, 11, 3), (5, 0, -2), (3, 3, 1), (0, -1, 1), (1, 2, 5)]:
    case('arange', [], np.arange(start, stop, step, i64), start=start, stop=stop, step=step)
    case('arange', [], np.arange(start, stop, step, f32), start=start, stop=stop, step=step)
for start, stop, step in [(0.5, 3.0, 0.5), (0.0, 1.0, 0.25), (1.0, -1.0, -0.75), (0.5, 0.5, 1.0)]:
    for dtype in floats:
        case('arange', [], np.arange(start, stop, step, dtype), start=start, stop=stop, step=step)
for start, stop, number in [(0.0, 1.0, 5), (-1.0, 2.0, 4), (3.0, 1.0, 3), (2.0, 5.0, 1), (2.0, 5.0, 0)]:
    for end in (True, False):
        for dtype in floats:
            case('linspace', [], np.linspace(start, stop, number, end, dtype=dtype), start=start, stop=stop, endpoint=end)
for rows, columns, k in [(3, 3, 0), (2, 4, 1), (4, 2, -1), (3, 3, 5), (3, 3, -5), (0, 2, 0)]:
    for dtype in (f64, i32, boolean):
        case('eye', [], np.eye(rows, columns, k, dtype), k=k)
for dtype in (f64, i64, boolean):
    axes = [eighths(dtype, (3,)), eighths(dtype, (2,)), eighths(dtype, (4,))]
    for indexing in ('xy', 'ij'):
        for n in (1, 2, 3) if dtype == f64 else (2,):
            case('meshgrid', axes[:n], np.meshgrid(*axes[:n], indexing=indexing), indexing=indexing)
    for k, shape in [(0, (3, 4)), (1, (3, 4)), (-2, (3, 4)), (9, (3, 4)), (-1, (2, 3, 2))]:
        if dtype != f32:
            case('tril', [eighths(dtype, shape)], np.tril(eighths(dtype, shape), k), k=k)
            case('triu', [eighths(dtype, shape)], np.triu(eighths(dtype, shape), k), k=k)

# ---- indexing, linear algebra
for dtype in (f64, f32, i32, u8, boolean):
    x = eighths(dtype, (3, 4))
    for axis, index in [(0, [2, 0, 2]), (1, [3, 3, 0, 1, 2]), (-1, [1]), (0, [])]:
        index = np.array(index, i64)
        case('take', [x, index], np.take(x, index, axis), axis=axis)
    for axis, shape in [(0, (2, 4)), (1, (3, 5)), (-1, (3, 1))]:
        index = (np.arange(shape[0] * shape[1]) * 7 % x.shape[axis]).reshape(shape)
        case('take_along_axis', [x, index], np.take_along_axis(x, index, axis), axis=axis)
    case('matrix_transpose', [eighths(dtype, (2, 3, 4))], np.swapaxes(eighths(dtype, (2, 3, 4)), 1, 2))
for dtype in floats:
    for a, b in [((2, 3), (3, 4)), ((3,), (3, 4)), ((2, 3), (3,)), ((3,), (3,)), ((5, 2, 3), (3, 4)), ((2, 1, 2, 3), (3, 3, 2)),
                 ((5, 2, 3), (3,)), ((3,), (5, 3, 2)), ((2, 0), (0, 3))]:
        x, y = eighths(dtype, a), eighths(dtype, b, 1)
        case('matmul', [x, y], x @ y)
    for a, b, axes in [((2, 3, 4), (3, 4, 5), 2), ((2, 3), (3, 2), 1), ((2,), (3,), 0), ((2, 3, 4), (4, 2, 3), [[0, 1], [1, 2]]),
                       ((3, 4), (5, 4), [[-1], [-1]])]:
        x, y = eighths(dtype, a), eighths(dtype, b, 1)
        case('tensordot', [x, y], np.tensordot(x, y, axes), axes=axes)
for dtype in floats + [i64]:
    for a, b, axis in [((2, 3), (2, 3), -1), ((4, 1, 3), (2, 3), -1), ((3, 2), (3, 2), -2), ((3,), (3,), -1)]:
        x, y = eighths(dtype, a), eighths(dtype, b, 1)
        case('vecdot', [x, y], np.sum(x * y, axis), axis=axis)

# ---- manipulation
for dtype in (f64, i32, boolean):
    x, small = eighths(dtype, (2, 3, 4)), eighths(dtype, (2, 3))
    case('broadcast_arrays', [eighths(dtype, (3, 1)), eighths(dtype, (2, 1, 4))],
         np.broadcast_arrays(eighths(dtype, (3, 1)), eighths(dtype, (2, 1, 4))))
    for a, b in [((3, 1), (2, 3, 4)), ((), (2,)), ((1,), (0,)), ((2, 3), (2, 3))]:
        case('broadcast_to', [eighths(dtype, a)], np.broadcast_to(eighths(dtype, a), b))
    for axis in (0, 1, -1):
        parts = [small, eighths(dtype, (2, 3), 5)]
        case('concat', parts, np.concatenate(parts, axis), axis=axis)
        case('stack', parts, np.stack(parts, axis), axis=axis)
        case('expand_dims', [small], np.expand_dims(small, axis), axis=axis)
        case('unstack', [x], [np.take(x, i, axis) for i in range(x.shape[axis])], axis=axis)
        case('repeat', [small], np.repeat(small, 3, axis), axis=axis, repeats=3)
    case('concat', [small, np.zeros((0, 3), dtype)], small, axis=0)
    case('repeat', [small], np.repeat(small, 0, 1), axis=1, repeats=0)
    for axes in ([0], [1, 2], [-1], [0, 1, 2]):
        case('flip', [x], np.flip(x, tuple(axes)), axis=axes)
    for source, target in [([0], [2]), ([0, 1], [-1, 0]), ([2], [0]), ([-1, 0], [0, 1])]:
        case('moveaxis', [x], np.moveaxis(x, source, target), source=source, destination=target)
    for axes in ([2, 0, 1], [0, 1, 2], [1, 0, 2]):
        case('permute_dims', [x], np.transpose(x, axes), axes=axes)
    for shape in ([4, 6], [24], [-1, 2], [2, 1, 12]):
        case('reshape', [x], x.reshape(shape), shape=shape)
    for shift, axis in [([1], [0]), ([-2], [1]), ([5, -1], [1, 2]), ([0], [2]), ([2, 3], [1, 1])]:
        case('roll', [x], np.roll(x, tuple(shift), tuple(axis)), shift=shift, axis=axis)
    case('roll', [np.zeros((0, 2), dtype)], np.zeros((0, 2), dtype), shift=[1], axis=[0])
    for shape, axes in [((2, 1, 3, 1), [1]), ((2, 1, 3, 1), [1, -1]), ((1,), [0])]:
        case('squeeze', [eighths(dtype, shape)], np.squeeze(eighths(dtype, shape), tuple(axes)), axis=axes)
    for times in ([2], [2, 1], [1, 3], [2, 1, 2], [0, 1]):
        case('tile', [small], np.tile(small, times), repetitions=times)

# ---- searching, statistics, utility
reductions = [(None, False), ([0], False), ([1], True), ([-1], False), ([0, 2], False), ([0, 2], True)]
for dtype in (f64, f32, i64, u8):
    x = eighths(dtype, (2, 3, 4))
    for axes, keep in reductions:
        axis = None if axes is None else tuple(axes)
        arguments = ({'keepdims': True} if keep else {}) | ({} if axes is None else {'axis': axes})
        for name in ('max', 'min', 'sum', 'count_nonzero'):
            case(name, [x], getattr(np, name)(x, axis=axis, keepdims=keep), **arguments)
        if dtype in floats:
            for name, function in {'mean': np.mean, 'var': np.var, 'std': np.std}.items():
                y = np.asarray(function(x.astype(f64), axis=axis, keepdims=keep)).astype(dtype)
                case(name, [x], y, **arguments)
        if axes is not None:
            case('prod', [x], np.asarray(np.prod(x, axis=axis, keepdims=keep)), **arguments)
    for axis in (0, 1, -1):
        case('argmax', [x], np.argmax(x, axis), axis=axis)
        case('argmin', [x], np.argmin(x, axis), axis=axis)
        case('cumulative_sum', [x], np.cumulative_sum(x, axis=axis), axis=axis)
        case('cumulative_prod', [x], np.cumulative_prod(x, axis=axis), axis=axis)
        if dtype != u8:
            case('diff', [x], np.diff(x, axis=axis), axis=axis, n=1)
    case('diff', [x], np.diff(x, axis=2, n=3), axis=2, n=3)
    case('diff', [x], np.diff(x, axis=0, n=5), axis=0, n=5)
for dtype in floats:
    x = of(dtype, [[1, nan, 3], [inf, -1, 2], [-inf, inf, 5], [2, 2, 2]])
    for name in ('max', 'min', 'sum', 'prod', 'mean'):
        case(name, [x], getattr(np, name)(x, axis=1), axis=[1])
    for name in ('argmax', 'argmin'):
        case(name, [x], getattr(np, name)(x, 1), axis=1)
    for name in ('cumulative_sum', 'cumulative_prod'):
        case(name, [x], getattr(np, name)(x, axis=1), axis=1)
    x = eighths(dtype, (3, 4))
    for name, function in {'var': np.var, 'std': np.std}.items():
        case(name, [x], function(x.astype(f64), axis=0, ddof=1).astype(dtype), axis=[0], correction=1)
for dtype in [f64, i64]:
    none = np.zeros((0, 3), dtype)
    for name in ('sum', 'prod'):
        case(name, [none], getattr(np, name)(none, axis=0), axis=[0])
    case('cumulative_sum', [none], np.cumulative_sum(none, axis=0), axis=0)
    case('count_nonzero', [none], np.count_nonzero(none, axis=0), axis=[0])
for dtype in floats + [i64, u8, boolean]:
    x = np.array([[0, 1, 2], [0, 0, 0], [3, 1, 1]]).astype(dtype)
    for axes, keep in [(None, False), ([0], False), ([1], True)]:
        axis = None if axes is None else tuple(axes)
        arguments = ({'keepdims': True} if keep else {}) | ({} if axes is None else {'axis': axes})
        case('all', [x], np.all(x, axis=axis, keepdims=keep), **arguments)
        case('any', [x], np.any(x, axis=axis, keepdims=keep), **arguments)
    for name in ('all', 'any'):
        case(name, [x[:0]], getattr(np, name)(x[:0], axis=0), axis=[0])
    condition = np.array([[True], [False], [True]])
    case('where', [condition, x, x[1]], np.where(condition, x, x[1]))
case('all', [of(f64, [nan, 1])], np.array(True))
case('sum', [np.array([True, True, False])], np.array(2))

names = []
for group, text in groups.items():
    for name in text.split():
        entry = {'name': name, 'group': group}
        for key, table in {'ours': ours, 'excuse': excuses, 'later': later}.items():
            if name in table:
                entry[key] = table[name]
        names.append(entry | ({'signed_zeros': True} if name in signed else {}))
known = {entry['name'] for entry in names}
assert all(c['f'] in known for c in cases)
document = {'source': 'https://data-apis.org/array-api/2024.12/', 'numpy': np.__version__}
lines = [f'"{key}":{json.dumps(value)}' for key, value in document.items()]
for key, rows in {'names': names, 'cases': cases}.items():
    lines.append(f'"{key}":[\n' + ',\n'.join(json.dumps(r, separators=(',', ':')) for r in rows) + ']')
pathlib.Path(__file__).with_suffix('.json').write_text('{' + ',\n'.join(lines) + '}\n')
