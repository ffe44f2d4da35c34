"""nnU-Net's own training of the volumes that `unet3d train` had, in a given time, and both next to each other.

    python3 nnunet.py train DATA CASES WORK [--minutes 90] [--seed 1]    trains; the volumes of CASES, a cases.csv of ours, are for validation
    python3 nnunet.py compare CASES WORK                                 Dice of each class, and differences by bootstrap

DATA: a folder of images/ and labels/ (.nii.gz). WORK: a new folder. Planner, preprocessing, network, augmentation, loss, optimizer and
prediction are nnU-Net's (pip: nnunetv2, torch); its schedule of learning rates has as many steps as fit into the time on this machine, by
the time of three of them. The seed is that of the weights; nnU-Net's windows are drawn without one. MRI only.
"""

import argparse
import csv
import json
import os
import random
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("command", choices=["train", "compare"])
parser.add_argument("paths", nargs="+", type=Path)
parser.add_argument("--minutes", type=float, default=90)
parser.add_argument("--seed", type=int, default=1)
o = parser.parse_args()
if len(o.paths) != {"train": 3, "compare": 2}[o.command]:
    sys.exit(__doc__)
cases, work = o.paths[-2].resolve(), o.paths[-1].resolve()
for name in ["raw", "preprocessed", "results"]:
    os.environ[f"nnUNet_{name}"] = str(work / name)
os.environ.setdefault("nnUNet_n_proc_DA", "1")

import numpy as np


def name_of(path):
    return Path(path).name.split(".")[0]


def rows():
    return {name_of(row["sample"]): row for row in csv.DictReader(open(cases))}


def train():
    import nibabel
    import torch
    from nnunetv2.experiment_planning.plan_and_preprocess_api import extract_fingerprints, plan_experiments, preprocess
    from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

    data = o.paths[0].resolve()
    held = set(rows())
    folder = work / "raw" / "Dataset001_Volumes"
    (folder / "imagesTr").mkdir(parents=True)
    (folder / "labelsTr").mkdir()
    names, classes = [], 0
    for path in sorted((data / "images").glob("*.nii.gz")):
        names.append(name_of(path))
        (folder / "imagesTr" / f"{names[-1]}_0000.nii.gz").symlink_to(path)
        stored = nibabel.load(data / "labels" / path.name)
        labels = np.rint(stored.get_fdata()).astype(np.uint8)  # some are stored as floating-point numbers
        classes = max(classes, int(labels.max()))
        nibabel.save(nibabel.Nifti1Image(labels, nibabel.load(path).affine), folder / "labelsTr" / path.name)
    if not held < set(names):
        sys.exit(f"{cases} names volumes that {data} lacks")
    labels = {"background": 0} | {f"class_{c}": c for c in range(1, classes + 1)}
    (folder / "dataset.json").write_text(
        json.dumps({"channel_names": {"0": "MRI"}, "labels": labels, "numTraining": len(names), "file_ending": ".nii.gz"})
    )
    extract_fingerprints([1], num_processes=1)
    plan_experiments([1])
    preprocess([1], configurations=["3d_fullres"], num_processes=[1])
    prepared = work / "preprocessed" / "Dataset001_Volumes"
    split = {"train": [n for n in names if n not in held], "val": sorted(held)}
    (prepared / "splits_final.json").write_text(json.dumps([split]))

    random.seed(o.seed), np.random.seed(o.seed), torch.manual_seed(o.seed)
    plans = json.loads((prepared / "nnUNetPlans.json").read_text()) | {"continue_training": False}
    dataset = json.loads((prepared / "dataset.json").read_text())
    trainer = nnUNetTrainer(plans, "3d_fullres", 0, dataset, torch.device("cpu"))
    trainer.initialize()
    trainer.on_train_start()
    trainer.on_train_epoch_start()
    for i in range(4):  # the first one also prepares
        if i == 1:
            began = time.time()
        trainer.train_step(next(trainer.dataloader_train))
    seconds = (time.time() - began) / 3
    trainer.num_iterations_per_epoch, trainer.num_val_iterations_per_epoch = 10, 1
    trainer.num_epochs = max(1, int(o.minutes * 60 / (10.5 * seconds)))  # a step of validation has no backward pass
    trainer.save_every = 1000000
    trainer.logger.plot_progress_png = lambda *_: None
    print(f"{seconds:.2f} s a step of {trainer.batch_size} windows: {trainer.num_epochs} epochs of 10 steps", flush=True)
    trainer.lr_scheduler.max_steps = trainer.num_epochs
    trainer.on_train_start = lambda: None  # was called
    began = time.time()
    trainer.run_training()
    minutes = (time.time() - began) / 60
    trainer.perform_actual_validation()
    (work / "training.json").write_text(
        json.dumps({"minutes": minutes, "steps": 4 + 10 * trainer.num_epochs, "batch": trainer.batch_size, "seed": o.seed,
                    "parameters": sum(p.numel() for p in trainer.network.parameters())})
    )


def compare():
    import nibabel

    ours = rows()
    results = next(work.glob("results/*/*/fold_0/validation"))
    truth = work / "raw" / "Dataset001_Volumes" / "labelsTr"
    read = lambda path: np.rint(nibabel.load(path).get_fdata()).astype(int)
    columns = [key for key in next(iter(ours.values())) if key.startswith("dice_")]
    if not all(key[5:].isdigit() for key in columns):
        sys.exit(f"{cases} has regions; only classes can be compared")
    classes = [int(key[5:]) for key in columns]
    theirs, mine = [], []
    for name, row in ours.items():
        t, p = read(truth / f"{name}.nii.gz"), read(results / f"{name}.nii.gz")
        theirs.append([2 * np.sum((t == c) & (p == c)) / max(1, np.sum(t == c) + np.sum(p == c)) for c in classes])
        mine.append([float(row[f"dice_{c}"] or "nan") for c in classes])
    theirs, mine = np.array(theirs), np.array(mine)
    if np.isnan(mine).any():
        sys.exit(f"{cases}: a class is in neither truth nor prediction of a volume; such volumes are not compared")
    training = json.loads((work / "training.json").read_text())
    print(f"nnU-Net: {training['steps']} steps of {training['batch']} windows in {training['minutes']:.0f} minutes, "
          f"{training['parameters']} parameters; {len(ours)} volumes\n")
    print("| | " + " | ".join(f"class {c}" for c in classes) + " | mean |\n|---|" + "--:|" * (len(classes) + 1))
    for what, dice in [("unet3d", mine), ("nnU-Net", theirs), ("difference", mine - theirs)]:
        print(f"| {what} | " + " | ".join(f"{x:.4f}" for x in [*dice.mean(axis=0), dice.mean()]) + " |")
    drawn = np.random.default_rng(1).integers(0, len(ours), (10000, len(ours)))
    means = (mine - theirs).mean(axis=1)[drawn].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    print(f"\nMean paired difference {(mine - theirs).mean():.4f}; 95 % of 10,000 bootstrap samples of the volumes: {low:.4f} to {high:.4f}")


if __name__ == "__main__":
    train() if o.command == "train" else compare()
