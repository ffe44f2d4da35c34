"""Prints the tables of tests/bench/unet/unet.sh: FOLDER with files of JSON lines, one for each table."""

import json
import pathlib
import statistics
import sys

folder = pathlib.Path(sys.argv[1])


def lines(table):
    path = folder / table
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")] if path.exists() else []


def rounds(runs, *keys):
    """Runs grouped by the values of these keys, in the order of the first measurements."""
    kinds = {}
    for run in runs:
        kinds.setdefault(tuple(run[key] for key in keys), []).append(run)
    return kinds


def middle(runs, key="median_s"):
    return statistics.median(run[key] for run in runs)


def middle_ratio(runs, others, key="median_s"):
    """The median ratio of runs that were measured in turns."""
    return statistics.median(run[key] / other[key] for run, other in zip(runs, others))


def seconds(value):
    return f"{value:.3f}" if value < 10 else f"{value:.2f}"


def table(title, text, heads, rows):
    if not rows:
        return
    print(f"\n## {title}\n\n{text}\n")
    print("| " + " | ".join(heads) + " |")
    print("|" + "--:|" * len(heads))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")


alone = rounds(lines("floor"), "size")
table("A step, its floor and a large product",
      "1 rank x 2 threads, seconds. The floor is the time of the layers as bare oneDNN primitives (`tests/bench/unet/unet_floor.h`).",
      ["size", "step", "floor", "step / floor", "convolutions, GFLOP/s of the step", "product, GFLOP/s", "share of the product"],
      [[f"{size}^3", seconds(middle(runs)), seconds(middle(runs, "floor_s")), f"{middle(runs, 'of_floor'):.3f}",
        f"{middle(runs, 'gflop_per_s'):.1f}", f"{middle(runs, 'product_gflop_per_s'):.1f}",
        f"{middle(runs, 'share_of_product'):.3f}"]
       for (size,), runs in alone.items()])

rows = []
for (size, peer, channels_last), runs in rounds(lines("peers"), "size", "peer", "channels_last").items():
    if (size,) not in alone:
        continue
    ours, ours_mib = middle(alone[size,]), middle(alone[size,], "peak_mib")
    theirs, theirs_mib = middle(runs), middle(runs, "peak_mib")
    rows.append([f"{size}^3", peer, "channels last" if channels_last else "contiguous", seconds(theirs), seconds(ours),
                 f"{ours / theirs:.3f}", f"{theirs_mib:.0f}", f"{ours_mib:.0f}", f"{ours_mib / theirs_mib:.3f}"])
table("Comparison with PyTorch", "2 threads; seconds, and peak memory of the process in MiB. Ratios are ours / theirs.",
      ["size", "peer", "format", "theirs", "ours", "ratio", "their MiB", "our MiB", "ratio"], rows)

cosmoflow = lines("jax")
ours = rounds([run for run in cosmoflow if "peer" not in run], "size")
table("CosmoFlow compared with JAX", "JAX splits the volume in depth over two devices of one process, we over two ranks of one thread.",
      ["size", "peer", "theirs", "ours", "ratio", "their MiB", "our MiB, both ranks", "ratio"],
      [[f"{size}^3", peer, seconds(middle(runs)), seconds(middle(ours[size,])), f"{middle(ours[size,]) / middle(runs):.3f}",
        f"{middle(runs, 'peak_mib'):.0f}", f"{2 * middle(ours[size,], 'peak_mib'):.0f}",
        f"{2 * middle(ours[size,], 'peak_mib') / middle(runs, 'peak_mib'):.3f}"]
       for (size, peer), runs in rounds([run for run in cosmoflow if "peer" in run], "size", "peer").items() if (size,) in ours])

exchange = rounds(lines("exchange"), "size", "communication")
rows = []
for (size,), runs in rounds(lines("split"), "size").items():
    for name, split in (("threads of a process", runs), ("processes, MPI", exchange.get((size, "on")))):
        if split and (size,) in alone:
            rows.append([f"{size}^3", name, seconds(middle(alone[size,])), seconds(middle(split)),
                         f"{middle(alone[size,]) / middle(split):.3f}"])
table("Two ranks compared with two threads", "Each rank has one thread and half of the volume, split in depth.",
      ["size", "ranks are", "1 rank x 2 threads", "2 ranks x 1 thread", "times as fast"], rows)

table("Cost of exchanges",
      "2 real ranks x 1 thread, split in depth, compared with ranks that only wait for each other instead of exchanging data, and with "
      "ranks that do neither (the results of both are wrong). They take turns: ratios are the medians over rounds, for steps and for "
      "the fastest steps.",
      ["size", "step", "that only waits", "without communication", "ratio", "of the fastest", "only waiting", "of the fastest"],
      [[f"{size}^3", seconds(middle(runs)), seconds(middle(exchange[size, "waiting"])), seconds(middle(exchange[size, "none"])),
        *[f"{middle_ratio(of, exchange[size, 'none'], key):.3f}" for of in (runs, exchange[size, "waiting"]) for key in ("median_s", "min_s")]]
       for (size, communication), runs in exchange.items()
       if communication == "on" and (size, "waiting") in exchange and (size, "none") in exchange])

