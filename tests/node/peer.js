'use strict';

// One real Node library behind newline-delimited JSON, for several sessions with a prefix and connections of their own.
//
//   node peer.js <package alias> <redis url>     with ?cluster in the URL: of a node of a cluster
//   <- {"id": 1, "session": 1, "cmd": "open", "prefix": "bull"}
//   <- {"id": 2, "session": 1, "cmd": "add", "queue": "q", "jobs": [...]}
//   -> {"id": 2, "result": ["1", "2"]}   or   {"id": 2, "error": "message"}
//   -> {"event": "completed", "session": 1, "source": "worker", "queue": "q", "jobId": "1", "at": 1700000000000, ...}
//   <- {"id": 3, "session": 1, "cmd": "close"}
//
// The process ends when its input does.

const readline = require('readline');

const CLOSE_GRACE_MS = 3000;

const ADAPTERS = {
  'bull-1': './adapters/bull1',
  bull: './adapters/bull',
  bullmq: './adapters/bullmq',
};

const COMMANDS = new Set([
  'add', 'addBulk', 'flow', 'flows', 'getFlow',
  'getJob', 'getJobs', 'counts', 'state',
  'retry', 'promote', 'remove',
  'pause', 'resume', 'clean', 'empty', 'obliterate',
  'process', 'stop', 'listen', 'waitForEnd', 'publish', 'invoke',
  'claim', 'settle', 'rescue', 'promoteDue', 'trace', 'measure', 'exported',
]);

// Standard output belongs to the protocol; whatever a library prints goes to standard error.
console.log = console.info = console.error;

function send(message, done) {
  process.stdout.write(`${JSON.stringify(message)}\n`, done);
}

function describe(error) {
  return error instanceof Error ? error.message || error.name : String(error);
}

// An error that no command answers with: which session it belongs to is not known.
function report(error) {
  console.error(error);
  send({ event: 'error', session: null, at: Date.now(), error: describe(error) });
}

function dialectOf(alias) {
  if (alias.startsWith('bullmq-')) return 'bullmq';
  return /^bull-[12]\./.test(alias) ? 'bull-1' : 'bull';
}

function connectionOf(url) {
  const { hostname, port, username, password, pathname, searchParams } = new URL(url);
  if (searchParams.has('cluster')) {
    const { Cluster } = require('ioredis');
    const redisOptions = { maxRetriesPerRequest: null, enableReadyCheck: false };
    return new Cluster([{ host: hostname, port: Number(port) }], { redisOptions });
  }
  return {
    host: hostname,
    port: Number(port || 6379),
    username: decodeURIComponent(username) || undefined,
    password: decodeURIComponent(password) || undefined,
    db: Number(pathname.slice(1) || 0),
  };
}

async function answer(adapter, { id, session, cmd, ...args }) {
  try {
    if (!COMMANDS.has(cmd)) throw new Error(`unknown command ${cmd}`);
    if (!adapter) throw new Error(`no session ${session}`);
    if (!adapter[cmd]) throw new Error(`${cmd} does not exist in ${adapter.alias}`);
    const result = await adapter[cmd](args);
    send({ id, result: result === undefined ? null : result });
  } catch (error) {
    send({ id, error: describe(error) });
  }
}

async function closed(adapter) {
  const grace = new Promise((resolve) => setTimeout(resolve, CLOSE_GRACE_MS).unref());
  await Promise.race([adapter.close().catch(report), grace]);
}

function main([alias, url]) {
  process.on('unhandledRejection', report);
  process.on('uncaughtException', report);
  // Nobody listens any more.
  process.stdout.on('error', () => process.exit(1));

  const Adapter = require(ADAPTERS[dialectOf(alias)]);
  const library = require(alias);
  const connection = connectionOf(url);
  const adapters = new Map();

  function open({ id, session, prefix }) {
    const emit = (event) => send({ session, at: Date.now(), ...event });
    adapters.set(session, new Adapter({ alias, library, connection, prefix, emit }));
    send({ id, result: null });
  }

  async function close({ id, session }) {
    const adapter = adapters.get(session);
    adapters.delete(session);
    if (adapter) await closed(adapter);
    send({ id, result: null });
  }

  async function leave() {
    await Promise.all([...adapters.values()].map(closed));
    process.exit(0);
  }

  const lines = readline.createInterface({ input: process.stdin });
  lines.on('line', (line) => {
    const request = JSON.parse(line);
    if (request.cmd === 'open') open(request);
    else if (request.cmd === 'close') close(request);
    else answer(adapters.get(request.session), request);
  });
  lines.on('close', leave);
  send({ event: 'ready', session: null, at: Date.now(), pid: process.pid });
}

main(process.argv.slice(2));
