"""Reads and plots files that mpigrad's programs write. Models are written in C++ only.

    from mpigrad_read import read_weights, read_metrics
    weights = read_weights('run/weights.h5')            # {'conv.weight': array of shape [out, d, h, w, in], ...}
    losses = read_metrics('run/metrics.csv')['train_loss']

`python3 -m mpigrad_read FILE` says what a file contains. A file that is damaged, cut off or of another kind raises FileError, whose text names
the file. The functions plot_... return figures of matplotlib.
"""

from .checkpoints import Checkpoint, read_checkpoint, read_weights
from .plots import plot_metrics, plot_predictions, plot_trace
from .texts import FileError, Span, read_metrics, read_predictions, read_trace

__all__ = ['Checkpoint', 'FileError', 'Span', 'plot_metrics', 'plot_predictions', 'plot_trace', 'read_checkpoint', 'read_metrics',
           'read_predictions', 'read_trace', 'read_weights']
