# All development tasks; `make` without a target lists them.

VENV := .venv
PYTHON ?= python3
RUN := $(VENV)/bin/python
PYTEST := $(RUN) -m pytest -q -n 4 --dist worksteal
# The demo uses the flights of the first months of 2013.
MONTHS := 3
# The servers that the demo starts, which share its queue.
SHARDS := 1
# How long `make soak` runs everything at once, and the seed of its faults.
MINUTES := 30
SEED := 0
NODE_PEERS := tests/node/node_modules
PYTHON_STAMP := $(VENV)/.installed
SPARK_CLASSES := $(VENV)/spark-classes.jsa
NODE_STAMP := $(NODE_PEERS)/.installed

# The Python interpreter of Spark's workers; by default Spark starts the first python3 on PATH.
export PYSPARK_PYTHON := $(CURDIR)/$(VENV)/bin/python

# The settings of conf/ for a JVM that runs for a minute only. SPARK_CONF_DIR would change its class path, and so keep it
# from using the archived classes.
DEMO_JVM := -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:SharedArchiveFile=$(SPARK_CLASSES) -Xlog:disable
DEMO_SPARK := --properties-file conf/spark-defaults.conf --driver-java-options \
  "-Dlog4j2.configurationFile=conf/log4j2.properties $(DEMO_JVM)" pyspark-shell

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-rest test-all prepared peers chromium prometheus oldest matrix matrix-tests servers hosts soak faults costs mutants audit constraints lint docs format bench walks zip release clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(PYTHON_STAMP) $(NODE_STAMP) ## Install .venv, the Node libraries, and missing tools

demo: setup $(SPARK_CLASSES) ## Dispatch, inspect, process and collect 80,789 flights, compare with Node; MONTHS=12 uses 336,776, SHARDS=3 three servers
	@PYSPARK_SUBMIT_ARGS='$(DEMO_SPARK)' $(RUN) -m spark_bull.ops.cli demo --months $(MONTHS) --servers $(SHARDS) \
	  --bullmq $(NODE_PEERS)/bullmq-6.7.0 --picture artifacts/results.png --compare

test: prepared ## Run the tests that show each promise once; PYTEST_ARGS="-k claim" selects some
	$(PYTEST) -m 'not rest and not soak' $(PYTEST_ARGS)

test-rest: prepared ## Run the tests of the other dialects, versions and doors, and long ones
	$(PYTEST) -m 'rest and not soak' $(PYTEST_ARGS)

test-all: prepared ## Run both in one
	$(PYTEST) $(PYTEST_ARGS)

prepared: $(PYTHON_STAMP) $(SPARK_CLASSES) peers chromium prometheus oldest

# Without Node, the tests with its libraries are skipped; in CI they fail.
peers:
	@$(MAKE) --no-print-directory $(NODE_STAMP) || true

# Without chromium, the tests of the page are skipped; in CI they fail.
chromium:
	@tools/ensure-tools.sh chromium || true

# Without it, the tests of alerts and the dashboard are skipped; in CI they fail.
prometheus:
	@tools/ensure-tools.sh prometheus || true

# Without them, the tests of the oldest PySpark and the oldest Redis are skipped; in CI they fail.
oldest: $(PYTHON_STAMP)
	@$(RUN) tools/matrix.py --oldest || true
	@$(RUN) -m tools.servers --oldest || true

matrix: setup ## Run all verbs with each version of PySpark, and print a table
	@$(RUN) tools/matrix.py

servers: setup ## Run the conformance tests on each version of Redis and Valkey, and print a table: 20 minutes; VERSIONS="6.2" selects
	@$(RUN) -m tools.servers $(VERSIONS)

matrix-tests: setup ## Run tests/spark with older versions of PySpark; VERSIONS="4.0" selects some
	@$(RUN) tools/matrix.py --tests $(VERSIONS)

hosts: setup $(SPARK_CLASSES) ## As root on Linux, run a standalone Spark on two worker hosts through 13 faults: 20 minutes
	@$(RUN) -m tests.proof.hosts $(HOSTS_ARGS)

soak: setup $(SPARK_CLASSES) ## Kill something every 20 s for MINUTES=30, compare random histories with Node; nearly two hours
	$(RUN) -m tests.proof.soak --minutes $(MINUTES) --seed $(SEED)
	$(RUN) -m pytest -q -m soak -n 2 $(PYTEST_ARGS)

faults: setup ## Print the table of faults, planted errors and orders of calls; FAULTS_ARGS='--fault OOM' selects
	$(RUN) -m tests.proof.table $(FAULTS_ARGS)

costs: setup $(SPARK_CLASSES) ## Write the CPU time of the tests to tests/README.md: by part, process, folder, file, test and fixture
	rm -rf artifacts/costs
	SPARK_BULL_TEST_COSTS=artifacts/costs $(RUN) -m pytest -q -n 2 -p tools.costs $(PYTEST_ARGS) || true
	@$(RUN) -m tools.costs artifacts/costs

