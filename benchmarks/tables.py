"""Write the tables of the README and of docs/ between their markers, from the result files.

python benchmarks/tables.py [--check]
"""

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from headlines import TABLES as HEADLINES
from tables_dna import TABLES as GENOMES
from tables_fit import TABLES as FIT
from tables_lm import TABLES as LANGUAGE
from tables_memory import KERNELS
from tables_memory import TABLES as MEMORY
from tables_ts import TABLES as FORECASTS

ROOT = Path(__file__).resolve().parents[1]


def _place(rows: list[dict[str, Any]]) -> str:
    """Provenance of rows: machines, torch versions, dates and commits."""
    machines = " and ".join(dict.fromkeys(row["machine"] for row in rows))
    versions = " and ".join(dict.fromkeys(row["versions"]["torch"] for row in rows))
    days = sorted({row["date"][:10] for row in rows})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"{machines}, torch {versions}, {when}, commit {', '.join(dict.fromkeys(row['commit'] for row in rows))}"


TABLES = {
    "README.md": HEADLINES,
    "docs/results.md": {**FORECASTS, **MEMORY, **FIT, **LANGUAGE},
    "docs/results_genomes.md": GENOMES,
    "core/titans_core/ops/memory/README.md": KERNELS,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only check: fail if a table is out of date")
    args = parser.parse_args()
    for page, tables in TABLES.items():
        old = new = (ROOT / page).read_text()
        places = re.findall("<!-- table: (.*) -->", old)
        if sorted(places) != sorted(tables):
            sys.exit(f"{page} has markers for the tables {sorted(places)}, but needs {sorted(tables)}")
        for name, make in tables.items():
            pattern = re.compile(f"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
            table = make(_place)
            new = pattern.sub(lambda m, table=table: f"{m[1]}{table}\n{m[2]}", new)
        if args.check and new != old:
            sys.exit(f"{page} is out of date: run python benchmarks/tables.py")
        (ROOT / page).write_text(new)


if __name__ == "__main__":
    main()
