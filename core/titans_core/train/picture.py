"""A matplotlib figure that notebooks show without pyplot, so that nothing global is touched."""

from io import BytesIO

from matplotlib.figure import Figure


class Picture(Figure):
    """A Figure that is shown as PNG where it is the value of a notebook's cell."""

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        self.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()
