"""A matplotlib figure that notebooks display without pyplot, so no global state is touched."""

from io import BytesIO

from matplotlib.figure import Figure


class Picture(Figure):
    """A Figure that a notebook displays as PNG."""

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        self.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()
