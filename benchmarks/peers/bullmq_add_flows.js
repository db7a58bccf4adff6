// Adds flows with FlowProducer.addBulk: bullmq_add_flows.js PORT QUEUE JOBS CHUNK CHILDREN
// A flow is a job with CHILDREN children in the queue `QUEUE-children`; JOBS counts all of them.
// Prints "ready" when connected and warmed up, starts when it reads a line, prints "done" when all jobs are added.
'use strict';

const { FlowProducer, Queue } = require('../../tests/node/node_modules/bullmq-6.7.0');
const { runPeer } = require('./ready.js');

const WARM_UP_JOBS = 10000;
const [port, name, jobs, chunk, children] = process.argv.slice(2).map((text, i) => (i === 1 ? text : Number(text)));

// The same payload as the Spark side has: about 200 bytes of JSON.
const payload = (id) => ({ id, carrier: 'UA', origin: 'EWR', note: 'x'.repeat(120), delay: id % 60, ratio: id / 7 });

const flow = (queueName, id) => ({
  name: 'flight',
  queueName,
  data: payload(id),
  children: Array.from({ length: children }, () => ({
    name: 'part', queueName: `${queueName}-children`, data: payload(id),
  })),
});

async function fill(producer, queueName, total) {
  for (let first = 0; first < total; first += chunk) {
    const count = Math.min(chunk, total - first);
    await producer.addBulk(Array.from({ length: count }, (_, i) => flow(queueName, first + i)));
  }
}

async function open() {
  const connection = { host: '127.0.0.1', port };
  const producer = new FlowProducer({ connection });
  const warmUp = `warm-up-${process.pid}`;
  await fill(producer, warmUp, WARM_UP_JOBS / (children + 1));
  for (const queueName of [`${warmUp}-children`, warmUp]) {
    const queue = new Queue(queueName, { connection });
    await queue.obliterate({ force: true });
    await queue.close();
  }
  return producer;
}

runPeer(open, (producer) => fill(producer, name, jobs / (children + 1)));
