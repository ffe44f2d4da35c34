"""snippets.py OPERATIONS.toml OUT.cpp: the lines of C++ that the operations' pages show, each in a function, so that they compile."""

import sys
import tomllib

table = tomllib.load(open(sys.argv[1], "rb"))
out = """// Made by tests/examples/lessons/snippets.py.
#include <mpigrad/mpigrad.h>
using namespace mpigrad;
Tensor work(const Tensor& x) { return tanh(x); }
Tensor block(const Tensor& x) { return tanh(x); }
"""
number = 0
for kind in ("operation", "other", "local"):
    for each in table[kind]:
        if each["cpp"].startswith("see "):
            continue
        number += 1
        out += f"""
// {each['name']}
[[maybe_unused]] void snippet_{number}(
    [[maybe_unused]] const Communicator& comm, [[maybe_unused]] const GridPtr& grid, [[maybe_unused]] const Topology& topology, [[maybe_unused]] const TensorType& type,
    [[maybe_unused]] const Tensor& x, [[maybe_unused]] const Tensor& z, [[maybe_unused]] const Tensor& w, [[maybe_unused]] const Tensor& a, [[maybe_unused]] const Tensor& b,
    [[maybe_unused]] const Tensor& bias, [[maybe_unused]] const Tensor& window, [[maybe_unused]] const Tensor& gamma, [[maybe_unused]] const Tensor& beta,
    [[maybe_unused]] const Tensor& scores, [[maybe_unused]] const Tensor& labels, [[maybe_unused]] const Tensor& data_share, [[maybe_unused]] const Tensors& blocks,
    [[maybe_unused]] const BoxPlanPtr& plan, [[maybe_unused]] const std::vector<Box>& have, [[maybe_unused]] const std::vector<Box>& need,
    [[maybe_unused]] const Rows& rows, [[maybe_unused]] const Rows& send_rows, [[maybe_unused]] const Rows& receive_rows, [[maybe_unused]] int root, [[maybe_unused]] int dest,
    [[maybe_unused]] int source, [[maybe_unused]] int tag, [[maybe_unused]] int left, [[maybe_unused]] int right, [[maybe_unused]] int target, [[maybe_unused]] int first, [[maybe_unused]] int count) {{
  {each['cpp']}
}}
"""
open(sys.argv[2], "w").write(out)
