.PHONY: bench-kmeans
bench-kmeans: ## how long the optimal clustering of 10^6 timestamps takes
	@$(CARGO) run -q --release -p numaloc-analysis --example kmeans-speed
