"""The other strand of a sequence."""

__all__ = ["reverse_complement"]

# S, W and N are their own complements
_COMPLEMENT = str.maketrans("ACGTRYKMBVDH", "TGCAYRMKVBHD")


def reverse_complement(sequence: str) -> str:
    """The other strand of upper-case bases and IUPAC codes, read in its own direction. Other letters stay."""
    return sequence.translate(_COMPLEMENT)[::-1]
