"""Run the notebooks in full and store their outputs, so that they can be read without running them.

    python benchmarks/run_notebooks.py [forecasting_quickstart ...]

The digest of the code is stored too: a test fails if a notebook was changed and not run again.
"""

import argparse
import base64
import hashlib
import io
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
BAR = re.compile(r"\d+/(\d+|\?) \[.*(it/s|s/it)")


def source(book: Any) -> str:
    """Digest of the code cells of a notebook, without outputs and text."""
    cells = [cell.source for cell in book.cells if cell.cell_type == "code"]
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()[:16]


def run(path: Path) -> None:
    """Run a notebook and write it back with its outputs."""
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        place = {"metadata": {"path": folder}}
        NotebookClient(book, timeout=None, kernel_name="python3", resources=place, record_timing=False).execute()
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs = _tidied(cell.outputs)
    book.metadata["titans"] = {"source": source(book)}
    nbformat.write(book, path)


def _tidied(outputs: list[Any]) -> list[Any]:
    """The outputs with stdout in one piece and without progress bars, with smaller pictures, and without stderr."""
    printed = [output for output in outputs if output.get("name") == "stdout"]
    text = "".join(output.text for output in printed)
    lines = [line.rpartition("\r")[2] for line in text.replace("\x1b[A", "").split("\n")]
    lines = [line for line in lines if line.strip() and not BAR.search(line)]
    kept = [output for output in outputs if output.output_type != "stream"]
    for output in kept:
        if "image/png" in output.get("data", {}):
            output.data["image/png"] = _smaller(output.data["image/png"])
    if lines:
        kept.insert(0, printed[0])
        printed[0].text = "\n".join(lines) + "\n"
    return kept


def _smaller(picture: str) -> str:
    from PIL import Image

    smaller = io.BytesIO()
    Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB").quantize(64).save(smaller, "PNG", optimize=True)
    return base64.b64encode(smaller.getvalue()).decode()


def main() -> None:
    names = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(names)}")
    chosen = parser.parse_args().names or names
    if unknown := set(chosen) - set(names):
        parser.error(f"there is no notebook {sorted(unknown)[0]!r}; there are {', '.join(names)}.")
    os.environ.pop("TITANS_SHORT", None)
    for name in chosen:
        run(FOLDER / f"{name}.ipynb")
        print(name)


if __name__ == "__main__":
    main()
