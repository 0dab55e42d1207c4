# hybridlab. `make` alone lists the targets. Written for GNU make 3.81 (macOS) and later.

PYTHON ?= python3
# The build of torch that runs with this machine's driver: cuda, PyPI's, made with CUDA 13; cu129 for older drivers; cpu.
TORCH  ?= $(or $(shell $(PYTHON) hybridlab/world/devices/driver.py build 2>/dev/null),cpu)
ARGS   ?=

VENV   := .venv
PY     := $(VENV)/bin/python
READY  := $(VENV)/.ready
EXTRAS := torch,lab,fast,pages,test
FAST   := not ranks and not notebooks
INDEX  := https://download.pytorch.org/whl/$(if $(filter cuda,$(TORCH)),cpu,$(TORCH))
TORCH_PIN ?= $(shell grep '^torch==' requirements.lock)

PIP    = $(1) -m pip --disable-pip-version-check
PYTEST = $(PY) -m pytest
# Into .venv, whatever pip has been told elsewhere about where to install.
export PIP_USER := 0
unexport PIP_TARGET PIP_PREFIX PIP_ROOT
# JupyterLab, IPython and pip write into the home folder. Where there is none, or it cannot be written, .venv has one.
ifneq ($(shell [ -d "$$HOME" ] && [ -w "$$HOME" ] && echo writable),writable)
export HOME := $(CURDIR)/$(VENV)/home
unexport XDG_CONFIG_HOME XDG_DATA_HOME XDG_CACHE_HOME
endif
# Jupyter asks root, as one is in a container, to say that this is meant.
ROOT   := $(shell [ `id -u` = 0 ] && echo --allow-root)
# Where the surroundings forbid to keep compiled modules, each of a thousand interpreters would compile all of them anew.
export PYTHONDONTWRITEBYTECODE :=
# Of no use where no notebook runs, and a second to import.
QUICK  := -p no:nbval
# Modules with an example that starts ranks, a process test, or with one that waits (tests/later.txt).
EXAMPLES := $(sort $(shell grep -rl --include='*.py' '\# starts ranks' hybridlab) $(shell grep -sv ' tests/' tests/later.txt | grep -o '[^ ]*/[^:]*\.py'))
# Two processes share the files, those with most tests first; the tests of a file stay in order, in one of them.
SHARED := -n 2 --dist loadfile

# Does the index of builds answer? Never waits longer than eight seconds, name look-up included.
ASK = $(1) -c "import signal, urllib.request as web; signal.alarm(8); web.urlopen('$(INDEX)/torch/', timeout=5)" 2>/dev/null
# Does any index or folder that pip knows have the smallest package of the lock? Asked once, and not five times.
ANSWERS = fresh=`mktemp -d` && $(PIP) download --quiet --no-deps --no-cache-dir --retries 0 --timeout 8 -d "$$fresh" `grep '^iniconfig==' requirements.lock` >/dev/null 2>&1; got=$$?; rm -rf "$$fresh"; (exit $$got)
# torch's build of that index where it answers, else whatever build pip finds.
BUILD_OF_TORCH = extra=; \
	if $(ASK); then extra="--extra-index-url $(INDEX)"; \
	else echo "$(INDEX) does not answer: taking the build that pip finds (from PyPI on Linux: CUDA, about 3 GB)"; fi; \
	$(PIP) install $(if $(filter cpu,$(TORCH)),--no-deps) $$extra $(TORCH_PIN)

.PHONY: help setup lab mine demo page pages scoreboard editions hosted site test test-fast test-long test-notebooks test-gpu test-gpu-notebooks test-dry test-browser test-peers gpu soak soak-cases soak-moments soak-equality soak-notebooks mutants lint notebooks lock wheel clean

help:  ## list the targets
	@echo "hybridlab: make TARGET"; echo
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' Makefile
	@echo; echo "  PYTHON=python3.12 and TORCH=cpu, cuda or cu129 count when .venv is made; to choose again: rm -rf $(VENV)"

setup: $(READY)  ## make .venv with everything in it (TORCH=cpu, cuda or cu129; default: the one that fits the driver)
	@$(PY) -c "import sys; from importlib.metadata import version as v; print(f'Ready: Python {sys.version.split()[0]}, torch {v(\"torch\")}, JupyterLab {v(\"jupyterlab\")} in $(VENV). Next: make lab')"

