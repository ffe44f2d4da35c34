# patch.py FILE FORMAT OLD... -- NEW...: replaces the numbers OLD, which must be there, by NEW; FORMAT is Python's for one of them, or s
# for words, of the same length. Headers of HDF5's objects keep a right checksum, as if the file's writer had meant it: Jenkins'
# lookup3 of all in front of it (HDF5 File Format Specification 3.0, IV.A.1.b).

import struct, sys
path, form, *rest = sys.argv[1:]
cut = rest.index("--")
def pack(words):
    if form == "s": return " ".join(words).encode()
    return b"".join(struct.pack("<" + form, (float if form == "f" else int)(word)) for word in words)
content = open(path, "rb").read()
old, new = pack(rest[:cut]), pack(rest[cut + 1:])
if old not in content: sys.exit("nothing to patch")

def lookup3(data):
    mask, turn = 0xFFFFFFFF, lambda x, k: ((x << k) | (x >> (32 - k))) & 0xFFFFFFFF
    a = b = c = (0xDEADBEEF + len(data)) & mask
    for begin in range(0, len(data), 12):
        words = struct.unpack("<3I", data[begin:begin + 12].ljust(12, b"\0"))
        a, b, c = ((x + y) & mask for x, y in zip((a, b, c), words))
        if begin + 12 < len(data):
            for k, l, m in ((4, 6, 8), (16, 19, 4)):
                a = (a - c & mask) ^ turn(c, k); c = c + b & mask
                b = (b - a & mask) ^ turn(a, l); a = a + c & mask
                c = (c - b & mask) ^ turn(b, m); b = b + a & mask
        else:
            for k, l, m in ((14, 11, 25), (16, 4, 14)):
                c = (c ^ b) - turn(b, k) & mask
                a = (a ^ c) - turn(c, l) & mask
                b = (b ^ a) - turn(a, m) & mask
            c = (c ^ b) - turn(b, 24) & mask
    return c

def headers(data):  # of version 2: where the checksum of each stands
    at = data.find(b"OHDR\2")
    while at >= 0:
        flags, begin = data[at + 5], at + 6
        begin += 16 * bool(flags & 32) + 4 * bool(flags & 16)
        size = 1 << (flags & 3)
        yield at, begin + size + int.from_bytes(data[begin:begin + size], "little")
        at = data.find(b"OHDR\2", at + 1)

changed = bytearray(content.replace(old, new))
for at, end in headers(content):
    if struct.unpack_from("<I", content, end)[0] != lookup3(content[at:end]): sys.exit("a header with another checksum")
    struct.pack_into("<I", changed, end, lookup3(bytes(changed[at:end])))
open(path, "wb").write(changed)
