"""Checkpoints of other platforms for the tensors of the same networks, on the same disk as checkpoint_study.

    python3 platforms.py --out platforms.csv [--platforms torch,dcp,safetensors,tensorflow] [--networks ...] [--rounds 3]
    python3 platforms.py --out platforms.csv --platforms dcp --processes 2    # which have the same tensors, as in data parallelism

Each platform saves weights and both moments of Adam, as `checkpoint_study` does, loads them, and restarts: a new process imports
the platform, makes the variables, loads, and takes one step of Adam, whose result is compared bit for bit with that of the
process that saved. Layers are not run: a step is Adam's, with the same gradients. Times are medians of the rounds, in seconds:

    returns   until the call returns and training goes on
    saved     until everything is on the disk: the script calls fsync() for platforms that do not
    load      into variables that exist
    restart   in a new process, once: variables, load, step; `import` is before it

Rows are appended to the CSV file, so that platforms in several environments fill one table. A platform that cannot be imported
is named and has no row.
"""

import argparse
import csv
import hashlib
import importlib.util
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

# Set for the processes that this program starts: a process's place, the number of them, and the file by which they meet.
OWN = {'DCP_RANK': '0', 'DCP_PROCESSES': '1', 'DCP_STORE': f'/tmp/dcp-{os.getpid()}'}
RANK, PROCESSES, STORE = (os.environ.get(name, value) for name, value in OWN.items())
RANK, PROCESSES = int(RANK), int(PROCESSES)
PLATFORMS = {'torch': 'torch', 'dcp': 'torch', 'safetensors': 'safetensors', 'tensorflow': 'tensorflow'}
FIELDS = ['network', 'platform', 'way', 'version', 'bytes', 'returns', 'saved', 'load', 'import', 'restart', 'same_bits']


def cosmoflow():
    """Seven convolutions with batch norm, three products."""
    channels = [4, 16, 32, 64, 128, 256, 256, 256]
    for i, (a, b) in enumerate(zip(channels, channels[1:])):
        yield from ((f'conv{i}', (b, 3, 3, 3, a)), (f'norm{i}/gamma', (b,)), (f'norm{i}/beta', (b,)))
    for i, (a, b) in enumerate(((2048, 2048), (2048, 256), (256, 4))):
        yield from ((f'linear{i}/weight', (b, a)), (f'linear{i}/bias', (b,)))


def unet3d():
    """The variant of MLPerf Training."""
    filters = [32, 64, 128, 256, 320, 320]

    def conv(name, a, b):
        yield from ((name, (b, 3, 3, 3, a)), (f'{name}/gamma', (b,)), (f'{name}/beta', (b,)))

    for i, b in enumerate(filters):
        yield from conv(f'down{i}/0', filters[i - 1] if i else 1, b)
        yield from conv(f'down{i}/1', b, b)
    for i, (a, b) in enumerate(zip(filters[::-1], filters[-2::-1])):
        yield from ((f'up{i}/transposed', (a, 2, 2, 2, b)), (f'up{i}/bias', (b,)))
        yield from conv(f'up{i}/0', 2 * b, b)
        yield from conv(f'up{i}/1', b, b)
    yield from (('head', (3, 1, 1, 1, 32)), ('head/bias', (3,)))


def resnet50():
    def conv(name, a, b, k):
        yield from ((name, (b, k, k, a)), (f'{name}/gamma', (b,)), (f'{name}/beta', (b,)))

    yield from conv('stem', 3, 64, 7)
    channels = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            name = f'{stage}.{block}'
            yield from conv(f'{name}/a', channels, width, 1)
            yield from conv(f'{name}/b', width, width, 3)
            yield from conv(f'{name}/c', width, 4 * width, 1)
            if block == 0:
                yield from conv(f'{name}/shortcut', channels, 4 * width, 1)
            channels = 4 * width
    yield from (('linear/weight', (1000, 2048)), ('linear/bias', (1000,)))


