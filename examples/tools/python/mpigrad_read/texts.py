"""Tables and traces, which are text files, and the error of all readers."""

import csv
import io
import json
import pathlib
from typing import NamedTuple

import numpy as np

TEXTS = ('sample', 'label', 'predicted')  # columns of tables that have texts; all others have numbers


class FileError(ValueError):
    """A file is damaged, cut off or of another kind. The text names the file and says what is wrong."""


def text_of(path):
    """The text of a UTF-8 file. FileError: other bytes. OSError: the file cannot be read."""
    try:
        return pathlib.Path(path).read_bytes().decode()
    except UnicodeDecodeError as error:
        raise FileError(f'{path}: not a text: {error}') from None


def read_table(path, first):
    """{column: array} of a CSV file whose first column is `first`. An empty cell of numbers is nan."""
    text = text_of(path)
    try:
        rows = list(csv.reader(io.StringIO(text, newline=''), strict=True))
    except csv.Error as error:
        raise FileError(f'{path}: damaged or cut off: {error}') from None
    if not rows or not rows[0] or rows[0][0] != first:
        raise FileError(f"{path}: not a table whose first column is '{first}'")
    if len(set(rows[0])) != len(rows[0]):
        raise FileError(f'{path}: two columns have the same name')
    for number, row in enumerate(rows[1:], 1):
        if len(row) != len(rows[0]):
            raise FileError(f'{path}: cut off or damaged: row {number} has {len(row)} of {len(rows[0])} cells')
    if not text.endswith('\n'):
        raise FileError(f'{path}: cut off: the last line has no end')
    table = {}
    for name, *cells in zip(*rows):
        try:
            table[name] = np.array(cells, str) if name in TEXTS else np.array([float(cell or 'nan') for cell in cells], np.float64)
        except ValueError as error:
            raise FileError(f"{path}: column '{name}': {error}") from None
    return table


def read_metrics(path):
    """{column: array with a number for each epoch} of metrics.csv. Its first column is `epoch`, from 1."""
    return read_table(path, 'epoch')


def read_predictions(path):
    """{column: array with an element for each sample} of predictions.csv, or of cases.csv of a segmentation.

    `sample` is the name of the sample. Numbers have columns NAME_true, NAME_predicted and NAME_physical (those that the program knows), classes
    have `label`, `predicted` (texts) and probability_CLASS, and segmentations dice_CLASS and others.
    """
    return read_table(path, 'sample')


class Span(NamedTuple):
    """What a rank did for some time."""

    name: str       # of the op and the shape of its result, or of the step
    rank: int
    lane: str       # 'steps', 'compute', 'communication', 'data', ...
    start: float    # seconds
    seconds: float
    gflop: float    # 1e9 floating-point operations; 0 if not counted
    mib: float      # MiB read and written; 0 if not counted


def read_trace(path):
    """The spans of trace.json, as a list, by rank and in the order of the file."""
    try:
        document = json.loads(text_of(path))
    except json.JSONDecodeError as error:
        raise FileError(f'{path}: damaged, cut off or not JSON: {error}') from None
    lanes, spans = {}, []
    try:
        for event in document['traceEvents']:
            if event['ph'] == 'M' and event['name'] == 'thread_name':
                lanes[event['pid'], event['tid']] = event['args']['name']
            elif event['ph'] == 'X':
                counts = event.get('args', {})
                spans.append(Span(event['name'], event['pid'], lanes[event['pid'], event['tid']], 1e-6 * event['ts'], 1e-6 * event['dur'],
                                  counts.get('gflop', 0.0), counts.get('mib', 0.0)))
    except (KeyError, TypeError, AttributeError) as error:
        raise FileError(f'{path}: JSON, but not a trace of mpigrad: {error!r}') from None
    return sorted(spans, key=lambda span: span.rank)
