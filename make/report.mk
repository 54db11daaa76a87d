.PHONY: bench-kmeans
bench-kmeans: ## how long the optimal clustering of 10^6 timestamps takes
	@$(CARGO) run --locked -q --release -p numaloc-analysis --example kmeans-speed

# A report opened in a real browser: no console message, figures drawn.
.PHONY: test-ci-report-browser
test-ci-report-browser:
	@rm -rf target/report-test && mkdir -p target/report-test
	@$(MAKE) --no-print-directory generate-profile
	@$(GENERATE_PROFILE) target/report-test/made-up.numaloc
	@target/debug/numaloc plan target/report-test/made-up.numaloc --machine numa4x4 --threads deloc --pages locality \
	    -o target/report-test/deloc.json --quiet >/dev/null
	@target/debug/numaloc report target/report-test/made-up.numaloc target/report-test/deloc.json \
	    -o target/report-test/report.html --quiet
	@python3 tests/report/browser.py target/report-test/report.html
TEST_EXTRA += test-ci-report-browser

# Reports of 2 to 2,001 threads at the widths of a phone, a tablet and a desktop, light and dark.
.PHONY: test-ci-report-layout report-layout
test-ci-report-layout: python-environment
	@make/report-layout

report-layout: python-environment build ## pictures of reports in target/report-test/shots; LOOKED=1 makes them the expected ones
	@make/report-layout --keep target/report-test/shots $(if $(LOOKED),--write)
# Not part of `make test` until its expected pictures are made again (LOOKED=1): verdicts in seconds made reports taller.

# The picture of the documentation, from a real run of workloads/two_phase.c.
.PHONY: docs-figures
docs-figures: build workloads ## make the pictures of the documentation again
	@make/docs-figures

# Metrics recomputed from the Parquet tables by another program.
.PHONY: test-ci-report-duckdb
test-ci-report-duckdb: python-environment
	@mkdir -p target/report-test
	@$(MAKE) --no-print-directory generate-profile
	@$(GENERATE_PROFILE) target/report-test/made-up.numaloc
	@$(PYTHON_VENV)/bin/python tests/report/recompute.py target/debug/numaloc target/report-test/made-up.numaloc 4
TEST_EXTRA += test-ci-report-duckdb

# Wall time, CPU time and memory of `show` and `report` on a generated profile of the largest size promised.
BENCH_PROFILE := target/bench-report/large.numaloc
.PHONY: bench-report
bench-report: bench-kmeans ## show and report on 512 threads x 10^5 slices x 10^6 pages, and the clustering
	@$(CARGO) build --locked -q --release -p numaloc
	@mkdir -p $(dir $(BENCH_PROFILE))
	@test -d $(BENCH_PROFILE) || $(CARGO) run --locked -q --release -p numaloc-report --example generate-profile -- \
	    $(BENCH_PROFILE) 512 100000 1000000 2000000
	@python3 tests/report/bench.py target/release/numaloc $(BENCH_PROFILE) $(REPEATS)

# Each kind of verdict judged by its own measurement in the virtual NUMA machine. What was measured stays in
# target/table-verdicts and is not measured again; results.csv and verdicts.csv have every figure.
.PHONY: table-verdicts
table-verdicts: build workloads ## how often the verdicts are right ([SET=known|unseen|later] [PROGRAMS="ring ..."] [RUNS=1]); resumes
	$(if $(filter-out later,$(SET))$(PROGRAMS),,make/install-packages make/verdicts.needs)
	-make/measure-verdicts target/debug/numaloc target/table-verdicts --runs $(or $(RUNS),1) \
	    $(if $(SET),--set $(SET)) $(PROGRAMS)
	@python3 tests/report/verdict_accuracy.py target/debug/numaloc target/table-verdicts \
	    $(if $(SET)$(PROGRAMS),,docs/metrics.md)