NETWORKS = {'cosmoflow': (cosmoflow, 9_439_652), 'unet3d': (unet3d, 31_190_243), 'resnet50': (resnet50, 25_557_032)}


def shapes_of(network):
    make, count = NETWORKS[network]
    shapes = dict(make())
    found = sum(__import__('math').prod(shape) for shape in shapes.values())
    if found != count:
        raise SystemExit(f'{network}: {found} parameters instead of {count}')
    return shapes


def numbers(shape, seed):
    import numpy

    return numpy.random.default_rng(seed).standard_normal(shape, dtype=numpy.float32)


class Torch:
    """torch.save and torch.load of state dictionaries."""

    ways = ('torch.save',)

    def __init__(self, shapes):
        import torch

        torch.set_num_threads(2 // PROCESSES or 1)
        self.version, self.torch = torch.__version__, torch
        self.names = list(shapes)
        self.values = [torch.nn.Parameter(torch.from_numpy(numbers(shape, i))) for i, shape in enumerate(shapes.values())]
        self.model = torch.nn.ParameterList(self.values)
        self.adam = torch.optim.Adam(self.model.parameters())

    def step(self, seed):
        for i, value in enumerate(self.values):
            value.grad = self.torch.from_numpy(numbers(tuple(value.shape), 1000 * seed + i))
        self.adam.step()
        self.adam.zero_grad()

    def arrays(self):
        return [value.detach().numpy() for value in self.values]

    def save(self, folder, _):
        self.torch.save({'model': self.model.state_dict(), 'adam': self.adam.state_dict()}, folder / 'checkpoint.pt')
        return None

    def load(self, folder, _):
        state = self.torch.load(folder / 'checkpoint.pt', weights_only=True)
        self.model.load_state_dict(state['model'])
        self.adam.load_state_dict(state['adam'])


class Dcp(Torch):
    """torch.distributed.checkpoint: each process writes a part."""

    name = 'DCP' if PROCESSES == 1 else f'DCP, {PROCESSES} processes'
    ways = (name, f'{name}, in the background')

    def __init__(self, shapes):
        super().__init__(shapes)
        import torch.distributed

        # async_save needs a process group; one process is enough.
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group('gloo', init_method=f'file://{STORE}', rank=RANK, world_size=PROCESSES)

    def meet(self):
        self.torch.distributed.barrier()

    def state(self):
        from torch.distributed.checkpoint.state_dict import get_state_dict

        model, adam = get_state_dict(self.model, self.adam)
        return {'model': model, 'adam': adam}

    def save(self, folder, way):
        import torch.distributed.checkpoint as dcp

        if way == self.ways[0]:
            dcp.save(self.state(), checkpoint_id=folder)
            return None
        future = dcp.async_save(self.state(), checkpoint_id=folder)
        return future.result

    def load(self, folder, _):
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import set_state_dict

        if not self.adam.state:
            self.step(0)  # the state to load into
        state = self.state()
        dcp.load(state, checkpoint_id=folder)
        set_state_dict(self.model, self.adam, model_state_dict=state['model'], optim_state_dict=state['adam'])


class SafeTensors:
    """safetensors.numpy of weights and moments; Adam is NumPy's, since the format has no optimizer."""

    ways = ('safetensors',)

    def __init__(self, shapes):
        import numpy
        import safetensors

        self.version, self.numpy, self.names = safetensors.__version__, numpy, list(shapes)
        self.values = [numbers(shape, i) for i, shape in enumerate(shapes.values())]
        self.moments = [[numpy.zeros_like(value) for value in self.values] for _ in range(2)]
        self.count = 0

    def step(self, seed):
        self.count += 1
        one, two = 1 - 0.9**self.count, 1 - 0.999**self.count
        for i, value in enumerate(self.values):
            g = numbers(value.shape, 1000 * seed + i)
            m, v = self.moments[0][i], self.moments[1][i]
            m += 0.1 * (g - m)
            v += 0.001 * (g * g - v)
            value -= (1e-3 / one) * m / (self.numpy.sqrt(v / two) + 1e-8)

    def arrays(self):
        return self.values

    def save(self, folder, _):
        from safetensors.numpy import save_file

        lists = {'value': self.values, 'm': self.moments[0], 'v': self.moments[1]}
        tensors = {f'{kind}/{name}': x for kind, list_ in lists.items() for name, x in zip(self.names, list_)}
        save_file(tensors, folder / 'checkpoint.safetensors', metadata={'count': str(self.count)})
        return None

    def load(self, folder, _):
        from safetensors import safe_open

        with safe_open(folder / 'checkpoint.safetensors', framework='numpy') as file:
            self.count = int(file.metadata()['count'])
            for kind, list_ in (('value', self.values), ('m', self.moments[0]), ('v', self.moments[1])):
                for i, name in enumerate(self.names):
                    list_[i] = file.get_tensor(f'{kind}/{name}')


class TensorFlow:
    """tf.train.Checkpoint with an optimizer of Keras."""

    ways = ('tf.train.Checkpoint', 'tf.train.Checkpoint, in the background')

    def __init__(self, shapes):
        import tensorflow as tf

        tf.config.set_visible_devices([], 'GPU')
        tf.config.threading.set_intra_op_parallelism_threads(2)
        self.version, self.tf, self.names = tf.__version__, tf, list(shapes)
        self.values = [tf.Variable(numbers(shape, i), name=f'v{i}') for i, shape in enumerate(shapes.values())]
        self.adam = tf.keras.optimizers.Adam(1e-3)
        self.adam.build(self.values)
        self.checkpoint = tf.train.Checkpoint(values=self.values, adam=self.adam)

    def step(self, seed):
        tf = self.tf
        gradients = [tf.constant(numbers(tuple(value.shape), 1000 * seed + i)) for i, value in enumerate(self.values)]
        self.adam.apply_gradients(zip(gradients, self.values))

    def arrays(self):
        return [value.numpy() for value in self.values]

    def save(self, folder, way):
        background = 'background' in way
        if background:  # Keras' variables can be copied once only (TensorFlow 2.21, Keras 3)
            self.checkpoint = self.tf.train.Checkpoint(values=self.values, adam=self.adam)
        options = self.tf.train.CheckpointOptions(experimental_enable_async_checkpoint=background)
        self.checkpoint.write(str(folder / 'checkpoint'), options=options)
        return self.checkpoint.sync if background else None

    def load(self, folder, _):
        # Written in the background, a checkpoint has a counter, too.
        self.checkpoint.read(str(folder / 'checkpoint')).assert_existing_objects_matched().expect_partial()


CLASSES = {'torch': Torch, 'dcp': Dcp, 'safetensors': SafeTensors, 'tensorflow': TensorFlow}


def bits_of(state):
    digest = hashlib.sha256()
    for array in state.arrays():
        digest.update(array.tobytes())
    return digest.hexdigest()


def to_disk(folder):
    total = 0
    for path in folder.rglob('*'):
        if path.is_file():
            with open(path, 'rb') as file:
                os.fsync(file.fileno())
            total += path.stat().st_size
    return total


def timed(call):
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def restart(network, platform, way, folder):
    """In a new process."""
    began = time.perf_counter()
    __import__('numpy')
    __import__(PLATFORMS[platform])
    if platform == 'dcp':
        __import__('torch.distributed.checkpoint')
    imported = time.perf_counter() - began

    def begin():
        state = CLASSES[platform](shapes_of(network))
        state.load(folder, way)
        state.step(2)
        return state

    seconds, state = timed(begin)
    print(json.dumps({'import': imported, 'restart': seconds, 'bits': bits_of(state)}))


def measure(network, platform, rounds, folder):
    state = CLASSES[platform](shapes_of(network))
    state.step(1)
    first, meet = (RANK == 0, state.meet) if PROCESSES > 1 else (True, lambda: None)
    for way in state.ways:
        lists = {name: [] for name in ('returns', 'saved', 'load', 'import', 'restart')}
        same, size = False, 0
        for _ in range(rounds):
            if first:
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
            meet()
            start = time.perf_counter()
            rest = state.save(folder, way)
            lists['returns'].append(time.perf_counter() - start)
            if rest:
                rest()
            meet()
            size = to_disk(folder) if first else 0
            lists['saved'].append(time.perf_counter() - start)
            meet()
            lists['load'].append(timed(lambda way=way: state.load(folder, way))[0])
            if lists['restart']:
                continue
            command = [sys.executable, __file__, '--restart', network, platform, way, str(folder)]
            store = {**os.environ, 'DCP_STORE': f'{STORE}-{network}-{state.ways.index(way)}'}
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=store)
            found = json.loads(done.stdout.strip().splitlines()[-1])
            lists['import'].append(found['import'])
            lists['restart'].append(found['restart'])
            state.step(2)
            same = found['bits'] == bits_of(state)
            state.load(folder, way)
        row = {'network': network, 'platform': platform, 'way': way, 'version': state.version, 'bytes': size, 'same_bits': same}
        row.update({name: f'{statistics.median(list_):.4f}' for name, list_ in lists.items()})
        yield row
        meet()
    if first:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--out', default='platforms.csv', type=pathlib.Path)
    parser.add_argument('--platforms', default=','.join(PLATFORMS))
    parser.add_argument('--networks', default=','.join(NETWORKS))
    parser.add_argument('--rounds', default=3, type=int)
    parser.add_argument('--processes', default=1, type=int, help='of DCP')
    parser.add_argument('--restart', nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.restart:
        network, platform, way, folder = arguments.restart
        return restart(network, platform, way, pathlib.Path(folder))
    for name in arguments.platforms.split(','):
        if name not in PLATFORMS:
            raise SystemExit(f'--platforms: {name} is none of {", ".join(PLATFORMS)}')
    for name in arguments.networks.split(','):
        if name not in NETWORKS:
            raise SystemExit(f'--networks: {name} is none of {", ".join(NETWORKS)}')
    if arguments.processes > 1 and arguments.platforms != 'dcp':
        raise SystemExit('--processes is for --platforms dcp')
    if arguments.processes > 1 and PROCESSES == 1:
        variables = {**os.environ, 'DCP_PROCESSES': str(arguments.processes), 'DCP_STORE': STORE}
        begin = [subprocess.Popen([sys.executable, *sys.argv], env={**variables, 'DCP_RANK': str(r)}) for r in range(arguments.processes)]
        return int(any([process.wait() != 0 for process in begin]))
    new, measured, missing = not arguments.out.exists(), [], []
    with open(arguments.out if RANK == 0 else os.devnull, 'a', newline='', encoding='utf-8') as file:
        writer = csv.DictWriter(file, FIELDS)
        if new:
            writer.writeheader()
        for platform in arguments.platforms.split(','):
            if importlib.util.find_spec(PLATFORMS[platform]) is None:
                missing.append(platform)
                continue
            for network in arguments.networks.split(','):
                for row in measure(network, platform, arguments.rounds, arguments.out.with_suffix('.files')):
                    writer.writerow(row)
                    file.flush()
                    if RANK > 0:
                        continue
                    print(', '.join(f'{name} {value}' for name, value in row.items()))
            measured.append(f"{platform} {row['version']}")
    if RANK == 0:
        print(f"measured: {', '.join(measured) or 'none'}\nmissing: {', '.join(missing) or 'none'}")
    return None


if __name__ == '__main__':
    try:
        sys.exit(main())
    finally:
        if 'DCP_STORE' not in os.environ:  # the first process
            for file in pathlib.Path('/tmp').glob(f'dcp-{os.getpid()}*'):
                file.unlink()
