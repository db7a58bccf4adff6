-- @include lib/free_of_job
-- @include lib/promote_job

-- The actions that are alike in all dialects; see manage_jobs. `delay_job` and `enqueue_promoted`: functions of the
-- dialect.
local function plain_actions(key, arg, now, delay_job, enqueue_promoted)
  local actions = {}

  function actions.promote(change)
    return promote_job(key, arg, change.id, enqueue_promoted)
  end

  function actions.delay(change)
    redis.call('ZREM', key.delayed, change.id)
    redis.call('HSET', change.key, 'delay', change.delay)
    delay_job(key, change.id, now + change.delay)
    return 'done'
  end

  function actions.update()
    return 'done'
  end

  function actions.free(change)
    return free_of_job(change)
  end

  return actions
end
