-- How many delayed jobs are searched for the next one of an older repeatable job.
local SEARCHED = 1000

-- The id of the next job of a scheduler, if that is delayed. The jobs of a repeatable job of BullMQ 5.9 and older, whose
-- member has the form name:id:endDate:tz:pattern, have ids that the member does not show.
local function next_job_of(key, arg, member, next_ms)
  local call, ending = redis.call, ':' .. next_ms
  local id = 'repeat:' .. member .. ending
  local _, colons = string.gsub(member, ':', '')
  if colons < 4 or call('ZSCORE', key.delayed, id) then
    return id
  end
  local first = string.format('%.0f', tonumber(next_ms) * 4096)
  for _, job_id in ipairs(call('ZRANGEBYSCORE', key.delayed, first, '+inf', 'LIMIT', 0, SEARCHED)) do
    if job_id:sub(-#ending) == ending and call('HGET', arg.base .. job_id, 'rjk') == member then
      return job_id
    end
  end
  return id
end
