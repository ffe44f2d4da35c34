"""Says what a file of mpigrad is, lists what is in it, and draws it."""

import argparse
import signal
import sys

import h5py

from . import FileError, plots, read_checkpoint, read_metrics, read_predictions, read_trace
from .checkpoints import GROUPS, datasets_of

# The readers of files that have pictures, and the pictures.
KINDS = {'metrics': (read_metrics, plots.plot_metrics), 'predictions': (read_predictions, plots.plot_predictions),
         'trace': (read_trace, plots.plot_trace)}


def kind_of(path):
    """One of KINDS, 'weights', 'checkpoint', or 'data' for another HDF5 file. FileError: none of these."""
    with open(path, 'rb') as file:
        start = file.read(100)
    if start.startswith(b'\x89HDF\r\n\x1a\n'):
        try:
            with h5py.File(path, 'r') as file:
                return 'data' if 'format' not in file.attrs else 'checkpoint' if 'optimizer_steps' in file.attrs else 'weights'
        except OSError as error:
            raise FileError(f'{path}: damaged or cut off: {error}') from None
    for kind, begins in {'metrics': b'epoch,', 'predictions': b'sample,', 'trace': b'{"displayTimeUnit"'}.items():
        if start.startswith(begins):
            return kind
    raise FileError(f'{path}: neither weights, a checkpoint, HDF5 data, metrics, predictions nor a trace of mpigrad')


def show_tensors(path):
    contents = read_checkpoint(path)
    numbers = [f'{name} {value:g}' for name, value in contents.numbers.items()]
    print(', '.join(numbers + ['verified' if contents.verified else 'not verified: a file without checksums']))
    for group in GROUPS:
        for name, array in getattr(contents, group).items():
            print(f'{group + "/" + name:<50} {array.dtype.name:<9} {list(array.shape)}')
    for name, text in contents.notes.items():
        print(f'note {name}: {text}')


def show_trace(path):
    spans, totals = read_trace(path), {}
    for span in spans:
        totals[span.rank, span.lane] = totals.get((span.rank, span.lane), 0) + span.seconds
    print(f'{len(spans)} spans')
    for (rank, lane), seconds in totals.items():
        print(f'rank {rank:<4} {lane:<25} {1e3 * seconds:.3f} ms')


def show_table(table):
    print(f'{len(next(iter(table.values())))} rows')
    for name, values in table.items():
        print(f'{name:<30} ' + (f'{values.min():.6g} to {values.max():.6g}' if values.size and values.dtype.kind == 'f' else 'texts'))


def show(path):
    """Prints what a file contains, and returns its kind."""
    kind = kind_of(path)
    print(f'{path}: {kind}')
    if kind in ('weights', 'checkpoint'):
        show_tensors(path)
    elif kind == 'data':
        with h5py.File(path, 'r') as file:
            for name, dataset in datasets_of(file):
                print(f'{name:<50} {dataset.dtype} {list(dataset.shape)}')
    elif kind == 'trace':
        show_trace(path)
    else:
        show_table(KINDS[kind][0](path))
    return kind


def main():
    parser = argparse.ArgumentParser(prog='python3 -m mpigrad_read', description=__doc__)
    parser.add_argument('file', help='weights, a checkpoint, HDF5 data, metrics.csv, predictions.csv or trace.json')
    parser.add_argument('--plot', metavar='PICTURE', help='draws metrics, predictions or a trace: .png, .pdf or .svg; needs matplotlib')
    arguments = parser.parse_args()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # ends with the reader of the output
    try:
        kind = show(arguments.file)
        if arguments.plot and kind not in KINDS:
            raise FileError(f'{arguments.file}: there is no picture of {kind}')
        if arguments.plot:
            read, plot = KINDS[kind]
            plot(read(arguments.file)).savefig(arguments.plot)
            print(f'written to {arguments.plot}')
    except (FileError, OSError, ImportError, ValueError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
