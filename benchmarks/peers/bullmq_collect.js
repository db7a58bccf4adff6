// Reads jobs of a state page by page, and writes each as a line of JSON: bullmq_collect.js URL QUEUE JOBS FILE [STATE]
// STATE is `completed` by default. Prints "ready" when it has read and serialized the first pages, starts when it reads
// a line, prints "done" when the file is complete.
'use strict';

const { once } = require('node:events');
const { createWriteStream } = require('node:fs');
const { finished } = require('node:stream/promises');
const { queueAt, runPeer } = require('./ready.js');

const PAGE = 1000;
const WARM_UP_PAGES = 10;
const [url, name, jobs, path, state = 'completed'] = process.argv.slice(2);

async function* pages(queue, total) {
  for (let first = 0; first < total; first += PAGE) {
    const page = await queue.getJobs([state], first, Math.min(first + PAGE, total) - 1);
    yield page.map((job) => `${JSON.stringify(job)}\n`).join('');
  }
}

async function warmedUp(queue, total) {
  for await (const _ of pages(queue, Math.min(total, WARM_UP_PAGES * PAGE))) {
    // Only read.
  }
  return queue;
}

async function collect(queue, total, file) {
  for await (const page of pages(queue, total)) {
    if (!file.write(page)) {
      await once(file, 'drain');
    }
  }
  file.end();
  await finished(file);
}

runPeer(
  () => warmedUp(queueAt(url, name), Number(jobs)),
  (queue) => collect(queue, Number(jobs), createWriteStream(path)),
);
