MTKAHYPAR := target/mtkahypar

# A peer from PyPI; without it the benchmark runs, its column is missing.
$(MTKAHYPAR)/done:
	python3 -m venv $(MTKAHYPAR)
	$(MTKAHYPAR)/bin/pip install --quiet mtkahypar
	touch $@

.PHONY: bench-mapping
bench-mapping: packages $(MTKAHYPAR)/done ## thread policies and peers on generated families: J over best known, times
	NUMALOC_MTKAHYPAR_PYTHON=$(CURDIR)/$(MTKAHYPAR)/bin/python \
	  $(CARGO) bench --locked -p numaloc-mapping --bench mapping -- --out $(CURDIR)/target/bench-mapping $(BENCH_MAPPING)

.PHONY: bench-joint
bench-joint: ## `numaloc plan --threads joint` at 256 threads that all exchange: time and objective (release; THREADS=N, PROGRAMS=uniform,near)
	@$(CARGO) build --locked -q --release -p numaloc
	@make/bench-joint target/release $(or $(THREADS),256) $(PROGRAMS)
