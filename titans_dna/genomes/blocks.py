"""Blocks of a bgzip file, as pyfaidx looks them up. Imports pyfaidx."""

from pyfaidx import BgzfBlock

__all__ = ["Block"]


class Block(BgzfBlock):
    """A block that holds its own first byte.

    pyfaidx bisects the blocks by ``block < position``, and would read the first byte of a block from the end of the one
    before. No offset reaches there if that block is full (65,536 bytes), as are those of Biopython; bgzip's are not.
    """

    __slots__ = ()

    def __lt__(self, position: object) -> bool:
        return bool(self.ustart <= position)
