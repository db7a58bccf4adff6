// Reads jobs of a state page by page, and writes each as a line of JSON: bullmq_collect.js URL QUEUE JOBS FILE [STATE]
// STATE is `completed` by default. Prints "ready" when connected, starts when it reads a line, prints "done" when the file is complete.
'use strict';

const { once } = require('node:events');
const { createWriteStream } = require('node:fs');
const { finished } = require('node:stream/promises');
const { queueAt, runPeer } = require('./ready.js');

const PAGE = 1000;
const [url, name, jobs, path, state = 'completed'] = process.argv.slice(2);

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

runPeer(
  () => queueAt(url, name),
  (queue) => collect(queue, Number(jobs), createWriteStream(path)),
);
