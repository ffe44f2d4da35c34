#!/usr/bin/env python3
"""Shares tensors with NumPy or PyTorch in one process, by DLPack.

python3 dlpack.py LIBRARY numpy|torch

LIBRARY is the shared library of bridge.cpp. Exits with 77 if the module is not installed.
"""

import ctypes
import gc
import importlib
import sys

NAME, USED = b'dltensor', b'used_dltensor'
api = ctypes.pythonapi
api.PyCapsule_New.restype, api.PyCapsule_New.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
api.PyCapsule_GetPointer.restype, api.PyCapsule_GetPointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Lent:
    """A tensor of the library, as from_dlpack() of other libraries wants it."""

    def __init__(self, pointer):
        self.pointer = pointer

    def __dlpack__(self, **_):
        return api.PyCapsule_New(self.pointer, NAME, None)

    def __dlpack_device__(self):
        return (1, 0)


def main():
    try:
        module = importlib.import_module(sys.argv[2])
    except ImportError:
        return 77
    bridge = ctypes.CDLL(sys.argv[1])
    bridge.bridge_lend.restype = ctypes.c_void_p
    bridge.bridge_take.argtypes = [ctypes.c_void_p]
    for name in ('lent', 'sum', 'gradient'):
        getattr(bridge, f'bridge_{name}').restype = ctypes.c_double
    for name in ('take', 'type'):
        getattr(bridge, f'bridge_{name}').restype = ctypes.c_char_p
    bridge.bridge_write.argtypes = [ctypes.c_int, ctypes.c_double]

    def take(array):
        capsule = array.__dlpack__()
        problem = bridge.bridge_take(api.PyCapsule_GetPointer(capsule, NAME)).decode()
        if not problem:
            api.PyCapsule_SetName(capsule, USED)
        return problem

    # Out: the same memory, which lives as long as either side uses it.
    array = module.from_dlpack(Lent(bridge.bridge_lend()))
    assert tuple(array.shape) == (2, 3) and float(array[1, 2]) == 5, array
    bridge.bridge_write(0, 42)
    assert float(array[0, 0]) == 42, array
    if getattr(getattr(array, 'flags', None), 'writeable', True):  # NumPy 1 makes it read-only
        array[0, 1] = 7
        assert bridge.bridge_lent(1) == 7
    bridge.bridge_drop()
    assert bridge.bridge_holds() and float(array[0, 0]) == 42
    del array
    gc.collect()
    assert not bridge.bridge_holds()

    # In.
    array = module.arange(6, dtype=module.float64).reshape(2, 3)
    references = sys.getrefcount(array)
    assert take(array) == '' and bridge.bridge_type() == b'float64 [2, 3]' and bridge.bridge_sum() == 15
    array[0, 0] = 10
    assert bridge.bridge_sum() == 25 and bridge.bridge_gradient(0) == 20
    bridge.bridge_drop()
    gc.collect()
    assert sys.getrefcount(array) == references
    for name in ('float32', 'float64', 'float16', 'int16', 'int32', 'int64', 'uint8'):
        assert take(module.ones((4,), dtype=getattr(module, name))) == '', name
        assert bridge.bridge_type().decode() == f'{name} [4]' and bridge.bridge_sum() == 4, name
    assert take(array.T).startswith('[from_dlpack] the elements are not row-major'), take(array.T)
    assert take(array[:, :2]).startswith('[from_dlpack] the elements are not row-major')
    bridge.bridge_drop()
    return 0


if __name__ == '__main__':
    sys.exit(main())
