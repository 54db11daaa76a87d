# Servers, recorded under the load of clients.

.PHONY: test-servers
test-servers: build ## ten servers recorded under load, started and stopped ROUNDS=3 times each way (SERVERS="redis go"; installs PostgreSQL, MariaDB, ...)
	@make/install-packages make/servers.needs
	@NUMALOC=target/debug/numaloc ROUNDS=$(or $(ROUNDS),3) make/servers/run $(SERVERS)

.PHONY: test-roles
test-roles: build ## plans by role for PostgreSQL and Redis, made with 4 connections and carried out with 40 (SERVERS="redis")
	@make/install-packages make/servers.needs
	@NUMALOC=target/debug/numaloc make/servers/roles $(SERVERS)

.PHONY: test-storm
test-storm: build ## 1,000 processes that end under a storm of signals, recorded, sampled, with a plan and online (STORM=67 of each kind, MODES="record run")
	@NUMALOC=target/debug/numaloc make/storm $(MODES)
