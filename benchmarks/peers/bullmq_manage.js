// Clears a queue: bullmq_manage.js URL QUEUE JOBS VERB, which is clean (of waiting jobs), drain or obliterate
// Prints "ready" when connected, starts when it reads a line, prints "done" at the end.
'use strict';

const { queueAt, runPeer } = require('./ready.js');

const [url, name, jobs, verb] = process.argv.slice(2);
const verbs = {
  clean: (queue) => queue.clean(0, Number(jobs), 'wait'),
  drain: (queue) => queue.drain(true),
  obliterate: (queue) => queue.obliterate({ force: true }),
};

runPeer(() => queueAt(url, name), verbs[verb]);
