-- @include bull/lib: waiting_list

-- Makes a job wait that has left `delayed`.
local function enqueue_promoted(key, _, job_id)
  redis.call('LPUSH', waiting_list(key), job_id)
end
