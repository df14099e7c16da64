"""Texts around a haystack and the needle hidden in it: RULER's template, and a shorter one of ours."""

from dataclasses import dataclass

NOISE = ("The grass is green.", "The sky is blue.", "The sun is yellow.", "Here we go.", "There and back again.")


@dataclass(frozen=True)
class Template:
    """The texts of a task. ``{kind}``, ``{key}`` and, in the needle, ``{value}`` are filled in.

    Attributes:
        head: text before the haystack.
        needle: the sentence that hides the value.
        tail: text after the haystack: the question, and the beginning of the answer.
        noise: pieces of noise, which are repeated; a needle can stand between any two.
        joint: separator between two pieces of noise.
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


# RULER's template, in the singular form that it uses for one needle.
RULER = Template(
    head="A special magic {kind} is hidden within the following text. Make sure to memorize it. "
    "I will quiz you about the {kind} afterwards.\n",
    needle="One of the special magic {kind}s for {key} is: {value}.",
    tail="\nWhat is the special magic {kind} for {key} mentioned in the provided text?"
    " The special magic {kind} for {key} mentioned in the provided text is",
    noise=(" ".join(NOISE),),
    joint="\n",
)

# Ours, not RULER's: about 120 bytes with needle and answer instead of 350, for byte models with a context of 256.
SHORT = Template(head="", needle=RULER.needle, tail="\nThe special magic {kind} for {key} is:", noise=NOISE, joint=" ")
