"""Numbers of tokens, which a compiled graph may leave open."""


def at_most(bound: int, length: int) -> int:
    """``min(bound, length)`` by a branch: a graph that is compiled holds one of the two.

    ``min`` itself stays in it as an expression, which all that is cut by it inherits; a compiler that has to reason
    about expressions of expressions takes minutes where it took seconds.
    """
    return bound if bound <= length else length
