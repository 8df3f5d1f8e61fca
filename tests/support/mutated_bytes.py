"""Files whose bytes are damaged: flipped, cut off, lost, added, in another order or encoding."""

from __future__ import annotations

import random
import re


def bits_flipped(data: bytes, chance: random.Random) -> bytes:
    content = bytearray(data)
    for _ in range(chance.choice((1, 2, 8)) if data else 0):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return bytes(content)


def cut_off(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def beginning_lost(data: bytes, chance: random.Random) -> bytes:
    return data[chance.randrange(len(data) + 1) :]


def middle_lost(data: bytes, chance: random.Random) -> bytes:
    one, two = sorted((chance.randrange(len(data) + 1), chance.randrange(len(data) + 1)))
    return data[:one] + data[two:]


def bytes_inserted(data: bytes, chance: random.Random) -> bytes:
    new = chance.choice((b"\x00", b"\xff", b"\xef\xbb\xbf", b"\r", b"\n", b"\xed\xa0\x80", b"\xc3", b'"', b"[" * 3000, b"{", b"}", b"]", b",", b"\x1a", b"\xfe\xff", b"\x00" * 4096))  # fmt: skip
    index = chance.choice((0, len(data), chance.randrange(len(data) + 1)))
    return data[:index] + new + data[index:]


def sign_lost(data: bytes, chance: random.Random) -> bytes:
    places = [m.start() for m in re.finditer(rb"[\"'{}\[\]:,\n\\]", data[:20_000])]
    index = chance.choice(places) if places else 0
    return data[:index] + data[index + 1 :]


def lines_shuffled(data: bytes, chance: random.Random) -> bytes:
    lines = data.split(b"\n")
    chance.shuffle(lines)
    return b"\n".join(lines)


def line_lost_or_doubled(data: bytes, chance: random.Random) -> bytes:
    lines = data.split(b"\n")
    index = chance.randrange(len(lines))
    lines[index : index + 1] = [lines[index]] * chance.choice((0, 2))
    return b"\n".join(lines)


def other_line_ends(data: bytes, chance: random.Random) -> bytes:
    return data.replace(b"\n", chance.choice((b"\r\n", b"\r", b"\n\n", b"\x00\n")))


def other_encoding(data: bytes, chance: random.Random) -> bytes:
    return data.decode("utf-8", "replace").encode(
        chance.choice(("utf-16", "latin-1", "utf-8-sig", "utf-32")), "replace"
    )


def doubled(data: bytes, chance: random.Random) -> bytes:
    return data + data


BYTES = (bits_flipped, bits_flipped, cut_off, cut_off, beginning_lost, middle_lost, bytes_inserted, bytes_inserted, sign_lost, sign_lost, lines_shuffled, line_lost_or_doubled, other_line_ends, other_encoding, doubled)  # fmt: skip
