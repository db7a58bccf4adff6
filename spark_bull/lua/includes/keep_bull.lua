-- @include keep_rule

-- A finished job frees its debounce id, unless that is held for a time.
local function free_debounce(base, job_id)
  local call = redis.call
  local debounced = call('HGET', base .. job_id, 'deid')
  local ttl = debounced and call('PTTL', base .. 'de:' .. debounced)
  if ttl == 0 or ttl == -1 then
    call('DEL', base .. 'de:' .. debounced)
  end
end

local function remover_bull(base)
  return function(job_id)
    redis.call('UNLINK', base .. job_id, base .. job_id .. ':logs')
  end
end

-- Removes finished jobs from `state` until it holds what `keep` allows; see keep_rule.
local function keep_bull(base, state, keep, now)
  keep_rule(state, keep, now, remover_bull(base))
end
