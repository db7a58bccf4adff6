-- @include lib: holder_of promote_job
-- @include {dialect}/lib: delay_job retry_job

-- The actions that are alike in all dialects; see manage_jobs.
local function plain_actions(key, arg, now)
  local actions = {}

  function actions.promote(change)
    return promote_job(key, arg, change.id)
  end

  function actions.retry(change)
    return retry_job(key, arg, change)
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
    redis.call('DEL', holder_of(change))
    return 'done'
  end

  return actions
end
