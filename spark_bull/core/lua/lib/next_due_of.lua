-- When the first delayed job is due, ms since 1970; false when there is none, or its score is no valid time.
-- (Redis formats numbers among arguments with 17 digits, which takes longer than texts.)
local function next_due_of(delayed)
  local score = tonumber(redis.call('ZRANGE', delayed, '0', '0', 'WITHSCORES')[2])
  return score and score < 9007199254740992 and math.max(0, math.floor(score / 4096)) or false
end
