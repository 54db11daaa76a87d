.PHONY: bench-mapping
bench-mapping: ## thread policies and peers on generated families: J over best known, times
	$(CARGO) bench -p numaloc-mapping --bench mapping -- $(BENCH_MAPPING)
