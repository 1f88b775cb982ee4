"""Damages files the way disks, editors and attackers do: in their bytes, their text and their structure."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import random
import re
import zipfile
from typing import Any

import yaml

__all__ = ["damaged"]

_LONGEST = 4 << 20
_NUMBERS = ("0", "-1", "1e30", "4294967296", "9223372036854775808", "2000000000", "nan", "1" * 400, "0x10")
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
_WORDS = (
    b"",
    b"\x00",
    b"\xff\xfe",
    b"[" * 5000,
    b'{"a":' * 5000,
    b"\n",
    b"-",
    b"\xc3\xa9",
    b'"',
    b"&a [*a, *a]",
)
_ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 7, 1.5, -0.0, float("nan"), float("inf"), 2**31, 2**32, 2**63, 2**64),
    *(
        2_000_000_000,
        -(2**63),
        10**30,
        10**400,
        1e300,
        5e-324,
        "",
        "x",
        "0",
        "-1",
        "9" * 5000,
        "\x00",
        "../x",
    ),
    *("\udcff", "é", [], {}, [[]], [{}], {"": 0}, ["x"], [None], {"id": 1}),
)


def damaged(name: str, content: bytes, random_: random.Random) -> bytes:
    """Return *content* of the file *name* with one to four changes, for archives in a member."""
    if content[:2] == b"\x1f\x8b" and random_.random() < 0.9:
        return gzip.compress(damaged(name.removesuffix(".gz"), gzip.decompress(content), random_), 1)
    if content[:2] == b"PK" and random_.random() < 0.8:
        return _archive(content, random_)
    for _ in range(random_.choice((1, 1, 1, 2, 4))):
        content = _changed(name, content, random_)[:_LONGEST]
    return content


def _changed(name: str, content: bytes, random_: random.Random) -> bytes:
    if random_.random() < 0.65:
        structure = _structure(name, content, random_)
        if structure is not None:
            return structure
    is_text = b"\x00" not in content[:200] and name.rpartition(".")[2] not in {"et", "parquet", "wire"}
    return (_text if is_text and random_.random() < 0.7 else _bytes)(content, random_)


def _structure(name: str, content: bytes, random_: random.Random) -> bytes | None:
    """Return the file's data with one value changed, in the same format; None if it holds no such data."""
    try:
        if name.endswith((".json", ".jsonl")):
            data = json.loads(content)
            return json.dumps(_value(data, random_)).encode("utf-8", "surrogatepass")
        if name.endswith((".yml", ".yaml")):
            data = yaml.safe_load(content)
            return json.dumps(_value(data, random_)).encode("utf-8", "surrogatepass")
        if name.endswith(".pickle"):
            return pickle.dumps(_value(pickle.loads(content), random_), protocol=2)
    except Exception:  # earlier damage may have destroyed the data; pickles may raise anything
        return None
    return None


def _value(data: Any, random_: random.Random) -> Any:
    """Return *data* with one value in it replaced, removed, repeated, renamed, swapped or wrapped."""
    places = [()]
    _collect(data, (), places)
    way = random_.choice(places)
    return _put(data, way, random_)


def _collect(data: Any, way: tuple[Any, ...], places: list[tuple[Any, ...]]) -> None:
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in inner:
        if len(places) < 20_000:
            places.append((*way, key))
            _collect(value, (*way, key), places)


def _put(data: Any, way: tuple[Any, ...], random_: random.Random) -> Any:
    if len(way) > 1:
        new = data.copy()
        new[way[0]] = _put(data[way[0]], way[1:], random_)
        return new
    if not way:
        return _odd(data, random_)
    new, key = data.copy(), way[0]
    change = random_.randrange(8)
    if change == 0:
        del new[key]
    elif change == 1 and isinstance(new, list):
        new[key:key] = [data[key]] * random_.choice((1, 1, 5, 3000))
    elif change == 1:
        new[random_.choice(("x", "9" * 5000, "", str(key) + " "))] = new.pop(key)
    elif change == 2:
        other = random_.choice(list(data) if isinstance(data, dict) else range(len(data)))
        new[key], new[other] = data[other], data[key]
    else:
        new[key] = _odd(data[key], random_)
    return new


def _odd(value: Any, random_: random.Random) -> Any:
    """Return a value that differs from *value*, sometimes only slightly."""
    if isinstance(value, bool) or random_.random() < 0.5:
        return random_.choice(_ODD)
    if isinstance(value, int | float) and abs(value) < 2**70:
        return random_.choice(
            (value + 1, value - 1, -value, value * 2, value * 10**6, str(value), [value], value + 0.5)
        )
    if isinstance(value, str):
        return random_.choice((value + "x", value[1:], value[:-1], value * 300, [value], {value: value}))
    nested: Any = value
    for _ in range(random_.choice((1, 3, 300))):
        nested = [nested]
    return nested


def _text(content: bytes, random_: random.Random) -> bytes:
    numbers = list(_NUMBER.finditer(content))
    if numbers and random_.random() < 0.5:
        found = random_.choice(numbers)
        return content[: found.start()] + random_.choice(_NUMBERS).encode() + content[found.end() :]
    lines = content.splitlines(keepends=True) or [b""]
    place = random_.randrange(len(lines))
    change = random_.randrange(4)
    if change == 0:
        del lines[place]
    elif change == 1:
        lines[place:place] = [lines[place]] * min(
            random_.choice((1, 2, 1000)), 1 + _LONGEST // len(lines[place] or b" ")
        )
    elif change == 2:
        lines[place] = random_.choice(_WORDS)
    else:
        words = lines[place].split(b" ")
        words[random_.randrange(len(words))] = random_.choice(_WORDS)
        lines[place] = b" ".join(words)
    return b"".join(lines)


def _bytes(content: bytes, random_: random.Random) -> bytes:
    new = bytearray(content)
    change = random_.randrange(6)
    place = random_.randrange(len(new) + 1)
    if change == 0:
        del new[place:]
    elif change == 1:
        new[place : place + random_.choice((1, 2, 4, 8, 64))] = b""
    elif change == 2:
        new[place:place] = random_.choice((*_WORDS, random_.randbytes(random_.choice((1, 2, 8, 64)))))
    elif change == 3:  # the longest varint of protobuf, and one that is too long
        new[place : place + 1] = b"\xff" * random_.choice((4, 9, 10, 12)) + b"\x01"
    elif change == 4 and new:
        other = random_.randrange(len(new))
        new[place:place] = new[other : other + random_.choice((4, 40, 400))]
    elif new:
        for _ in range(random_.choice((1, 1, 3, 16))):
            new[random_.randrange(len(new))] = random_.choice(
                (0, 1, 0x7F, 0x80, 0xFF, random_.randrange(256))
            )
    return bytes(new)


def _archive(content: bytes, random_: random.Random) -> bytes:
    """Return a zip (such as ``.npz``) with one member damaged, removed or renamed."""
    with zipfile.ZipFile(io.BytesIO(content)) as whole:
        members = {name: whole.read(name) for name in whole.namelist()}
    name = random_.choice(list(members))
    change = random_.randrange(6)
    if change == 0:
        del members[name]
    elif change == 1:
        members["x" + name] = members.pop(name)
    elif change == 2:
        members[name] = members[random_.choice(list(members))]
    elif change == 3:  # the header of a .npy, with type and shape
        members[name] = _bytes(members[name][:128], random_) + members[name][128:]
    else:
        members[name] = _bytes(members[name], random_)
    new = io.BytesIO()
    with zipfile.ZipFile(new, "w") as archive:
        for member, data in members.items():
            archive.writestr(member, data)
    return new.getvalue()
