'use strict';

// What the cron parser of one Node library makes of patterns.
//
//   node next_times.js <package alias>
//   <- one line of JSON: [[pattern, time zone or null, start in ms], ...]
//   -> one line of JSON: [ms, null (no next time), {"error": "message"}, ...]

const readline = require('readline');

const parser = require(require.resolve('cron-parser', { paths: [require.resolve(process.argv[2])] }));
const parse = parser.CronExpressionParser
  ? (pattern, options) => parser.CronExpressionParser.parse(pattern, options)
  : (pattern, options) => parser.parseExpression(pattern, options);

// As the libraries do: a pattern that can't be parsed is an error, one without a next time is the end of a schedule.
function nextTime([pattern, tz, start]) {
  let interval;
  try {
    interval = parse(pattern, { tz: tz || undefined, currentDate: new Date(start) });
  } catch (error) {
    return { error: error.message };
  }
  try {
    return interval.next().getTime();
  } catch (error) {
    return null;
  }
}

readline.createInterface({ input: process.stdin }).on('line', (line) => {
  process.stdout.write(`${JSON.stringify(JSON.parse(line).map(nextTime))}\n`);
});
