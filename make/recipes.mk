# The pages in docs/recipes/, run as they are written.

NIGHTLY += test-recipes

.PHONY: test-recipes
test-recipes: build workloads ## the commands of docs/recipes/ as written, with real servers (RECIPES="redis jvm"; installs PostgreSQL, MariaDB, ...)
	@make/install-packages make/servers.needs make/recipes.needs
	@$(TEST) --test typed recipes::all -- --ignored --nocapture
