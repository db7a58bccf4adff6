-- Jobs end, or return to the queue.
-- @include lib: groups(group_places) settle_jobs(settle_alone) waiting(insert_near)
-- @include bull/bull1/lib: events(announce)
-- @include bull/lib: events(json_text) settle_jobs(save_attempt settle_in_order) waiting(delay_job waiting_list)

local function complete_jobs(settling)
  local jobs, done = settling.jobs, {}
  for i, id in ipairs(jobs.ids) do
    local job_key, value, keep = settling.base .. id, jobs.value or jobs.values[i], jobs.keeps[i]
    if settle_alone(settling, id, call, 'HSET', job_key, 'returnvalue', value) then
      announce(settling.arg, 'completed', id, value == '' and 'null' or value)
      if keep and keep.count == 0 then
        call('UNLINK', job_key, job_key .. ':logs')
      else
        done[#done + 1] = id
      end
    end
  end
  if #done > 0 then
    call('SADD', settling.key.completed, unpack(done))
  end
end

-- Stores a failed attempt, and returns whether that succeeded. Bull 1 publishes each of them, also one that is followed
-- by another.
local function fail_attempt(settling, job)
  local is_saved = settle_alone(settling, job.id, save_attempt, settling.base .. job.id, job)
  if is_saved then
    announce(settling.arg, 'failed', job.id, '{"message":' .. json_text(job.reason) .. '}')
  end
  return is_saved
end

local function fail_jobs(settling)
  for _, job in ipairs(settling.outcomes.failed) do
    if fail_attempt(settling, job) then
      call('SADD', settling.key.failed, job.id)
    end
  end
end

local function retry_jobs(settling)
  local key = settling.key
  local target = waiting_list(key)
  for _, job in ipairs(settling.outcomes.retried) do
    if fail_attempt(settling, job) then
      if job.delay > 0 then
        delay_job(key, job.id, settling.now + job.delay)
      elseif group_places.comes_near(key, settling.left, job.id) and not job.lifo then
        insert_near(target, {job.id})
      else
        call(job.lifo and 'RPUSH' or 'LPUSH', target, job.id)
      end
    end
  end
end

-- Jobs that are given back become the next ones, in their old order.
local function return_jobs(settling, returned)
  for i = #returned, 1, -1 do
    if settling.mine[returned[i]] then
      call('RPUSH', waiting_list(settling.key), returned[i])
    end
  end
end

-- Returns what work_once expects: Bull 1 publishes no "drained".
local function settle_jobs(key, arg, outcomes, now)
  local steps = {complete = complete_jobs, fail = fail_jobs, retry = retry_jobs, give_back = return_jobs}
  local settling = settle_in_order(key, arg, outcomes, now, steps)
  return {mine = settling.mine, lost = settling.lost, may_drain = false}
end

-- As in bull/lib: Bull 1 has SETs.
local finished_state = {
  kind = 'set',
  take = 'SREM',
  has = function(state, id)
    return call('SISMEMBER', state, id) == 1
  end,
}

-- Bull 1 keeps all finished jobs or, of completed ones, none.
local function keep_rule(opts, name)
  local is_given = name == 'removeOnComplete' and opts[name] and opts[name] ~= cjson.null
  return is_given and {count = 0} or nil
end

-- The fields of a job that is retried stay, as in Bull 1.
local function clear_outcome() end
