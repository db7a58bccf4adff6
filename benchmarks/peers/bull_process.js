// A Bull worker for jobs without work: bull_process.js URL QUEUE CONCURRENCY noop|clock
// A job returns null, or its start time: ms of the monotonic clock, which all processes of the machine share.
// Prints "ready" when connected, and exits when standard input is closed.
'use strict';

const Queue = require('../../tests/node/node_modules/bull-4.16.5');

const [url, name, concurrency, kind] = process.argv.slice(2);

const processors = {
  noop: async () => null,
  clock: async () => Number(process.hrtime.bigint()) / 1e6,
};

async function main() {
  const queue = new Queue(name, url);
  queue.process('*', Number(concurrency), processors[kind]);
  await queue.isReady();
  console.log('ready');
  process.stdin.resume();
  process.stdin.on('end', () => queue.close(true).finally(() => process.exit(0)));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
