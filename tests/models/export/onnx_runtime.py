"""Tests files written by this project with ONNX's own checker and ONNX Runtime.

python3 tests/models/export/onnx_runtime.py FILE.onnx...: the input is FILE.x.npy in the same folder, and the expected output
FILE.y.npy. Without them the input is random numbers of the file's extents, and the output must be finite. Prints one line for
each file with the largest difference relative to the largest number; exit code 1 if one is more than 1e-4.
"""

import pathlib
import sys

import numpy
import onnx
import onnxruntime

worst = 0.0
for name in sys.argv[1:]:
    model = onnx.load(name)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(name, providers=["CPUExecutionProvider"])
    given = session.get_inputs()[0]
    beside = [pathlib.Path(name[: -len(".onnx")] + end) for end in (".x.npy", ".y.npy")]
    if all(path.exists() for path in beside):
        x, expected = (numpy.load(path) for path in beside)
        found = session.run(None, {given.name: x})[0]
        assert found.shape == expected.shape and found.dtype == expected.dtype, (name, found.shape, expected.shape)
        difference = float(numpy.abs(found - expected).max() / numpy.abs(expected).max())
        assert difference == difference, name
        worst = max(worst, difference)
        print(f"{pathlib.Path(name).stem}: input {list(x.shape)}, {len(model.graph.node)} operators, difference {difference:.2g}")
    else:
        shape = [extent if isinstance(extent, int) else 2 for extent in given.shape]
        found = session.run(None, {given.name: numpy.random.default_rng(1).random(shape, numpy.float32)})[0]
        assert numpy.isfinite(found).all() and found.shape[0] == shape[0], name
        print(f"{pathlib.Path(name).stem}: input {shape}, output {list(found.shape)}")
sys.exit(worst > 1e-4)
