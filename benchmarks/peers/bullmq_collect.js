// Reads jobs of a state page by page, and writes each as a line of JSON: bullmq_collect.js URL QUEUE JOBS FILE [STATE]
// STATE is `completed` by default. Prints "ready" when connected, starts when it reads a line, prints "done" when the file is complete.
'use strict';

const { once } = require('node:events');
const { createWriteStream } = require('node:fs');
const { finished } = require('node:stream/promises');
const { Queue } = require('../../tests/node/node_modules/bullmq-6.7.0');

const PAGE = 1000;
const [url, name, jobs, path, state = 'completed'] = process.argv.slice(2);
const { hostname: host, port } = new URL(url);

async function collect(queue, total, file) {
  for (let first = 0; first < total; first += PAGE) {
    const page = await queue.getJobs([state], first, Math.min(first + PAGE, total) - 1);
    if (!file.write(page.map((job) => `${JSON.stringify(job)}\n`).join(''))) {
      await once(file, 'drain');
    }
  }
  file.end();
  await finished(file);
}

async function main() {
  const queue = new Queue(name, { connection: { host, port: Number(port) } });
  await queue.waitUntilReady();
  console.log('ready');
  await once(process.stdin, 'data');
  await collect(queue, Number(jobs), createWriteStream(path));
  console.log('done');
  await queue.close();
  process.stdin.destroy();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
