'use strict';

const LOCK_MS = 600_000;

// What a processor does when the test says so. `job` is the library's, `token` its lock's.
const OUTCOMES = {
  complete: (library, queue, job, token, value) => value,
  fail: (library, queue, job, token, message) => { throw new Error(message); },
  'give up': (library, queue, job, token, message) => { throw new library.UnrecoverableError(message); },
  delay: async (library, queue, job, token, until) => {
    await job.moveToDelayed(until, token);
    throw new library.DelayedError();
  },
  'wait for children': async (library, queue, job, token) => {
    if (await job.moveToWaitingChildren(token)) throw new library.WaitingChildrenError();
    await job.moveToWait(token);
    throw new library.WaitingError();
  },
  return: async (library, queue, job, token) => {
    await job.moveToWait(token);
    throw new library.WaitingError();
  },
  limit: async (library, queue, job, token, duration) => {
    await queue.rateLimit(duration);
    throw new library.RateLimitError();
  },
};

// A worker of BullMQ that runs by hand.
class BullMQBench {
  constructor(adapter, name) {
    const { library, options } = adapter;
    this.adapter = adapter;
    this.name = name;
    this.held = new Map();
    const processor = (job, token) => {
      const { does, value } = this.outcome;
      return OUTCOMES[does](library, adapter.queue(name), job, token, value);
    };
    this.worker = new library.Worker(name, processor, {
      ...options, autorun: false, lockDuration: LOCK_MS, skipLockRenewal: true, skipStalledCheck: true,
    });
    this.worker.on('error', (error) => adapter.report(name, error));
  }

  next(token) {
    this.worker.limitUntil = 0;
    // What the worker's own loop calls: in BullMQ 5, `getNextJob` also settles jobs that have failed before they run.
    const take = this.worker.getTracedNextJob || this.worker.getNextJob;
    return take.call(this.worker, token, { block: false });
  }

  hold(job, token) {
    this.held.set(`${token}/${job.id}`, job);
    return { id: job.id, token, attemptsMade: job.attemptsMade, attemptsStarted: job.attemptsStarted };
  }

  settle(outcome, goesOn) {
    this.outcome = outcome;
    const job = this.held.get(`${outcome.token}/${outcome.jobId}`);
    return this.worker.processJob(job, outcome.token, () => goesOn);
  }

  rescue() {
    return this.worker.moveStalledJobsToWait();
  }

  close() {
    return this.worker.close(true);
  }
}

module.exports = { BullMQBench };
