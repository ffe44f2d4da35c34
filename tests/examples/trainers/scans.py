# Two classes of six volumes of 8 x 10 x 12 voxels each, as NIfTI in folders: python3 scans.py FOLDER
import os, random, struct, sys
random.seed(1)
for kind in ("flat", "rough"):
    os.makedirs(f"{sys.argv[1]}/{kind}")
    for n in range(6):
        voxels = [random.gauss(0, 1 if kind == "rough" else 0.3) + 0.01 * i for i in range(12 * 10 * 8)]
        header = bytearray(352)
        struct.pack_into("<i", header, 0, 348)
        struct.pack_into("<8h", header, 40, 3, 12, 10, 8, 1, 1, 1, 1)
        struct.pack_into("<2h", header, 70, 16, 32)
        struct.pack_into("<8f", header, 76, 1, 1, 1, 1, 0, 0, 0, 0)
        struct.pack_into("<2f", header, 108, 352, 1)
        header[344:348] = b"n+1\0"
        open(f"{sys.argv[1]}/{kind}/v{n}.nii", "wb").write(bytes(header) + struct.pack(f"<{len(voxels)}f", *voxels))
