# Whether frames of a file of TensorBoard have the right checksums, the first the version, others TAG: python3 events.py FILE TAG
import struct, sys
def crc(data):
    value = 0xffffffff
    for byte in data:
        value ^= byte
        for _ in range(8): value = value >> 1 ^ (0x82f63b78 if value & 1 else 0)
    value ^= 0xffffffff
    return ((value >> 15 | value << 17) + 0xa282ead8) & 0xffffffff
content, at, messages = open(sys.argv[1], "rb").read(), 0, []
while at < len(content):
    length, check = struct.unpack_from("<QI", content, at)
    message = content[at + 12:at + 12 + length]
    if crc(content[at:at + 8]) != check or struct.unpack_from("<I", content, at + 12 + length)[0] != crc(message): sys.exit(1)
    messages.append(message)
    at += 16 + length
tags = [sys.argv[2].encode() in message for message in messages]
sys.exit(not (b"brain.Event:2" in messages[0] and len(tags) == 3 and all(tags[1:])))
