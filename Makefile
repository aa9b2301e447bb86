.PHONY: test lint prove

PYTHON ?= .venv/bin/python

test:
	$(PYTHON) -m pytest

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

# What takes too long for CI: learning on three seeds and with every preset, judging all of HumanEval and MBPP with mutants, and 20,000
# verdicts with every hostile case; the tables go to docs/results/.
prove:
	$(PYTHON) benchmarks/prove_learning.py
	$(PYTHON) -m benchmarks.prove_presets
	$(PYTHON) -m benchmarks.prove_saturation
	$(PYTHON) -m benchmarks.prove_process
	$(PYTHON) -m benchmarks.prove_judging
	$(PYTHON) -m benchmarks.prove_endurance