scaling = rounds(lines("scaling"), "size", "depth", "ranks", "communication")
rows = []
for (size, depth, ranks, _), runs in scaling.items():
    if ranks != 1:
        continue
    one = middle(runs)
    if (size, "on") in exchange and (size, "none") in exchange:
        on, none = middle(exchange[size, "on"]), middle(exchange[size, "none"])
        rows.append(["strong", f"{size}^3", f"{size}^3", seconds(one), seconds(on), f"{one / on:.3f}", f"{one / none:.3f}",
                     f"{none / on:.3f}"])
    if (size, 2 * size, 2, "on") in scaling and (size, 2 * size, 2, "none") in scaling:
        on, none = (middle(scaling[size, 2 * size, 2, way]) for way in ("on", "none"))
        rows.append(["weak", f"{size}^3", f"{2 * size} x {size} x {size}", seconds(one), seconds(on), f"{2 * one / on:.3f}",
                     f"{2 * one / none:.3f}", f"{none / on:.3f}"])
table("Scaling", "Real ranks of one thread. The speed-up counts work; its bound is that of ranks which exchange nothing.",
      ["", "1 rank has", "2 ranks have", "1 rank", "2 ranks", "speed-up", "bound", "of the bound"], rows)

def network(run):
    """The network of a line, and whether the line is a peer's."""
    peer = "peer" in run
    return ("U-Net" if run.get("variant") or run.get("model") == "unet3d" else "CosmoFlow"), peer


kinds = {}
for run in lines("precision"):
    if "losses" not in run:
        kinds.setdefault((*network(run), run["size"]), []).append(run)
rows = []
for (name, peer, size), runs in kinds.items():
    if peer:
        continue
    plain, half = ([run for run in runs if run["precision"] == precision] for precision in ("float32", "bfloat16"))
    peers = rounds(kinds.get((name, True, size), []), "peer", "channels_last")
    theirs = min((middle(runs) for runs in peers.values()), default=None)
    # U-Net steps are compared with PyTorch's, CosmoFlow's with our own in float32.
    ratio = middle_ratio(half, plain)
    of_peer = middle(half) / theirs if theirs else None
    rows.append([name, f"{size}^3", seconds(middle(plain)), seconds(middle(half)),
                 f"{ratio:.3f}" + (" (asked: 0.7)" if name == "CosmoFlow" else ""), seconds(theirs) if theirs else "",
                 "" if theirs is None else f"{of_peer:.3f}" + (" (asked: 0.6)" if name == "U-Net" else ""),
                 f"{middle(half, 'product_gflop_per_s'):.0f}", f"{middle(half, 'share_of_product'):.3f}"])
table("Sixteen bits",
      "1 rank x 2 threads, seconds a step. PyTorch: its faster format of contiguous and channels last, bfloat16 by autocast. The product is "
      "oneDNN's of large bfloat16 matrices; the share is that of the step's convolutions. What is asked holds for processors with AMX; "
      "others compute some bfloat16 layers in float32 and round.",
      ["network", "size", "float32", "bfloat16", "of float32", "PyTorch, bfloat16", "of PyTorch", "product, GFLOP/s", "share of the product"], rows)

rows = []
for name in ("U-Net", "CosmoFlow"):
    of = {run["precision"]: run["losses"] for run in lines("precision") if "losses" in run and network(run)[0] == name}
    if len(of) < 2:
        continue
    plain, half = of["float32"], of["bfloat16"]
    apart = [abs(a - b) for a, b in zip(plain, half)]
    rows.append([name, len(plain), f"{plain[0]:.4f}", f"{plain[-1]:.4f}", f"{half[0]:.4f}", f"{half[-1]:.4f}",
                 f"{max(apart) / plain[0]:.5f}", f"{statistics.mean(apart) / plain[0]:.5f}", f"{2 ** -8:.5f}"])
table("Losses in sixteen bits",
      "Training from the same parameters on the same sample. Differences of the losses at equal steps are divided by the first loss; "
      "the last column is the distance of neighbouring bfloat16 numbers at 1.",
      ["network", "steps", "float32, first", "last", "bfloat16, first", "last", "largest difference", "mean difference", "2^-8"], rows)

table("Cost of a profile",
      "Steps with the profile of `models/train/profile.h` and without it take turns; the median of their ratios.",
      ["size", "without", "with", "ratio", "asked"],
      [[f"{run['size']}^3", seconds(run["without_profile_s"]), seconds(run["with_profile_s"]), f"{run['profile_cost']:.4f}",
        "below 1.02"]
       for run in lines("profile")])

print("\n## Measurements\n\n```")
for path in sorted(folder.iterdir()):
    for run in lines(path.name):
        left_out = ("instructions", "ops", "milliseconds", "losses")
        print(path.name, json.dumps({key: round(value, 4) if isinstance(value, float) else value
                                     for key, value in run.items() if key not in left_out}))
print("```")
