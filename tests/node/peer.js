'use strict';

// One real Node library behind newline-delimited JSON.
//
//   node peer.js <package alias> <redis url> <prefix>
//   <- {"id": 1, "cmd": "add", "queue": "q", "jobs": [...]}
//   -> {"id": 1, "result": ["1", "2"]}   or   {"id": 1, "error": "message"}
//   -> {"event": "completed", "source": "worker", "queue": "q", "jobId": "1", "at": 1700000000000, ...}

const readline = require('readline');

const CLOSE_GRACE_MS = 3000;

const ADAPTERS = {
  'bull-1': './adapters/bull1',
  bull: './adapters/bull',
  bullmq: './adapters/bullmq',
};

const COMMANDS = new Set([
  'add', 'addBulk', 'flow',
  'getJob', 'getJobs', 'counts', 'state',
  'retry', 'promote', 'remove',
  'pause', 'resume', 'clean', 'empty', 'obliterate',
  'process', 'stop', 'listen', 'invoke',
  'claim', 'settle', 'rescue', 'promoteDue',
]);

// Standard output belongs to the protocol; whatever a library prints goes to standard error.
console.log = console.info = console.error;

function send(message, done) {
  process.stdout.write(`${JSON.stringify(message)}\n`, done);
}

function describe(error) {
  return error instanceof Error ? error.message || error.name : String(error);
}

function report(error) {
  send({ event: 'error', at: Date.now(), error: describe(error) });
}

function dialectOf(alias) {
  if (alias.startsWith('bullmq-')) return 'bullmq';
  return /^bull-[12]\./.test(alias) ? 'bull-1' : 'bull';
}

function connectionOf(url) {
  const { hostname, port, username, password, pathname } = new URL(url);
  return {
    host: hostname,
    port: Number(port || 6379),
    username: decodeURIComponent(username) || undefined,
    password: decodeURIComponent(password) || undefined,
    db: Number(pathname.slice(1) || 0),
  };
}

async function answer(adapter, { id, cmd, ...args }) {
  try {
    if (!COMMANDS.has(cmd)) throw new Error(`unknown command ${cmd}`);
    if (!adapter[cmd]) throw new Error(`${cmd} does not exist in ${adapter.alias}`);
    const result = await adapter[cmd](args);
    send({ id, result: result === undefined ? null : result });
  } catch (error) {
    send({ id, error: describe(error) });
  }
}

async function leave(adapter, id) {
  const grace = new Promise((resolve) => setTimeout(resolve, CLOSE_GRACE_MS));
  await Promise.race([adapter.close().catch(report), grace]);
  send({ id, result: null }, () => process.exit(0));
}

function main([alias, url, prefix]) {
  process.on('unhandledRejection', report);
  process.on('uncaughtException', report);

  const Adapter = require(ADAPTERS[dialectOf(alias)]);
  const emit = (event) => send({ at: Date.now(), ...event });
  const adapter = new Adapter({ alias, library: require(alias), connection: connectionOf(url), prefix, emit });

  const lines = readline.createInterface({ input: process.stdin });
  lines.on('line', (line) => {
    const request = JSON.parse(line);
    if (request.cmd === 'close') leave(adapter, request.id);
    else answer(adapter, request);
  });
  lines.on('close', () => leave(adapter, null));
  send({ event: 'ready', at: Date.now(), pid: process.pid });
}

main(process.argv.slice(2));
