-- @include lib: finished(finished_set)

local function finished_of(base, state, now)
  return finished_set.new(state, now, function(job_id)
    redis.call('UNLINK', base .. job_id, base .. job_id .. ':logs')
  end)
end