$(READY): requirements.lock pyproject.toml
	$(if $(filter cpu cuda cu129,$(TORCH)),,$(error TORCH is cpu, cuda or cu129, not '$(TORCH)'))
	@$(PYTHON) -c "import sys; v = sys.version_info[:2]; sys.exit(v < (3, 11) and 'hybridlab needs Python 3.11 or newer and this is %d.%d: name another one, make setup PYTHON=python3.12' % v)"
	@$(PYTHON) -c "import ensurepip, venv" 2>/dev/null || { echo "`$(PYTHON) -c 'import sys; print(sys.executable)'` cannot make environments: install its module venv (Debian and Ubuntu: sudo apt install python3-venv), or name another Python, make setup PYTHON=python3.12"; exit 1; }
	@echo "Making $(VENV) with the $(TORCH) build of torch. The first time this downloads about 0.3 GB for cpu, about 3 GB for cuda or cu129, which take 5.3 GB on disk."
	@# With the Python that it was made with: another one would find nothing of what is in it.
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@mkdir -p "$$HOME"
	@$(call ANSWERS,$(PY)) || { echo "No package index answers: connect this machine to the network, or name an index that it reaches (pip config set global.index-url ADDRESS), and say make again."; exit 1; }
	@if [ $(TORCH) != cuda ] && [ "`uname`" = Linux ]; then $(call BUILD_OF_TORCH,$(PY)); fi
	$(call PIP,$(PY)) install -r requirements.lock
	$(call PIP,$(PY)) install --no-deps --no-build-isolation -e .
	@touch $(READY)

lab: $(READY)  ## open the notebooks in JupyterLab (ARGS=--no-browser prints the address)
	$(PY) -m jupyterlab --ServerApp.ip=127.0.0.1 $(ROOT) --LabApp.default_url=/lab/tree/notebooks $(ARGS)

mine: $(READY)  ## copies of the notebooks of your own, in JupyterLab; no update overwrites them
	$(PY) -m hybridlab notebooks mine
	$(PY) -m jupyterlab --ServerApp.ip=127.0.0.1 $(ROOT) --LabApp.default_url=/lab/tree/mine $(ARGS)

demo: $(READY)  ## one pipeline predicted, run on real processes, and compared
	$(PY) -m hybridlab demo $(ARGS)

page: $(READY)  ## build/hybridlab.html: the timelines in one file that opens without a server
	$(PY) -m hybridlab.show.live.page build/hybridlab.html

pages: $(READY)  ## write the pages about the course again, from the notebooks
	$(PY) -m tools.pages

scoreboard: $(READY)  ## every published run predicted without its source: results/predictor.json, docs/predictor.md
	$(PY) -m tools.scoreboard $(ARGS)

editions: $(READY)  ## build/editions: slides, pages to print, solutions, notebooks to hand out
	$(PY) -m tools.editions

hosted: $(READY)  ## build/colab: notebooks that install themselves on Colab and Kaggle (ARGS=OWNER/NAME on GitHub)
	$(PY) -m tools.hosted $(ARGS)

site: $(READY)  ## build/site: the course as static pages, for any host; nothing is fetched
	$(PY) -m tools.website

test: $(READY)  ## what a change must pass, in some ten minutes: style, types, fast tests, processes, notebooks
	@echo "== 1 of 4: style"
	$(PY) -m ruff check .
	$(PY) -m basedpyright --threads 2
	@echo "== 2 of 4: fast tests and doctests"
	$(PYTEST) $(QUICK) $(SHARED) -m "$(FAST)"
	@echo "== 3 of 4: slow tests, and those that start processes"
	$(PYTEST) $(SHARED) --slow -m "slow or not ($(FAST))" tests $(EXAMPLES)
	@echo "== 4 of 4: the cores of some notebooks of every part of the course, against their stored outputs"
	$(PY) -m tools.against_stored --core --few

test-fast: $(READY)  ## only the tests that start no process and run no notebook
	$(PYTEST) $(QUICK) $(SHARED) -m "$(FAST)" $(ARGS)

test-long: $(READY)  ## the other tests: mutants of every mode, pairs of modes, all cases of each test; some fifty minutes more
	$(PYTEST) $(SHARED) --slow --long -m long tests $(EXAMPLES) $(ARGS)

later: $(READY)  ## choose the tests that make test-fast and make test leave out, from seconds measured now: tests/later.txt
	: > tests/later.txt
	$(PYTEST) $(QUICK) $(SHARED) -m "$(FAST)" --junitxml build/fast.xml -o junit_family=xunit1
	$(PYTEST) $(SHARED) --slow -m "slow or not ($(FAST))" --junitxml build/tests.xml -o junit_family=xunit1 tests $(EXAMPLES)
	$(PY) -m tools.later build/fast.xml build/tests.xml

