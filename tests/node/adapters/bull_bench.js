'use strict';

const LOCK_MS = 600_000;

// What a processor does when the test says so.
const OUTCOMES = {
  complete: (job, value) => value,
  fail: (job, message) => { throw new Error(message); },
  'give up': (job, message) => { job.discard(); throw new Error(message); },
};

// A queue of Bull 3 or 4 that processes its jobs by hand.
class BullBench {
  constructor(adapter, name) {
    this.refused = (error) => adapter.report(name, error);
    this.held = new Map();
    this.queue = adapter.openQueue(name, { settings: { lockDuration: LOCK_MS } });
    this.queue.on('error', this.refused);
    this.queue.setHandler('*', async (job) => OUTCOMES[this.outcome.does](job, this.outcome.value));
  }

  next() {
    return this.queue.moveToActive();
  }

  hold(job, token) {
    this.held.set(`${token}/${job.id}`, job);
    return { id: job.id, token, attemptsMade: job.attemptsMade };
  }

  settle(outcome, goesOn) {
    this.outcome = outcome;
    return this.queue.processJob(this.held.get(`${outcome.token}/${outcome.jobId}`), !goesOn).catch(this.refused);
  }

  rescue() {
    return this.queue.moveUnlockedJobsToWait();
  }

  async promoteDue() {
    await this.queue.updateDelayTimer();
    clearTimeout(this.queue.delayTimer);
  }

  close() {
    return this.queue.close(true);
  }
}

module.exports = { BullBench };
