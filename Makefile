# Two commands are enough: `make train` trains a policy, `make test` checks everything.
# Each sets up what it needs in $(VENV) first, once, and again when the pins change.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV ?= .venv
PY := $(VENV)/bin/python
INPUTS := setup.cfg pyproject.toml constraints.txt scripts/install.sh
TRAIN_EXTRAS := box2d,hydra,mujoco,tensorboard,video

# Words for the commands, e.g. `make train ARGS="env=LunarLanderContinuous-v3"`.
ARGS ?=

# Processes that tests run in, files shared out among them; each of them takes one thread.
JOBS ?= 2

# The speed studies that `make bench` runs.
STUDIES ?= sac redq off_policy collection ppo

.PHONY: help train test lint docs bench bench-rllib clean

help:
	@echo "make train   set up $(VENV) and train SAC on Pendulum-v1 into runs/, or what ARGS=\"key=value ...\" says"
	@echo "make test    set up $(VENV) with the development tools; ruff, mypy, pytest with doctests"
	@echo "make lint    the part of make test that runs in seconds: ruff, mypy"
	@echo "make docs    set up $(VENV) with Sphinx; build the site into build/docs"
	@echo "make bench   set up $(VENV) with the peers; speed beside them, into benchmarks/results/; STUDIES=\"$(STUDIES)\""
	@echo "make bench-rllib  the study of PPO with RLlib as well, which is set up in $(VENV)-rllib"
	@echo "make clean   remove caches and builds; keeps runs/ and $(VENV)"
	@echo
	@echo "JOBS=4 runs the tests in so many processes."
	@echo "PYTHON=python3.12 chooses the interpreter, VENV=path the environment's place."
	@echo "pip's own settings (PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, ...) are honoured, also for a CPU or CUDA torch."

# A stamp lives inside the environment, so that removing the environment removes it, and is
# written last, so that a set-up cut off half way is taken up again.
$(VENV)/.installed-train: $(INPUTS)
	VENV="$(VENV)" scripts/install.sh "$(TRAIN_EXTRAS)"
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed-train
	VENV="$(VENV)" scripts/install.sh "$(TRAIN_EXTRAS),dev"
	touch $@

$(VENV)/.installed-docs: $(VENV)/.installed-train
	VENV="$(VENV)" scripts/install.sh "$(TRAIN_EXTRAS),docs"
	touch $@

$(VENV)/.installed-bench: $(VENV)/.installed-train
	VENV="$(VENV)" scripts/install.sh "$(TRAIN_EXTRAS),bench"
	touch $@

# Networks as small as the task: half a minute on a laptop's core.
PENDULUM := env=Pendulum-v1 total_frames=10_000 num_cells=64,64 batch_size=128 \
	actor_lr=1e-3 critic_lr=1e-3 alpha_lr=1e-3

train: $(VENV)/.installed-train
	$(PY) scripts/train_sac.py $(or $(ARGS),$(PENDULUM))

lint: $(VENV)/.installed-test
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

test: lint
	$(PY) -m pytest -n $(JOBS) --dist loadfile $(ARGS)

docs: $(VENV)/.installed-docs
	$(PY) docs/generate_options.py
	$(PY) -m sphinx -q -W -b html docs build/docs

bench: $(VENV)/.installed-bench
	for study in $(STUDIES); do $(PY) benchmarks/$$study.py $(ARGS); done

# RLlib pins a Gymnasium of its own, and so cannot share $(VENV).
$(VENV)-rllib/.installed: benchmarks/requirements-rllib.txt $(VENV)/.installed-train
	$(PY) -m venv $(VENV)-rllib
	$(VENV)-rllib/bin/python -m pip install -q -r benchmarks/requirements-rllib.txt
	touch $@

bench-rllib: $(VENV)/.installed-bench $(VENV)-rllib/.installed
	$(PY) benchmarks/ppo.py --rllib-python $(VENV)-rllib/bin/python $(ARGS)

clean:
	rm -rf build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache .coverage .coverage.* htmlcov
	find . -name __pycache__ -type d -not -path "./$(VENV)/*" -not -path "./.venv*" -not -path "./runs/*" -prune -exec rm -rf {} +
