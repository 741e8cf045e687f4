# Each line is a command that a person could type; `.venv` is made on the first run and kept.
#
#   make serve                    the site on http://127.0.0.1:8000        make serve ADDRESS=127.0.0.1:8001
#   make site                     the site into the folder site            make site ENGINE=zensical
#   make zip                      the site as one file, to read without a network: dist/triton-academy-site.zip
#   make test                     all checks but those of the night        make test PYTEST_WORKERS=2
#   make test-as-another-cpu      the checks of numbers, with sums in another order
#   make check OP=layernorm       every check of one operation
#   make CPU=1 serve              on the first run: torch without CUDA, a quarter of the download
#   make TORCH=2.11 test          with another torch, of those in constraints/
PYTHON ?= python3
VENV   ?= .venv
TORCH  ?= 2.13
CPU    ?=
BIN     = $(VENV)/bin
ENGINE ?= mkdocs
ADDRESS ?= 127.0.0.1:8000
PYTEST_WORKERS ?= auto
CONSTRAINTS = constraints/torch-$(TORCH).txt
SETUP   = $(PYTHON) academy/command/setup_environment.py $(VENV) --torch $(TORCH) $(if $(CPU),--cpu)
UV      = uv==0.13.9
# Hundreds of processes import the same files. Where this is set, each of them would compile every file again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: serve site zip site-check test test-as-another-cpu check bench constraints clean other-torch
.DELETE_ON_ERROR:

# Instead of the theme's own notice, one sentence.
export NO_MKDOCS_2_WARNING = 1
serve: $(VENV)/.installed
	@echo "The site's theme is maintained until May 2027. What comes after: http://$(ADDRESS)/about/engine/"
	$(BIN)/mkdocs serve --dirty --dev-addr $(ADDRESS) # a page is made when it is asked for, and kept

BUILD_mkdocs = $(BIN)/mkdocs build --strict
BUILD_zensical = $(BIN)/python -m academy.site.with_zensical site
site: $(VENV)/.installed $(if $(filter zensical,$(ENGINE)),$(VENV)/.installed-zensical)
	EXECUTE_NOTEBOOKS=true $(or $(BUILD_$(ENGINE)),$(error ENGINE is mkdocs or zensical))

# Its pages fetch their parts, which a browser allows from a server only: python3 -m http.server -d site
zip: site
	mkdir -p dist
	$(BIN)/python -m zipfile -c dist/triton-academy-site.zip site/

test: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@# While one core collects the tests, another looks at types; what it finds is said at the end.
	$(BIN)/mypy > $(VENV)/mypy.txt 2>&1 & types=$$!; \
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS); tests=$$?; \
	wait $$types; types=$$?; cat $(VENV)/mypy.txt; exit $$((tests || types))

# No expectation may hang on this processor: what adds in another order, with narrower vectors and one thread, must pass
# too. (MKL, PyTorch's own kernels, oneDNN, OpenBLAS and numpy are each told by a variable of their own.) What computes
# nothing of the kind is left out: pages, texts, files, and how commands end. What `make test` leaves to the night isn't.
ANOTHER_CPU = EVERY_CASE=1 MKL_CBWR=COMPATIBLE ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 \
    OMP_NUM_THREADS=1 OPENBLAS_CORETYPE=Prescott NPY_DISABLE_CPU_FEATURES="X86_V3 X86_V4 AVX512_ICL AVX512_SPR"
WITHOUT_NUMBERS = site compiler book files command/test_stopped.py command/test_trouble.py command/test_setup_environment.py \
    traces/test_viewer.py "test_*.py"
test-as-another-cpu: $(VENV)/.installed
	$(ANOTHER_CPU) $(BIN)/python -m pytest -n $(PYTEST_WORKERS) tests $(WITHOUT_NUMBERS:%=--ignore-glob tests/%)

# Before you push a change of one operation: its style, types, equations, kernels and all of its tests, with those that
# otherwise only the night runs.
FILES_OF_OP = $(wildcard annotated_examples/*/$(OP).py backprop_math/$(OP).md)
check: $(VENV)/.installed
	@test -n "$(OP)" || { echo "Which operation? For example: make check OP=layernorm"; exit 2; }
	@test -n "$(FILES_OF_OP)" || { echo "There is no operation $(OP) in annotated_examples or backprop_math"; exit 2; }
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/academy check $(FILES_OF_OP)
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS) -m "not site_check" -k $(OP) --ignore tests/site

# The slow checks of the site: executed chapters, Lighthouse, accessibility of every page, page weight, build time.
site-check: $(VENV)/.installed node_modules/.installed
	EXECUTE_NOTEBOOKS=true $(BIN)/python -m pytest -m site_check

bench: $(VENV)/.installed-bench
	$(BIN)/academy bench

# The pinned sets, made anew: constraints/torch-*.in says what each is for. A pin that still fits stays;
# `make constraints UPGRADE=--upgrade` takes the newest.
constraints: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(UV)"
	for set in $(basename $(wildcard constraints/*.in)); do \
	    $(BIN)/uv pip compile --quiet pyproject.toml --all-extras --universal --python-version 3.11 $(UPGRADE) \
	        --constraint $$set.in --no-annotate --custom-compile-command "make constraints" --output-file $$set.txt || exit 1; \
	done

$(VENV)/.installed: pyproject.toml $(CONSTRAINTS) $(if $(filter-out $(TORCH),$(shell cat $(VENV)/.installed 2>/dev/null)),other-torch)
	$(SETUP)
	echo $(TORCH) > $@

$(VENV)/.installed-bench $(VENV)/.installed-zensical: $(VENV)/.installed-%: $(VENV)/.installed
	$(SETUP) --extras $*
	touch $@

node_modules/.installed: package.json package-lock.json
	command -v npm >/dev/null || { echo "make site-check needs npm and Node.js 18.16 or newer, for Lighthouse"; exit 1; }
	npm ci --no-audit --no-fund
	touch $@

clean:
	rm -rf $(VENV) site .cache node_modules build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find academy annotated_examples benchmarks operations docs exercises tests -name __pycache__ -prune -exec rm -rf {} +
