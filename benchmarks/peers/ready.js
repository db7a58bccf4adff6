// What peers that are timed have in common: they are connected before the clock starts.
'use strict';

const { once } = require('node:events');
const { Queue } = require('../../tests/node/node_modules/bullmq-6.7.0');

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

module.exports = { queueAt, runPeer };
