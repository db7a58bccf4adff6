'use strict';

// What a scripted processor does with a job. `data.$behaviour` is a list of steps separated by ";":
//
//   fail           throw every time            fail:2        throw on the first two attempts
//   discard        throw and give up at once   sleep:50      wait 50 ms
//   throw:text     throw that
//   hang           never return                progress:30   report progress (any JSON)
//   log:text       write a log row             return:[1,2]  return that JSON
//   crash          kill this process           child:mail    add a child to that queue, unless one has completed
//   wait           wait for the children       values        return the results of the children (BullMQ)
//   prune          remove unprocessed children (BullMQ)
//   postpone:delay|limit|giveBack          at the first start: run again later (BullMQ)
//
// Without a `return` step the job returns {"echo": <its data>}.

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const STEPS = {
  fail(limit, job) {
    if (limit === '' || job.attemptsMade < Number(limit)) {
      throw new Error(`scripted failure ${job.attemptsMade + 1}`);
    }
  },
  throw(message) {
    throw new Error(message);
  },
  discard(_, job) {
    job.discard();
  },
  sleep: (ms) => sleep(Number(ms)),
  hang: () => new Promise(() => {}),
  progress: (value, job) => job.progress(JSON.parse(value)),
  log: (row, job) => job.log(row),
  return: (value) => ({ value: JSON.parse(value) }),
  crash: () => process.exit(1),
  child: (queue, job) => job.addChild(queue),
  wait: (_, job) => job.waitForChildren(),
  prune: (_, job) => job.removeUnprocessedChildren(),
  postpone: (how, job) => (job.attemptsStarted === 1 ? job[how](1) : undefined),
  values: async (_, job) => ({ value: [await job.childrenValues(), await job.childrenFailures()] }),
};

// `job` is the adapter's neutral view: data, attemptsMade, progress(value), log(row), discard(); in BullMQ also
// addChild(queue), waitForChildren(), removeUnprocessedChildren(), childrenValues(), childrenFailures(),
// attemptsStarted, delay(ms), limit(ms), giveBack().
async function behave(job) {
  const script = (job.data && job.data.$behaviour) || '';
  let result = { value: { echo: job.data } };
  for (const step of script.split(';').filter(Boolean)) {
    const [name, ...rest] = step.split(':');
    if (!STEPS[name]) throw new Error(`unknown behaviour ${name}`);
    const outcome = await STEPS[name](rest.join(':'), job);
    if (name === 'return' || name === 'values') result = outcome;
  }
  return result.value;
}

module.exports = { behave };
