"""CRC-32, by the quicker of two libraries: ISA-L where it is installed (extra ``fast``), zlib otherwise. Both give the same.

On long frames ISA-L is about ten times as quick, and the checksum is then no longer what moving a large message costs most.
"""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]
