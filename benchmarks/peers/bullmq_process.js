// A BullMQ worker for jobs without work: bullmq_process.js URL QUEUE CONCURRENCY noop|clock|wait
// A job returns null, or its start time: ms of the monotonic clock, which all processes of the machine share.
// Prints "ready" when connected, and exits when standard input is closed.
'use strict';

const { Worker } = require('../../tests/node/node_modules/bullmq-6.7.0');

const [url, name, concurrency, kind] = process.argv.slice(2);
const { hostname: host, port } = new URL(url);

const processors = {
  noop: async () => null,
  wait: () => new Promise((done) => { setTimeout(done, 100, null); }),
  clock: async () => Number(process.hrtime.bigint()) / 1e6,
};

async function main() {
  const worker = new Worker(name, processors[kind], {
    connection: { host, port: Number(port) },
    concurrency: Number(concurrency),
  });
  await worker.waitUntilReady();
  console.log('ready');
  process.stdin.resume();
  process.stdin.on('end', () => worker.close(true).finally(() => process.exit(0)));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