test-notebooks: $(READY)  ## every cell of every notebook, against its stored output
	$(PY) -m tools.against_stored

test-gpu: $(READY)  ## every kind of job on the GPUs of this machine, or on emulated ones (ARGS="tied ahead" for some)
	$(PY) tests/accelerator/matrix.py $(ARGS)

test-gpu-notebooks: $(READY)  ## every cell of every notebook on the GPUs of this machine, or on eight emulated ones (ARGS="--devices 1")
	$(PY) tests/accelerator/course.py $(ARGS)

test-dry: $(READY)  ## dry runs of every schedule, of every pair of modes, of plans for every model, and of a rank of 3 072
	$(PYTEST) -n 2 tests/training/test_dry_run.py tests/training/test_dry_soak.py tests/predict/test_drawn_plans.py --slow --long --soak -m "soak and not ranks" $(ARGS)

test-browser: $(READY)  ## JupyterLab and the page in a real browser (Debian: sudo apt install chromium); ARGS=--long: every notebook too
	@$(PY) -c "import playwright" 2>/dev/null || $(call PIP,$(PY)) install -r requirements-browser.lock
	$(PYTEST) tests/browser $(ARGS)

test-peers: $(READY)  ## models of Hugging Face and timm, trace readers and others' files; installs them into build/peers
	@cmp -s requirements-peers.lock build/peers/lock || { rm -rf build/peers && $(call PIP,$(PY)) install --quiet --no-deps --target build/peers -r requirements-peers.lock && cp requirements-peers.lock build/peers/lock; }
	PYTHONPATH=build/peers $(PYTEST) $(SHARED) tests/peers --slow --long $(ARGS)

gpu: $(READY)  ## the first hour on a GPU: proof, speed beside torch, records; writes results/first-hour/ (ARGS=--again)
	$(PY) -m tools.first_hour $(ARGS)

soak: $(READY) soak-notebooks  ## every notebook offline; every fault, again and again: 25 minutes, writes results/
	$(PY) tests/faults/soak.py $(ARGS)

soak-moments: $(READY)  ## 500 commands struck by a signal at any moment, an hour, writes results/moments.json (ARGS="--tries 50")
	$(PY) tests/faults/moments.py $(ARGS)

soak-cases: $(READY)  ## the cases that test-long leaves out: hundreds of plans and strategies, pairs of modes on eight ranks; about an hour
	$(PYTEST) $(SHARED) --slow --long --soak -m soak tests $(ARGS)

soak-equality: $(READY)  ## a sample of all ways to join the modes, ten minutes, writes results/equality.json
	$(PY) tests/equality_soak.py $(ARGS)

soak-notebooks: $(READY)  ## every notebook in a copied folder with the network off, writes results/notebooks.json
	$(PY) tests/offline.py

mutants: $(READY)  ## 200 one-line mistakes, and which of them no test notices; about an hour, writes results/mutants.json
	$(PY) -m tools.mutants $(ARGS)

lint: $(READY)  ## style and types only
	$(PY) -m ruff check .
	$(PY) -m basedpyright --threads 2

notebooks: $(READY)  ## run the notebooks again and store their outputs (ARGS="notebooks/10_naive.ipynb" for one)
	$(PY) tools/notebooks.py $(ARGS)

lock:  ## resolve the packages again and rewrite requirements.lock (TORCH_PIN=torch==2.14.0 moves torch)
	@set -e; fresh=`mktemp -d`; trap 'rm -rf "$$fresh"' EXIT; \
	$(PYTHON) -m venv "$$fresh"; \
	$(call BUILD_OF_TORCH,"$$fresh/bin/python"); \
	$(call PIP,"$$fresh/bin/python") install -e ".[$(EXTRAS)]"; \
	$(call PIP,"$$fresh/bin/python") freeze --all --exclude-editable > "$$fresh/found"; \
	grep '^#' requirements.lock > "$$fresh/lock"; \
	grep -vE '^(pip|wheel|triton|nvidia-.*|cuda-.*)==' "$$fresh/found" | sed 's/+[a-z0-9.]*$$//' | LC_ALL=C sort -f >> "$$fresh/lock"; \
	cp "$$fresh/lock" requirements.lock

wheel: $(READY)  ## build dist/hybridlab-*.whl
	rm -rf build
	$(call PIP,$(PY)) wheel --no-deps --no-build-isolation -w dist .

clean:  ## remove what building and testing left behind (not .venv)
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find hybridlab tests tools notebooks \( -name __pycache__ -o -name .ipynb_checkpoints \) -prune -exec rm -rf {} +
