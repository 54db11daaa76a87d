"""The servers: how each is started, used by clients, and asked to end."""

import http.client
import os
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
POSTGRES = "/usr/lib/postgresql/15/bin"
AS_POSTGRES = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
REQUESTS = 200
CLIENTS = 4


class Failed(Exception):
    """A client, or a step that is no part of the test, failed."""


def call(*command, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, errors="replace", timeout=300, **options)
    if done.returncode != 0:
        raise Failed(f"{command[0]}: status {done.returncode}: {(done.stdout + done.stderr).strip()[-200:]}")
    return done.stdout


def clients(one):
    """Runs `one(number)` in several threads; raises what one of them raises."""
    failures = []

    def guarded(number):
        try:
            one(number)
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise Failed(f"{type(failures[0]).__name__}: {failures[0]}")


class Server:
    """A server; `folder` outlives its runs."""

    needs = ()
    # Statuses with which it may end after SIGTERM, besides 0 and 143.
    ends_with = ()

    def __init__(self, folder):
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def prepare(self):
        """Once, before the first run."""

    def command(self):
        raise NotImplementedError

    def ready(self):
        """Raises unless it answers."""
        socket.create_connection(("127.0.0.1", self.port), 1).close()

    def populate(self):
        """Before the clients of the first run."""

    def load(self):
        """Clients' requests; returns their number."""
        raise NotImplementedError

    def quit(self):
        """Asks it to end, by its own means."""
        raise NotImplementedError


