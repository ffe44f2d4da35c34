"""Pictures, by matplotlib (pip install matplotlib). Each function returns a figure: figure.savefig('losses.png')."""

import numpy as np

TIMES = ('epoch', 'learning_rate', 'samples_per_second', 'seconds', 'waiting_seconds', 'loss_scale', 'skipped_steps')


def _axes(count, width, height):
    """A figure with `count` axes next to each other; it needs no display."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError('pictures need matplotlib: pip install matplotlib') from None
    figure = Figure((width * count, height), layout='constrained')
    return figure, figure.subplots(1, count, squeeze=False)[0]


def plot_metrics(metrics):
    """Losses and, on axes of their own, the other measured values of read_metrics(), against epochs."""
    losses = [name for name in metrics if name.endswith('loss') or name == 'validation']
    others = [name for name in metrics if name not in losses and name not in TIMES]
    groups = [group for group in (losses, others) if group]
    figure, axes = _axes(max(1, len(groups)), 5, 4)
    for each, names in zip(axes, groups):
        for name in names:
            each.plot(metrics['epoch'], metrics[name], marker='.', label=name)
        if names is losses and all(np.nanmin(metrics[name], initial=1) > 0 for name in names):
            each.set_yscale('log')
        each.set_xlabel('epoch')
        each.legend()
    return figure


def plot_predictions(predictions):
    """Predicted against true numbers, as far as both are there; else a histogram of each column of numbers."""
    targets = [name[:-5] for name in predictions if name.endswith('_true') and name[:-5] + '_predicted' in predictions]
    if targets:
        figure, axes = _axes(len(targets), 4, 4)
        for each, name in zip(axes, targets):
            true = predictions[name + '_true']
            each.plot(true, predictions[name + '_predicted'], '.')
            each.axline((true.mean(), true.mean()), slope=1, color='grey', linewidth=1)
            each.set(title=name, xlabel='true', ylabel='predicted')
    else:
        numbers = [name for name, values in predictions.items() if values.dtype.kind == 'f']
        figure, axes = _axes(max(1, len(numbers)), 4, 4)
        for each, name in zip(axes, numbers):
            each.hist(predictions[name][np.isfinite(predictions[name])], bins=30)
            each.set(title=name, ylabel='samples')
    return figure


def plot_trace(spans):
    """The lanes of all ranks of read_trace(), against time."""
    rows = list(dict.fromkeys((span.rank, span.lane) for span in spans))
    lanes = list(dict.fromkeys(span.lane for span in spans))
    figure, (axes,) = _axes(1, 10, 1 + 0.35 * len(rows))
    for place, (rank, lane) in enumerate(rows):
        times = [(1e3 * span.start, 1e3 * span.seconds) for span in spans if (span.rank, span.lane) == (rank, lane)]
        axes.broken_barh(times, (place - 0.4, 0.8), facecolors=f'C{lanes.index(lane)}')
    axes.set_yticks(range(len(rows)), [f'rank {rank}: {lane}' for rank, lane in rows])
    axes.invert_yaxis()
    axes.set_xlabel('milliseconds')
    return figure
