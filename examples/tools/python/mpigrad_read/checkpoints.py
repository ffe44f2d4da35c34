"""Weights and checkpoints: HDF5 files that models/train/checkpoint/ writes and describes."""

import dataclasses

import h5py
import numpy as np

from .texts import FileError

FORMAT, NEWEST = 'mpigrad checkpoint ', 2
GROUPS = ('parameters', 'buffers', 'optimizer', 'averages')
# Attributes of the file, of which each file has some.
NUMBERS = ('step', 'epoch', 'optimizer_steps', 'average_updates', 'loss_scale', 'loss_scale_good_steps', 'loss_scale_skipped', 'epoch_step',
           'epoch_steps', 'epoch_loss', 'epoch_samples')


@dataclasses.dataclass
class Checkpoint:
    """The contents of a file of weights, or of a checkpoint."""

    parameters: dict = dataclasses.field(default_factory=dict)  # {name: array}; channels are last, a convolution's weight is [out, d, h, w, in]
    buffers: dict = dataclasses.field(default_factory=dict)     # {name: array}: running statistics
    optimizer: dict = dataclasses.field(default_factory=dict)   # {'first_moment/conv.weight': array}; empty for weights
    averages: dict = dataclasses.field(default_factory=dict)    # {'average/conv.weight': array}; empty without averaged weights
    notes: dict = dataclasses.field(default_factory=dict)       # {name: text}: the program, its network and its options
    numbers: dict = dataclasses.field(default_factory=dict)     # {name: number}: 'step', 'epoch' and others
    verified: bool = True                                       # False: a file of version 1, which has no checksums


def _mixed(bits, places):
    """SplitMix64's finaliser of arrays of uint64, whose arithmetic is modulo 2^64."""
    z = bits + places * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _hash(bits):
    """content_hash() of framework/tensor/content_hash.h: of elements that are given as unsigned integers."""
    total, most = 0, 1 << 20
    for start in range(0, bits.size, most):
        part = bits[start:start + most].astype(np.uint64)
        total += int(_mixed(part, np.arange(start + 1, start + 1 + part.size, dtype=np.uint64)).sum())
    return total % 2**64


def _text_hash(text):
    data = np.frombuffer(text.encode(), np.uint8)
    return int(_mixed(np.array([_hash(data)], np.uint64), np.array([data.size], np.uint64))[0])


def checksum_of(array):
    """The attribute `checksum` of a tensor in a file: 16 digits of its type, shape and elements."""
    flat = np.ascontiguousarray(array).reshape(-1)
    bits = flat.view({1: np.uint8, 2: np.uint16, 4: np.uint32}.get(flat.itemsize, np.uint64))
    return f'{(_text_hash(f"{array.dtype.name} {list(array.shape)}") + _hash(bits)) % 2**64:016x}'


def _text(value):
    return value.decode() if isinstance(value, bytes) else str(value)


def _tensor(dataset, verified):
    """The elements of a dataset; float16 as the type that was rounded to it, float32 or float64."""
    array = np.asarray(dataset[()])
    if array.dtype.kind not in 'fiubc':
        raise ValueError(f'{dataset.name[1:]} has no numbers')
    kinds = (np.float32, np.float64) if array.dtype == np.float16 else (array.dtype.newbyteorder('='),)
    for values in (array.astype(kind, copy=False) for kind in kinds):
        if not verified or checksum_of(values) == _text(dataset.attrs['checksum']):
            return values
    raise ValueError(f'the elements of {dataset.name[1:]} are not those that were written (checksum)')


def datasets_of(file):
    """[(name, dataset)] of an open HDF5 file; links to other files are not followed."""
    found = []
    file.visititems(lambda name, item: found.append((name, item)) if isinstance(item, h5py.Dataset) else None)
    return found


def _seal(result, note_lines, checksums):
    """The checksum of all contents except the elements."""
    lines = [f'{name}={np.float64(value).view(np.uint64):016x}' for name, value in result.numbers.items()]
    lines += [f'{name}={checksum}' for name, checksum in checksums.items()]
    lines += ['notes=' + '\n'.join(note_lines)] if note_lines else []
    return f'{sum(map(_text_hash, lines)) % 2**64:016x}'


def _read(file, path, groups):
    kind = _text(file.attrs.get('format', ''))
    version = kind[len(FORMAT):]
    if not kind.startswith(FORMAT) or not version.isdigit():
        raise FileError(f'{path}: an HDF5 file, but neither weights nor a checkpoint of mpigrad')
    if int(version) > NEWEST:
        raise FileError(f'{path}: version {version} of the format, and this package reads versions up to {NEWEST}')
    result = Checkpoint(verified='checksum' in file.attrs)
    if int(version) == NEWEST and not result.verified:
        raise ValueError('the file has no checksum')
    result.numbers = {name: file.attrs[name].item() for name in NUMBERS if name in file.attrs}
    note_lines = [_text(line) for line in file['notes'][()]] if 'notes' in file else []
    result.notes = dict(line.split('=', 1) for line in note_lines)
    datasets = {name: item for name, item in datasets_of(file) if name.split('/')[0] in GROUPS}
    if result.verified:
        checksums = {name: _text(dataset.attrs['checksum']) for name, dataset in datasets.items()}
        if _seal(result, note_lines, checksums) != _text(file.attrs['checksum']):
            raise ValueError('numbers, notes or names of tensors are not those that were written (checksum)')
    for name, dataset in datasets.items():
        group, _, rest = name.partition('/')
        if group in groups:
            getattr(result, group)[rest] = _tensor(dataset, result.verified)
    return result


def read_checkpoint(path, groups=GROUPS):
    """All of a file of weights or a checkpoint, or some groups of its tensors, as a Checkpoint. Verifies the checksums of what it reads."""
    try:
        with h5py.File(path, 'r') as file:
            return _read(file, path, groups)
    except (FileError, FileNotFoundError):
        raise
    except (OSError, KeyError, ValueError, TypeError, RuntimeError, AttributeError) as error:
        raise FileError(f'{path}: damaged, cut off or not HDF5: {error}') from error


def read_weights(path):
    """{name: array} of the parameters and buffers of a network, from weights or a checkpoint. The order of dimensions is that of mpigrad."""
    contents = read_checkpoint(path, ('parameters', 'buffers'))
    return {**contents.parameters, **contents.buffers}