class Http(Server):
    path, answer = "/key{}", b"served"

    def load(self):
        def one(number):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
            for request in range(REQUESTS):
                connection.request("GET", self.path.format(request % 7))
                response = connection.getresponse()
                if (response.status, response.read()) != (200, self.answer):
                    raise Failed(f"status {response.status}")
            connection.close()

        clients(one)
        return CLIENTS * REQUESTS

    def quit(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("GET", "/quit")
        connection.getresponse().read()


class Postgres(Server):
    needs = (f"{POSTGRES}/postgres", f"{POSTGRES}/pgbench")

    def prepare(self):
        self.data = self.folder / "data"
        shutil.chown(self.folder, "postgres", "postgres")
        call(*AS_POSTGRES, f"{POSTGRES}/initdb", "-D", self.data, "-A", "trust", cwd="/")

    def command(self):
        options = ["-D", self.data, "-p", self.port, "-k", self.folder, "-c", "listen_addresses=127.0.0.1"]
        return [*AS_POSTGRES, f"{POSTGRES}/postgres", *options]

    def ready(self):
        call(f"{POSTGRES}/pg_isready", "-h", "127.0.0.1", "-p", self.port)

    def bench(self, *arguments):
        return call(f"{POSTGRES}/pgbench", "-h", "127.0.0.1", "-p", self.port, "-U", "postgres", *arguments, "postgres")

    def populate(self):
        self.bench("-i", "-q")

    def load(self):
        said = self.bench("-c", CLIENTS, "-t", 25)
        if "failed transactions: 0 " not in said:
            raise Failed(said)
        return CLIENTS * 25

    def quit(self):
        call(*AS_POSTGRES, f"{POSTGRES}/pg_ctl", "-D", self.data, "-m", "fast", "-W", "stop", cwd="/")


class Mariadb(Server):
    needs = ("mariadbd", "mariadb-slap", "mariadb-admin")

    def prepare(self):
        self.data, self.socket = self.folder / "data", self.folder / "socket"
        shutil.chown(self.folder, "mysql", "mysql")
        call("mariadb-install-db", "--no-defaults", "--user=mysql", f"--datadir={self.data}", "--auth-root-authentication-method=normal")

    def command(self):
        places = [f"--datadir={self.data}", f"--socket={self.socket}", f"--pid-file={self.folder}/pid"]
        return ["mariadbd", "--no-defaults", "--user=mysql", *places, f"--port={self.port}", "--bind-address=127.0.0.1"]

    def ready(self):
        call("mariadb-admin", "--no-defaults", f"--socket={self.socket}", "-u", "root", "ping")

    def load(self):
        queries = ["--auto-generate-sql", f"--concurrency={CLIENTS}", f"--number-of-queries={REQUESTS}"]
        call("mariadb-slap", "--no-defaults", f"--socket={self.socket}", "-u", "root", *queries)
        return REQUESTS

    def quit(self):
        call("mariadb-admin", "--no-defaults", f"--socket={self.socket}", "-u", "root", "shutdown")


class Redis(Server):
    needs = ("redis-server", "redis-benchmark", "redis-cli")

    def command(self):
        return ["redis-server", "--port", self.port, "--save", "", "--dir", self.folder]

    def load(self):
        said = call("redis-benchmark", "-p", self.port, "-n", 2000, "-c", CLIENTS, "-t", "set,get,lpush", "-q")
        if "rror" in said:
            raise Failed(said)
        return 6000

    def quit(self):
        call("redis-cli", "-p", self.port, "shutdown", "nosave")


class Memcached(Server):
    needs = ("memcached",)

    def command(self):
        return ["memcached", "-A", "-u", "nobody", "-l", "127.0.0.1", "-p", self.port, "-t", "4"]

    def load(self):
        def one(number):
            with socket.create_connection(("127.0.0.1", self.port), 120) as connection:
                stream = connection.makefile("rwb")
                for request in range(REQUESTS):
                    stream.write(b"set k%d-%d 0 0 5\r\nvalue\r\nget k%d-%d\r\n" % (number, request, number, request))
                    stream.flush()
                    said = [stream.readline() for _ in range(4)]
                    if said[0] != b"STORED\r\n" or said[2] != b"value\r\n":
                        raise Failed(str(said))

        clients(one)
        return 2 * CLIENTS * REQUESTS

    def quit(self):
        with socket.create_connection(("127.0.0.1", self.port), 120) as connection:
            connection.sendall(b"shutdown\r\n")
            connection.recv(100)


class Nginx(Http):
    needs = ("nginx",)
    path, answer = "/file?{}", b"content\n"

    def prepare(self):
        self.folder.chmod(0o755)
        (self.folder / "file").write_bytes(self.answer)
        self.settings = self.folder / "nginx.conf"
        temporary = "".join(f"{kind}_temp_path {self.folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        self.settings.write_text(
            f"daemon off; worker_processes 2; pid {self.folder}/pid; error_log {self.folder}/errors;\n"
            f"events {{}}\nhttp {{ access_log off; {temporary} server {{ listen 127.0.0.1:{self.port}; root {self.folder}; }} }}\n"
        )

    def command(self):
        return ["nginx", "-e", self.folder / "errors", "-c", self.settings]

    def quit(self):
        call("nginx", "-e", self.folder / "errors", "-c", self.settings, "-s", "quit")


class Go(Http):
    needs = ("go",)

    def prepare(self):
        shutil.copy(PROGRAMS / "server.go", self.folder)
        call("go", "build", "-o", "server", "server.go", cwd=self.folder)

    def command(self):
        return [self.folder / "server", self.port]


class Tokio(Http):
    needs = ("cargo",)

    def prepare(self):
        (self.folder / "src").mkdir()
        shutil.copy(PROGRAMS / "server.rs", self.folder / "src/main.rs")
        (self.folder / "Cargo.toml").write_text(
            '[package]\nname = "server"\nversion = "0.0.0"\nedition = "2021"\n\n[workspace]\n\n'
            '[dependencies.tokio]\nversion = "1"\n'
            'features = ["io-util", "macros", "net", "rt-multi-thread", "sync"]\n'
        )
        call("cargo", "build", "--quiet", "--release", cwd=self.folder, env={**os.environ, "CARGO_TARGET_DIR": str(self.folder / "target")})

    def command(self):
        return [self.folder / "target/release/server", self.port]


class Java(Http):
    needs = ("java", "javac")

    def prepare(self):
        call("javac", "-d", self.folder, PROGRAMS / "Server.java")

    def command(self):
        return ["java", "-Xmx256m", "-cp", self.folder, "Server", self.port]


class Node(Http):
    needs = ("node",)
    # What the shell reports of SIGTERM.
    ends_with = ()

    def command(self):
        return ["node", PROGRAMS / "server.js", self.port]


class RocksDb(Server):
    """No server, but a store with its own clients: threads of `db_bench`, which ends when they have finished."""

    needs = ("db_bench",)

    def command(self):
        shutil.rmtree(self.folder / "store", ignore_errors=True)
        self.begun = time.monotonic()
        work = ["--benchmarks=fillrandom,readrandom,readwhilewriting", "--num=10000", "--threads=4"]
        return ["db_bench", *work, f"--db={self.folder}/store"]

    def ready(self):
        if not (self.folder / "store/CURRENT").exists():
            raise Failed("not begun")

    def load(self):
        return 0

    def quit(self):
        """It ends by itself."""


KINDS = {
    "postgresql": Postgres, "mariadb": Mariadb, "redis": Redis, "memcached": Memcached, "nginx": Nginx, "go": Go,
    "tokio": Tokio, "java": Java, "node": Node, "rocksdb": RocksDb,
}