mutants: setup $(SPARK_CLASSES) ## Plant errors of one line in a copy, print which test finds each: ten minutes; MUTANTS_ARGS="receipt" selects
	$(RUN) -m tests.proof.planted $(MUTANTS_ARGS)

# In an environment of its own: pip-audit has other dependencies than the project.
audit: $(PYTHON_STAMP) ## Look for known vulnerabilities of the installed packages; needs the internet
	@test -x $(VENV)-audit/bin/pip-audit || $(PYTHON) -m venv $(VENV)-audit
	@$(VENV)-audit/bin/python -m pip install -qq --upgrade pip-audit
	@$(RUN) -m pip freeze --exclude-editable >$(VENV)-audit/installed.txt
	@$(VENV)-audit/bin/pip-audit --strict --disable-pip --no-deps --requirement $(VENV)-audit/installed.txt || { \
	  echo "expected no known vulnerability, got the above; a package that is not found may also mean that the data" \
	  "of pip-audit cannot be reached from here: run it where the package index can be reached" >&2; exit 1; }

# In an environment of its own, as uv is needed for nothing else.
constraints: $(PYTHON_STAMP) ## Write constraints.txt: versions of all that the extras bring, for each Python; needs the package index
	@test -x $(VENV)-constraints/bin/uv || $(PYTHON) -m venv $(VENV)-constraints
	@$(VENV)-constraints/bin/python -m pip install -qq --upgrade uv
	@$(VENV)-constraints/bin/uv pip compile setup.cfg --quiet --upgrade --universal --python-version 3.10 \
	  $(patsubst %,--extra %,local spark encrypt offload otel web) --no-header --no-annotate --output-file constraints.txt

lint: $(PYTHON_STAMP) docs ## Check style, format, types and documentation
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

docs: $(PYTHON_STAMP) ## Build the documentation in site/; dead links are errors
	@$(RUN) tools/draw_rooms.py
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict

notebooks: setup $(SPARK_CLASSES) ## Run the notebooks and store their outputs; NOTEBOOKS="…" selects some
	@$(RUN) tools/run_notebooks.py $(NOTEBOOKS)

format: $(PYTHON_STAMP) ## Sort imports and format the code
	$(RUN) -m ruff check --fix --quiet .
	$(RUN) -m ruff format .

bench: setup ## Run the benchmarks of this project and its peers
	$(RUN) -m pip install --quiet --no-deps --requirement benchmarks/requirements.txt
	SPARK_CONF_DIR="$(CURDIR)/conf" $(RUN) -m benchmarks.dispatch
	SPARK_CONF_DIR="$(CURDIR)/conf" $(RUN) -m benchmarks.process
	SPARK_CONF_DIR="$(CURDIR)/conf" $(RUN) -m benchmarks.collect
	SPARK_CONF_DIR="$(CURDIR)/conf" $(RUN) -m benchmarks.latency
	$(RUN) -m benchmarks.working
	$(RUN) -m benchmarks.floor
	SPARK_CONF_DIR="$(CURDIR)/conf" $(RUN) -m benchmarks.servers
	SPARK_CONF_DIR="$(CURDIR)/conf" $(RUN) -m benchmarks.calling
	SPARK_CONF_DIR="$(CURDIR)/conf" $(RUN) -m benchmarks.first_use

walks: $(PYTHON_STAMP) ## Count the files of the package that one row, one job and one result pass
	@$(RUN) -m tools.walks

zip: ## Build dist/spark_bull.zip for spark-submit --py-files
	$(PYTHON) tools/build_zip.py

release: $(PYTHON_STAMP) ## Make a release up to its upload: VERSION=1.0.0; DRY_RUN=1 only tries it; ten minutes
	@$(RUN) tools/release.py $(VERSION) $(if $(DRY_RUN),--dry-run)

clean: ## Remove files left by builds, tests and Spark; keep .venv* and node_modules
	rm -rf build dist site *.egg-info artifacts spark-warehouse metastore_db derby.log
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . \( -name '$(VENV)*' -o -name node_modules \) -prune -o -name __pycache__ -exec rm -rf {} +

$(PYTHON_STAMP): setup.cfg pyproject.toml tools/ensure-tools.sh tools/compiled_pyspark.py
	@PYTHON=$(PYTHON) tools/ensure-tools.sh python java
	@echo "Installing Python packages into $(VENV); this takes about a minute"
	@test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	@$(RUN) -m pip install -qq --upgrade pip
	@$(RUN) -m pip install -qq --editable '.[local,demo,test,docs]'
	@$(RUN) tools/compiled_pyspark.py
	@touch $@

$(SPARK_CLASSES): $(PYTHON_STAMP) tools/archive_classes.py
	@echo "Archiving the classes of Spark, so that its JVMs start with half of the CPU"
	@$(RUN) tools/archive_classes.py $@

$(NODE_STAMP): tests/node/package-lock.json tests/node/package.json tools/ensure-tools.sh
	@tools/ensure-tools.sh node
	@echo "Installing Node packages into $(NODE_PEERS)"
	@cd tests/node && npm ci --no-audit --no-fund --loglevel=error >/dev/null
	@touch $@
