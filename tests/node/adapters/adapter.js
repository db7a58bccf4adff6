'use strict';

// What the three libraries have in common. A subclass says how to open a queue and a worker, and overrides
// whatever its library does differently.
class Adapter {
  constructor({ alias, library, connection, prefix, emit }) {
    Object.assign(this, { alias, library, connection, prefix, emit });
    this.queues = new Map();
    this.workers = new Map();
    this.listeners = new Map();
    this.benches = new Map();
  }

  queue(name) {
    if (!this.queues.has(name)) {
      const queue = this.openQueue(name);
      queue.on('error', (error) => this.report(name, error));
      this.queues.set(name, queue);
    }
    return this.queues.get(name);
  }

  async job(queue, jobId) {
    const job = await this.queue(queue).getJob(jobId);
    if (!job) throw new Error(`no job ${jobId}`);
    return job;
  }

  report(queue, error) {
    this.emit({ event: 'error', queue, error: error.message });
  }

  announce(source, queue, event, details) {
    const wanted = source === 'worker' ? this.workers.get(queue)?.events : this.listeners.get(queue)?.events;
    if (!wanted || wanted.includes(event)) this.emit({ event, source, queue, ...details });
  }

  // Jobs one after the other through queue.add: the library's canonical path, and a fixed order.
  async add({ queue, jobs }) {
    const ids = [];
    for (const job of jobs) ids.push(await this.addOne(this.queue(queue), job));
    return ids;
  }

  async addBulk({ queue, jobs }) {
    const added = await this.queue(queue).addBulk(jobs);
    return added.map((job) => job.id);
  }

  async getJob({ queue, jobId }) {
    const job = await this.queue(queue).getJob(jobId);
    return job ? this.toJSON(job) : null;
  }

  async getJobs({ queue, states, start = 0, end = -1, asc = true }) {
    const jobs = await this.queue(queue).getJobs(states, start, end, asc);
    return jobs.map((job) => job && this.toJSON(job));
  }

  counts({ queue }) {
    return this.queue(queue).getJobCounts();
  }

  async state({ queue, jobId }) {
    return (await this.job(queue, jobId)).getState();
  }

  async retry({ queue, jobId }) {
    await (await this.job(queue, jobId)).retry();
  }

  async promote({ queue, jobId }) {
    await (await this.job(queue, jobId)).promote();
  }

  async remove({ queue, jobId }) {
    await (await this.job(queue, jobId)).remove();
  }

  async pause({ queue }) {
    await this.queue(queue).pause();
  }

  async resume({ queue }) {
    await this.queue(queue).resume();
  }

  clean({ queue, grace = 0, state = 'completed', limit = 0 }) {
    return this.queue(queue).clean(grace, state, limit);
  }

  async empty({ queue }) {
    await this.queue(queue).empty();
  }

  async obliterate({ queue, force = false }) {
    await this.queue(queue).obliterate({ force });
  }

  async process({ queue, concurrency = 1, opts = {}, events = null }) {
    if (this.workers.has(queue)) throw new Error(`already processing ${queue}`);
    const entry = { events };
    this.workers.set(queue, entry);
    entry.worker = await this.startWorker(queue, concurrency, opts);
  }

  async stop({ queue, force = false }) {
    const entry = this.workers.get(queue);
    if (!entry) throw new Error(`not processing ${queue}`);
    await this.closeWorker(entry.worker, force);
    this.workers.delete(queue);
  }

  // Queue-wide events, as any other process of this library hears them.
  async listen({ queue, events = null }) {
    if (this.listeners.has(queue)) throw new Error(`already listening to ${queue}`);
    const entry = { events };
    this.listeners.set(queue, entry);
    entry.listener = await this.startListener(queue);
  }

  // What the job returns, or its error, once it has ended; the queue has a listener.
  async waitForEnd({ queue, jobId }) {
    return (await this.job(queue, jobId)).finished();
  }

  // Anything else the library's own queue (or one of its jobs) can do.
  async invoke({ queue, jobId = null, method, args = [] }) {
    const target = jobId === null ? this.queue(queue) : await this.job(queue, jobId);
    if (typeof target[method] !== 'function') throw new Error(`${method} does not exist in ${this.alias}`);
    const result = await target[method](...args);
    return typeof result === 'object' && result?.queue ? this.toJSON(result) : result;
  }

  // A worker that a test works by hand: it takes a job when it is told to, and the test says what becomes of it.
  async bench(name) {
    if (!this.benches.has(name)) this.benches.set(name, await this.openBench(name));
    return this.benches.get(name);
  }

  // Takes up to `count` jobs, under a token if the library has one for each job. Returns what the worker sees of them.
  async claim({ queue, count, token }) {
    const bench = await this.bench(queue);
    return this.claimMore(bench, count, token, []);
  }

  async claimMore(bench, count, token, claimed) {
    while (claimed.length < count) {
      await anotherMillisecond();
      const job = await bench.next(token);
      if (!job) break;
      claimed.push(bench.hold(job, token));
    }
    return claimed;
  }

  // Settles jobs that were claimed, one after the other: `outcomes` has {jobId, token, does, value}; the worker takes
  // further ones when the last one is settled, up to `count`. Returns those.
  async settle({ queue, outcomes, count = 0, token }) {
    const bench = await this.bench(queue);
    const claimed = [];
    for (const [index, outcome] of outcomes.entries()) {
      await anotherMillisecond();
      const goesOn = count > 0 && index === outcomes.length - 1;
      const next = await bench.settle(outcome, goesOn);
      if (next) claimed.push(bench.hold(next, outcome.token));
    }
    return this.claimMore(bench, count, token, claimed);
  }

  async rescue({ queue }) {
    await (await this.bench(queue)).rescue();
  }

  async promoteDue({ queue }) {
    await (await this.bench(queue)).promoteDue();
  }

  async close() {
    const open = [
      ...[...this.benches.values()].map((bench) => bench.close()),
      ...[...this.workers.values()].map(({ worker }) => worker && this.closeWorker(worker, true)),
      ...[...this.listeners.values()].map(({ listener }) => listener && listener.close(true)),
      ...[...this.queues.values()].map((queue) => queue.close(true)),
    ];
    await Promise.allSettled(open);
  }

  toJSON(job) {
    return job.toJSON();
  }
}

// Jobs that end in one millisecond are in the order of their ids only.
async function anotherMillisecond() {
  const now = Date.now();
  while (Date.now() === now) await new Promise(setImmediate);
}

module.exports = { Adapter };
