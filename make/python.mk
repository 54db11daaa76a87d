# The Python package: wheel, virtual environment below target/, tests.

PYTHON_VENV := target/python-venv
PYTHON_WHEELS := target/python-wheel
PYTHON_PROFILE ?= dev
UV_VERSION := 0.13.9

# uv installs in a tenth of pip's processor time. It knows no settings of pip: where it does not get through, pip does.
# Modules are compiled when a test imports them: compiling all takes longer than unpacking them.
$(PYTHON_VENV)/ready: python/requirements-test.txt
	@test -x $(PYTHON_VENV)/bin/python || python3 -m venv $(PYTHON_VENV)
	@$(PYTHON_VENV)/bin/pip install -q --no-compile uv==$(UV_VERSION)
	@$(PYTHON_VENV)/bin/uv pip install -q --no-cache --python $(PYTHON_VENV)/bin/python -r $< || \
	    $(PYTHON_VENV)/bin/pip install -q --no-compile -r $<
	@touch $@

# Before targets that use it and run at once.
.PHONY: python-environment
python-environment: $(PYTHON_VENV)/ready

.PHONY: python python-install
python: $(PYTHON_VENV)/ready ## the Python package as a wheel in target/python-wheel (PYTHON_PROFILE=release: optimised)
	@rm -rf $(PYTHON_WHEELS)
	@cd python && ../$(PYTHON_VENV)/bin/maturin build --quiet --profile $(PYTHON_PROFILE) $(if $(filter release,$(PYTHON_PROFILE)),--strip) --out ../$(PYTHON_WHEELS) \
	    -i ../$(PYTHON_VENV)/bin/python

python-install: python
	@$(PYTHON_VENV)/bin/pip install -q --no-deps --force-reinstall $(PYTHON_WHEELS)/*.whl

# Modules stay compiled, whatever the environment says: tests start dozens of interpreters.
.PHONY: test-python
test-python: python-install ## the wheel in a virtual environment: tests of the Python package, its pages run as written
	@$(MAKE) --no-print-directory generate-profile
	@cd python && PYTHONDONTWRITEBYTECODE= ../$(PYTHON_VENV)/bin/pytest $(PYTEST)
TEST_EXTRA += test-python

.PHONY: bench-python
bench-python: python-install ## opening a profile of 10^6 communication rows: time and memory (PYTHON_PROFILE=release)
	@$(MAKE) --no-print-directory generate-profile
	@test -d target/bench-python/rows.numaloc || { mkdir -p target/bench-python; \
	    $(GENERATE_PROFILE) target/bench-python/rows.numaloc 64 40000 2000 1360000; }
	@$(PYTHON_VENV)/bin/python python/tests/bench_open.py target/bench-python/rows.numaloc

.PHONY: bench-sweep
bench-sweep: python-install ## 500 combinations with 1 and 2 workers: time and use of the processors; BENCH_SWEEP=slurm: on a Slurm of two nodes
	@$(MAKE) --no-print-directory generate-profile
	@test -d target/bench-python/sweep.numaloc || { mkdir -p target/bench-python; \
	    $(GENERATE_PROFILE) target/bench-python/sweep.numaloc 64 400 20000; }
	@$(PYTHON_VENV)/bin/python python/tests/bench_sweep.py target/bench-python/sweep.numaloc $(BENCH_SWEEP)

.PHONY: bench-fleet
bench-fleet: python-install ## a store of 2,000 generated profiles: time of each question, embedded and on Dask
	@$(MAKE) --no-print-directory generate-profile
	@$(PYTHON_VENV)/bin/python python/tests/bench_fleet.py $(GENERATE_PROFILE) target/bench-python/fleet

$(PYTHON_VENV)/spark: $(PYTHON_VENV)/ready python/requirements-spark.txt make/spark.needs
	@make/install-packages make/spark.needs
	@$(PYTHON_VENV)/bin/pip install -q -r python/requirements-spark.txt
	@touch $@

.PHONY: test-spark
test-spark: python-install $(PYTHON_VENV)/spark ## stores on Spark: the same answers as the embedded engine's
	@$(MAKE) --no-print-directory generate-profile
	@cd python && ../$(PYTHON_VENV)/bin/pytest tests/spark_fleet.py

.PHONY: bench-spark
bench-spark: $(PYTHON_VENV)/spark bench-fleet ## bench-fleet on Spark too
