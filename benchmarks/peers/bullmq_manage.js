// Clears a queue: bullmq_manage.js URL QUEUE JOBS VERB, which is clean (of waiting jobs), drain or obliterate
// Prints "ready" when connected, starts when it reads a line, prints "done" at the end.
'use strict';

const { once } = require('node:events');
const { Queue } = require('../../tests/node/node_modules/bullmq-6.7.0');

const [url, name, jobs, verb] = process.argv.slice(2);
const { hostname: host, port } = new URL(url);
const verbs = {
  clean: (queue) => queue.clean(0, Number(jobs), 'wait'),
  drain: (queue) => queue.drain(true),
  obliterate: (queue) => queue.obliterate({ force: true }),
};

async function main() {
  const queue = new Queue(name, { connection: { host, port: Number(port) } });
  await queue.waitUntilReady();
  console.log('ready');
  await once(process.stdin, 'data');
  await verbs[verb](queue);
  console.log('done');
  await queue.close();
  process.stdin.destroy();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
