# 48 pictures of 12 x 12, bars and rings in four classes and two families, as IDX and as .npy: python3 bars.py FOLDER
import random, struct, sys
work = sys.argv[1]
random.seed(3)
n, side = 48, 12
pixels, kinds, families = bytearray(), bytearray(), bytearray()
for i in range(n):
    kind = i % 4
    at = random.randrange(3, side - 3)
    for y in range(side):
        for x in range(side):
            ink = [abs(x - at) < 2, abs(y - at) < 2, abs(x - y) < 2, 4 < (x - 6) ** 2 + (y - 6) ** 2 < 18][kind]
            pixels.append(min(255, 230 * ink + random.randrange(25)))
    kinds.append(kind)
    families.append(kind // 2)
def idx(name, extents, data):
    open(f"{work}/{name}", "wb").write(struct.pack(f">BBBB{len(extents)}I", 0, 0, 8, len(extents), *extents) + data)
idx("bars-images-idx3-ubyte", [n, side, side], pixels)
idx("bars-kind-idx1-ubyte", [n], kinds)
idx("bars-family-idx1-ubyte", [n], families)
def npy(name, descr, extents, data):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': ({', '.join(map(str, extents))},), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    open(f"{work}/{name}", "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)
values = [p / 255 for p in pixels]
npy("plain.npy", "<f4", [n, side, side], struct.pack(f"<{len(values)}f", *values))
bad = list(values)
bad[17 * side * side + 5] = float("nan")
npy("bad.npy", "<f4", [n, side, side], struct.pack(f"<{len(values)}f", *bad))
npy("kinds.npy", "<i8", [n], struct.pack(f"<{n}q", *kinds))
npy("blank.npy", "<f4", [n, side, side], struct.pack(f"<{len(values)}f", *(v * (i // side**2 != 17) for i, v in enumerate(values))))
npy("zeros.npy", "<f4", [n, side, side], bytes(4 * n * side**2))
npy("volumes.npy", "<f4", [n, 4, 6, 6], struct.pack(f"<{len(values)}f", *values))
