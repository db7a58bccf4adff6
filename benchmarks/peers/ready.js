// What peers that are timed have in common: they are connected before the clock starts.
'use strict';

const { once } = require('node:events');
const readline = require('node:readline');
const { Queue, QueueEvents } = require('../../tests/node/node_modules/bullmq-6.7.0');

function queueAt(url, name) {
  const { hostname: host, port } = new URL(url);
  return new Queue(name, { connection: { host, port: Number(port) } });
}

async function main(open, work) {
  const connected = await open();
  await connected.waitUntilReady();
  console.log('ready');
  await once(process.stdin, 'data');
  await work(connected);
  console.log('done');
  await connected.close();
  process.stdin.destroy();
}

// Opens a Queue or FlowProducer, prints "ready" when it is connected, calls `work` with it when a line is read, prints
// "done" and closes it at the end.
function runPeer(open, work) {
  main(open, work).catch((error) => {
    console.error(error);
    process.exit(1);
  });
}

async function callAndWait(url, name, work) {
  const queue = queueAt(url, name);
  const events = new QueueEvents(name, { connection: queue.opts.connection });
  events.setMaxListeners(0);
  queue.setMaxListeners(0);
  await Promise.all([queue.waitUntilReady(), events.waitUntilReady()]);
  console.log('ready');
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(await work(queue, events, Number(line)));
  }
  await Promise.all([events.close(), queue.close()]);
}

// Opens a Queue and its QueueEvents, prints "ready" when they are connected, and for each line with a number what `work`
// returns for it.
function runWaitingPeer(url, name, work) {
  callAndWait(url, name, work).catch((error) => {
    console.error(error);
    process.exit(1);
  });
}

module.exports = { queueAt, runPeer, runWaitingPeer };
