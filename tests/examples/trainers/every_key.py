"""Changes each key of a trainer to another valid value and looks whether `train --explain` says something else.

    python3 every_key.py PROGRAM SECTIONS ARGUMENT...     SECTIONS: all, or names separated by commas

Prints each key whose change nothing shows and nothing refuses, and `N keys, M unused`. A refusal is exit code 2 with a message.
"""

import json
import os
import subprocess
import sys
import tempfile

# Texts that have no choices, and numbers whose other values would take long.
VALUES = {
    'network.weights': 'absent.h5',
    'network.take': 'common',
    'optimizer.freeze': '*',
    'grid.extents': 'depth=2',
    'precision.compute': 'float64',
    'data.window': '12',
    'data.augment': 'flip',
    'data.orientation': 'LPS',
    'labels.map': '1=0',
    'labels.ignore': '1',
    'labels.regions': 'one=1',
    'labels.region_order': '2',
    'network.norm': 'none',
    'network.classes': '3',
    'grid.layers': 'conv:sample=1',
    'checkpoint.local_folder': 'local',
    'report.mllog_entries': 'submission_org=x',
    'schedule.batch': '4',
    'schedule.metric': 'train_loss',
    'data.store': '0.001',
}
# Keys of unet3d that mean something for other data only, HDF5, or for --describe.
OTHER_DATA = {'unet3d': ['data.group', 'data.volume', 'data.label', 'data.interpolation', 'network.channels']}
# Keys that have a meaning only with another one, of those that the program has.
WITH = {
    'checkpoint.local_folder': ['checkpoint.local_steps=2'],
    'checkpoint.local_steps': ['checkpoint.local_folder=local'],
    'schedule.decay_factor': ['schedule.shape=step'],
    'schedule.milestones': ['schedule.shape=step'],
    'schedule.power': ['schedule.shape=polynomial'],
    'optimizer.nesterov': ['optimizer.name=sgd'],
    'optimizer.momentum': ['optimizer.name=sgd'],
    'report.mllog_entries': ['report.mllog'],
    'data.split_seed': ['data.test_fraction=0.5', 'data.validation_fraction=0.5', 'data.train_group=train'],
    'data.validation_targets': ['data.validation_fraction=0.5'],
    'labels.region_order': ['labels.regions=one=1'],
    'network.groups': ['network.norm=group'],
    'network.strides': ['network.variant=resenc'],
    'network.kernels': ['network.variant=resenc'],
    'network.blocks': ['network.variant=resenc'],
    'data.intensities': ['data.normalise=none'],
    'loss.tile': ['loss.form=ring'],
    'loss.lambda': ['loss.name=barlow'],
    'loss.slices': ['loss.name=lejepa'],
    'loss.queue': ['loss.name=moco'],
    'loss.key_momentum': ['loss.name=moco'],
    'loss.teacher_temperature': ['loss.name=dino'],
    'loss.centre_momentum': ['loss.name=dino'],
    'loss.freeze_prototypes': ['loss.name=swav'],
    'loss.cached': ['network.frozen_norm'],
}


def other(key):
    """A valid value that is not the default."""
    name, default = key['key'], key['default']
    if name in VALUES:
        return VALUES[name]
    if key['type'] == 'true or false':
        return 'false' if default == 'true' else 'true'
    if 'choices' in key:
        return next(choice for choice in key['choices'] if choice != default)
    if 'number' not in key['type']:
        return 'other'
    low, high = key.get('low'), key.get('high')
    first = default[0] if isinstance(default, list) and default else default
    for value in ('2', '0.5', '3', '0.25', '1', '0.9', '16'):
        number = float(value)
        if key['type'].endswith('whole number') or 'whole' in key['type']:
            if number != int(number):
                continue
        if (low is None or number >= low) and (high is None or number <= high) and (first is None or number != float(first)):
            return value
    raise SystemExit(f'{name}: no other value is known')


def explained(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    text = done.stdout
    if done.returncode == 2 and done.stderr.strip():
        return 'refused: ' + done.stderr
    if done.returncode != 0:
        raise SystemExit(f'{command}: exit code {done.returncode}: {done.stderr}')
    return text


def main():
    program, sections, arguments = sys.argv[1], sys.argv[2].split(','), sys.argv[3:]
    keys = json.loads(subprocess.run([program, 'train', '--keys', '--json'], capture_output=True, text=True, check=True).stdout)
    out = os.path.join(tempfile.gettempdir(), 'never-written')
    base = [program, 'train', *arguments, '--explain', '--out', out]
    reference = {(): explained(base)}
    if reference[()].startswith('refused'):
        raise SystemExit(f'{base}: {reference[()]}')
    count, unused = 0, []
    for key in keys:
        name = key['key']
        if sections != ['all'] and name.split('.')[0] not in sections:
            continue
        if key.get('flag') in arguments or name in OTHER_DATA.get(os.path.basename(program), []):
            continue
        names = [each['key'] for each in keys]
        together = tuple(each for each in WITH.get(name, []) if each.partition('=')[0] in names)
        settings = [word for setting in together for word in ('--set', setting)]
        if together not in reference:
            reference[together] = explained(base + settings)
        count += 1
        if explained(base + settings + ['--set', f'{name}={other(key)}']) == reference[together]:
            unused.append(name)
    for name in unused:
        print('unused:', name)
    print(f'{count} keys, {len(unused)} unused')
    return 0


if __name__ == '__main__':
    sys.exit(main())
