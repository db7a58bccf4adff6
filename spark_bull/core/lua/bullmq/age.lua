-- Gives prioritized jobs that have waited for `after_ms` the priority `priority`, if theirs is lower. Examines the first
-- jobs of each priority from `first` on, up to one that has not waited for so long, about `limit` jobs. A repeated call
-- finds none of the same jobs.
-- @returns {number of jobs whose priority was changed, first priority of the next call, 0 at the end}
-- @include lib: jobs(job_row) values(options_of time_ms)
-- @include bullmq/lib: waiting(priority_score)

-- Jobs that one ZRANGEBYSCORE returns.
local PART = 50

local latest = time_ms() - tonumber(arg.after_ms)
local priority, limit = tonumber(arg.priority), tonumber(arg.limit)
local moved, examined = 0, 0

-- Scores of jobs that were put back can be a little below their priority.
local BELOW = 2147483648

local function level_of(score)
  return math.floor((tonumber(score) + BELOW) / 4294967296)
end

-- Whether a job could have started before `latest`; nil for a key that is no job, or one that has aged.
local function has_waited(job_key)
  local row = job_row(job_key, 'timestamp', 'opts', 'priority')
  local created = row and tonumber(row[1])
  if not created or (tonumber(row[3]) or 0) <= priority then
    return nil
  end
  -- The field `delay` is 0 after the job was promoted.
  return created <= latest and created + (tonumber(options_of(row[2]).delay) or 0) <= latest
end

local function age(job_id)
  call('ZADD', key.prioritized, priority_score(priority, call('INCR', key.pc)), job_id)
  call('HSET', arg.base .. job_id, 'priority', priority)
  moved = moved + 1
end

-- Ages jobs of the first priority from `first` on. Returns that priority, nil if there is none.
local function age_level(first)
  local level, skipped = nil, 0
  repeat
    local jobs = call('ZRANGEBYSCORE', key.prioritized, priority_score(first, 0) - BELOW, '+inf', 'WITHSCORES',
      'LIMIT', skipped, PART)
    level = level or jobs[2] and level_of(jobs[2])
    for i = 1, #jobs, 2 do
      examined = examined + 1
      local waited = level_of(jobs[i + 1]) == level and has_waited(arg.base .. jobs[i])
      if waited == false then
        return level
      elseif waited then
        age(jobs[i])
      else
        skipped = skipped + 1
      end
    end
  until #jobs == 0 or examined >= limit
  return level
end

local first = math.max(tonumber(arg.first), priority + 1)
repeat
  local before, level = moved, age_level(first)
  -- A priority with further jobs is continued by the next call.
  first = level and (moved > before and examined >= limit and level or level + 1)
until not first or examined >= limit
return {moved, first or 0}
