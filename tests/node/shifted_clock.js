'use strict';

// A clock that is wrong by CLOCK_SHIFT_MS: node --require ./shifted_clock.js peer.js ...

const right = Date.now;
const shift = Number(process.env.CLOCK_SHIFT_MS);

Date.now = () => right() + shift;
