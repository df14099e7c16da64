# Two commands on a fresh machine: `make demo` and `make test`. Both make .venv and install pinned packages into it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# what pip installs has no bytecode: Python keeps that of the modules it imports, whatever else the environment says
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test quick lint tables example notebooks clean

demo: $(STAMP)
	$(BIN)/python benchmarks/demo.py

test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2

quick: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 -m "not slow"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

tables: $(STAMP)
	$(BIN)/python benchmarks/tables.py

example: $(STAMP)
	$(BIN)/python benchmarks/readme_example.py

notebooks: $(STAMP)
	$(BIN)/python benchmarks/run_notebooks.py

clean:
	rm -rf $(VENV) out

# torch first and by its exact version: a local build of it, such as that for the CPU alone, is then taken where there is one
# pip would compile all that it installs, a quarter of which is ever imported; the pip that comes with Python may be old,
# and slow to choose versions
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 10) <= v <= (3, 13) else f"Python 3.10 to 3.13 is needed, this is {v[0]}.{v[1]}. Say which: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --no-compile --upgrade pip
	$(BIN)/python -m pip install -q --no-compile -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install -q --no-compile -c constraints.txt -e '.[all,dev]'
	touch $@
