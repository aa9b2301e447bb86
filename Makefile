.PHONY: test lint prove

PYTHON ?= .venv/bin/python

test:
	$(PYTHON) -m pytest

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

# What takes too long for CI: learning on three seeds; the table goes to docs/results/.
prove:
	$(PYTHON) benchmarks/prove_learning.py
