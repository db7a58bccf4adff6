-- How long the numbers of a worker stay after its last call, ms.
local COUNTERS_TTL_MS = 2592000000

-- Adds to the HASH of a worker how many jobs it has claimed, and how many have had each outcome; returns these numbers.
-- `lost`: {id, reason} of rejected outcomes. Jobs that could not end because of their children are not lost: they get
-- another outcome later. `damaged`: {id, kind} of jobs that can't run; those that are gone count as claimed and lost.
local function count_work(counters, claimed, outcomes, lost, damaged)
  local call, is_counted, gone = redis.call, {}, 0
  for _, one in ipairs(damaged) do
    gone = gone + (one[2] == 'none' and 1 or 0)
  end
  local numbers = {claimed = claimed + gone, lost = gone}
  for _, one in ipairs(lost) do
    is_counted[one[1]] = true
    if one[2] ~= 'children' and one[2] ~= 'failed_children' then
      numbers.lost = numbers.lost + 1
    end
  end
  local function count(name, jobs)
    for _, job in ipairs(jobs or {}) do
      local id = type(job) == 'table' and job.id or job
      if not is_counted[id] then
        is_counted[id] = true
        numbers[name] = (numbers[name] or 0) + 1
      end
    end
  end
  if #lost == 0 then
    numbers.completed = outcomes.ids and #outcomes.ids
  else
    count('completed', outcomes.ids)
  end
  count('failed', outcomes.failed)
  count('retried', outcomes.retried)
  for _, kind in ipairs({'delayed', 'returned', 'unstarted', 'waiting_for_children'}) do
    count('returned', outcomes[kind])
  end
  local changed = false
  for name, number in pairs(numbers) do
    if number > 0 then
      call('HINCRBY', counters, name, number)
      changed = true
    end
  end
  if changed then
    call('PEXPIRE', counters, COUNTERS_TTL_MS)
  end
  return numbers
end
