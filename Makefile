# Each line is a command that a person could type; `.venv` is made on the first run and kept.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
PYTEST_WORKERS ?= auto

.PHONY: serve site site-check test bench clean
.DELETE_ON_ERROR:

serve: $(VENV)/.installed
	$(BIN)/mkdocs serve --dirty # after an edit, only the pages that show the file

site: $(VENV)/.installed
	EXECUTE_NOTEBOOKS=true $(BIN)/mkdocs build --strict

test: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS)

# The slow checks of the site: executed chapters, Lighthouse, accessibility of every page, page weight, build time.
site-check: $(VENV)/.installed node_modules/.installed
	EXECUTE_NOTEBOOKS=true $(BIN)/python -m pytest -m site_check

bench: $(VENV)/.installed-bench
	$(BIN)/academy bench

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed; this is %d.%d (try make PYTHON=python3.12)" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[site,test,huggingface]'
	touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[bench]'
	touch $@

node_modules/.installed: package.json package-lock.json
	command -v npm >/dev/null || { echo "make site-check needs npm and Node.js 18.16 or newer, for Lighthouse"; exit 1; }
	npm ci --no-audit --no-fund
	touch $@

clean:
	rm -rf $(VENV) site .cache node_modules
