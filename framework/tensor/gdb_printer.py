"""Prints tensors in gdb by type, shape and first values: "float32 [2, 3]: 1 2 3 4 5 6".

    (gdb) source PREFIX/share/mpigrad/gdb_printer.py

Shows values of tensors in CPU memory only. Calls no code of the program, so it also works with core files.
"""

import struct

import gdb
import gdb.printing

most_values = 12
# Format and size of an element for Python's struct module.
formats = {'float32': 'f', 'float64': 'd', 'int64': 'q', 'int32': 'i', 'int16': 'h', 'uint8': 'B', 'boolean': '?', 'bfloat16': 'H',
           'float16': 'e', 'uint16': 'H', 'complex64': 'f', 'complex128': 'd'}


def name_of(enumerator):
    return str(enumerator).rsplit('::', 1)[-1]


def extents_of(shape):
    values = shape['extents_']['_M_elems']
    return [int(values[i]) for i in range(int(shape['rank_']))]


def values_text(tensor, dtype, elements):
    storage = tensor['storage_']['_M_ptr']
    device = name_of(tensor['device_'])
    if device != 'cpu':
        return f', on device {device}'
    if not storage or not storage['data_'] or storage['dropped_']:
        return ', no values in memory' if elements else ''
    count = min(elements, most_values)
    parts = 2 if dtype.startswith('complex') else 1
    size = struct.calcsize('=' + formats[dtype])
    memory = gdb.selected_inferior().read_memory(int(storage['data_']) + int(tensor['offset_']), count * parts * size)
    values = struct.unpack(f'={count * parts}{formats[dtype]}', bytes(memory))
    if dtype == 'bfloat16':  # the upper half of a float32
        values = [struct.unpack('=f', struct.pack('=I', value << 16))[0] for value in values]
    if parts == 2:
        texts = [f'{re:.5g}{im:+.5g}i' for re, im in zip(values[::2], values[1::2])]
        return ': ' + ' '.join(texts + ['...'] * (elements > count))
    texts = [f'{value:.5g}' if isinstance(value, float) else str(value).lower() for value in values]
    return ': ' + ' '.join(texts + ['...'] * (elements > count))


class ShapePrinter:
    def __init__(self, shape):
        self.shape = shape

    def to_string(self):
        return str(extents_of(self.shape))


class TensorPrinter:
    def __init__(self, tensor):
        self.tensor = tensor

    def to_string(self):
        if int(self.tensor['id_']) == 0:
            return 'none'
        extents = extents_of(self.tensor['type_']['shape'])
        dtype = name_of(self.tensor['type_']['dtype'])
        elements = 1
        for extent in extents:
            elements *= extent
        text = f'{dtype} {extents}'
        layout = self.tensor['layout_']['_M_ptr']
        if layout:
            text += f' of {extents_of(layout["global"])}'
        return text + values_text(self.tensor, dtype, elements)


printers = gdb.printing.RegexpCollectionPrettyPrinter('mpigrad')
printers.add_printer('Shape', '^mpigrad::Shape$', ShapePrinter)
printers.add_printer('Tensor', '^mpigrad::Tensor$', TensorPrinter)
gdb.printing.register_pretty_printer(gdb.current_objfile(), printers, replace=True)
