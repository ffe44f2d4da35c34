"""python_reader.py RUN PRINTED LIST NPZ HALF: what the package mpigrad_read reads is what the programs have written.

RUN is the folder of a training, PRINTED what it has printed, LIST the output of `weights list --json`, NPZ and HALF its weights in other formats.
Prints `passed: NAME`, `failed: NAME: WHY` or `skipped: 1 WHY` for each test.
"""

import contextlib
import importlib.util
import json
import pathlib
import re
import shutil
import sys
import traceback
import unittest

import h5py
import numpy as np

import mpigrad_read as reader

run, printed, listed, archive, half = map(pathlib.Path, sys.argv[1:])
damaged = pathlib.Path('damaged')


def refuses(read, path, pattern):
    try:
        read(path)
    except reader.FileError as error:
        assert str(error).startswith(f'{path}: ') and re.search(pattern, str(error)), error
    else:
        raise AssertionError(f'{read.__name__} reads {path}')


def names_types_and_shapes():
    contents = reader.read_checkpoint(run / 'weights.h5')
    here = {f'{group}/{name}': (array.dtype.name, list(array.shape)) for group in ('parameters', 'buffers')
            for name, array in getattr(contents, group).items()}
    assert here == {each['name']: (each['type'], each['shape']) for each in json.loads(listed.read_text())}, here
    assert contents.verified and contents.numbers == {'step': 12, 'epoch': 2} and contents.notes['program'] == 'own_trainer', contents


def elements():
    names = {each['name'].partition('/')[2]: each['pytorch'] for each in json.loads(listed.read_text())}
    weights, pytorch = reader.read_weights(run / 'weights.h5'), np.load(archive)
    assert len(weights) == len(pytorch.files) == 13
    for name, array in weights.items():  # PyTorch's channels are second
        np.testing.assert_array_equal(np.moveaxis(array, -1, 1) if array.ndim == 5 else array, pytorch[names[name]], name)
    rounded = reader.read_weights(half)
    for name, array in weights.items():
        np.testing.assert_array_equal(array.astype(np.float16), rounded[name], name)


def checkpoint_of_the_weights():
    contents, weights = reader.read_checkpoint(run / 'checkpoint.h5'), reader.read_weights(run / 'weights.h5')
    assert contents.numbers['optimizer_steps'] == 12 and len(contents.optimizer) == 2 * len(contents.parameters)
    for name, array in reader.read_weights(run / 'checkpoint.h5').items():
        np.testing.assert_array_equal(array, weights[name], name)


def changed_contents():
    def element(file): file['parameters/conv.weight'][1, 0, 0, 0, 0] += 1e-9
    def number(file): file.attrs['step'] = 13
    def missing(file): del file['buffers/block.norm.running_mean']
    def other(file): file.attrs['format'] = 'mpigrad checkpoint 3'
    def unsealed(file): del file.attrs['checksum']
    for change, pattern in {element: r'elements of parameters/conv.weight .*checksum', number: r'numbers, notes or names', missing: r'names of tensors',
                            other: r'version 3 of the format', unsealed: r'no checksum'}.items():
        shutil.copy(run / 'weights.h5', damaged)
        with h5py.File(damaged, 'r+') as file:
            change(file)
        refuses(reader.read_weights, damaged, pattern)


def without_checksums():
    shutil.copy(run / 'weights.h5', damaged)
    with h5py.File(damaged, 'r+') as file:
        for item in (file, *file['parameters'].values(), *file['buffers'].values()):
            del item.attrs['checksum']
        file.attrs['format'] = 'mpigrad checkpoint 1'
    assert not reader.read_checkpoint(damaged).verified


def metrics():
    table, summary = reader.read_metrics(run / 'metrics.csv'), json.loads((run / 'summary.json').read_text())
    for epoch, row in enumerate(summary['epochs']):
        for name, value in row.items():
            assert table[name][epoch] == value, (name, table[name], value)
    assert len(table['epoch']) == 2 and 'learning_rate' in table


def predictions():
    table, summary = reader.read_predictions(run / 'predictions.csv'), json.loads((run / 'summary.json').read_text())
    assert table['sample'][15] == "noise.h5: 'val/volume' [15]", table['sample']
    difference = table['power_predicted'] - table['power_true']
    np.testing.assert_allclose(np.mean(difference**2), summary['targets']['power']['mse'], rtol=1e-12)


def trace():
    spans = reader.read_trace(run / 'trace.json')
    assert {span.rank for span in spans} == {0, 1} and {span.lane for span in spans} == {'steps', 'compute', 'communication', 'data'}
    steps = [span.seconds for span in spans if span.rank == 0 and span.lane == 'steps']
    count, milliseconds = re.search(r'rank 0, (\d+) steps of ([\d.]+) ms', printed.read_text()).groups()
    assert len(steps) == int(count) and abs(1e3 * np.mean(steps) - float(milliseconds)) < 0.006, (steps, milliseconds)
    assert any(span.name == 'conv [8, 1, 8, 8, 4]' and span.gflop > 0 for span in spans)


def files_that_are_cut_off():
    for name, read in {'weights.h5': reader.read_weights, 'checkpoint.h5': reader.read_checkpoint, 'metrics.csv': reader.read_metrics,
                       'predictions.csv': reader.read_predictions, 'trace.json': reader.read_trace}.items():
        whole = (run / name).read_bytes()
        for part in (2 * len(whole) // 3, len(whole) - 3 if name == 'trace.json' else len(whole) - 1):
            damaged.write_bytes(whole[:part])
            refuses(read, damaged, 'cut off')


def files_of_another_kind():
    refuses(reader.read_weights, pathlib.Path('noise.h5'), 'neither weights nor a checkpoint')
    refuses(reader.read_weights, run / 'metrics.csv', 'not HDF5')
    refuses(reader.read_metrics, run / 'predictions.csv', "first column is 'epoch'")
    refuses(reader.read_predictions, run / 'weights.h5', 'not a text')
    refuses(reader.read_trace, run / 'summary.json', 'not a trace')
    with contextlib.suppress(FileNotFoundError):
        reader.read_weights('none.h5')
        raise AssertionError('a missing file is read')


def pictures():
    if importlib.util.find_spec('matplotlib') is None:
        raise unittest.SkipTest('matplotlib is not installed for python3: the pictures of mpigrad_read')
    reader.plot_metrics(reader.read_metrics(run / 'metrics.csv')).savefig('picture.svg')
    assert 'validation_loss' in pathlib.Path('picture.svg').read_text()
    assert len(reader.plot_predictions(reader.read_predictions(run / 'predictions.csv')).axes[0].lines[0].get_xdata()) == 16
    labels = [label.get_text() for label in reader.plot_trace(reader.read_trace(run / 'trace.json')).axes[0].get_yticklabels()]
    assert labels[0] == 'rank 0: steps' and len(labels) == 8, labels


for test in (names_types_and_shapes, elements, checkpoint_of_the_weights, changed_contents, without_checksums, metrics, predictions, trace,
             files_that_are_cut_off, files_of_another_kind, pictures):
    try:
        test()
    except unittest.SkipTest as reason:
        print(f'skipped: 1 {reason}', flush=True)
    except Exception as error:
        print(f'failed: mpigrad_read: {test.__name__}: {error}', flush=True)
        traceback.print_exc()
    else:
        print(f'passed: {test.__name__}', flush=True)
