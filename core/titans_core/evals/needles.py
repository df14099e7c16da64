"""What stands around a haystack and is hidden in it: RULER's words, and shorter ones of ours."""

from dataclasses import dataclass

NOISE = ("The grass is green.", "The sky is blue.", "The sun is yellow.", "Here we go.", "There and back again.")


@dataclass(frozen=True)
class Template:
    """The words of a task; ``{kind}``, ``{key}`` and, in the needle, ``{value}`` are filled in.

    Attributes:
        head: before the haystack.
        needle: the sentence that hides the value.
        tail: after the haystack: the question, and the beginning of the answer.
        noise: the pieces between which a needle may stand in noise, said again and again.
        joint: what stands between two pieces of noise.
    """

    head: str
    needle: str
    tail: str
    noise: tuple[str, ...]
    joint: str

    def filled(self, kind: str, key: str, value: str) -> tuple[str, str, str]:
        """Head, needle and tail for one needle."""
        return (
            self.head.format(kind=kind),
            self.needle.format(kind=kind, key=key, value=value),
            self.tail.format(kind=kind, key=key),
        )


# RULER's, in the singular that it turns its plural template into when there is one needle.
RULER = Template(
    head="A special magic {kind} is hidden within the following text. Make sure to memorize it. "
    "I will quiz you about the {kind} afterwards.\n",
    needle="One of the special magic {kind}s for {key} is: {value}.",
    tail="\nWhat is the special magic {kind} for {key} mentioned in the provided text?"
    " The special magic {kind} for {key} mentioned in the provided text is",
    noise=(" ".join(NOISE),),
    joint="\n",
)

# Ours, not RULER's: with needle and answer some 120 bytes, where RULER's take some 350; for models of bytes at 256.
SHORT = Template(head="", needle=RULER.needle, tail="\nThe special magic {kind} for {key} is:", noise=NOISE, joint=" ")
