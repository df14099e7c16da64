"""Run the README's first example, and put its output into the README and its picture into docs/.

python benchmarks/readme_example.py
"""

import argparse
import contextlib
import io
import os
import re
import shutil
import tempfile
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PLACE = re.compile(r"(<!-- output: example -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    text = README.read_text()
    code = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    printed = io.StringIO()
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            with contextlib.redirect_stdout(printed), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(code, {"__name__": "__main__"})
        finally:
            os.chdir(here)
        (ROOT / "docs").mkdir(exist_ok=True)
        shutil.copy(Path(folder) / "forecast.png", ROOT / "docs" / "forecast.png")
    # the progress bar is not part of what the example prints
    lines = [line for line in re.split(r"[\r\n]", printed.getvalue()) if line.strip() and not _is_progress(line)]
    output = "```text\n" + "\n".join(lines) + "\n```\n"
    README.write_text(PLACE.sub(lambda m: m[1] + output + m[2], text))
    print(output)


def _is_progress(line: str) -> bool:
    return bool(re.match(r"\s*(Epoch|Training|Validation|Sanity)", line)) or line.startswith("\x1b")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    main()
