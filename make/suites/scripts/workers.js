// Workers, shared memory, child processes and code that a compiler writes; prints what does not depend on the run.
const { Worker, isMainThread, workerData } = require("worker_threads");
const { spawnSync } = require("child_process");

function primes(limit) {
  let count = 0;
  for (let n = 2; n < limit; n++) {
    let d = 2;
    while (d * d <= n && n % d !== 0) d++;
    if (d * d > n) count++;
  }
  return count;
}

if (isMainThread) {
  const shared = new Int32Array(new SharedArrayBuffer(16));
  let left = 2;
  for (let n = 0; n < 2; n++) {
    new Worker(__filename, { workerData: shared }).on("exit", (code) => {
      if (code !== 0) process.exitCode = 1;
      if (--left === 0) {
        console.log("workers", shared[0], shared[1]);
        console.log("primes", primes(20000));
        console.log(spawnSync("sh", ["-c", "echo child; exit 7"]).status);
        try {
          JSON.parse("{");
        } catch (error) {
          console.log(error.name);
        }
        process.on("SIGUSR2", () => { console.log("signal"); process.exit(3); });
        setTimeout(() => {}, 10000);
        process.kill(process.pid, "SIGUSR2");
      }
    });
  }
} else {
  for (let n = 0; n < 1000; n++) Atomics.add(workerData, 0, 1);
  Atomics.add(workerData, 1, primes(3000));
}
