.PHONY: bench-simulate
bench-simulate: ## how fast traces are simulated (RECORDS_M=20 million records, REPEATS=3)
	$(CARGO) bench --locked -q -p numaloc-sim --bench simulate
