-- What a queue that a guard has paused has as the sign of its pause, in place of Node's `1`: when the pause ends, ms since
-- 1970, and why the guard paused it. Whoever pauses the queue then replaces it, so that the pause is no longer a guard's.
local START = 'spark-bull guard until '

local function make(ends, why)
  return START .. string.format('%.0f', ends) .. ': ' .. why
end

-- Returns {ends, why, mark} of a guard's pause, nil for another one.
local function read(mark)
  local ends, why = string.match(mark, '^spark%-bull guard until (%d+): (.*)$')
  -- More digits are no time, and not a guard's.
  return ends and #ends <= 16 and {ends = tonumber(ends), why = why, mark = mark} or nil
end

local guard_mark = {make = make, read = read}
