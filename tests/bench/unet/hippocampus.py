"""Prints the page of tests/bench/unet/hippocampus.sh: FOLDER with SEED/ of `train` and SEED/mirrored/ of `evaluate`, RECIPE, PROCESSOR, SEED..."""

import json
import sys
from datetime import date

folder, recipe, processor, *seeds = sys.argv[1:]
runs = [json.load(open(f"{folder}/{seed}/summary.json")) for seed in seeds]
scores = [json.load(open(f"{folder}/{seed}/mirrored/summary.json")) for seed in seeds]
print("# Segmentation of the hippocampus\n")
print(f"{date.today()}, `unet3d train {recipe} --data hippocampus --seed SEED` on {processor}: 160 volumes to train on, 40 kept for validation (split")
print("seed 1), averaged weights of the last epoch, windows mirrored from left to right (`predict.mirror = [\"width\"]`). A class that is in")
print("truth or prediction only counts as Dice 0, in neither it is left out. Each epoch ends with a validation on the 40, by which nothing is chosen.\n")
names = {c["class"]: f"class {c['class']}" for c in scores[0]["classes_scored"]}
print("| seed | " + " | ".join(f"Dice, {n} | least | HD95 in mm (without the class)" for n in names.values()) + " | minutes of training | parameters |")
print("|" + "--:|" * (1 + 3 * len(names) + 2))
for seed, run, score in zip(seeds, runs, scores):
    cells = [seed]
    for c in score["classes_scored"]:
        cells += [f"{c['dice']:.4f}", f"{c['least_dice']:.3f}", f"{c['hausdorff95_mm']:.2f} ({c['without_class']})"]
    print("| " + " | ".join(cells + [f"{run['training_seconds'] / 60:.1f}", str(run["parameters"])]) + " |")
means = ["mean"]
for i in range(len(names)):
    mean = lambda key: sum(score["classes_scored"][i][key] for score in scores) / len(runs)
    means += [f"{mean('dice'):.4f}", f"{mean('least_dice'):.3f}", f"{mean('hausdorff95_mm'):.2f}"]
print("| " + " | ".join(means + [f"{sum(run['training_seconds'] for run in runs) / len(runs) / 60:.1f}", ""]) + " |")
