"""The reverse complement of a sequence."""

__all__ = ["reverse_complement"]

# S, W and N are self-complementary
_COMPLEMENT = str.maketrans("ACGTRYKMBVDH", "TGCAYRMKVBHD")


def reverse_complement(sequence: str) -> str:
    """Reverse complement of upper-case bases and IUPAC codes. Other letters are kept."""
    return sequence.translate(_COMPLEMENT)[::-1]
