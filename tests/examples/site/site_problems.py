"""site_problems.py BUILD OUT.js: 200 drawn problems for the adjoint calculator and what the program answers, as a script that compares an
engine with them."""

import concurrent.futures
import json
import random
import subprocess
import sys

build, out = sys.argv[1:]
draw = random.Random(2026)
row = lambda n: ",".join(str(draw.choice([draw.randint(-9, 9), round(draw.uniform(-5, 5), 3)])) for _ in range(n))
rows = lambda sizes: ";".join(row(n) for n in sizes)


def problem():
    op = draw.choice(["allreduce", "reduce", "bcast", "gather", "scatter", "allgather", "reduce_scatter", "alltoall", "scan", "exscan", "sendrecv", "isend", "shift", "halo",
                      "iallreduce", "ibcast", "iallgather", "neighbor_allgather", "get", "accumulate", "replicate", "shard", "allreduce_invariant", "allgather_invariant"])
    ranks = draw.randint(1, 5)
    n = draw.randint(1, 3)
    p = {"op": op, "ranks": ranks}
    even, root = [n] * ranks, draw.randrange(ranks)
    x = y = even
    if op in ("reduce", "bcast", "gather", "scatter", "ibcast"):
        p["root"] = root
    at_root = [n * ranks if r == root else 0 for r in range(ranks)]
    if op in ("allreduce", "iallreduce", "scan", "exscan", "reduce"):
        p["reduce"] = draw.choice(["sum", "max", "min", "prod"])
        p["ties"] = draw.choice(["split", "first"])
    if op == "gather": y = at_root
    if op == "scatter": x = at_root
    if op in ("allgather", "iallgather"): y = [n * ranks] * ranks
    if op in ("reduce_scatter", "alltoall"): x = [n * ranks] * ranks
    if op == "alltoall": y = x
    if op in ("sendrecv", "isend"):
        order = draw.sample(range(ranks), ranks)
        p["dest"] = ",".join(map(str, order))
    if op == "shift": p["by"] = draw.randint(-3, 3)
    if op == "halo":
        p["width"], p["periodic"] = draw.randint(0, 3), draw.random() < 0.5
        y = [n + 2 * p["width"]] * ranks
    if op == "neighbor_allgather":
        graph = [[s for s in range(ranks) if draw.random() < 0.5] for _ in range(ranks)]
        p["graph"] = ";".join(",".join(map(str, each)) for each in graph)
        y = [n * sum(r in each for each in graph) for r in range(ranks)]
    if op in ("get", "accumulate"):
        p["target"] = ",".join(str(draw.randrange(ranks)) for _ in range(ranks))
    if op in ("replicate", "shard"):
        x = [n * ranks if op == "shard" else n]
    if op in ("allreduce_invariant", "allgather_invariant"):
        y = [n * ranks if op == "allgather_invariant" else n]
    p["x"], p["ybar"] = rows(x), rows(y)
    return p


def answer(p):
    words = [f"{build}/examples/adjoint", p["op"], "--json"]
    for key, value in p.items():
        if key == "periodic":
            words += ["--periodic"] * value
        elif key != "op":
            words.append(f"--{key}={value}")
    done = subprocess.run(words, capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else None


drawn = [problem() for _ in range(260)]
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    answers = list(pool.map(answer, drawn))
good = [{"asked": p, "result": a} for p, a in zip(drawn, answers) if a is not None][:200]
if len(good) < 200:
    sys.exit(f"only {len(good)} of the drawn problems make sense")
with open(out, "w") as file:
    file.write("const problems = " + json.dumps(good) + ";\n")
    file.write("""const compare = engine => problems.filter(each => {
  const found = JSON.parse(engine.ccall('mpigrad_adjoint', 'string', ['string'], [JSON.stringify(each.asked)])).result;
  // Digit for digit: numbers, and the adjoint's error, up to rounding.
  const plain = result => result && JSON.stringify([result.op, result.ranks, result.y, result.xbar, result.adjoint_error === null]);
  return plain(found) !== plain(each.result) || (found.adjoint_error !== null && found.adjoint_error > 1e-12);
}).map(each => JSON.stringify(each.asked));
""")
