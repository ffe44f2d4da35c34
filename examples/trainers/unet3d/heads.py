"""Makes training images of heads from label maps, as SynthSeg does: each tissue gets a brightness, each voxel noise.

    git clone https://github.com/BBillot/SynthSeg
    python3 examples/trainers/unet3d/heads.py SynthSeg/data OUT [--images 1]

For each label map --images images are written to OUT/images (float32, NAME_0.nii and so on) and OUT/labels, where 0 is
background and 1 to 7 are white matter, cortex, ventricles, white matter and cortex of the cerebellum, the other grey matter,
brain stem. Each image of 256^3 takes 84 MB on the disk and 5 s. Existing files are not overwritten. Needs numpy.

Source: Billot et al., SynthSeg, Medical Image Analysis 86 (2023) 102789. Not done here: deformations, low resolution, and
contrasts other than T1.
"""

import argparse
import gzip
import pathlib
import struct

import numpy as np

TYPES = {2: "u1", 4: "<i2", 8: "<i4", 16: "<f4", 256: "i1", 512: "<u2"}
DEEP = (10, 11, 12, 13, 17, 18, 26, 28, 49, 50, 51, 52, 53, 54, 58, 60)  # FreeSurfer's numbers, here and below
CLASSES = [(2, 41), (3, 42), (4, 5, 14, 15, 24, 43, 44), (7, 46), (8, 47), DEEP, (16,)]


def read_map(path):
    """Header and labels [x, y, z] of a NIfTI-1 file of whole numbers."""
    raw = gzip.decompress(path.read_bytes())
    extents, kind = struct.unpack("<8h", raw[40:56])[1:4], struct.unpack("<h", raw[70:72])[0]
    first = int(struct.unpack("<f", raw[108:112])[0])
    voxels = np.frombuffer(raw, TYPES[kind], np.prod(extents), first)
    return raw[:348], np.rint(voxels.reshape(extents, order="F")).astype(int)


def write_volume(path, header, voxels, kind):
    """Writes voxels after the header of another file, without scaling."""
    header = bytearray(header)
    header[70:74] = struct.pack("<2h", kind, voxels.dtype.itemsize * 8)
    header[108:120] = struct.pack("<3f", 352, 1, 0)
    header[344:348] = b"n+1\0"
    with open(path, "xb") as file:
        file.write(header + bytes(4) + voxels.tobytes(order="F"))


def image(labels, tables, random):
    """Brightness and noise of each tissue drawn from its prior, a blur of one voxel, a smooth bias field."""
    names, classes, means, deviations = tables
    mean = random.normal(*means)
    deviation = np.abs(random.normal(*deviations))
    class_of = dict(zip(names.tolist(), classes.tolist()))
    brightness, noise = np.zeros(labels.max() + 1), np.zeros(labels.max() + 1)
    for label in set(class_of) & set(np.unique(labels).tolist()):
        brightness[label], noise[label] = mean[class_of[label]], deviation[class_of[label]]
    voxels = brightness[labels] + noise[labels] * random.standard_normal(labels.shape)
    for axis in range(3):
        voxels = (np.roll(voxels, 1, axis) + 2 * voxels + np.roll(voxels, -1, axis)) / 4
        slope = [-1 if each == axis else 1 for each in range(3)]
        voxels *= np.exp(random.normal(0, 0.15) * np.linspace(-1, 1, labels.shape[axis])).reshape(slope)
    return np.clip(voxels, 0, 400).astype("<f4")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--images", type=int, default=1, help="for each label map")
    options = parser.parse_args()
    paths = sorted(options.data.glob("training_label_maps/*.nii.gz"))
    if not paths:
        parser.error(f"there is no training_label_maps/*.nii.gz in {options.data}")
    names = ["generation_labels", "generation_classes_contrast_specific", "prior_means_t1", "prior_stds_t1"]
    tables = [np.load(options.data / f"labels_classes_priors/{name}.npy") for name in names]
    for folder in ["images", "labels"]:
        (options.out / folder).mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(paths):
        header, labels = read_map(path)
        reduced = np.zeros(labels.shape, "u1")
        for index, group in enumerate(CLASSES):
            reduced[np.isin(labels, group)] = index + 1
        for version in range(options.images):
            name = f"{path.name.removesuffix('.nii.gz')}_{version}.nii"
            write_volume(options.out / "images" / name, header, image(labels, tables, np.random.default_rng([number, version])), 16)
            write_volume(options.out / "labels" / name, header, reduced, 2)


if __name__ == "__main__":
    main()
