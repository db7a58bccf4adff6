'use strict';

const { Adapter } = require('./adapter');
const { behave } = require('../behaviours');

const TYPES = { wait: 'LIST', active: 'LIST', paused: 'LIST', delayed: 'ZSET', completed: 'SET', failed: 'SET' };
const EVENTS = ['waiting', 'completed', 'failed', 'progress', 'stalled'];

// Bull 1: no job names, no addBulk, no obliterate; 1.0 also no custom ids and no events between processes.
class Bull1Adapter extends Adapter {
  openQueue(name) {
    const { host, port, password, db } = this.connection;
    return this.library(name, port, host, { keyPrefix: this.prefix, password, db });
  }

  async addOne(queue, { data, opts }) {
    return String((await queue.add(data, opts)).jobId);
  }

  addBulk() {
    throw new Error(`addBulk does not exist in ${this.alias}`);
  }

  async getJobs({ queue, states = Object.keys(TYPES), start = 0, end = -1 }) {
    const jobs = [];
    for (const state of [].concat(states)) {
      jobs.push(...(await this.queue(queue).getJobs(state, TYPES[state], start, end)));
    }
    return jobs.map((job) => job && this.toJSON(job));
  }

  async counts({ queue }) {
    const counts = {};
    for (const state of Object.keys(TYPES)) counts[state] = await this.queue(queue).getJobCountByTypes(state);
    return counts;
  }

  clean({ queue, grace = 0, state = 'completed', limit = 0 }) {
    return this.queue(queue).clean(grace, state, limit || undefined);
  }

  obliterate() {
    throw new Error(`obliterate does not exist in ${this.alias}`);
  }

  startWorker(name, concurrency, opts) {
    const queue = Object.assign(this.openQueue(name), opts);
    const announce = (event, job, details) =>
      this.announce('worker', name, event, { jobId: String(job.jobId), attemptsMade: job.attemptsMade, ...details });
    queue.on('error', (error) => this.report(name, error));
    queue.on('active', (job) => announce('active', job));
    queue.on('progress', (job, progress) => announce('progress', job, { progress }));
    queue.on('stalled', (job) => announce('stalled', job));
    queue.on('completed', (job, returnvalue) => announce('completed', job, { returnvalue }));
    queue.on('failed', (job, error) => announce('failed', job, { failedReason: error && error.message }));
    queue.process(concurrency, (job) => behave(this.view(job)));
    return queue;
  }

  closeWorker(queue, force) {
    return queue.close(force);
  }

  // The library's own subscription forgets the queue's name in the channel; this is the channel it publishes to.
  async startListener(name) {
    const queue = this.openQueue(name);
    queue.on('error', (error) => this.report(name, error));
    await queue._initializing;
    if (!queue.distEmit) throw new Error(`listen does not exist in ${this.alias}`);
    for (const event of EVENTS) {
      const channel = `${event}@${name}`;
      queue.eclient.subscribe(channel);
      queue.on(channel, (job, detail) => {
        this.announce('queue', name, event, { jobId: String(job.opts.jobId), detail });
      });
    }
    await queue.client.infoAsync();
    return queue;
  }

  view(job) {
    return {
      data: job.data,
      attemptsMade: job.attemptsMade,
      progress: (value) => job.progress(value),
      log: () => {},
      discard: () => { throw new Error(`discard does not exist in ${this.alias}`); },
    };
  }

  toJSON(job) {
    const { data, opts, delay, timestamp, attempts, attemptsMade, stacktrace, returnvalue, failedReason } = job;
    return {
      id: String(job.jobId), data, opts, progress: job.progress(), delay, timestamp, attempts, attemptsMade,
      stacktrace, returnvalue, failedReason,
    };
  }
}

module.exports = Bull1Adapter;
