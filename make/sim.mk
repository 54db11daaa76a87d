.PHONY: bench-simulate
bench-simulate: ## how fast traces are simulated (RECORDS_M=20 million records, REPEATS=3)
	$(CARGO) bench --locked -q -p numaloc-sim --bench simulate

.PHONY: study-deloc
study-deloc: build workloads ## DeLoc's figures 7, 9 and 10, simulated, over our workloads (PROGRAMS="./a 1;./b" for yours)
	@studies/deloc/run target/debug/numaloc
