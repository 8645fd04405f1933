"""CRC-32C, the checksum of TFRecord files, for which neither Python nor TensorFlow offers a function.

A checksum of n bytes is a loop of n steps, too slow in Python. But it is linear: that of a block of 1024 bytes is the exclusive or of
what each byte contributes at its place, which NumPy looks up for all bytes at once; Python then only goes from block to block.
"""
from __future__ import annotations

import functools

import numpy as np

_POLYNOMIAL = 0x82F63B78   # Castagnoli, bits reversed
_BLOCK = 1024


def masked_crc32c(data: bytes) -> int:
    """The checksum as TFRecord stores it: rotated and shifted, so that data with checksums in it has a good one too."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    """The checksum (RFC 3720, appendix B.4): crc32c(b'123456789') is 0xE3069283."""
    size = len(data)
    if size < 16:
        crc, of_byte = 0xFFFFFFFF, _of_byte()
        for byte in data:
            crc = (crc >> 8) ^ of_byte[(crc ^ byte) & 255]
        return crc ^ 0xFFFFFFFF
    # Zeros in front change nothing of a checksum that begins with 0; to begin with 0xFFFFFFFF is to invert the first 32 bits.
    blocks = np.zeros([-(-size // _BLOCK) * _BLOCK], np.uint8)
    blocks[-size:] = np.frombuffer(data, np.uint8)
    start = len(blocks) - size
    blocks[start:start + 4] ^= 255
    contributions, places = _contributions()
    of_blocks = np.bitwise_xor.reduce(contributions.take(blocks.reshape(-1, _BLOCK) + places), axis=1)
    crc, (a, b, c, d) = 0, _past_block()
    for of_block in of_blocks.tolist():
        crc = a[crc & 255] ^ b[crc >> 8 & 255] ^ c[crc >> 16 & 255] ^ d[crc >> 24] ^ of_block
    return crc ^ 0xFFFFFFFF


@functools.cache
def _of_byte() -> list[int]:
    """The checksum of each byte, begun with 0."""
    table: np.ndarray = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> 1) ^ (table & 1) * np.uint32(_POLYNOMIAL)
    return table.tolist()   # type: ignore[no-any-return]


@functools.cache
def _contributions() -> tuple[np.ndarray, np.ndarray]:
    """(what each byte at each place of a block contributes to the block's checksum: uint32 [block * 256], where a place begins in it)"""
    of_byte = np.array(_of_byte(), np.uint32)
    rows = [of_byte]
    for _ in range(_BLOCK - 1):   # one place further from the end: one more zero byte behind it
        rows.append((rows[-1] >> 8) ^ of_byte[rows[-1] & 255])
    return np.concatenate(rows[::-1]), np.arange(_BLOCK, dtype=np.int32) * 256


@functools.cache
def _past_block() -> list[list[int]]:
    """For each of the 4 bytes of a checksum, what it becomes when a block of zeros follows.

    A checksum and the 4 bytes that follow it are added, so this is what these bytes contribute at the first places of a block.
    """
    return _contributions()[0].reshape(_BLOCK, 256)[:4].tolist()   # type: ignore[no-any-return]
